"""What a process that answers calls lets the console see."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from penstock.console.conceal import Conceal
from penstock.core.rules import Rules
from penstock.insight.insight import Insight
from penstock.store.port import Store
from penstock.telemetry.metrics import Metrics

Query = Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Inside:
    insight: Insight
    store: Store
    metrics: Metrics
    rules: Callable[[], Rules]
    """The rules in force."""
    count_rules: Callable[[], int]
    """How many these are."""
    rule_resources: Callable[[], list[str]]
    """The resources of their buckets, one for each domain."""
    about_rules: Callable[[], list[str]]
    """Where they come from."""
    load_error: Callable[[], str]
    """Why the last load failed; empty if the last load did not fail."""
    conceal: Conceal
    clock_ms: Callable[[], int]


class View(Protocol):
    """One kind of answer. `read` runs where calls are answered, `join` where the answer is made."""

    @property
    def parameters(self) -> tuple[str, ...]: ...
    @property
    def of_all(self) -> bool:
        """Whether all processes are asked, or any one of them."""
        ...

    def check(self, query: Query) -> None:
        """InvalidRequestError if a parameter is wrong."""
        ...

    async def read(self, inside: Inside, query: Query) -> Any:
        """What this process knows, as JSON. StoreError if the store can't answer."""
        ...

    def join(self, parts: list[Any], query: Query) -> dict[str, Any]:
        """One answer, made of what all processes know."""
        ...
