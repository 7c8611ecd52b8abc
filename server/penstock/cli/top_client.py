"""Asks the console's API of a server (docs/console.md) what `penstock top` shows."""

import http.client
import json
from dataclasses import dataclass
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from penstock.core.foreign_text import show
from penstock.errors import ConfigError, PenstockError

PORT: Final = 6070
MOST_BYTES: Final = 16_000_000
"""An answer that is longer is not from Penstock."""


class TopError(PenstockError):
    """The console does not answer, or does not answer us."""


class View(NamedTuple):
    """What the table shows."""

    by: str = "denials"
    of: str = "entity"
    over: str = "minute"


class Snapshot(NamedTuple):
    """The answers of the API, made at about the same time."""

    view: View
    overview: dict[str, Any]
    top: dict[str, Any]
    denials: dict[str, Any]


@dataclass(frozen=True, slots=True)
class ConsoleAddress:
    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def read_address(text: str) -> ConsoleAddress:
    """Read HOST, HOST:PORT or [IPV6]:PORT."""
    host, port = text, str(PORT)
    if text.startswith("["):
        host, _, rest = text[1:].partition("]")
        port = rest.removeprefix(":") or port
    elif text.count(":") == 1:
        host, _, port = text.partition(":")
    if not host or not host.isascii() or not host.isprintable() or " " in host or "/" in host:
        raise ConfigError(f"--address: '{text}' is not HOST or HOST:PORT")
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65_536:
        raise ConfigError(f"--address: '{text}' has no port from 1 to 65535")
    # The log of a server that listens on all addresses names these. No server is reached by them.
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing listens here
    return ConsoleAddress(host, int(port))


class ConsoleClient:
    def __init__(self, address: ConsoleAddress, token: str, timeout_s: float) -> None:
        self.address = address
        self._token = token
        self._timeout_s = timeout_s

    def look(self, view: View, rows: int) -> Snapshot:
        overview = self._get("overview")
        top = self._get("top", limit=rows, **view._asdict())
        return Snapshot(view, overview, top, self._get("denials", limit=rows))

    def _get(self, name: str, **parameters: str | int) -> dict[str, Any]:
        path = f"/api/{name}" + (f"?{urlencode(parameters)}" if parameters else "")
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        connection = http.client.HTTPConnection(
            self.address.host, self.address.port, timeout=self._timeout_s
        )
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            body = response.read(MOST_BYTES)
        except TimeoutError as exc:
            waited = f"no answer from {self.address} in {self._timeout_s:g} s"
            raise TopError(f"{waited}: is this the debug port of a Penstock server?") from exc
        except OSError as exc:
            raise TopError(
                f"no server answers on {self.address} ({exc.strerror or exc}): --address is the "
                "debug port of a server, 6070 by default"
            ) from exc
        except http.client.HTTPException as exc:
            raise self._stranger() from exc
        finally:
            connection.close()
        return self._read(response.status, body)

    def _read(self, status: int, body: bytes) -> dict[str, Any]:
        try:
            answer = json.loads(body)
        except ValueError as exc:
            raise self._stranger() from exc
        if not isinstance(answer, dict):
            raise self._stranger()
        if status == http.client.UNAUTHORIZED:
            what = "did not accept the token" if self._token else "wants a token"
            raise TopError(f"{self.address} {what}: set PENSTOCK_CONSOLE_TOKEN as on the server")
        if status != http.client.OK:
            raise TopError(f"{self.address}: {show(str(answer.get('error', status)))}")
        return answer

    def _stranger(self) -> TopError:
        return TopError(
            f"{self.address} has no console: --address is the debug port of a Penstock server, "
            "version 0.4 or later, 6070 by default"
        )
