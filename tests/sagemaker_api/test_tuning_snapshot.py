"""A search and its trials as the service tells them."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from trainyard.errors import ContractError
from trainyard.sagemaker_api.snapshot import JobSnapshot
from trainyard.sagemaker_api.tuning_snapshot import SearchFacts, trial_of, with_early_stops
from trainyard.tuning.trials import Trial

BEGAN, ENDED = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, 0, 1, tzinfo=UTC)
SUMMARY: dict[str, Any] = {
    "TrainingJobName": "search-001-0badcafe",
    "TrainingJobStatus": "Completed",
    "TunedHyperParameters": {"rate": "0.1", "color": '"red"'},
    "CreationTime": BEGAN,
    "TrainingStartTime": BEGAN,
    "TrainingEndTime": ENDED,
    "ObjectiveStatus": "Succeeded",
    "FinalHyperParameterTuningJobObjectiveMetric": {"MetricName": "loss", "Value": 0.25},
}
DESCRIBED: dict[str, Any] = {
    "HyperParameterTuningJobName": "search",
    "HyperParameterTuningJobArn": "arn:search",
    "HyperParameterTuningJobStatus": "Stopped",
    "HyperParameterTuningJobConfig": {
        "Strategy": "Random",
        "HyperParameterTuningJobObjective": {"Type": "Minimize", "MetricName": "loss"},
        "ResourceLimits": {"MaxParallelTrainingJobs": 2, "MaxRuntimeInSeconds": 600},
        "TuningJobCompletionCriteria": {"TargetObjectiveMetricValue": 0.1},
    },
    "TrainingJobDefinition": {
        "StaticHyperParameters": {
            "epochs": "3",
            "sagemaker_program": '"train.py"',
            "_tuning_objective_metric": "loss",
        },
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
        "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
        "CheckpointConfig": {"S3Uri": "s3://bucket/checkpoints"},
        "AlgorithmSpecification": {"TrainingImage": "image"},
        "EnableManagedSpotTraining": True,
    },
    "TrainingJobStatusCounters": {"Completed": 1, "InProgress": 0},
    "ObjectiveStatusCounters": {"Succeeded": 1, "Pending": 0},
    "BestTrainingJob": SUMMARY,
    "CreationTime": BEGAN,
    "HyperParameterTuningEndTime": ENDED,
}
JOB = JobSnapshot(
    kind="training",
    name="search-001-0badcafe",
    arn="arn",
    status="Completed",
    instance_type="ml.m5.large",
    instance_count=2,
    billable_seconds=20,
)


def test_search_is_a_job_like_any_other() -> None:
    job = JobSnapshot.from_describe(DESCRIBED)

    assert (job.kind, job.name, job.arn, job.status) == (
        "tuning",
        "search",
        "arn:search",
        "Stopped",
    )
    assert (job.instance_type, job.instance_count, job.is_spot) == ("ml.m5.large", 2, True)
    assert (job.wall_seconds, job.max_run_s) == (60.0, 600)
    assert job.output_path == "s3://bucket/output"
    assert job.checkpoint_s3_uri == "s3://bucket/checkpoints"
    assert job.final_metrics == {"loss": 0.25}
    assert JobSnapshot.from_dict(job.to_dict()) == job


def test_facts_leave_out_what_the_service_and_the_toolkit_added() -> None:
    facts = SearchFacts.from_describe(DESCRIBED)

    assert facts.static == {"epochs": "3"}
    assert facts.best_tuned == {"rate": "0.1", "color": '"red"'}
    assert (facts.best_name, facts.best_value) == ("search-001-0badcafe", 0.25)
    assert facts.has_criteria
    assert not facts.maximize


def test_better_trial_of_a_parent_is_the_best() -> None:
    parents = {**SUMMARY, "TrainingJobName": "before-007-0badcafe"}
    facts = SearchFacts.from_describe({**DESCRIBED, "OverallBestTrainingJob": parents})

    assert facts.best_name == "before-007-0badcafe"


def test_of_several_definitions_the_winners_counts() -> None:
    def definition(name: str) -> dict[str, Any]:
        return {
            "DefinitionName": name,
            "TuningObjective": {"Type": "Maximize", "MetricName": "accuracy"},
            "StaticHyperParameters": {"from": name},
        }

    several = {k: v for k, v in DESCRIBED.items() if k != "TrainingJobDefinition"}
    several["TrainingJobDefinitions"] = [definition("a"), definition("b")]
    several["BestTrainingJob"] = {**SUMMARY, "TrainingJobDefinitionName": "b"}
    several["HyperParameterTuningJobConfig"] = {
        "Strategy": "Random",
        "ResourceLimits": {"MaxParallelTrainingJobs": 2},
    }
    facts = SearchFacts.from_describe(several)

    assert facts.static == {"from": "b"}
    assert facts.maximize
    assert not facts.has_criteria


def test_other_answer_is_no_search() -> None:
    with pytest.raises(ContractError, match="the Describe response is not that of a search"):
        SearchFacts.from_describe({"TrainingJobName": "job"})


def test_counters_differ_when_an_objective_comes() -> None:
    later = {**DESCRIBED, "ObjectiveStatusCounters": {"Succeeded": 0, "Pending": 1}}

    assert (
        SearchFacts.from_describe(later).counters != SearchFacts.from_describe(DESCRIBED).counters
    )


def test_trial_costs_what_its_job_was_billed() -> None:
    trial = trial_of(SUMMARY, job=JOB)

    assert trial.tuned_hyperparameters == {"rate": "0.1", "color": "red"}
    assert (trial.objective, trial.billable_seconds) == (0.25, 20.0)
    assert trial.cost_usd == pytest.approx(20 * 2 * 0.115 / 3600)


def test_trial_without_a_known_price_costs_by_the_rate() -> None:
    groups = replace(JOB, instance_type="ml.m5.large, ml.g5.xlarge")

    assert trial_of(SUMMARY, job=groups, usd_per_s=0.01).cost_usd == pytest.approx(0.2)
    assert trial_of(SUMMARY, usd_per_s=0.01).cost_usd == pytest.approx(0.6)
    assert trial_of(SUMMARY).cost_usd is None


def test_trial_that_was_stopped_before_it_ran_cost_nothing() -> None:
    never = {k: v for k, v in SUMMARY.items() if not k.startswith(("TrainingS", "TrainingE"))}
    trial = trial_of({**never, "TrainingJobStatus": "Stopped"}, usd_per_s=0.01)

    assert (trial.started_at, trial.billable_seconds, trial.cost_usd) == (None, None, 0.0)


def test_running_trial_has_neither_end_nor_cost() -> None:
    running = {k: v for k, v in SUMMARY.items() if k != "TrainingEndTime"}
    running |= {"TrainingJobStatus": "InProgress", "ObjectiveStatus": "Pending"}
    del running["FinalHyperParameterTuningJobObjectiveMetric"]
    trial = trial_of(running, usd_per_s=0.01)

    assert (trial.objective, trial.ended_at, trial.billable_seconds, trial.cost_usd) == (None,) * 4


def test_stopped_trial_is_an_early_stop_only_if_the_search_went_on() -> None:
    stopped = Trial(training_job_name="a", status="Stopped", started_at=1.0, ended_at=5.0)
    done = replace(stopped, training_job_name="b", status="Completed")
    later = replace(done, training_job_name="c", started_at=6.0, ended_at=9.0)

    def early(*trials: Trial, was_cut: bool) -> list[bool]:
        return [each.is_early_stopped for each in with_early_stops(trials, was_cut=was_cut)]

    assert early(stopped, done, was_cut=False) == [True, False]
    assert early(stopped, done, was_cut=True) == [False, False]
    assert early(stopped, done, later, was_cut=True) == [True, False, False]
