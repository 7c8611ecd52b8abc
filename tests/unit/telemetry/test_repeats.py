"""What repeats itself in the log: once a minute, with its count. Time is an argument."""

import gc
import logging
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from penstock.telemetry.repeats import MAX_ALIKE, MAX_KEPT, WINDOW_S, Repeats

NAME = "penstock.test_repeats"
FIELDS = {"name": NAME, "levelno": logging.ERROR, "levelname": "ERROR"}


class Log(logging.Handler):
    """A logger behind `Repeats`, what it let pass, and its time."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s = 0.0
        self.repeats = Repeats(lambda: self.now_s)
        self.records: list[logging.LogRecord] = []
        self.addFilter(self.repeats)
        self.logger = logging.getLogger(NAME)
        self.logger.addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.records.append(record)

    @property
    def lines(self) -> list[str]:
        return [record.getMessage() for record in self.records]

    def fail(self, exc: Exception) -> None:
        try:
            raise exc
        except type(exc):
            self.logger.exception("a fault")


@pytest.fixture
def log() -> Iterator[Log]:
    log = Log()
    yield log
    log.logger.removeHandler(log)


def test_the_same_message_is_said_once_and_counted(log: Log) -> None:
    """The count comes when the minute is over, whether it goes on or not."""
    for _ in range(1_501):
        log.logger.warning("answering UNAVAILABLE: %s", "gone")
    assert log.lines == ["answering UNAVAILABLE: gone"]
    log.now_s = WINDOW_S - 0.1
    log.repeats.tell_due()
    assert len(log.lines) == 1
    log.now_s = WINDOW_S
    log.repeats.tell_due()
    assert log.lines[1:] == ["answering UNAVAILABLE: gone (this came 1,500 times more)"]
    log.repeats.tell_due()
    assert len(log.lines) == 2


def test_a_failure_that_goes_on_is_said_each_minute(log: Log) -> None:
    """First what there was, then that it is still so."""
    for minute in range(3):
        log.now_s = minute * WINDOW_S
        log.logger.error("gone")
        log.logger.error("gone")
    assert log.lines == ["gone", *["gone (this came once more)", "gone"] * 2]


def test_what_came_once_is_not_counted(log: Log) -> None:
    """There is nothing to add, now or at the end."""
    log.logger.warning("gone")
    log.now_s = 2 * WINDOW_S
    log.repeats.tell_due()
    log.repeats.tell_all()
    log.logger.warning("gone")
    assert log.lines == ["gone", "gone"]


def test_counts_are_told_before_the_process_ends(log: Log) -> None:
    """However long their minute would go on."""
    for text in ("one", "two", "one", "two", "one"):
        log.logger.warning(text)
    log.repeats.tell_all()
    counts = ["one (this came 2 times more)", "two (this came once more)"]
    assert log.lines == ["one", "two", *counts]
    log.repeats.tell_all()
    assert len(log.lines) == 4


def test_a_count_is_as_severe_as_what_it_counts(log: Log) -> None:
    """And of the same logger, so that whoever looks for one finds the other."""
    for _ in range(2):
        log.logger.error("gone: 100%")
    log.repeats.tell_all()
    first, count = log.records
    assert (count.name, count.levelno, count.levelname) == (NAME, logging.ERROR, "ERROR")
    assert count.created >= first.created


def test_messages_that_differ_in_what_they_name_are_folded(log: Log) -> None:
    """After ten, as clients may choose the names; other messages are not concerned."""
    for number in range(MAX_ALIKE + 50):
        log.logger.warning("no limit %s", number)
    log.logger.warning("something else")
    said = [f"no limit {number}" for number in range(MAX_ALIKE + 1)]
    assert log.lines == [*said, "something else"]
    log.repeats.tell_all()
    count = f"no limit {MAX_ALIKE} (this, or others like it, came 49 times more)"
    assert log.lines[MAX_ALIKE + 2 :] == [count]


def test_one_of_the_first_ten_is_counted_as_itself(log: Log) -> None:
    """Also when there are others by then."""
    for number in (*range(MAX_ALIKE + 5), 3, 3):
        log.logger.warning("no limit %s", number)
    log.repeats.tell_all()
    assert "no limit 3 (this came 2 times more)" in log.lines


def test_names_are_told_again_when_their_minute_is_over(log: Log) -> None:
    """Ten in each minute, not ten for ever."""
    for minute in range(2):
        log.now_s = minute * WINDOW_S
        for number in range(2 * MAX_ALIKE):
            log.logger.warning("no limit %s", number)
    assert log.lines.count("no limit 0") == 2
    assert log.lines.count("no limit 9") == 2


def test_an_exception_of_another_kind_is_not_swallowed(log: Log) -> None:
    """However many of one kind there were, with a text of their own each."""
    for number in range(2 * MAX_ALIKE):
        log.fail(ValueError(number))
    log.fail(KeyError("x"))
    kinds = [record.exc_info[0] for record in log.records if record.exc_info]
    assert kinds == [ValueError] * (MAX_ALIKE + 1) + [KeyError]
    log.fail(KeyError("x"))
    log.repeats.tell_all()
    assert log.lines[-1] == "a fault: KeyError: 'x' (this came once more)"


def test_the_same_text_of_another_logger_is_another_message(log: Log) -> None:
    """Two rooms may fail alike, and each should say so."""
    log.logger.warning("gone")
    log.logger.getChild("other").warning("gone")
    assert len(log.lines) == 2


def test_what_is_less_than_a_warning_is_never_touched(log: Log) -> None:
    """An operator who asks for debug lines wants all of them."""
    log.logger.setLevel(logging.DEBUG)
    for _ in range(3):
        log.logger.info("rules loaded")
        log.logger.debug("OK")
    log.repeats.tell_all()
    assert log.lines == ["rules loaded", "OK"] * 3


def test_no_more_than_so_many_messages_are_kept(log: Log) -> None:
    """The oldest goes, and its count is told then."""
    log.logger.warning("first")
    log.logger.warning("first")
    for number in range(MAX_KEPT):
        log.logger.warning(f"kind {number}")
    assert log.lines.count("first (this came once more)") == 1
    log.records.clear()
    for number in range(MAX_KEPT):
        log.logger.warning(f"kind {number}")
    assert log.lines == []
    log.logger.warning("first")
    assert log.lines == ["kind 0 (this came once more)", "first"]


def test_a_message_that_cannot_be_put_together_harms_nobody(log: Log) -> None:
    """Not the one who logs it, least of all."""

    class Unspeakable:
        def __str__(self) -> str:
            raise RuntimeError("no")

    unspeakable = logging.makeLogRecord(FIELDS | {"msg": "%s", "args": (Unspeakable(),)})
    assert [log.repeats.filter(unspeakable) for _ in range(2)] == [True, False]


@pytest.fixture
def restless() -> Iterator[None]:
    """Threads take turns as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("restless")
def test_threads_lose_no_message(log: Log) -> None:
    """gRPC's and OTLP's threads log, too: what was not said is counted, also as minutes end."""
    threads, each = 8, 3_000
    start = threading.Barrier(threads)
    passed: list[bool] = []
    records = [logging.makeLogRecord(FIELDS | {"msg": f"gone {number}"}) for number in range(3)]

    def work() -> None:
        start.wait()
        for number in range(each):
            log.now_s += WINDOW_S / 5
            passed.append(log.repeats.filter(records[number % 3]))

    with ThreadPoolExecutor(threads) as pool:
        working = [pool.submit(work) for _ in range(threads)]
    for one in working:
        one.result()
    log.repeats.tell_all()
    assert sum(passed) + sum(map(_messages, log.lines)) == threads * each


def _messages(count: str) -> int:
    """How many messages a line with a count stands for."""
    times = count.partition("came ")[2].split()[0]
    return 1 if times == "once" else int(times)


def test_one_thread_waits_while_another_counts() -> None:
    """Or both would take a message for new."""
    error = logging.makeLogRecord(FIELDS | {"msg": "gone"})
    passed: list[bool] = []
    waited: list[bool] = []
    other = threading.Thread(target=lambda: passed.append(repeats.filter(error)))

    def clock_s() -> float:
        if threading.current_thread() is not other:
            other.start()
            other.join(0.1)
            waited.append(other.is_alive())
        return 0.0

    repeats = Repeats(clock_s)
    passed.append(repeats.filter(error))
    other.join()
    assert waited == [True]
    assert passed == [True, False]


def test_a_destructor_that_logs_in_the_middle_locks_nobody_out(log: Log) -> None:
    """As asyncio's do, whenever the garbage is collected."""

    class Dying:
        def __init__(self) -> None:
            self.circle = self

        def __del__(self) -> None:
            log.logger.error("never retrieved")

    def clock_s() -> float:
        gc.collect()
        return 0.0

    log.removeFilter(log.repeats)
    log.addFilter(Repeats(clock_s))
    Dying()
    log.logger.error("gone")
    assert sorted(log.lines) == ["gone", "never retrieved"]
