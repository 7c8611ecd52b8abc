"""Settings as flags and variables: declared for the parser, then read and combined."""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, fields
from typing import Any, Final

from penstock.config.kinds import BOOL, Kind
from penstock.config.settings import Settings
from penstock.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting in the form that flags and docs need."""

    name: str
    env: str
    kind: Kind
    default: Any
    doc: str

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def default_text(self) -> str:
        return "" if self.default is None else self.kind.write(self.default)


DECLARED: Final = tuple(
    Declared(f.name, f.metadata["env"], f.metadata["kind"], f.default, f.metadata["doc"])
    for f in fields(Settings)
)

GONE: Final = {
    "PENSTOCK_CHARGE_DENIED": "set PENSTOCK_COUNTING=reference to count as the reference server "
    "counts, or remove the variable",
}
"""Variables of earlier versions, and what to use instead."""


def refuse_gone(environ: Mapping[str, str]) -> None:
    """ConfigError if a variable of an earlier version is set: the server would not do what it
    says."""
    for name, instead in GONE.items():
        if environ.get(name):
            raise ConfigError(f"{name} is gone: {instead}")


def add_flags(parser: argparse.ArgumentParser, names: Collection[str] | None = None) -> None:
    """Give a parser flags for all settings, or some. `--no-…` is the opposite of `--…`."""
    for setting in DECLARED:
        if names is not None and setting.name not in names:
            continue
        shown = f" (default: {setting.default_text})" if setting.default_text else ""
        text = f"{setting.doc} [{setting.env}]{shown}".replace("%", "%%")
        if setting.kind is BOOL:
            action = argparse.BooleanOptionalAction
            parser.add_argument(setting.flag, action=action, default=None, help=text)
        else:
            parser.add_argument(setting.flag, metavar=setting.kind.shown, help=text)


def read_settings(flags: argparse.Namespace, environ: Mapping[str, str]) -> Settings:
    """Combine flags and environment. ConfigError names the value that can't be read."""
    values: dict[str, Any] = {}
    for setting in DECLARED:
        flag, variable = getattr(flags, setting.name, None), environ.get(setting.env)
        if isinstance(flag, bool):
            values[setting.name] = flag
        elif flag is not None:
            values[setting.name] = _parse(setting, setting.flag, flag)
        elif variable:
            values[setting.name] = _parse(setting, setting.env, variable)
    return Settings(**values)


def _parse(setting: Declared, where: str, text: str) -> Any:
    try:
        return setting.kind.parse(text)
    except ValueError as exc:
        raise ConfigError(f"{where}: {exc}") from exc
