"""Errors print as one clear message, travel, and are retried by one table."""

from __future__ import annotations

import json
import pickle
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, strategies as st

from trainyard import errors
from trainyard.errors import (
    BudgetExceededError,
    CapacityError,
    ContractError,
    Finding,
    JobFailedError,
    QuotaExceededError,
    RejectedRequestError,
    ScriptError,
    Severity,
    SpecError,
    TrainingRunError,
    error_from_dict,
    near_matches,
    unknown_key,
)
from trainyard.retry_table import RETRY_TABLE, retry_rule

if TYPE_CHECKING:
    from collections.abc import Iterator

FINDING = Finding(where="max_wait", what="is too short", got="1", allowed="2", next_step="wait")
SAMPLES = (
    TrainingRunError("bad", where="here", got={"a": 1}, allowed="b", next_step="fix it"),
    SpecError([FINDING], subject="conf"),
    RejectedRequestError("no", operation="CreateTrainingJob", code="AccessDenied"),
    QuotaExceededError("no", operation="CreateTrainingJob", code="ResourceLimitExceeded"),
    CapacityError("none left", job_name="j"),
    ScriptError("raised", job_name="j", reason="ValueError: x", exit_code=1),
    BudgetExceededError("too dear", budget_usd=1.0, needed_usd=2.5),
    ContractError("bug"),
)


def all_errors(cls: type[TrainingRunError] = TrainingRunError) -> Iterator[type[TrainingRunError]]:
    yield cls
    for sub in cls.__subclasses__():
        yield from all_errors(sub)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_pickles_with_its_data_and_its_message(error: TrainingRunError) -> None:
    copy = pickle.loads(pickle.dumps(error))  # noqa: S301  # our own bytes

    assert type(copy) is type(error)
    assert vars(copy) == vars(error)
    assert str(copy) == str(error)


@pytest.mark.parametrize("error", SAMPLES, ids=lambda e: type(e).__name__)
def test_an_error_travels_as_json(error: TrainingRunError) -> None:
    copy = error_from_dict(json.loads(json.dumps(error.to_dict())))

    assert type(copy) is type(error)
    assert str(copy) == str(error)


def test_the_message_says_what_where_got_allowed_and_the_next_step() -> None:
    error = TrainingRunError(
        "the channel is empty",
        where="channel train",
        got="s3://b/x: 0 objects",
        allowed="at least one object",
        next_step="check the prefix",
    )

    assert str(error).splitlines() == [
        "the channel is empty",
        "  where: channel train",
        "  got: s3://b/x: 0 objects",
        "  allowed: at least one object",
        "  next step: check the prefix",
    ]


def test_findings_are_numbered_and_errors_come_before_warnings() -> None:
    warning = Finding(where="a", what="is odd", severity=Severity.WARNING)

    message = str(SpecError([warning, FINDING], subject="run conf"))

    assert message.splitlines() == [
        "run conf: 2 problem(s) to fix before anything starts",
        "  1. max_wait: is too short; got 1; allowed: 2; wait",
        "  2. a: is odd",
    ]


def test_an_error_without_findings_is_our_bug() -> None:
    with pytest.raises(ContractError):
        SpecError([])


def test_a_spec_error_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="1 problem"):
        raise SpecError([FINDING])


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(str(TrainingRunError("bad", got="x" * 10_000))) < 1300


def test_every_class_has_a_retry_rule() -> None:
    assert all(retry_rule(cls) is not None for cls in all_errors())


def test_an_error_that_is_not_ours_has_no_rule() -> None:
    assert retry_rule(KeyError("x")) is None


@pytest.mark.parametrize(
    ("name", "is_retried"),
    [
        ("CapacityError", True),
        ("ThrottledError", True),
        ("QuotaExceededError", True),
        ("InfrastructureError", True),
        ("SpotInterruptionError", True),
        ("ScriptError", False),
        ("DeviceMemoryError", False),
        ("DataError", False),
        ("HungJobError", True),
        ("TimeLimitError", False),
        ("ResumableTimeLimitError", True),
        ("JobStoppedError", False),
        ("RejectedRequestError", False),
        ("SpecError", False),
        ("BudgetExceededError", False),
        ("ContractError", False),
    ],
)
def test_only_what_another_try_can_mend_is_retried(name: str, *, is_retried: bool) -> None:
    rule = retry_rule(getattr(errors, name))

    assert rule is not None
    assert rule.retry is is_retried
    assert (rule.delay_s > 0) is is_retried


@given(attempt=st.integers(1, 60))
def test_waits_grow_with_the_attempt_up_to_their_ceiling(attempt: int) -> None:
    for rule in RETRY_TABLE.values():
        assert rule.delay_for(attempt) <= rule.delay_for(attempt + 1) <= rule.max_delay_s


def test_unknown_data_is_no_error_of_ours() -> None:
    with pytest.raises(ContractError, match="unknown error class"):
        error_from_dict({"error": "KeyError", "what": "x"})


def test_near_matches_ignore_case_and_give_the_nearest_first() -> None:
    assert near_matches("ML.M5.lrge", ["ml.c5.large", "ml.m5.large", "ml.p3.2xlarge"])[0] == (
        "ml.m5.large"
    )
    assert near_matches("zzz", ["alpha"]) == []


def test_an_unknown_key_names_the_nearest_or_all() -> None:
    near = unknown_key("conf", "lerning_rate", ["learning_rate", "seed"])
    far = unknown_key("", "zzz", ["b", "a"])

    assert str(near) == ("conf.lerning_rate: is an unknown key; did you mean 'learning_rate'?")
    assert far.allowed == "a, b"


def test_a_failed_job_says_which_and_why() -> None:
    error = JobFailedError("the job failed", job_name="job-1", reason="because")

    assert error.where == "job job-1"
    assert "because" in str(error)


def test_one_fault_is_told_once_as_an_error() -> None:
    warning = Finding(where="a", what="is wrong", got="1", severity=Severity.WARNING)
    error = Finding(where="a", what="is wrong", got="1", next_step="mend it")

    told = SpecError([warning, error, replace(error, next_step=None)]).findings

    assert len(told) == 1
    assert told[0].severity is Severity.ERROR
    assert len(SpecError([error, replace(error, got="2")]).findings) == 2
