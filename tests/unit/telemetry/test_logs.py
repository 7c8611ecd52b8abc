"""Lines of the log: text, JSON by the reference server's names, and no secrets of libraries."""

import json
import logging
import sys
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from penstock.core.foreign_text import is_plain
from penstock.telemetry.logs import MAX_FIELD, JsonFormatter, TextFormatter, set_up

NOON = datetime(2026, 11, 16, 12, 0, 0, 250_000, UTC)


def record(message: object, *args: object, **fields: object) -> logging.LogRecord:
    made = {"name": "penstock.x", "levelno": logging.WARNING, "levelname": "WARNING"}
    made |= {"msg": message, "args": args, "created": NOON.timestamp()}
    return logging.makeLogRecord(made | fields)


def line(made: logging.LogRecord) -> dict[str, str]:
    text = JsonFormatter().format(made)
    assert len(text.splitlines()) == 1
    assert text.isascii()
    read: dict[str, str] = json.loads(text)
    return read


def test_a_line_has_the_names_of_the_reference_server() -> None:
    """And its names of levels; the time is RFC 3339."""
    assert line(record("%s of %d", "one", 2)) == {
        "@timestamp": "2026-11-16T12:00:00.250000Z",
        "@message": "one of 2",
        "level": "warning",
        "logger": "penstock.x",
    }


def test_a_worker_says_which_one_it_is() -> None:
    """In text and in JSON."""
    made = record("%s", "ready")
    assert TextFormatter(2).format(made).endswith(" WARNING [worker 2] ready")
    assert json.loads(JsonFormatter(2).format(made))["worker"] == 2
    assert "worker" not in TextFormatter().format(made) + JsonFormatter().format(made)


def test_an_exception_is_in_the_line() -> None:
    """With its traceback, which has lines of its own otherwise."""
    try:
        raise ValueError("what\nnow")
    except ValueError:
        made = record("a fault", exc_info=sys.exc_info())
    error = line(made)["error"]
    assert error.startswith("Traceback (most recent call last):\n")
    assert error.endswith("ValueError: what\nnow")


@given(st.text(st.characters(exclude_categories=())))
def test_whatever_is_said_is_a_line_of_json(text: str) -> None:
    """Quotes, line ends, control characters and halves of surrogate pairs."""
    assert line(record("%s", text))["@message"] == text
    assert line(record(text))["@message"] == text


def test_arguments_that_do_not_fit_are_a_line_too() -> None:
    """The message as it stands in the code is better than none."""
    assert line(record("%d left", "none"))["@message"].startswith("%d left")


@pytest.fixture
def own_logging() -> Iterator[None]:
    """Loggers as they were, afterwards."""
    root, ours = logging.getLogger(), logging.getLogger("penstock")
    handlers, levels = root.handlers[:], (root.level, ours.level)
    root.handlers = []
    yield
    root.handlers = handlers
    root.setLevel(levels[0])
    ours.setLevel(levels[1])
    logging.captureWarnings(capture=False)


@pytest.mark.parametrize(
    ("level", "ours", "theirs"),
    [
        ("debug", logging.DEBUG, logging.WARNING),
        ("info", logging.INFO, logging.WARNING),
        ("warn", logging.WARNING, logging.WARNING),
        ("error", logging.ERROR, logging.ERROR),
    ],
)
@pytest.mark.usefixtures("own_logging")
def test_libraries_are_never_asked_for_less_than_warnings(
    level: str, ours: int, theirs: int
) -> None:
    """Theirs have signatures and tokens."""
    set_up(level, "text")
    assert logging.getLogger("penstock.server").getEffectiveLevel() == ours
    assert logging.getLogger("botocore.auth").getEffectiveLevel() == theirs


@pytest.mark.usefixtures("own_logging")
def test_a_warning_of_python_is_a_line_too(capsys: pytest.CaptureFixture[str]) -> None:
    """What is on stderr can be read by a machine, all of it."""
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        set_up("info", "json")
        warnings.warn("old ways", stacklevel=1)
    (said,) = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert said["level"] == "warning"
    assert "old ways" in said["@message"]


def text_lines(made: logging.LogRecord) -> list[str]:
    return TextFormatter().format(made).split("\n")


def test_a_line_of_text_has_the_time_and_the_level() -> None:
    """As Python writes them."""
    made = record("%s of %d", "one", 2)
    (said,) = text_lines(made)
    when = logging.Formatter().formatTime(made)
    assert said == f"{when} WARNING one of 2"


@given(st.text(st.characters(exclude_categories=())))
def test_no_text_begins_a_line_of_the_log(text: str) -> None:
    """Whoever forgot to escape it: its lines are indented, and a terminal does not act on them."""
    first, *others = text_lines(record("%s", f"a{text}"))
    assert " WARNING a" in first
    assert all(other.startswith("    ") for other in others)
    assert all(map(is_plain, [first, *others]))


def test_errors_of_many_lines_can_be_read() -> None:
    """Those of rules files, and tracebacks."""
    try:
        raise ValueError("what\nnow")
    except ValueError:
        lines = text_lines(record("bad:\na.yaml:1: x\na.yaml:2: y", exc_info=sys.exc_info()))
    assert lines[0].endswith(" WARNING bad:")
    assert lines[1:4] == [
        "    a.yaml:1: x", "    a.yaml:2: y", "    Traceback (most recent call last):",
    ]  # fmt: skip
    assert lines[-2:] == ["    ValueError: what", "    now"]


def test_a_message_without_end_is_cut() -> None:
    """In both forms, with its traceback."""
    try:
        raise ValueError("y" * 1_000_000)
    except ValueError:
        made = record("x" * 1_000_000, exc_info=sys.exc_info())
    assert len(TextFormatter().format(made)) < 10_000
    assert len(json.dumps(line(made))) < 3 * MAX_FIELD


def test_arguments_that_do_not_fit_are_a_line_of_text_too() -> None:
    """Python would print a traceback of its own, with the arguments as they are."""
    (said,) = text_lines(record("%d left", "\x1b[2J"))
    assert said.endswith("%d left (its arguments do not fit)")
