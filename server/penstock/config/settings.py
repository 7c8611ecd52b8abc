"""Settings, each declared once: flags, environment names and the docs derive from here.

A flag goes before the environment, and that before the default. Nothing reads either later.
"""

import argparse
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from penstock.config.durations import format_duration
from penstock.config.kinds import BOOL, DURATION, LEVEL, PORT, TEXT, UNAVAILABLE, Kind
from penstock.errors import ConfigError

ANY_IPV4: Final = "0.0.0.0"  # noqa: S104 - the reference server's default: Envoy is elsewhere


def _setting(env: str, kind: Kind, default: Any, doc: str) -> Any:
    return field(default=default, metadata={"env": env, "kind": kind, "doc": doc})


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    config: str = _setting(
        "PENSTOCK_CONFIG", TEXT, "", "rules file, or directory of them (default: from RUNTIME_*)"
    )
    store: str = _setting(
        "PENSTOCK_STORE", TEXT, "sqlite:///penstock.db", "where buckets are kept: a store URL"
    )
    grpc_host: str = _setting(
        "GRPC_HOST", TEXT, ANY_IPV4, "address to listen on; `::` is all of IPv4 and IPv6"
    )
    grpc_port: int = _setting("GRPC_PORT", PORT, 8081, "port to listen on; 0 picks a free one")
    grpc_uds: str = _setting(
        "GRPC_UDS", TEXT, "", "unix socket to listen on, instead of host and port"
    )
    grpc_max_connection_age: int = _setting(
        "GRPC_MAX_CONNECTION_AGE", DURATION, 86_400_000, "when clients are asked to connect anew"
    )
    grpc_max_connection_age_grace: int = _setting(
        "GRPC_MAX_CONNECTION_AGE_GRACE", DURATION, 3_600_000, "how long calls may outlive that"
    )
    drain_timeout: int = _setting(
        "PENSTOCK_DRAIN_TIMEOUT", DURATION, 20_000, "on SIGTERM: how long clients have to move away"
    )
    runtime_root: str = _setting("RUNTIME_ROOT", TEXT, "", "rules directory, first part")
    runtime_subdirectory: str = _setting(
        "RUNTIME_SUBDIRECTORY", TEXT, "", "rules directory, second part"
    )
    runtime_appdirectory: str = _setting(
        "RUNTIME_APPDIRECTORY", TEXT, "config", "rules directory, third part"
    )
    runtime_ignoredotfiles: bool = _setting(
        "RUNTIME_IGNOREDOTFILES", BOOL, True, "skip names that begin with a dot, as ConfigMaps need"
    )
    merge_domain_config: bool = _setting(
        "MERGE_DOMAIN_CONFIG", BOOL, False, "let a domain span several files"
    )
    force_start_without_initial_config: bool = _setting(
        "FORCE_START_WITHOUT_INITIAL_CONFIG",
        BOOL,
        False,
        "start, not serving, when the rules can't be used",
    )
    shadow_mode: bool = _setting("SHADOW_MODE", BOOL, False, "answer OK whatever the statuses say")
    quota_mode: bool = _setting("QUOTA_MODE", BOOL, False, "treat every limit as a quota")
    charge_denied: bool = _setting(
        "PENSTOCK_CHARGE_DENIED",
        BOOL,
        False,
        "let denied requests use up tokens, as the reference does",
    )
    policy_cache_ttl: int = _setting(
        "PENSTOCK_POLICY_CACHE_TTL",
        DURATION,
        60_000,
        "how long a change of stored limits may take to be in force",
    )
    on_unavailable: str = _setting(
        "PENSTOCK_ON_UNAVAILABLE",
        UNAVAILABLE,
        "error",
        "the answer while the store fails; error: UNAVAILABLE",
    )
    limit_response_headers_enabled: bool = _setting(
        "LIMIT_RESPONSE_HEADERS_ENABLED",
        BOOL,
        False,
        "add RateLimit-* headers, and retry-after on denial",
    )
    limit_limit_header: str = _setting("LIMIT_LIMIT_HEADER", TEXT, "RateLimit-Limit", "its name")
    limit_remaining_header: str = _setting(
        "LIMIT_REMAINING_HEADER", TEXT, "RateLimit-Remaining", "its name"
    )
    limit_reset_header: str = _setting("LIMIT_RESET_HEADER", TEXT, "RateLimit-Reset", "its name")
    response_dynamic_metadata: bool = _setting(
        "RESPONSE_DYNAMIC_METADATA",
        BOOL,
        False,
        "add the request and the rules' metadata to the answer",
    )
    log_level: str = _setting("LOG_LEVEL", LEVEL, "info", "least severe messages to log")

    def rules_path(self) -> Path:
        """The rules' place; ConfigError if nothing says it."""
        if self.config:
            return Path(self.config)
        if self.runtime_root:
            return Path(self.runtime_root, self.runtime_subdirectory, self.runtime_appdirectory)
        raise ConfigError("no rules: give --config FILE_OR_DIRECTORY, or set RUNTIME_ROOT")


@dataclass(frozen=True, slots=True)
class Declared:
    """A setting as its docs need it."""

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
        if self.kind is BOOL:
            return "true" if self.default else "false"
        return format_duration(self.default) if self.kind is DURATION else str(self.default)


DECLARED: Final = tuple(
    Declared(f.name, f.metadata["env"], f.metadata["kind"], f.default, f.metadata["doc"])
    for f in fields(Settings)
)


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
    """Put flags and environment together; ConfigError names what can't be read."""
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
