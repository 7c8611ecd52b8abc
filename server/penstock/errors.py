"""The errors. Each class says who has to act: the operator, the caller, or nobody.

In a server, an over-limit request is no error: it is a decision (`core/decision.py`). In a Python
program it is the exception `RateLimited`, because a block must not begin.
"""


class PenstockError(Exception):
    """The root of all errors. The message is for the person who can solve the problem."""


class ConfigError(PenstockError):
    """The operator's input is wrong: a flag, a variable, a store URL, a rules file."""


class MissingStoreError(ConfigError):
    """The store does not exist, and this command does not create a store."""


class StoreError(PenstockError):
    """The store could not answer. Never a decision: nothing is known to be over its limit.

    `transient`: the next call may succeed, although nobody does anything.
    `kind`: what went wrong, in the word of the metrics.

    The message may name accounts, roles, tables and paths. So only the log and the operator at a
    terminal get the message. Callers get `for_caller`.
    """

    def __init__(self, message: str, *, transient: bool = True, kind: str = "failed") -> None:
        super().__init__(message)
        self.transient = transient
        self.kind = kind

    @property
    def for_caller(self) -> str:
        return f"the store did not answer ({self.kind}); the server's log has more"


class OverloadError(StoreError):
    """Too many calls are under way. The answer is the same as for a store that fails."""

    @property
    def for_caller(self) -> str:
        return str(self)


class PartError(PenstockError):
    """A part of the server ended by itself, and could not be started again."""


class PolicyError(PenstockError):
    """A change of the stored policy is not possible. The message says why."""


class RateLimited(PenstockError):  # noqa: N818 - the name that callers read is the news
    """A lease was refused, and nothing was taken: `limit` has too few tokens.

    `entity` has the limit: the entity that was asked for, or one of its parents. There are enough
    tokens after `retry_after_s` seconds, if nobody else takes them.
    """

    def __init__(
        self, message: str, entity: str, resource: str, limit: str, retry_after_s: float
    ) -> None:
        # All of them, so that the exception can be pickled.
        super().__init__(message, entity, resource, limit, retry_after_s)
        self.entity = entity
        self.resource = resource
        self.limit = limit
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return str(self.args[0])


class RequestError(PenstockError):
    """The caller's request cannot be decided."""


class InvalidRequestError(RequestError):
    """The caller sent something that nobody could make sense of, or too much at once."""
