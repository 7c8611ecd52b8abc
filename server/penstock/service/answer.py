"""What the limiter answers, and the choices of the operator that shape it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from penstock.core.decision import Decision
from penstock.core.plan import Behaviour, Plan
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
    """What was asked of the store; None if the answer was given without the store."""
