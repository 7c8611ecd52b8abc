"""What can go wrong, told apart by who has to act.

An over-limit request is no error: it is a decision (`core/decision.py`).
"""


class PenstockError(Exception):
    """The root. The message is for the person who can mend it."""


class ConfigError(PenstockError):
    """The operator's input is wrong: a flag, a variable, a store URL, a rules file."""


class MissingStoreError(ConfigError):
    """There is no store where one has to be, and none is created."""


class StoreError(PenstockError):
    """The store could not answer. Never a decision: nothing is known to be over its limit.

    `transient`: it may well answer the next time, without anybody doing something about it.
    `kind`: what went wrong, in the word that metrics have for it.

    The message may name accounts, roles, tables and paths. It is for the log, and for the operator
    at a terminal. Callers are told `for_caller`.
    """

    def __init__(self, message: str, *, transient: bool = True, kind: str = "failed") -> None:
        super().__init__(message)
        self.transient = transient
        self.kind = kind

    @property
    def for_caller(self) -> str:
        return f"the store did not answer ({self.kind}); the server's log has more"


class OverloadError(StoreError):
    """More calls at once than are admitted. Answered like a store that fails."""

    @property
    def for_caller(self) -> str:
        return str(self)


class PartError(PenstockError):
    """A part of the server ended by itself, and could not be started again."""


class PolicyError(PenstockError):
    """A change of stored policy that can't be made: its message says why."""


class RequestError(PenstockError):
    """The caller's request cannot be decided."""


class InvalidRequestError(RequestError):
    """The caller sent something that nobody could make sense of, or too much at once."""
