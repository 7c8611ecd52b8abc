"""Signs requests to DynamoDB: AWS Signature Version 4. Never awaits, and reads no clock.

Tests compare every signature with that of the AWS SDK. All requests of one second and one pair of
keys differ only in their target and their body, so the rest is made once.
"""

import hmac
import re
import time
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

SERVICE: Final = "dynamodb"
CONTENT_TYPE: Final = "application/x-amz-json-1.0"

_UNFIT: Final = re.compile(r"[^\x21-\x7e]")
"""What a header must not have: line ends would begin a new header."""


class UnfitKeysError(ValueError):
    """The keys can't be sent in a header."""


@dataclass(frozen=True, slots=True)
class Keys:
    """What AWS knows us by."""

    access: str
    secret: str = field(repr=False)
    token: str | None = field(default=None, repr=False)


class Signer:
    """Makes the head of a request, with its signature."""

    def __init__(self, region: str, host: str) -> None:
        """`host` is as in the Host header."""
        self._region = region
        self._host = host
        self._second = -1
        self._keys: Keys | None = None
        self._day = ""
        self._signing_key = b""

    def head(self, keys: Keys, target: str, body: bytes, now_s: float) -> bytes:
        """The lines before the body. UnfitKeysError if the keys have line ends or the like."""
        second = int(now_s)
        if second != self._second or keys is not self._keys:
            self._renew(keys, second)
        digest = sha256(body).hexdigest()
        canonical = f"{self._canonical}{target}\n\n{self._signed}\n{digest}"
        hashed = sha256(canonical.encode()).hexdigest()
        to_sign = f"{self._to_sign}{hashed}".encode()
        signature = hmac.digest(self._signing_key, to_sign, "sha256").hex()
        head = f"{self._head}{signature}\r\nX-Amz-Target: {target}\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("latin-1")

    def _renew(self, keys: Keys, second: int) -> None:
        """Make all that stays the same until the next second."""
        if _UNFIT.search(keys.access) or _UNFIT.search(keys.token or ""):
            raise UnfitKeysError("the AWS access key or session token has blanks or odd characters")
        stamp = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        day = stamp[:8]
        if day != self._day or keys is not self._keys:
            self._signing_key = derive_key(keys.secret, day, self._region)
        scope = f"{day}/{self._region}/{SERVICE}/aws4_request"
        token = f"x-amz-security-token:{keys.token}\n" if keys.token else ""
        self._signed = "content-type;host;x-amz-date;" + (
            "x-amz-security-token;x-amz-target" if token else "x-amz-target"
        )
        self._canonical = (
            f"POST\n/\n\ncontent-type:{CONTENT_TYPE}\nhost:{self._host}\n"
            f"x-amz-date:{stamp}\n{token}x-amz-target:"
        )
        self._to_sign = f"AWS4-HMAC-SHA256\n{stamp}\n{scope}\n"
        self._head = (
            f"POST / HTTP/1.1\r\nHost: {self._host}\r\nContent-Type: {CONTENT_TYPE}\r\n"
            # DynamoDB would compress large answers, which takes longer than to send them.
            f"Accept-Encoding: identity\r\nUser-Agent: penstock\r\nX-Amz-Date: {stamp}\r\n"
            + (f"X-Amz-Security-Token: {keys.token}\r\n" if keys.token else "")
            + f"Authorization: AWS4-HMAC-SHA256 Credential={keys.access}/{scope}, "
            f"SignedHeaders={self._signed}, Signature="
        )
        self._second, self._keys, self._day = second, keys, day


def derive_key(secret: str, day: str, region: str) -> bytes:
    """The key that signs all requests of a day in a region."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, SERVICE, "aws4_request"):
        key = hmac.digest(key, part.encode(), "sha256")
    return key
