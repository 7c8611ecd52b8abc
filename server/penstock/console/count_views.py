"""Views of what was counted. All processes that answer calls are asked, and added up."""

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, cast

from penstock.console.conceal import Conceal
from penstock.console.inside import Inside, Query
from penstock.console.queries import read_choice, read_number, read_rows
from penstock.console.rule_rows import RULES_A_SLICE, RuleRow, rule_rows
from penstock.console.values import denial_values
from penstock.core.take import Key
from penstock.insight.heavy import KEPT, HeavyKeys
from penstock.insight.insight import Tops
from penstock.insight.windows import BYS, OFS, OVERS, Of, Over
from penstock.slices import Slices, run

TOP_ROWS: Final = 20
DENIAL_ROWS: Final = 50
RULE_ROWS: Final = 200


class TopView:
    parameters = ("by", "of", "over", "limit")
    of_all = True

    def check(self, query: Query) -> None:
        _read_top(query)
        read_rows(query, TOP_ROWS)

    async def read(self, inside: Inside, query: Query) -> Any:
        _, of, over = _read_top(query)
        tops = await run(inside.insight.read(of, over, inside.clock_ms()))
        denials = inside.insight.latest_denials()
        if of == "entity":
            tops = _conceal_tops(tops, inside.conceal)
        return {
            "requests": _sum([tops.requests]).dump(),
            "denials": _sum([tops.denials]).dump(),
            "span_ms": tops.span_ms,
            "last": [denial_values(one, inside.conceal) for one in denials if not one.passed],
        }

    def join(self, parts: list[Any], query: Query) -> dict[str, Any]:
        by, of, over = _read_top(query)
        requests, denials = (_sum(HeavyKeys.load(part[name]) for part in parts) for name in BYS)
        last = _last_denials(parts, of)
        sorted_by = requests if by == "requests" else denials
        rows = []
        for key, _, error in sorted_by.heaviest(read_rows(query, TOP_ROWS)):
            denied = denials.counts.get(key, 0)
            rows.append(
                {
                    **_names(of, key),
                    "requests": max(requests.counts.get(key, 0), denied),
                    "denials": denied,
                    "error": error,
                    "last_denial": last.get(key),
                }
            )
        span_ms = max(part["span_ms"] for part in parts)
        return {"by": by, "of": of, "over": over, "span_ms": span_ms, "rows": rows}


class DenialsView:
    parameters = ("limit", "entity")
    of_all = True

    def check(self, query: Query) -> None:
        read_rows(query, DENIAL_ROWS)

    async def read(self, inside: Inside, query: Query) -> Any:
        denials = inside.insight.latest_denials(query.get("entity"))
        wanted = denials[: read_rows(query, DENIAL_ROWS)]
        return [denial_values(denial, inside.conceal) for denial in wanted]

    def join(self, parts: list[Any], query: Query) -> dict[str, Any]:
        denials = [denial for part in parts for denial in part]
        denials.sort(key=lambda denial: int(denial["at_ms"]), reverse=True)
        return {"denials": denials[: read_rows(query, DENIAL_ROWS)]}


class RulesView:
    parameters = ("contains", "over", "limit", "after")
    of_all = True

    def check(self, query: Query) -> None:
        read_choice(query, "over", OVERS, "minute")
        read_rows(query, RULE_ROWS)
        read_number(query, "after", 0)

    async def read(self, inside: Inside, query: Query) -> Any:
        found, count = await run(_find_rules(inside, query))
        over = cast("Over", read_choice(query, "over", OVERS, "minute"))
        tops = await run(inside.insight.read("rule", over, inside.clock_ms()))
        rows = [
            {
                **row.values(),
                "requests": requests.counted,
                "denials": denials.counted,
                "error": max(requests.error, denials.error),
            }
            for row in found
            for requests, denials in [(tops.requests.find(row.rule), tops.denials.find(row.rule))]
        ]
        return {"rows": rows, "count": count}

    def join(self, parts: list[Any], query: Query) -> dict[str, Any]:
        rules = {place: {**row} for place, row in _placed(parts[0]["rows"])}
        for place, row in (placed for part in parts[1:] for placed in _placed(part["rows"])):
            # While new rules are loaded, one process may have them before another one.
            if (known := rules.get(place)) is not None:
                for name in ("requests", "denials", "error"):
                    known[name] += row[name]
        after, count = read_number(query, "after", 0), parts[0]["count"]
        end = after + len(parts[0]["rows"])
        return {
            "over": read_choice(query, "over", OVERS, "minute"),
            "count": count,
            "next": str(end) if end < count else None,
            "rules": list(rules.values()),
        }


def _read_top(query: Query) -> tuple[str, Of, Over]:
    by = read_choice(query, "by", BYS, "denials")
    of = read_choice(query, "of", OFS, "entity")
    over = read_choice(query, "over", OVERS, "minute")
    return by, cast("Of", of), cast("Over", over)


def _sum(sketches: Iterable[HeavyKeys[Any]]) -> HeavyKeys[Any]:
    total: HeavyKeys[Any] = HeavyKeys(KEPT)
    for sketch in sketches:
        total.absorb(sketch)
    return total


def _names(of: Of, key: Any) -> dict[str, str | None]:
    entity, resource = key if of == "entity" else (None, None if of == "rule" else key)
    return {"rule": key if of == "rule" else None, "entity": entity, "resource": resource}


def _last_denials(parts: list[Any], of: Of) -> dict[Any, Any]:
    """The latest denial of each key, as far as denials are kept."""
    denials = sorted((one for part in parts for one in part["last"]), key=lambda one: one["at_ms"])
    if of == "entity":
        return {(denial["entity"], denial["resource"]): denial for denial in denials}
    return {denial[of]: denial for denial in denials}


def _conceal_tops(tops: Tops, conceal: Conceal) -> Tops:
    requests, denials = (_conceal_keys(sketch, conceal) for sketch in tops[:2])
    return tops._replace(requests=requests, denials=denials)


def _conceal_keys(sketch: HeavyKeys[Key], conceal: Conceal) -> HeavyKeys[Key]:
    """The same counts, by what is shown. Entities that are shown alike are counted together."""
    shown: HeavyKeys[Key] = HeavyKeys(KEPT)
    shown.floor = sketch.floor
    for key in sketch.counts:
        seen = Key(conceal(*key), key.resource)
        _, counted, error = sketch.find(key)
        shown.counts[seen] = shown.counts.get(seen, 0) + counted
        if error:
            shown.errors[seen] = shown.errors.get(seen, 0) + error
    return shown


def _find_rules(inside: Inside, query: Query) -> Slices[tuple[list[RuleRow], int]]:
    """The rules of one page, and the number of rules on all pages."""
    contains, after = query.get("contains", ""), read_number(query, "after", 0)
    end, count = after + read_rows(query, RULE_ROWS), 0
    found, rows = [], rule_rows(inside.rules())
    while some := list(islice(rows, RULES_A_SLICE)):
        for row in some:
            if contains in row.rule:
                if after <= count < end:
                    found.append(row)
                count += 1
        yield
    return found, count


def _placed(rows: list[Any]) -> Iterator[tuple[tuple[str, int], Any]]:
    """Each row by its rule, and by its place among rules of the same name.

    A key may have a dot, so `a.b` and `b` below `a` have one name.
    """
    places = Counter[str]()
    for row in rows:
        name = row["rule"]
        yield (name, places[name]), row
        places[name] += 1
