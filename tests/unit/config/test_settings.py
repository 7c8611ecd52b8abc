"""Settings: flags, environment, defaults, and durations."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.durations import format_duration, parse_duration_ms
from penstock.config.kinds import BOOL, DURATION, LEVEL, PORT, TEXT, UNAVAILABLE, Kind
from penstock.config.settings import DECLARED, Declared, Settings, add_flags, read_settings
from penstock.errors import ConfigError


def read(*argv: str, env: Mapping[str, str] | None = None) -> Settings:
    """Read settings as `penstock serve` does."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(parser.parse_args(argv), env or {})


SAMPLES: Mapping[str, tuple[tuple[str, Any], tuple[str, Any]]] = {
    TEXT.shown: (("one", "one"), ("two", "two")),
    BOOL.shown: (("true", True), ("false", False)),
    PORT.shown: (("1234", 1234), ("0", 0)),
    DURATION.shown: (("90s", 90_000), ("0", 0)),
    UNAVAILABLE.shown: (("allow", "allow"), ("DENY", "deny")),
    LEVEL.shown: (("debug", "debug"), ("Warn", "warn")),
}
"""For each kind, two ways to write it and what they mean."""


@pytest.mark.parametrize("setting", DECLARED, ids=lambda setting: setting.name)
def test_a_flag_beats_the_environment_beats_the_default(setting: Declared) -> None:
    """Each setting, by itself."""
    (one, first), (two, second) = SAMPLES[setting.kind.shown]
    assert getattr(read(), setting.name) == setting.default
    assert getattr(read(env={setting.env: one}), setting.name) == first
    if setting.kind is BOOL:
        as_one, as_two = setting.flag, f"--no-{setting.name.replace('_', '-')}"
    else:
        as_one, as_two = f"{setting.flag}={one}", f"{setting.flag}={two}"
    assert getattr(read(as_two, env={setting.env: one}), setting.name) == second
    assert getattr(read(as_one, env={setting.env: two}), setting.name) == first


def test_names_are_distinct() -> None:
    """No flag or variable means two things."""
    assert len({setting.flag for setting in DECLARED}) == len(DECLARED)
    assert len({setting.env for setting in DECLARED}) == len(DECLARED)


@pytest.mark.parametrize("setting", DECLARED, ids=lambda setting: setting.name)
def test_a_default_is_shown_as_it_would_be_written(setting: Declared) -> None:
    """What help and docs show can be given back."""
    assert setting.kind.parse(setting.default_text) == setting.default


def test_an_empty_variable_is_as_good_as_none() -> None:
    """Manifests set variables to nothing; a flag that says nothing is meant."""
    assert read(env={"GRPC_PORT": "", "PENSTOCK_STORE": ""}) == Settings()
    assert read("--store", "").store == ""


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        *[(BOOL, text, True) for text in ("1", "t", "true", "TRUE", "yes", "on", "On")],
        *[(BOOL, text, False) for text in ("0", "f", "false", "False", "no", "off")],
        (PORT, "65535", 65535),
        (DURATION, "1h30m", 5_400_000),
        (DURATION, "250ms", 250),
        (DURATION, "2d", 172_800_000),
        (LEVEL, "ERROR", "error"),
        (LEVEL, "Warning", "warn"),
        (LEVEL, "trace", "debug"),
    ],
)
def test_every_kind_of_value_is_read(kind: Kind, text: str, value: object) -> None:
    """In the spellings that people use."""
    assert kind.parse(text) == value


@pytest.mark.parametrize("flag", ["--shadow-mode", "--merge-domain-config"])
def test_a_flag_of_true_or_false_has_an_opposite(flag: str) -> None:
    """Which goes before the environment, too."""
    name = flag.removeprefix("--").replace("-", "_")
    assert getattr(read(flag), name) is True
    assert getattr(read(f"--no-{flag[2:]}", env={name.upper(): "true"}), name) is False


BAD = [
    ("--grpc-port", "GRPC_PORT", "65536", "'65536' is no port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "http", "'http' is no port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "-1", "'-1' is no port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "\u0668", "'\u0668' is no port: write a number from 0 to 65535"),
    ("--drain-timeout", "PENSTOCK_DRAIN_TIMEOUT", "soon",
     "'soon' is no duration: write a number with ms, s, m, h or d, such as 90s or 1h30m"),
    ("--on-unavailable", "PENSTOCK_ON_UNAVAILABLE", "panic",
     "'panic' is not one of error, allow, deny"),
    ("--log-level", "LOG_LEVEL", "loud", "'loud' is not one of debug, info, warn, error"),
]  # fmt: skip


def test_a_bad_truth_names_its_variable() -> None:
    """A flag can't be given one."""
    with pytest.raises(ConfigError, match="SHADOW_MODE: 'maybe' is neither true nor false"):
        read(env={"SHADOW_MODE": "maybe"})


@pytest.mark.parametrize(("flag", "variable", "text", "problem"), BAD)
def test_a_bad_value_names_the_flag_or_variable(
    flag: str, variable: str, text: str, problem: str
) -> None:
    """So that the reader knows what to mend."""
    with pytest.raises(ConfigError) as from_flag:
        read(f"{flag}={text}")
    assert str(from_flag.value) == f"{flag}: {problem}"
    with pytest.raises(ConfigError) as from_variable:
        read(env={variable: text})
    assert str(from_variable.value) == f"{variable}: {problem}"


@pytest.mark.parametrize(
    ("env", "path"),
    [
        ({"RUNTIME_ROOT": "/data"}, "/data/config"),
        ({"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "ratelimit"}, "/data/ratelimit/config"),
        ({"RUNTIME_ROOT": "/data", "RUNTIME_SUBDIRECTORY": "r", "RUNTIME_APPDIRECTORY": "app"},
         "/data/r/app"),
        ({"RUNTIME_ROOT": "/data", "PENSTOCK_CONFIG": "own.yaml"}, "own.yaml"),
    ],
)  # fmt: skip
def test_rules_come_from_the_runtime_directory_or_the_config(
    env: Mapping[str, str], path: str
) -> None:
    """The reference server's three parts, unless our own setting says it."""
    assert read(env=env).rules_path() == Path(path)


def test_without_a_place_for_rules_the_message_says_how_to_give_one() -> None:
    """A second and third part alone are no place."""
    message = "no rules: give --config FILE_OR_DIRECTORY, or set RUNTIME_ROOT"
    with pytest.raises(ConfigError, match=message):
        read(env={"RUNTIME_SUBDIRECTORY": "ratelimit"}).rules_path()


@pytest.mark.parametrize(
    ("duration_ms", "text"),
    [(0, "0"), (1, "1ms"), (90_000, "1m30s"), (3_600_000, "1h"), (86_400_000, "24h")],
)
def test_durations_are_written_in_the_largest_units(duration_ms: int, text: str) -> None:
    """Hours at most, as the reference server writes its defaults."""
    assert format_duration(duration_ms) == text


@given(st.integers(0, 10**15))
def test_durations_survive_writing_and_reading(duration_ms: int) -> None:
    """What is written is read back as the same time."""
    assert parse_duration_ms(format_duration(duration_ms)) == duration_ms


@given(st.text(alphabet="0123456789hmsd. -\u0661") | st.text())
def test_what_is_no_duration_is_a_value_error(text: str) -> None:
    """Anything else is read."""
    try:
        duration_ms = parse_duration_ms(text)
    except ValueError:
        return
    assert duration_ms >= 0


@pytest.mark.parametrize("text", ["", "5", "s", "1.5h", "-1s", "1 s", "1S", "1h ", "\u0661s"])
def test_half_a_duration_is_refused(text: str) -> None:
    """A number needs its unit, and nothing else."""
    with pytest.raises(ValueError, match="is no duration"):
        parse_duration_ms(text)
