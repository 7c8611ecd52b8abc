"""The limiter's answer, and the options of the operator that change it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.core.decision import Decision
from penstock.core.plan import Behaviour, Plan
from penstock.core.take import Taken
from penstock.service.headers import HeaderNames, Headers

OnUnavailable = Literal["error", "allow", "deny"]


@dataclass(frozen=True, slots=True)
class Options:
    behaviour: Behaviour = field(default_factory=Behaviour)
    on_unavailable: OnUnavailable = "error"
    headers: HeaderNames | None = None
    dynamic_metadata: bool = False
    near_limit_ratio: float = 0.8


class Answer(NamedTuple):
    decision: Decision
    headers: Headers = ()
    metadata: Mapping[str, Any] | None = None
    plan: Plan | None = None
    """The plan that the store carried out. None if the store was not asked."""
    taken: Sequence[Taken] = ()
    """How the plan's takes went."""
