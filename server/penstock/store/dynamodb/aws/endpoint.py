"""Where and how the SDK would reach DynamoDB, for a client that does it without the SDK."""

import os
import ssl
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlsplit

from botocore.utils import get_environ_proxies

from penstock.aws_session import trusting

PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Endpoint:
    url: str
    region: str
    ca_bundle: str | None
    """The file or folder of certificates to trust. None: those of the SDK."""

    @classmethod
    def of(cls, client: Any, session: Any) -> Self:
        """As a client of the SDK, made from the session, has it."""
        ca_bundle = session.get_config_variable("ca_bundle") or os.environ.get("REQUESTS_CA_BUNDLE")
        return cls(client.meta.endpoint_url, client.meta.region_name, ca_bundle)

    @property
    def why_only_sdk(self) -> str | None:
        """Why only the SDK can reach this endpoint; None if the lean client can, too."""
        parts = urlsplit(self.url)
        if get_environ_proxies(self.url).get(parts.scheme):
            return f"the environment sets a proxy for {parts.scheme}"
        if parts.path not in {"", "/"} or parts.query:
            return "the endpoint's URL has a path"
        return None

    @property
    def host(self) -> str:
        """Without a port or brackets: what DNS knows, and what the certificate must name."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        parts = urlsplit(self.url)
        return parts.port or PORTS[parts.scheme]

    @property
    def host_header(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        is_default = self.port == PORTS[urlsplit(self.url).scheme]
        return host if is_default else f"{host}:{self.port}"

    def tls(self) -> ssl.SSLContext | None:
        """Verifies the server's certificate and its name. ConfigError without a CA bundle."""
        if urlsplit(self.url).scheme == "http":
            return None
        return trusting(self.ca_bundle)
