"""A run under a cost cap on a real engine: stopped in time, with a model, and billed as its ledger has it."""

from __future__ import annotations

import io
import json
import tarfile
from typing import TYPE_CHECKING, Any

import pytest
import torch

from tests.dags.test_train_end_to_end import SEARCH, result, run, stored
from tests.plugins.conftest import IMAGE
from tests.plugins.test_cost_cap import STOPPED
from trainer.artifacts import read_model

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),
]

USD_PER_S = 0.115 / 3600
"""Of one ml.m5.large."""
RESERVE_S, EVALUATION_S, TRAINING_S = 120, 300, 65
CAP_USD = USD_PER_S * (2 * (TRAINING_S + RESERVE_S) + EVALUATION_S + RESERVE_S)
"""USD for `TRAINING_S` of two instances, the stops of both jobs, and the evaluation."""


def predicted(s3: Any, uri: str, folder: Path) -> torch.Tensor:
    """Return what the decoder in a model.tar.gz predicts for eight tokens."""
    with tarfile.open(fileobj=io.BytesIO(stored(s3, uri)), mode="r:gz") as archive:
        archive.extractall(folder, filter="data")
    model, _, _ = read_model(folder)
    return model(torch.arange(8)[None])


def billed(sagemaker: Any, job: Any) -> float:
    """Return the USD that the service bills for a job, by its own seconds."""
    if job["kind"] == "training":
        seconds = sagemaker.describe_training_job(TrainingJobName=job["name"])[
            "BillableTimeInSeconds"
        ]
    else:
        told = sagemaker.describe_processing_job(ProcessingJobName=job["name"])
        seconds = round((told["ProcessingEndTime"] - told["ProcessingStartTime"]).total_seconds())
    return seconds * job["instance_count"] * USD_PER_S


@pytest.mark.slow
@pytest.mark.parametrize(
    "conf",
    [
        {"strategy": "ddp", "evaluation_max_run_s": EVALUATION_S},
        {"strategy": "fsdp", "evaluation_place": "training", "max_run_s": EVALUATION_S},
    ],
    ids=["whole copies", "sharded, to be measured at the end"],
)
def test_run_is_stopped_by_its_cap_with_a_model_that_is_measured_and_registered(
    conf: dict[str, Any], database, aws_connection, s3, sagemaker, tmp_path
):
    dag_run, states = run(
        database,
        **conf,
        max_steps=100_000,
        eval_interval=0,
        checkpoint_interval=50,
        max_cost_usd=CAP_USD,
        stop_reserve_s=RESERVE_S,
    )

    assert (states.pop("smoke_test"), states.pop("tune")) == ("skipped", "skipped")
    assert set(states.values()) == {"success"}
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    training, evaluation = record["jobs"]
    assert record["status"] == "stopped by its cost cap"
    stop, told = record["cap_stop"], result(dag_run, "train")
    assert told["ended_by"] == "cost cap"
    assert stop["step"] > 0
    assert stop["last_checkpoint"].endswith(f"step-{stop['step']:08d}")
    assert (training["status"], evaluation["status"]) == ("Stopped", "Completed")
    assert record["evaluation"]["metrics"]["test_loss"] > 0
    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    assert package["CustomerMetadataProperties"]["ended_by"] == "cost cap"
    assert package["CustomerMetadataProperties"]["stopped_at_step"] == str(stop["step"])
    assert predicted(s3, training["artifact_uri"], tmp_path).isfinite().all()
    bill = {job["name"]: billed(sagemaker, job) for job in record["jobs"]}
    ledger = {each["name"]: each["cost_usd"] for each in record["ledger"]["entries"]}
    assert ledger == pytest.approx(bill, abs=1e-9)
    assert record["ledger"]["total_usd"] == pytest.approx(record["cost"]["total_usd"])
    assert record["cost"]["total_usd"] <= CAP_USD
    note = result(dag_run, "report")["note"]
    assert note.startswith(f"Stopped by its cost cap at step {stop['step']}; test loss")
    assert " cap" in note.rpartition(";")[2]


@pytest.mark.slow
@pytest.mark.parametrize("saves", [True, False], ids=["with a model", "without a model"])
def test_own_script_that_its_cap_stopped_ends_clearly(
    saves: bool, database, aws_connection, s3, sagemaker, tmp_path
):
    (tmp_path / "job.py").write_text(STOPPED)

    dag_run = database("train_own_script").test(
        run_conf={
            "image_uri": IMAGE,
            "entry_point": "job.py",
            "source_dir": str(tmp_path),
            "instance_type": "ml.m5.large",
            "instance_count": 1,
            "hyperparameters": {"saves": saves},
            "distribution": {},
            "max_cost_usd": (cap_usd := USD_PER_S * (TRAINING_S + RESERVE_S)),
            "stop_reserve_s": RESERVE_S,
        }
    )

    states = {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
    report = result(dag_run, "report")
    record = json.loads(stored(s3, report["report_json"]))
    (training,) = record["jobs"]
    assert record["ledger"]["total_usd"] == pytest.approx(billed(sagemaker, training))
    assert record["ledger"]["total_usd"] <= cap_usd
    if saves:
        assert (states["train"], states["register"], states["report"]) == ("success",) * 3
        assert record["status"] == "stopped by its cost cap"
        assert result(dag_run, "register")["lineage"]["stopped_at_step"] == "7"
        assert report["note"].startswith("Stopped by its cost cap at step 7; model ")
    else:
        assert (states["train"], states["register"]) == ("failed", "upstream_failed")
        assert record["failure"]["error"] == "BudgetExceededError"
        assert report["note"].startswith(
            "Failed in train: the cost cap stopped the training after step 7, and the job left no model"
        )


@pytest.mark.slow
def test_search_and_evaluation_count_against_the_same_cap(database, aws_connection, s3, sagemaker):
    cap_usd = 0.5
    capped = {"max_cost_usd": cap_usd, "stop_reserve_s": RESERVE_S, "tuning_budget_share": 0.6}
    dag_run, states = run(
        database, **{**SEARCH, "tuning_max_run_s": 600}, **capped, evaluation_max_run_s=EVALUATION_S
    )

    assert states.pop("smoke_test") == "skipped"
    assert set(states.values()) == {"success"}
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    ledger = {each["kind"]: each["cost_usd"] for each in record["ledger"]["entries"]}
    training = result(dag_run, "train")
    rate = training["instance_count"] * USD_PER_S
    left = cap_usd - ledger["tuning"] - USD_PER_S * (EVALUATION_S + RESERVE_S)
    assert training["max_billed_s"] == pytest.approx(left / rate - RESERVE_S)
    search = sagemaker.describe_hyper_parameter_tuning_job(
        HyperParameterTuningJobName=result(dag_run, "tune")["tuning_job_name"]
    )
    limits = search["HyperParameterTuningJobConfig"]["ResourceLimits"]
    trials = limits["MaxParallelTrainingJobs"] * record["jobs"][0]["instance_count"]
    longest_s = int(cap_usd * 0.6 / (trials * USD_PER_S) - RESERVE_S)
    assert limits["MaxRuntimeInSeconds"] == longest_s
    assert record["status"] == "succeeded"
    assert record["ledger"]["total_usd"] <= cap_usd
