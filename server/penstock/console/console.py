"""All views by their names, and the answers to requests for them."""

import time
from typing import Any, Final

from penstock.config.settings import Settings
from penstock.console.count_views import DenialsView, RulesView, TopView
from penstock.console.inside import Inside, Query, View
from penstock.console.overview import Engine, OverviewView, complete
from penstock.console.queries import read_query
from penstock.console.store_views import AuditView, EntitiesView, EntityView, UsageView

OVERVIEW: Final = "overview"
LISTS_NAMES: Final = "entities"

VIEWS: Final[dict[str, View]] = {
    OVERVIEW: OverviewView(),
    "top": TopView(),
    "denials": DenialsView(),
    "rules": RulesView(),
    LISTS_NAMES: EntitiesView(),
    "entity": EntityView(),
    "usage": UsageView(),
    "audit": AuditView(),
}


class Console:
    """Answers requests for JSON in the process that has the debug port."""

    def __init__(self, settings: Settings, engine: Engine) -> None:
        self._settings = settings
        self._engine = engine

    async def answer(self, name: str, query_text: str) -> tuple[int, dict[str, Any]]:
        """A status of HTTP, and the JSON. InvalidRequestError if a parameter is wrong."""
        view = VIEWS.get(name)
        if view is None:
            return 404, {"error": f"no such view, there is {', '.join(VIEWS)}"}
        query = read_query(query_text, view.parameters)
        view.check(query)
        values = self._settings.console_values
        if name == LISTS_NAMES and values != "shown":
            return 403, {"error": f"names can't be listed: PENSTOCK_CONSOLE_VALUES is {values}"}
        parts = await self._engine.read_view(name, query, of_all=view.of_all)
        answer = view.join(parts, query)
        now_ms = time.time_ns() // 1_000_000
        if name == OVERVIEW:
            answer = await complete(answer, self._engine, self._settings, now_ms)
        return 200, {"at_ms": now_ms, **answer}


async def read_here(name: str, inside: Inside, query: Query) -> Any:
    """What this process knows. For the process that answers calls."""
    return await VIEWS[name].read(inside, query)
