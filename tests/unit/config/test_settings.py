"""Settings: flags, environment, defaults, and durations."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.config.durations import format_duration, parse_duration_ms
from penstock.config.flags import DECLARED, Declared, add_flags, read_settings, refuse_gone
from penstock.config.kinds import (
    ADDRESS,
    BOOL,
    CALLS,
    COUNT,
    COUNTING,
    DECISIONS,
    DURATION,
    EVENT_LOOP,
    FORMAT,
    HEADERS,
    LEVEL,
    MESSAGE_BYTES,
    NAMES,
    PAIRS,
    PATH,
    PORT,
    PROTOCOL,
    REQUEST_BYTES,
    SHARE,
    SIZE,
    SOURCE,
    TAGS,
    TEXT,
    TRANSPORT,
    UNAVAILABLE,
    USAGE,
    VALUES,
    WORKERS,
    Kind,
)
from penstock.config.settings import Settings
from penstock.core.usage import DAY_MS, HOUR_MS, USAGE_KEPT, UsageKept
from penstock.errors import ConfigError


def read(*argv: str, env: Mapping[str, str] | None = None) -> Settings:
    """Read settings as `penstock serve` does."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_flags(parser)
    return read_settings(parser.parse_args(argv), env or {})


SAMPLES: Mapping[str, tuple[tuple[str, Any], tuple[str, Any]]] = {
    TEXT.shown: (("one", "one"), ("two", "two")),
    PATH.shown: (("one", "one"), ("two", "two")),
    BOOL.shown: (("true", True), ("false", False)),
    PORT.shown: (("1234", 1234), ("0", 0)),
    DURATION.shown: (("90s", 90_000), ("0", 0)),
    COUNTING.shown: (("fixed", "fixed"), ("Reference", "reference")),
    UNAVAILABLE.shown: (("allow", "allow"), ("DENY", "deny")),
    LEVEL.shown: (("debug", "debug"), ("Warn", "warn")),
    ADDRESS.shown: ((":9090", ("", 9090)), ("[::1]:80", ("::1", 80))),
    USAGE.shown: (
        ("hour=36h,day=40d,month=0", UsageKept(36 * HOUR_MS, 40 * DAY_MS, 0)),
        ("day=1d", USAGE_KEPT._replace(day_ms=DAY_MS)),
    ),
    SHARE.shown: (("0.25", 0.25), ("1", 1.0)),
    SIZE.shown: (("0", 0), ("1048576", 1_048_576)),
    COUNT.shown: (("0", 0), ("1000", 1_000)),
    WORKERS.shown: (("1", 1), ("256", 256)),
    CALLS.shown: (("1", 1), ("1000000", 1_000_000)),
    REQUEST_BYTES.shown: (("1024", 1_024), ("1048576", 1_048_576)),
    MESSAGE_BYTES.shown: (("1024", 1_024), ("104857600", 104_857_600)),
    PAIRS.shown: (("a=1,b=x=y", (("a", "1"), ("b", "x=y"))), ("none,c=", (("c", ""),))),
    HEADERS.shown: (("A:1,b:x:y", (("a", "1"), ("b", "x:y"))), (" a:1 ,", (("a", "1"),))),
    TRANSPORT.shown: (("native", "native"), ("GRPCIO", "grpcio")),
    EVENT_LOOP.shown: (("uvloop", "uvloop"), ("Asyncio", "asyncio")),
    DECISIONS.shown: (("on", "on"), ("OFF", "off")),
    VALUES.shown: (("hashed", "hashed"), ("Hidden", "hidden")),
    TAGS.shown: (("a:1,b:x:y", (("a", "1"), ("b", "x:y"))), (" a:1 ,", (("a", "1"),))),
    NAMES.shown: (("a,b", ("a", "b")), (" * ,", ("*",))),
    FORMAT.shown: (("json", "json"), ("TEXT", "text")),
    PROTOCOL.shown: (("grpc", "grpc"), ("HTTP", "http")),
    SOURCE.shown: (("FILE", "file"), ("GRPC_XDS_SOTW", "grpc_xds_sotw")),
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
    if setting.default is None:
        assert setting.default_text == ""
    else:
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
        (ADDRESS, "localhost:80", ("localhost", 80)),
        (ADDRESS, "::1:80", ("::1", 80)),
        (SHARE, "0", 0.0),
        (SHARE, ".25", 0.25),
        (TAGS, ",", ()),
        (TAGS, "a:", (("a", ""),)),
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
    ("--grpc-port", "GRPC_PORT", "65536", "'65536' is not a port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "http", "'http' is not a port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "-1", "'-1' is not a port: write a number from 0 to 65535"),
    ("--grpc-port", "GRPC_PORT", "\u0668",
     "'\u0668' is not a port: write a number from 0 to 65535"),
    ("--max-request-bytes", "PENSTOCK_MAX_REQUEST_BYTES", "1023",
     "'1023' is not a number from 1024 to 1048576"),
    ("--max-request-bytes", "PENSTOCK_MAX_REQUEST_BYTES", "1048577",
     "'1048577' is not a number from 1024 to 1048576"),
    ("--max-calls", "PENSTOCK_MAX_CALLS", "0",
     "'0' is not a number from 1 to 1000000"),
    ("--drain-timeout", "PENSTOCK_DRAIN_TIMEOUT", "soon",
     "'soon' is not a duration: write a number with ms, s, m, h or d, such as 90s or 1h30m"),
    ("--counting", "PENSTOCK_COUNTING", "window",
     "'window' is not one of steady, fixed, reference"),
    ("--on-unavailable", "PENSTOCK_ON_UNAVAILABLE", "panic",
     "'panic' is not one of error, allow, deny"),
    ("--log-level", "LOG_LEVEL", "loud", "'loud' is not one of debug, info, warn, error"),
    ("--log-format", "LOG_FORMAT", "xml", "'xml' is not one of text, json"),
    ("--config-type", "CONFIG_TYPE", "git", "'git' is not one of file, grpc_xds_sotw"),
    ("--tracing-exporter-protocol", "TRACING_EXPORTER_PROTOCOL", "udp",
     "'udp' is not one of http, grpc"),
    ("--port", "PORT", "tcp://10.0.0.1:80",
     "'tcp://10.0.0.1:80' is not a port: write a number from 0 to 65535"),
    ("--prometheus-addr", "PROMETHEUS_ADDR", "9090",
     "'9090' is not an address: write HOST:PORT, or :PORT for all addresses"),
    ("--prometheus-addr", "PROMETHEUS_ADDR", "localhost:",
     "'' is not a port: write a number from 0 to 65535"),
    ("--prometheus-addr", "PROMETHEUS_ADDR", "[::1]",
     "'1]' is not a port: write a number from 0 to 65535"),
    *[("--near-limit-ratio", "NEAR_LIMIT_RATIO", text,
       f"'{text}' is not a share: write a number from 0 to 1, such as 0.8")
      for text in ("80%", "1.01", "-0.5", "nan", "inf", "1e-1", ".", "\u0661")],
    *[("--local-cache-size-in-bytes", "LOCAL_CACHE_SIZE_IN_BYTES", text,
       f"'{text}' is not a number of bytes") for text in ("1MB", "-1", "1.5", "\u0661", "9" * 19)],
    *[("--grpc-max-connections", "PENSTOCK_GRPC_MAX_CONNECTIONS", text,
       f"'{text}' is not a number: write a number such as 1000")
      for text in ("many", "-1", "1.5", "1e3")],
    ("--http-decisions", "PENSTOCK_HTTP_DECISIONS", "yes", "'yes' is not one of auto, on, off"),
    *[("--extra-tags", "EXTRA_TAGS", text,
       f"'{text}' has a tag without a value: write name:value,name:value")
      for text in ("env", "a:1,b", ":x")],
    ("--xds-client-max-msg-size-in-bytes", "XDS_CLIENT_MAX_MSG_SIZE_IN_BYTES", "104857601",
     "'104857601' is not a number from 1024 to 104857600"),
    *[("--config-grpc-xds-client-additional-headers", "CONFIG_GRPC_XDS_CLIENT_ADDITIONAL_HEADERS",
       text, problem)
      for text, problem in [
          ("a:1,bearer", "header 2 has no name or value: write name:value,name:value"),
          ("a b:1", "header 1 has no name or value: write name:value,name:value"),
          ("token:s3cr\u00e9t", "header 1 has a value with characters that it can't have"),
      ]],
]  # fmt: skip


def test_a_bad_truth_names_its_variable() -> None:
    """A flag can't be given one."""
    with pytest.raises(ConfigError, match="SHADOW_MODE: 'maybe' is not true or false"):
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


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [
        ("1.5h", 5_400_000),
        ("0.1s", 100),
        ("1.001s", 1_001),
        ("1h0.5m", 3_630_000),
        ("0.000000000000d", 0),
        ("1500000us", 1_500),
        ("3000000ns", 3),
        ("123456789012345.5d", 10_666_666_570_666_651_200_000),
    ],
)
def test_fractions_are_read_exactly(text: str, duration_ms: int) -> None:
    """As Go has them; floating-point numbers would be off here and there."""
    assert parse_duration_ms(text) == duration_ms


@given(st.integers(0, 10**9), st.sampled_from(["s", "m", "h", "d"]), st.integers(0, 999))
def test_a_fraction_is_its_part_of_the_unit(whole: int, unit: str, thousandths: int) -> None:
    """To the millisecond, for thousandths of any unit but the millisecond."""
    parts = 1_000 * parse_duration_ms(f"{whole}{unit}") + thousandths * parse_duration_ms(
        f"1{unit}"
    )
    assert 1_000 * parse_duration_ms(f"{whole}.{thousandths:03}{unit}") == parts


@pytest.mark.parametrize("text", ["0.5ms", "0.0001s", "1.0000000001h", "1s1us", "999ns"])
def test_what_is_no_whole_number_of_milliseconds_is_refused(text: str) -> None:
    """Rather than rounded to something that nobody wrote."""
    with pytest.raises(
        ValueError, match="has fractions of a millisecond: write whole milliseconds"
    ):
        parse_duration_ms(text)


@pytest.mark.parametrize(
    "text",
    ["", "5", "s", "1.5", "1.h", ".5h", "1.5.5h", "1,5h", "-1s", "1 s", "1S", "1h ", "\u0661s"],
)
def test_half_a_duration_is_refused(text: str) -> None:
    """A number needs its unit, and nothing else."""
    with pytest.raises(ValueError, match="is not a duration"):
        parse_duration_ms(text)


@pytest.mark.parametrize("text", ["true", "false"])
def test_a_variable_that_is_gone_is_refused_with_what_to_use_instead(text: str) -> None:
    """Whatever it says: the server would not do it."""
    with pytest.raises(ConfigError) as caught:
        refuse_gone({"PENSTOCK_CHARGE_DENIED": text})
    assert str(caught.value) == (
        "PENSTOCK_CHARGE_DENIED is gone: set PENSTOCK_COUNTING=reference to count as the reference "
        "server counts, or remove the variable"
    )


def test_nothing_else_is_refused() -> None:
    """An empty variable counts as one that is not set."""
    refuse_gone({"PENSTOCK_CHARGE_DENIED": "", "PENSTOCK_COUNTING": "fixed"})
