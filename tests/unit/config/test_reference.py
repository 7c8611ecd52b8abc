"""The reference server's variables: each is a setting, by its spelling, or ignored for a reason."""

import re
from collections.abc import Mapping
from typing import Any

import pytest
from penstock.config.flags import DECLARED
from penstock.config.kinds import HEADERS, PAIRS, PATH, TAGS, TEXT
from penstock.config.reference import IGNORED, find_ignored

from tests.support.reference_variables import REFERENCE_VARIABLES
from tests.unit.config.test_settings import read

SETTINGS = {setting.env: setting for setting in DECLARED}

OTHER_DEFAULTS: Mapping[str, tuple[str, str]] = {
    "LOG_LEVEL": ("info", "what happens at the start should be seen by who starts it"),
    "RUNTIME_ROOT": ("", "`--config` is how rules are given; its path is of its own image"),
    "RUNTIME_IGNOREDOTFILES": ("true", "ConfigMaps and editors need it"),
    "USE_STATSD": (
        "false",
        "metrics are served on a port, and there may be no StatsD",
    ),
    "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": (
        "",
        "unset, true for files: without rules no request is answered; false for xDS, as there",
    ),
    "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES": ("4194304", "what gRPC for Go has where nothing is set"),
    "LOCAL_CACHE_SIZE_IN_BYTES": ("", "unset, denials are remembered: they cost money to ask for"),
}
"""Defaults of ours that are not the reference server's, and why."""

EMPTY: Mapping[str, object] = {
    TEXT.shown: "", PATH.shown: "", TAGS.shown: (), PAIRS.shown: (), HEADERS.shown: (),
}  # fmt: skip
"""What a default that is empty there is here."""


def test_every_variable_is_a_setting_or_ignored_and_none_is_both() -> None:
    """So nothing that a manifest sets is without a meaning, or unheard of."""
    names = {name for name, _ in REFERENCE_VARIABLES}
    assert len(names) == len(REFERENCE_VARIABLES)
    assert set(find_ignored(names)) == names - SETTINGS.keys()
    assert find_ignored(SETTINGS) == []


def test_every_reason_is_needed() -> None:
    """For some variable of the reference server."""
    names = {name for name, _ in REFERENCE_VARIABLES}
    for pattern, reason in IGNORED.items():
        matcher = re.compile(pattern.replace("*", ".+"))
        assert any(map(matcher.fullmatch, names)), pattern
        assert reason


def test_ours_are_told_apart_by_their_names() -> None:
    """What the reference server does not have begins with our name."""
    names = {name for name, _ in REFERENCE_VARIABLES}
    assert {name for name in SETTINGS if not name.startswith("PENSTOCK_")} <= names
    assert not any(name.startswith("PENSTOCK_") for name in names)


@pytest.mark.parametrize(("name", "default"), REFERENCE_VARIABLES)
def test_defaults_are_the_same_but_for_reasons(name: str, default: str) -> None:
    """Of settings. Who changes one should know."""
    if name not in SETTINGS:
        assert name not in OTHER_DEFAULTS
        return
    setting = SETTINGS[name]
    if name in OTHER_DEFAULTS:
        ours, _ = OTHER_DEFAULTS[name]
        assert setting.default_text == ours
        assert ours != default.lower()
    else:
        assert setting.default == (
            setting.kind.parse(default) if default else EMPTY[setting.kind.shown]
        )


@pytest.mark.parametrize(("name", "default"), REFERENCE_VARIABLES)
def test_the_defaults_of_the_reference_server_can_be_given(name: str, default: str) -> None:
    """Manifests write them out, by its spelling."""
    if default and name in SETTINGS:
        setting = SETTINGS[name]
        assert getattr(read(env={name: default}), setting.name) == setting.kind.parse(default)


SPELT: tuple[tuple[str, str, Any], ...] = (
    *[("SHADOW_MODE", text, True) for text in ("1", "t", "T", "TRUE", "true", "True")],
    *[("RUNTIME_IGNOREDOTFILES", text, False) for text in ("0", "f", "F", "FALSE", "False")],
    ("GRPC_MAX_CONNECTION_AGE", "24h", 86_400_000),
    ("GRPC_MAX_CONNECTION_AGE", "1h30m", 5_400_000),
    ("GRPC_MAX_CONNECTION_AGE", "1.5h", 5_400_000),
    ("GRPC_MAX_CONNECTION_AGE", "24h0m0s", 86_400_000),
    ("GRPC_MAX_CONNECTION_AGE", "0", 0),
    ("STATS_FLUSH_INTERVAL", "10s", 10_000),
    ("STATS_FLUSH_INTERVAL", "300ms", 300),
    ("STATS_FLUSH_INTERVAL", "0.5s", 500),
    ("STATS_FLUSH_INTERVAL", "10000000us", 10_000),
    ("STATS_FLUSH_INTERVAL", "2s5\N{MICRO SIGN}s", 2_001),
    ("STATS_FLUSH_INTERVAL", "1\N{GREEK SMALL LETTER MU}s", 1),
    ("GRPC_MAX_CONNECTION_AGE", "1h1ns", 3_600_001),
    ("GRPC_MAX_CONNECTION_AGE", "0ns", 0),
    ("PROMETHEUS_RESPONSE_TIME_AS_MILLISECONDS", "true", True),
    ("PROMETHEUS_ADDR", ":9090", ("", 9090)),
    ("PROMETHEUS_ADDR", "0.0.0.0:19001", ("0.0.0.0", 19001)),  # noqa: S104 - nothing listens here
    ("PROMETHEUS_ADDR", "[::]:19001", ("::", 19001)),
    *[("LOG_LEVEL", text, "debug") for text in ("trace", "DEBUG")],
    *[("LOG_LEVEL", text, "warn") for text in ("WARN", "warning", "Warn")],
    *[("LOG_LEVEL", text, "error") for text in ("ERROR", "FATAL", "PANIC")],
    ("LOG_FORMAT", "JSON", "json"),
    ("CONFIG_TYPE", "FILE", "file"),
    ("CONFIG_TYPE", "GRPC_XDS_SOTW", "grpc_xds_sotw"),
    ("TRACING_EXPORTER_PROTOCOL", "gRPC", "grpc"),
    ("TRACING_SAMPLING_RATE", "0.01", 0.01),
    ("NEAR_LIMIT_RATIO", ".5", 0.5),
    ("EXTRA_TAGS", "env:prod,team:edge", (("env", "prod"), ("team", "edge"))),
    ("LOCAL_CACHE_SIZE_IN_BYTES", "0", 0),
    ("HOST", "::", "::"),
    ("CONFIG_GRPC_XDS_NODE_METADATA", "team=edge,zone=a=b", (("team", "edge"), ("zone", "a=b"))),
    ("CONFIG_GRPC_XDS_NODE_METADATA", "key1:val1,key2=val2", (("key2", "val2"),)),
    ("CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS", "x-Team:edge", (("x-team", "edge"),)),
    ("CONFIG_GRPC_XDS_SERVER_CONNECT_RETRY_INTERVAL", "3s", 3_000),
    ("XDS_CLIENT_BACKOFF_INITIAL_INTERVAL", "10s", 10_000),
    ("XDS_CLIENT_BACKOFF_RANDOM_FACTOR", "0.5", 0.5),
    ("XDS_CLIENT_BACKOFF_JITTER", "true", True),
    ("XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "104857600", 104_857_600),
)  # fmt: skip


@pytest.mark.parametrize(("name", "text", "value"), SPELT)
def test_values_are_read_as_the_reference_server_spells_them(
    name: str, text: str, value: object
) -> None:
    """Those of its docs, its users, and of Go."""
    assert getattr(read(env={name: text}), SETTINGS[name].name) == value


@pytest.mark.parametrize(
    ("env", "needs"),
    [
        ({}, True),
        ({"CONFIG_TYPE": "GRPC_XDS_SOTW"}, False),
        ({"CONFIG_TYPE": "GRPC_XDS_SOTW", "HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "true"}, True),
        ({"HEALTHY_WITH_AT_LEAST_ONE_CONFIG_LOADED": "false"}, False),
    ],
)
def test_health_waits_for_rules_of_files_alone(env: Mapping[str, str], needs: bool) -> None:
    """Unless the setting says otherwise: a control plane without rules sends none."""
    assert read(env=env).health_needs_rules is needs


def test_ignored_variables_are_told_in_order_and_once() -> None:
    """Whatever else is in the environment; a name that only begins alike is no variable of its."""
    assert find_ignored(["REDIS_STARTUP_RETRIES"]) == ["REDIS_STARTUP_RETRIES"]
    found = find_ignored(["REDIS_URL", "HOME", "BACKEND_TYPE", "REDIS", "BACKEND_TYPES", "PATH"])
    assert found == ["BACKEND_TYPE", "REDIS_URL"]
