"""The tables of the docs that are made from the code: `make docs` writes them, a test compares.

In a page they stand between `<!-- table: NAME -->` and `<!-- end -->`.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import yaml
from penstock.config.flags import DECLARED, Declared
from penstock.config.reference import IGNORED
from penstock.telemetry.instruments import Family
from penstock.telemetry.metrics import AnyFamily, Metrics

from tests.support.markdown import ROOT
from tests.support.reference_variables import REFERENCE_VARIABLES

ALERTS: Final = ROOT / "deploy/grafana/alerts.yaml"

MARKED: Final = re.compile(r"(?<=<!-- table: )([\w ]+) -->\n.*?(?=<!-- end -->)", re.DOTALL)


def fill(page: str) -> str:
    """A page with its tables as the code has them now."""
    return MARKED.sub(lambda found: f"{found[1]} -->\n{TABLES[found[1]]()}\n", page)


def settings_table() -> str:
    rows = (
        (_code(setting.flag), _code(setting.env), _code(setting.default_text), _meaning(setting))
        for setting in DECLARED
    )
    return _table(("flag", "environment", "default", "meaning"), rows)


def honoured_table() -> str:
    """The reference server's variables that are settings here."""
    settings = {setting.env: setting for setting in DECLARED}
    rows = (
        (_code(name), _code(settings[name].flag), _other_default(settings[name], default))
        for name, default in REFERENCE_VARIABLES
        if name in settings
    )
    return _table(("variable", "flag", "its default, where ours is another"), rows)


def ignored_table() -> str:
    """Its other variables."""
    names: dict[str, list[str]] = {}
    settings = {setting.env for setting in DECLARED}
    for name, _ in REFERENCE_VARIABLES:
        if name not in settings:
            pattern = next(pattern for pattern in IGNORED if fnmatchcase(name, pattern))
            names.setdefault(IGNORED[pattern], []).append(_code(name))
    rows = ((", ".join(names), reason) for reason, names in names.items())
    return _table(("variables", "why they are ignored"), rows)


def metrics_table() -> str:
    rows = (
        (_code(family.name), family.kind, ", ".join(map(_code, family.labels)), family.text)
        for family in Metrics().families()
    )
    return _table(("metric", "type", "labels", "meaning"), rows)


def statsd_table() -> str:
    """The names for StatsD that can't be guessed: the reference server's."""
    metrics = Metrics()
    metrics.rule_hits.of(("<domain>", "<key_value>"), ("<domain>", "<key_value>"))
    families = [family for family in metrics.families() if family.name.startswith("ratelimit_")]
    rows = ((_code(_statsd_name(family)), _code(family.name)) for family in families)
    return _table(("for StatsD", "metric"), rows)


def alerts_table() -> str:
    rows = (
        (_code(rule["alert"]), rule["labels"]["severity"], rule["annotations"]["summary"])
        for group in yaml.safe_load(ALERTS.read_text())["groups"]
        for rule in group["rules"]
    )
    return _table(("alert", "severity", "meaning"), rows)


TABLES: Final[Mapping[str, Callable[[], str]]] = {
    "settings": settings_table,
    "variables honoured": honoured_table,
    "variables ignored": ignored_table,
    "metrics": metrics_table,
    "statsd": statsd_table,
    "alerts": alerts_table,
}


def _meaning(setting: Declared) -> str:
    choices = setting.kind.shown.split("|")
    return f"{setting.doc} ({', '.join(choices)})" if len(choices) > 1 else setting.doc


def _other_default(setting: Declared, text: str) -> str:
    """The reference server's default, unless it means the same as ours."""
    # An empty variable is as good as none.
    same = setting.kind.parse(text) == setting.default if text else not setting.default_text
    return "" if same else _code(text) or "none"


def _statsd_name(family: AnyFamily) -> str:
    if isinstance(family, Family) and family.labels:
        family.of(*[f"<{label}>" for label in family.labels])
    name, _ = next(iter(family.statsd_series()))
    return name


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(map(_line, lines))


def _line(cells: tuple[str, ...]) -> str:
    if cells[0] == "---":
        return f"|{'|'.join(cells)}|"
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def pages() -> list[Path]:
    """The pages that have such tables."""
    return [page for page in sorted(ROOT.glob("docs/*.md")) if MARKED.search(page.read_text())]


if __name__ == "__main__":
    for path in pages():
        path.write_text(fill(path.read_text()))
