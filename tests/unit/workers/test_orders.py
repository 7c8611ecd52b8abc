"""What the parent and its workers send each other arrives as it was."""

import json
from dataclasses import fields
from typing import Any

import pytest
from penstock.config.settings import Settings
from penstock.errors import (
    ConfigError,
    InvalidRequestError,
    OverloadError,
    RequestError,
    StoreError,
)
from penstock.workers.orders import Begin, Question, read_answer, write_answer, write_error


def sent(body: Any) -> Any:
    return json.loads(json.dumps(body))


def test_a_worker_has_the_settings_of_its_parent() -> None:
    """Every one of them, with the types that they have."""
    settings = Settings(
        config="\ud800é",
        workers=3,
        near_limit_ratio=1 / 3,
        local_cache_size_in_bytes=0,
        prometheus_addr=("::1", 9090),
        extra_tags=(("a", "1"), ("b", "x:y")),
        shadow_mode=True,
    )
    begin = Begin.read(sent(Begin(settings, 8081).write()))
    assert begin == Begin(settings, 8081)
    assert [type(getattr(begin.settings, one.name)) for one in fields(Settings)] == [
        type(getattr(settings, one.name)) for one in fields(Settings)
    ]


def test_a_worker_of_another_version_does_not_begin() -> None:
    """Another version was installed while the parent runs, and the message says what to do."""
    _, *rest = sent(Begin(Settings(), 8081).write())
    with pytest.raises(ConfigError, match=r"was installed while version 0\.0\.1 runs: restart"):
        Begin.read(["0.0.1", *rest])


@pytest.mark.parametrize("timeout_s", [None, 0.25])
def test_a_question_arrives_as_it_was_asked(timeout_s: float | None) -> None:
    """Any bytes, with or without a deadline."""
    question = Question(bytes(range(256)), timeout_s, "json")
    assert Question.read(sent(question.write())) == question


def test_an_answer_arrives_as_it_was_given() -> None:
    """Any bytes."""
    assert read_answer(sent(write_answer(bytes(range(256))))) == bytes(range(256))


@pytest.mark.parametrize(
    "error",
    [
        RequestError("no domain"),
        InvalidRequestError("no sense"),
        OverloadError("too many"),
        StoreError("table t", kind="throttled"),
    ],
)
def test_an_error_is_raised_as_it_was(error: RequestError | StoreError) -> None:
    """Of the same class, with the same text for the log and for the caller."""
    with pytest.raises(type(error)) as raised:
        read_answer(sent(write_error(error)))
    assert str(raised.value) == str(error)
    if isinstance(error, StoreError):
        assert getattr(raised.value, "for_caller", "") == error.for_caller
