"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

from functools import lru_cache
from typing import Final

from penstock.service.limiter import Limiter, Prepared
from penstock.transport.codec import decode_request, encode_answer

CACHED: Final = 16_384
"""Requests. Clients send the same descriptors again and again: this saves half of the time."""

CACHED_BYTES: Final = 1_024
"""Longer requests are rare, and would make the cache large: clients choose what is in them."""


class RateLimitService:
    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter
        self._prepare_often = lru_cache(maxsize=CACHED)(self._prepare)

    async def should_rate_limit(self, request: bytes) -> bytes:
        """Answer one call. Raises what `errors` names, for the transport to translate."""
        prepare = self._prepare_often if len(request) <= CACHED_BYTES else self._prepare
        prepared = prepare(request, self._limiter.generation)
        return encode_answer(await self._limiter.answer(prepared))

    def _prepare(self, request: bytes, generation: int) -> Prepared:  # noqa: ARG002 - a cache key
        return self._limiter.prepare(decode_request(request))
