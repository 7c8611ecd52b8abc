"""What crosses the channel between a parent and its workers, if it is more than a text."""

from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass
from typing import Any, Final

from penstock import __version__
from penstock.config.settings import Settings
from penstock.core.usage import UsageKept
from penstock.errors import (
    ConfigError,
    InvalidRequestError,
    OverloadError,
    RequestError,
    StoreError,
)

STORE_ERRORS: Final = {error.__name__: error for error in (StoreError, OverloadError)}
REQUEST_ERRORS: Final = {error.__name__: error for error in (RequestError, InvalidRequestError)}
MAY_PASS: Final = (StoreError, RequestError)
"""Errors that the asker of a decision understands. Any other is a fault of the server."""


@dataclass(frozen=True, slots=True)
class Begin:
    """What a worker needs to begin."""

    settings: Settings
    grpc_port: int
    """All workers share it."""

    @property
    def has_lane(self) -> bool:
        """Connections come from the parent. gRPC's own library takes none, but listens itself."""
        return self.settings.transport == "native"

    def write(self) -> Any:
        return [__version__, asdict(self.settings), self.grpc_port]

    @classmethod
    def read(cls, body: Any) -> "Begin":
        """ConfigError if the parent has another version: they may not understand each other."""
        version, settings, port = body
        if version != __version__:
            raise ConfigError(
                f"version {__version__} was installed while version {version} runs: restart the "
                "server to use it"
            )
        values = {name: _tuples(value) for name, value in settings.items()}
        values["usage_retention"] = UsageKept(*values["usage_retention"])
        return cls(Settings(**values), port)


@dataclass(frozen=True, slots=True)
class Question:
    """A request to decide."""

    request: bytes
    timeout_s: float | None
    method: str

    def write(self) -> Any:
        return [b64encode(self.request).decode(), self.timeout_s, self.method]

    @classmethod
    def read(cls, body: Any) -> "Question":
        request, timeout_s, method = body
        return cls(b64decode(request), timeout_s, method)


def write_answer(answer: bytes) -> Any:
    return {"answer": b64encode(answer).decode()}


def write_error(error: Exception) -> Any:
    kind = error.kind if isinstance(error, StoreError) else ""
    return {"error": type(error).__name__, "text": str(error), "kind": kind}


def read_answer(body: Any) -> bytes:
    """The answer to a question; raises what the worker would have raised."""
    if "answer" in body:
        return b64decode(body["answer"])
    raise _error_in(body)


def read_view(body: Any) -> Any:
    """What a worker tells the console; raises what the worker would have raised."""
    if "view" in body:
        return body["view"]
    raise _error_in(body)


def _error_in(body: Any) -> Exception:
    name, text = body["error"], body["text"]
    if name in STORE_ERRORS:
        return STORE_ERRORS[name](text, kind=body["kind"])
    return REQUEST_ERRORS[name](text)


def _tuples(value: Any) -> Any:
    """JSON has lists where settings have tuples."""
    return tuple(map(_tuples, value)) if isinstance(value, list) else value
