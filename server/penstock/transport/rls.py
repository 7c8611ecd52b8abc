"""The Rate Limit Service as `bytes in → bytes out`: a transport around it is a thin shell."""

from penstock.service.limiter import Limiter
from penstock.transport.codec import decode_request, encode_answer


class RateLimitService:
    def __init__(self, limiter: Limiter) -> None:
        self._limiter = limiter

    async def should_rate_limit(self, request: bytes) -> bytes:
        """Answer one call. Raises what `errors` names, for the transport to translate."""
        return encode_answer(await self._limiter.answer(decode_request(request)))
