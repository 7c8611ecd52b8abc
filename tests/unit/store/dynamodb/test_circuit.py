"""The circuit: when calls are made while DynamoDB fails. Time is an argument."""

from itertools import pairwise

from penstock.store.dynamodb.aws.circuit import (
    FIRST_PAUSE_S,
    LONGEST_PAUSE_S,
    OPENS_AFTER,
    Circuit,
)

START_S = 1_000.0
STEP_S = FIRST_PAUSE_S / 10


def opened(at_s: float = START_S) -> Circuit:
    """A circuit that was just opened."""
    circuit = Circuit()
    fail(circuit, OPENS_AFTER, at_s)
    return circuit


def fail(circuit: Circuit, times: int, at_s: float = START_S) -> None:
    for _ in range(times):
        assert circuit.admits(at_s)
        circuit.failed(at_s)


def next_trial_s(circuit: Circuit, from_s: float) -> float:
    """When it first admits a call; asks many times a pause, as callers do."""
    now_s = from_s
    while not circuit.admits(now_s):
        now_s += STEP_S
        assert now_s < from_s + 10 * LONGEST_PAUSE_S
    return now_s


def test_a_new_circuit_admits_every_call() -> None:
    """At any time, also without an answer to those before."""
    circuit = Circuit()
    assert all(circuit.admits(now_s) for now_s in (START_S, START_S, START_S + 1))


def test_it_opens_after_failures_in_a_row_and_not_before() -> None:
    """The last call before that is still made."""
    circuit = Circuit()
    fail(circuit, OPENS_AFTER - 1)
    assert circuit.admits(START_S)
    circuit.failed(START_S)
    assert not circuit.admits(START_S)


def test_a_success_between_failures_starts_the_count_anew() -> None:
    """Single failures, however many, are no outage."""
    circuit = Circuit()
    for _ in range(3):
        fail(circuit, OPENS_AFTER - 1)
        circuit.succeeded()
    fail(circuit, OPENS_AFTER - 1)
    assert circuit.admits(START_S)


def test_an_open_circuit_admits_nothing_until_the_pause_is_over() -> None:
    """To the very end of it."""
    circuit = opened()
    assert not circuit.admits(START_S)
    assert not circuit.admits(START_S + FIRST_PAUSE_S - 0.001)
    assert circuit.admits(START_S + FIRST_PAUSE_S)


def test_one_trial_a_pause_is_made_while_no_answer_comes() -> None:
    """A trial that hangs does not let others through before another pause is over."""
    circuit = opened()
    first_s = next_trial_s(circuit, START_S)
    assert not circuit.admits(first_s)
    assert not circuit.admits(first_s + FIRST_PAUSE_S - 0.001)
    assert circuit.admits(first_s + FIRST_PAUSE_S)


def test_pauses_grow_to_the_longest_while_trials_fail() -> None:
    """So that a store that is gone for long is asked seldom, and one that is back soon enough."""
    circuit = opened()
    trials_s = [START_S]
    for _ in range(8):
        trials_s.append(next_trial_s(circuit, trials_s[-1]))
        circuit.failed(trials_s[-1])
    pauses_s = [later - earlier for earlier, later in pairwise(trials_s)]
    assert abs(pauses_s[0] - FIRST_PAUSE_S) <= STEP_S
    assert all(later >= earlier - STEP_S for earlier, later in pairwise(pauses_s))
    assert pauses_s[1] > 1.5 * pauses_s[0]
    assert all(abs(pause_s - LONGEST_PAUSE_S) <= STEP_S for pause_s in pauses_s[-3:])


def test_a_pause_begins_when_the_trial_has_failed() -> None:
    """Not when it was sent: one that took a second to fail is not followed at once."""
    circuit = opened()
    sent_s = next_trial_s(circuit, START_S)
    circuit.failed(sent_s + 1)
    assert not circuit.admits(sent_s + 1)
    assert not circuit.admits(sent_s + 1 + FIRST_PAUSE_S)


def test_a_trial_that_succeeds_closes_it() -> None:
    """All calls are made again, and a new outage starts from the first pause."""
    circuit = opened()
    for _ in range(5):
        trial_s = next_trial_s(circuit, START_S + 100)
        circuit.failed(trial_s)
    circuit.succeeded()
    assert all(circuit.admits(START_S) for _ in range(3))
    fail(circuit, OPENS_AFTER - 1)
    assert circuit.admits(START_S)
    circuit.failed(START_S)
    assert not circuit.admits(START_S + FIRST_PAUSE_S - 0.001)
    assert circuit.admits(START_S + FIRST_PAUSE_S)


def test_a_late_success_of_an_older_call_closes_it_too() -> None:
    """DynamoDB answered: that it is there is known, whoever asked."""
    circuit = opened()
    circuit.succeeded()
    assert circuit.admits(START_S)


def test_calls_in_flight_do_not_lengthen_the_pause() -> None:
    """One blip that hits many calls at once is one failure, as far as the pause goes."""
    circuit = Circuit()
    for _ in range(4 * OPENS_AFTER):
        circuit.failed(START_S)
    assert circuit.admits(START_S + FIRST_PAUSE_S)
