"""Pace, redaction, links, retry policy: what needs no service."""

from __future__ import annotations

from datetime import timedelta

import pytest
from airflow.sdk.definitions.retry_policy import RetryAction
from hypothesis import given, strategies as st

import tests.dags.airflow_home  # noqa: F401
from trainyard.errors import ContractError, InfrastructureError, ScriptError, ThrottledError
from trainyard.rules.rule_retry import RetryRemedy
from trainyard_airflow.hooks.redaction import (
    description_secrets,
    is_secret_name,
    masked,
    redacted,
    secret_forms,
    spec_secrets,
)
from trainyard_airflow.jobs.end_policy import EndPolicy
from trainyard_airflow.links import JobConsoleLink, JobLogsLink, JobOutputLink, job_links
from trainyard_airflow.retry_policy import TrainingRetryPolicy
from trainyard_airflow.triggers.pace import Pace, backoff_s, jittered


@given(age_s=st.floats(0, 1e6), phase=st.sampled_from([None, "Training", "Uploading", "Stopping"]))
def test_waiting_adds_at_most_two_percent_to_a_job(age_s, phase):
    pace = Pace(longest_s=15)
    delay = pace.delay_s(age_s=age_s, phase=phase)

    assert min(pace.shortest_s, pace.ending_s) <= delay <= 15
    assert delay <= max(pace.shortest_s, 0.02 * age_s)


def test_a_young_job_is_looked_at_every_5_s_an_older_one_seldom_an_ending_one_every_second():
    assert Pace().delay_s(age_s=1, phase="Training") == 5
    assert Pace().delay_s(age_s=400, phase="Training") == 8
    assert Pace().delay_s(age_s=400, phase="Uploading") == 1


def test_a_job_that_waits_for_spot_capacity_is_polled_as_seldom_as_one_that_trains():
    assert Pace().delay_s(age_s=20_000, phase="Interrupted") == 15


def test_looks_at_jobs_that_start_together_spread():
    delays = [jittered(10.0) for _ in range(200)]

    assert all(8 <= each <= 12 for each in delays)
    assert max(delays) - min(delays) > 2


def test_backoff_doubles_up_to_its_limit():
    assert [backoff_s(n) for n in (1, 2, 3, 6, 10_000)] == [1, 2, 4, 30, 30]


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("HF_TOKEN", True),
        ("db_password", True),
        ("AWS_SECRET_ACCESS_KEY", True),
        ("api_key", True),
        ("wandb_key", True),
        ("db_pwd", True),
        ("SENTRY_DSN", True),
        ("wordsnippets", False),
        ("tokenizer", False),
        ("num_tokens", False),
        ("tokens_per_step", False),
        ("author", False),
        ("learning_rate", False),
    ],
)
def test_secret_names_are_told_from_training_words(name, secret):
    assert is_secret_name(name) is secret


def test_redacted_request_keeps_names_and_hides_values():
    request = {
        "TrainingJobName": "job",
        "Environment": {"MODE": "x", "HF_TOKEN": "s"},
        "HyperParameters": {"wandb_api_key": "s", "steps": "3"},
    }
    assert redacted(request) == {
        "TrainingJobName": "job",
        "Environment": {"MODE": "***", "HF_TOKEN": "***"},
        "HyperParameters": {"wandb_api_key": "***", "steps": "3"},
    }


def test_secrets_of_a_search_are_those_of_its_trials():
    spec = {"training": {"environment": {"HF_TOKEN": "one"}, "hyperparameters": {"api_key": "two"}}}
    definition = {
        "Environment": {"HF_TOKEN": "first-secret"},
        "StaticHyperParameters": {"api_key": '"second-secret"', "epochs": "3"},
    }

    assert list(spec_secrets(spec)) == ["one", "two"]
    for described in (
        {"TrainingJobDefinition": definition},
        {"TrainingJobDefinitions": [definition]},
    ):
        assert {"first-secret", "second-secret"} <= set(description_secrets(described))
        assert "3" not in description_secrets(described)
        told = repr(redacted(described))
        assert "first-secret" not in told
        assert "second-secret" not in told


def test_spec_secrets_are_those_under_secret_names():
    spec = {"environment": {"HF_TOKEN": "one", "MODE": "x"}, "hyperparameters": {"api_key": "two"}}
    assert list(spec_secrets(spec)) == ["one", "two"]


@pytest.mark.parametrize(
    ("secret", "line"),
    [
        ("s3cret", "key is s3cret"),
        ('"s3cret"', "--api_key s3cret"),
        ('s3"cret', '{"api_key":"s3\\"cret"}'),
        ("first line\nsecond line", "second line"),
    ],
    ids=["plain", "unquoted", "within-json", "one-of-its-lines"],
)
def test_secret_is_masked_in_every_form_a_log_shows(secret, line):
    shown = masked(line, secret_forms([secret]))
    assert "***" in shown
    assert "cret" not in shown
    assert "second" not in shown


def test_short_value_masks_no_innocent_word():
    assert masked("use_auth is true", secret_forms(["true"])) == "use_auth is true"


def test_links_name_the_job_its_logs_and_its_output():
    links = job_links(
        job_name="my-job",
        console_path="jobs",
        log_group="/aws/sagemaker/TrainingJobs",
        output_s3_uri="s3://bucket/out/",
        region="eu-west-1",
    )
    assert links[JobConsoleLink.__name__] == (
        "https://eu-west-1.console.aws.amazon.com/sagemaker/home?region=eu-west-1#/jobs/my-job"
    )
    assert "log-group/$252Faws$252Fsagemaker$252FTrainingJobs" in links[JobLogsLink.__name__]
    assert links[JobOutputLink.__name__].endswith("buckets/bucket?region=eu-west-1&prefix=out/")


def test_links_of_china_lead_to_its_console():
    links = job_links(
        job_name="j",
        console_path="jobs",
        log_group="g",
        output_s3_uri=None,
        region="cn-north-1",
        partition="aws-cn",
    )
    assert "console.amazonaws.cn" in links[JobConsoleLink.__name__]
    assert JobOutputLink.__name__ not in links


@pytest.mark.parametrize(
    ("error", "action"),
    [
        (ScriptError("raised", job_name="j"), RetryAction.FAIL),
        (InfrastructureError("died", job_name="j"), RetryAction.RETRY),
        (ThrottledError("slow down"), RetryAction.RETRY),
        (ConnectionError("not ours"), RetryAction.DEFAULT),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else value.value,
)
def test_retry_is_decided_by_the_class_of_the_error(error, action):
    assert TrainingRetryPolicy().evaluate(error, 1, 3).action is action


def test_retry_delay_grows_with_the_try():
    error = InfrastructureError("died", job_name="j")
    delays = [TrainingRetryPolicy().evaluate(error, n, 3).retry_delay for n in (1, 2)]
    assert delays[0] is not None
    assert delays[1] == 2 * delays[0] > timedelta(0)


def test_the_log_link_of_a_search_finds_the_streams_of_its_trials() -> None:
    links = job_links(
        job_name="search",
        console_path="hyper-tuning-jobs",
        log_group="/aws/sagemaker/TrainingJobs",
        output_s3_uri=None,
        region="us-east-1",
        stream_mark="-",
    )

    assert links[JobConsoleLink.__name__].endswith("#/hyper-tuning-jobs/search")
    assert links[JobLogsLink.__name__].endswith("$3Dsearch-")


def test_answer_without_a_question_names_its_job():
    with pytest.raises(ContractError) as raised:
        EndPolicy().answered(RetryRemedy.END, "somebody", {"job_name": "job-1"}, {})

    assert raised.value.where == "job job-1"
    assert raised.value.next_step
