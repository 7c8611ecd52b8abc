"""The dashboard and the alerts ask for metrics that there are, and Grafana can show them."""

import json
import re
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest
import yaml
from penstock.telemetry.metrics import Metrics

from tests.support.doc_tables import ALERTS
from tests.support.markdown import ROOT
from tests.support.promql import family_of, faults, grouped_labels, uses

DASHBOARD = ROOT / "deploy/grafana/dashboard.json"
COLUMNS = 24

FAMILIES = Metrics().families()
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
VARIABLE = re.compile(r"\$(\w+)")
LABEL_VALUES = re.compile(r"label_values\((\w+), (\w+)\)")

UNSHOWN: frozenset[str] = frozenset()
"""Metrics that neither a panel nor an alert has. None so far: name it here if it is meant."""

SOURCES = "\n".join(path.read_text() for path in ROOT.glob("server/penstock/**/*.py"))

Dashboard = dict[str, Any]


def dashboard() -> Dashboard:
    loaded: Dashboard = json.loads(DASHBOARD.read_text())
    return loaded


def panels(board: Dashboard) -> Iterator[dict[str, Any]]:
    yield from (panel for panel in board["panels"] if panel["type"] != "row")


def queries(board: Dashboard) -> Iterator[str]:
    yield from (target["expr"] for panel in panels(board) for target in panel["targets"])


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def board_faults(board: Dashboard) -> list[str]:
    """All that is wrong with a dashboard."""
    found = []
    ids = [panel["id"] for panel in board["panels"]]
    found += [f"id {one} twice" for one in set(ids) if ids.count(one) > 1]
    for panel in board["panels"]:
        found += [] if panel.get("title") else [f"no title: {panel['id']}"]
        grid = panel["gridPos"]
        if grid["x"] + grid["w"] > COLUMNS:
            found.append(f"too wide: {panel['id']}")
    for panel in panels(board):
        found += [] if panel.get("description") else [f"no description: {panel['id']}"]
        references = [target["refId"] for target in panel["targets"]]
        found += [] if len(set(references)) == len(references) else [f"refId: {panel['id']}"]
        found += [] if panel["datasource"] == DATASOURCE else [f"data source: {panel['id']}"]
    for one, other in combinations(board["panels"], 2):
        if overlap(one["gridPos"], other["gridPos"]):
            found.append(f"{one['id']} lies on {other['id']}")
    for query in queries(board):
        found += [f"{fault} in {query}" for fault in faults(query, FAMILIES, SOURCES)]
        found += [f"unknown {name}" for name in set(VARIABLE.findall(query)) - variables(board)]
    return found + variable_faults(board)


def variables(board: Dashboard) -> set[str]:
    """Those of the dashboard, and Grafana's own."""
    return {each["name"] for each in board["templating"]["list"]} | {"__rate_interval"}


def variable_faults(board: Dashboard) -> list[str]:
    """What is wrong with the lists to choose from."""
    found = []
    labels = {family.name: {*family.labels, "instance", "job"} for family in FAMILIES}
    for each in board["templating"]["list"]:
        if each["type"] == "query":
            asked = LABEL_VALUES.fullmatch(each["definition"])
            if not asked or asked[2] not in labels.get(asked[1], ()):
                found.append(f"variable {each['name']}: {each['definition']}")
            if each["query"]["query"] != each["definition"]:
                found.append(f"variable {each['name']}: two queries")
    return found


def overlap(one: dict[str, int], other: dict[str, int]) -> bool:
    return all(
        one[start] < other[start] + other[size] and other[start] < one[start] + one[size]
        for start, size in (("x", "w"), ("y", "h"))
    )


def test_the_dashboard_is_sound() -> None:
    """Its queries, its places, its words."""
    assert board_faults(dashboard()) == []


def test_the_dashboard_is_written_as_it_would_be_again() -> None:
    """So that a change in Grafana shows as that change, once it went through `json.tool`."""
    text = json.dumps(dashboard(), indent=2, ensure_ascii=False) + "\n"
    assert DASHBOARD.read_text() == text


def test_the_dashboard_can_be_told_where_to_look() -> None:
    """By data source, server and domain. Each query looks at the chosen servers alone."""
    assert {"datasource", "instance", "domain"} <= variables(dashboard())
    for query in queries(dashboard()):
        for metric, matched in uses(query):
            assert matched.get("instance") == "$instance", f"{metric} in {query}"


def change(path: str, value: Any) -> Callable[[Dashboard], None]:
    """Set something in the second panel that is no row, or in the variables."""

    def apply(board: Dashboard) -> None:
        place: Any = {"panel": list(panels(board))[1], "variables": board["templating"]["list"]}
        *steps, last = path.split(".")
        for step in steps:
            place = place[int(step)] if isinstance(place, list) else place[step]
        place[last] = value

    return apply


EXPR = "panel.targets.0.expr"


@pytest.mark.parametrize(
    ("mutate", "fault"),
    [
        (change(EXPR, "sum(rate(penstock_decision_total[5m]))"), "no metric penstock_decision"),
        (change(EXPR, "ratelimit_service_response_time_seconds"), "no metric ratelimit"),
        (change(EXPR, "penstock_healthy_bucket"), "no metric penstock_healthy_bucket"),
        (change(EXPR, 'penstock_decisions_total{codes="ok"}'), "no label codes"),
        (change(EXPR, "sum by (le) (penstock_decisions_total)"), "no label le"),
        (change(EXPR, 'penstock_decisions_total{code="overlimit"}'), "no code=overlimit"),
        (change(EXPR, "vector(1)"), "no metric"),
        (change(EXPR, 'penstock_healthy{instance="$host"}'), "unknown host"),
        (change("panel.title", ""), "no title"),
        (change("panel.description", ""), "no description"),
        (change("panel.id", 101), "id 101 twice"),
        (change("panel.gridPos.x", 3), "lies on"),
        (change("panel.gridPos.w", 25), "too wide"),
        (change("panel.targets", [{"refId": "A", "expr": "up"}] * 2), "refId"),
        (change("panel.datasource.uid", "mine"), "data source"),
        (change("variables.2.definition", "label_values(penstock_healthy, domain)"), "variable"),
        (change("variables.1.query.query", "label_values(up, instance)"), "two queries"),
        (lambda board: board["templating"]["list"].pop(), "unknown domain"),
    ],
)
def test_each_fault_of_a_dashboard_would_be_found(
    mutate: Callable[[Dashboard], None], fault: str
) -> None:
    """The test above would pass if nothing were looked at."""
    board = dashboard()
    mutate(board)
    assert [found for found in board_faults(board) if fault in found]


def test_every_alert_asks_for_metrics_that_there_are() -> None:
    """And says how long it waits, how bad it is, and what it means."""
    assert len(alerts()) > 5
    for alert in alerts():
        assert faults(alert["expr"], FAMILIES, SOURCES) == [], alert["alert"]
        assert set(alert) == {"alert", "expr", "for", "labels", "annotations"}
        assert alert["labels"]["severity"] in {"page", "ticket"}


def test_every_metric_is_shown_somewhere() -> None:
    """By a panel or an alert, or it is said here that it is not."""
    shown = {
        family_of(use.metric, [family.name for family in FAMILIES])
        for query in [*queries(dashboard()), *(alert["expr"] for alert in alerts())]
        for use in uses(query)
    }
    assert {family.name for family in FAMILIES} - shown == UNSHOWN


def test_queries_are_taken_apart() -> None:
    """Metrics, labels and values, whatever stands around them."""
    query = (
        'topk(3, sum by (a, b) (rate(m_x{c=~"one|t}wo", d!="3"}[$__rate_interval]))) / on (a) n > 1'
    )
    assert uses(query) == [("m_x", {"c": "one|t}wo", "d": "3"}), ("n", {})]
    assert grouped_labels(query) == {"a", "b"}
