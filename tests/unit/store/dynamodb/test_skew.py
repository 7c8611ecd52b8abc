"""A server's clock compared with DynamoDB's, by the `Date` of its answers."""

import logging
import time
from email.utils import formatdate

import pytest
from penstock.store.dynamodb.aws.skew import WARN_EVERY_S, WARN_S, ClockSkew, skew_s
from penstock.store.dynamodb.store import DynamoStore
from penstock.telemetry.instruments import Value

from tests.support.tables import PATIENT_S, never
from tests.unit.store.dynamodb.scenes import Scene, fits, take

START = 1_794_792_780.0


@pytest.mark.parametrize(
    ("sent_s", "got_s", "skew"),
    [
        # DynamoDB's answer was made somewhere in the second that begins at 100.
        (100.0, 100.1, 0),
        (100.9, 101.0, 0),
        (100.99, 101.8, 0),  # it took almost a second to arrive
        (99.5, 100.0, 0),
        (90.0, 110.0, 0),
        (104.5, 104.6, 3.5),
        (104.5, 109.0, 3.5),
        (96.0, 96.5, -3.5),
        (90.0, 96.5, -3.5),
    ],
)
def test_only_what_is_certain_counts_as_skew(sent_s: float, got_s: float, skew: float) -> None:
    """Neither the fraction of a second that `Date` leaves out, nor the time of the call."""
    assert skew_s(100.0, sent_s, got_s) == pytest.approx(skew)


class Watched:
    """A clock, with its gauge and answers that have any date."""

    def __init__(self) -> None:
        self.gauge = Value()
        self._skew = ClockSkew(self.gauge)

    def answer(self, ahead_s: float, now_s: float = START, header: str | None = None) -> None:
        date = formatdate(now_s - ahead_s, usegmt=True) if header is None else header
        response = {"ResponseMetadata": {"HTTPHeaders": {"date": date}}}
        self._skew.saw(response, now_s, now_s + 0.01)


def test_a_clock_that_is_wrong_is_told_of_once_in_a_while(caplog: pytest.LogCaptureFixture) -> None:
    """With what to do; and once more when it is right again."""
    caplog.set_level(logging.INFO, "penstock.store.dynamodb.aws.skew")
    clock = Watched()
    for now_s in (START, START + 1, START + WARN_EVERY_S - 1):
        clock.answer(60, now_s)
    assert len(caplog.records) == 1
    assert caplog.records[0].levelno == logging.WARNING
    assert "59 s ahead of DynamoDB's: synchronise it by NTP" in caplog.messages[0]
    clock.answer(60, START + WARN_EVERY_S + 1)
    assert len(caplog.records) == 2
    clock.answer(0, START + WARN_EVERY_S + 2)
    clock.answer(0, START + WARN_EVERY_S + 3)
    assert "agrees with DynamoDB's again" in caplog.messages[2]
    assert len(caplog.records) == 3
    clock.answer(-60, START)
    assert "60 s behind DynamoDB's" in caplog.messages[3]


def test_some_seconds_are_in_the_metric_and_not_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A second of doubt on top, or a clock at the border would be told of now and then."""
    clock = Watched()
    clock.answer(WARN_S)
    assert clock.gauge.value == WARN_S - 1
    assert not caplog.records


@pytest.mark.parametrize("header", ["", "yesterday", "Mon, 99 Foo 2026 00:00:00 GMT"])
def test_an_answer_without_a_date_says_nothing(header: str) -> None:
    """A proxy on the way may send anything. What was known stays."""
    clock = Watched()
    clock.answer(60)
    clock.answer(0, header=header)
    assert clock.gauge.value == 59
    ClockSkew(clock.gauge).saw({}, START, START)
    assert clock.gauge.value == 59


def test_a_clock_that_is_set_back_during_a_call_says_nothing() -> None:
    """The answer seems to come before the question."""
    gauge = Value()
    response = {"ResponseMetadata": {"HTTPHeaders": {"date": formatdate(START, usegmt=True)}}}
    ClockSkew(gauge).saw(response, START + 100, START)
    assert gauge.value == 0


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("offset_s", [0, 10_000, -10_000])
async def test_answers_and_errors_of_dynamodb_tell_the_skew(scene: Scene, offset_s: int) -> None:
    """Those of a real one, however long they take; a failed condition has a date as well."""
    connected, bob = scene.connected, scene.key("bob")
    start = time.time()
    for tokens in (5, 1):
        store = DynamoStore(
            connected.direct,
            connected.location,
            timer_s=scene.clock,
            call_s=PATIENT_S,
            clock_s=lambda: time.time() + offset_s,
            later=never,
        )
        assert await fits(store, take(bob, tokens)) == [tokens == 5]
        skew = store.metrics.clock_skew.value
        doubt = 1 + time.time() - start
        assert abs(skew - offset_s) <= doubt
        assert (skew == 0) == (offset_s == 0)
