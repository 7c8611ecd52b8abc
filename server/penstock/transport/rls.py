"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

from typing import Final

from penstock.service.limiter import Limiter, Prepared
from penstock.transport.codec import decode_request, encode_answer

CACHED: Final = 16_384
"""Requests kept ready: clients send the same ones over and over, and it saves half of the time."""

CACHED_BYTES: Final = 1_024
CACHED_DESCRIPTORS: Final = 8
"""Longer requests are rare, and clients choose what is in them: at most some 100 MB are kept."""


class RateLimitService:
    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._generation = limiter.generation
        self._prepared: dict[bytes, Prepared] = {}

    async def should_rate_limit(self, request: bytes, timeout_s: float | None = None) -> bytes:
        """Answer one call within its time. Raises what `errors` names, for the transport."""
        if self._generation != self._limiter.generation:
            self._generation = self._limiter.generation
            self._prepared.clear()
        prepared = self._prepared.get(request) or self._prepare(request)
        return encode_answer(await self._limiter.answer(prepared, timeout_s))

    def _prepare(self, data: bytes) -> Prepared:
        prepared = self._limiter.prepare(decode_request(data))
        small = len(data) <= CACHED_BYTES
        if small and len(prepared.request.descriptors) <= CACHED_DESCRIPTORS:
            if len(self._prepared) >= CACHED:
                del self._prepared[next(iter(self._prepared))]
            self._prepared[data] = prepared
        return prepared
