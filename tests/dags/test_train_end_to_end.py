"""The whole pipeline against a real engine, by `dag.test()`."""

from __future__ import annotations

import io
import json
import tarfile
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.engine_faults import put_faults, put_quotas
from tests.plugins.conftest import IMAGE
from tests.plugins.test_training_plans import ON_DEMAND, RESERVE_S, close_soon, ladder, plan_of
from trainyard.sagemaker_api import training_plan
from trainyard.stack.aws import AwsEndpoint
from verify.__main__ import main as verify

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),
]

TINY = {
    "image_uri": IMAGE,
    "max_source_bytes": 2_000_000,
    "num_layers": 1,
    "num_heads": 2,
    "hidden_size": 32,
    "sequence_length": 64,
    "max_steps": 6,
    "warmup_steps": 2,
    "eval_interval": 3,
    "checkpoint_interval": 3,
}

NUM_FILES = 48
MONITORING = ("set_up_monitoring", "tear_down_monitoring")


def run(database: Any, **conf: Any) -> tuple[Any, dict[str, str]]:
    """Return the finished DAG run and its tasks' states, but for those of alarms, which no conf here asks for."""
    dag_run = database("train_end_to_end").test(run_conf={**TINY, **conf})
    states = {ti.task_id: str(ti.state) for ti in dag_run.get_task_instances()}
    for task_id in MONITORING:
        assert states.pop(task_id) in {"skipped", "upstream_failed"}
    return dag_run, states


def result(dag_run: Any, task_id: str, key: str = "return_value") -> Any:
    """Return what a task of a finished run returned, or pushed under another key."""
    from airflow.models.xcom import XComModel  # noqa: TID251  # a test may read the database
    from airflow.utils.session import create_session

    with create_session() as session:
        row = session.execute(
            XComModel.get_many(run_id=dag_run.run_id, key=key, task_ids=task_id)
        ).first()
    value = row[0].value if row else None
    return json.loads(value) if isinstance(value, str) else value


def put_source(s3: Any, bucket: str, *, of: str = "text") -> str:
    """Return the address of files of text; those of another `of` are another data set.

    They are so many that each split has some.
    """
    for number in range(NUM_FILES):
        text = "".join(f"line {line} of file {number} {of}\n" for line in range(500))
        s3.put_object(Bucket=bucket, Key=f"raw/{of}/{number}.txt", Body=text.encode())
    return f"s3://{bucket}/raw/{of}/"


def stored(s3: Any, uri: str) -> bytes:
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    return s3.get_object(Bucket=bucket, Key=key)["Body"].read()


def recounted(s3: Any, uri: str, folder: Path) -> int:
    """Return what `make verify` says of the files beside a report."""
    for name in ("report.json", "continuity.json", "training_log.jsonl.gz", "index.json"):
        (folder / name).write_bytes(stored(s3, f"{uri.rpartition('/')[0]}/{name}"))
    return verify([str(folder)])


@pytest.mark.slow
def test_run_shards_by_a_job_trains_evaluates_registers_and_reports(
    database, aws_connection, s3, sagemaker, tmp_path
):
    source = put_source(s3, aws_connection.bucket, of="sharded-by-a-job")

    dag_run, states = run(
        database, source=source, shard_instance_count=2, register_when="test_loss < 100"
    )

    assert (states.pop("smoke_test"), states.pop("tune")) == ("skipped", "skipped")
    assert set(states.values()) == {"success"}
    assert str(dag_run.state) == "success"
    told = result(dag_run, "report")
    record = json.loads(stored(s3, told["report_json"]))
    assert record["status"] == "succeeded"
    causes = record["goodput"]["seconds"]
    assert sum(causes.values()) == pytest.approx(record["ended_at"] - record["started_at"])
    assert {"stepping", "evaluating", "preparing data"} <= causes.keys()
    assert [each["task_id"] for each in record["tasks"]] == [
        "preflight",
        "shard",
        "train",
        "watch_rules",
        "evaluate",
        "register",
    ]
    sharding, training, _ = record["jobs"]
    assert [(job["task_id"], job["kind"]) for job in record["jobs"]] == [
        ("shard", "processing"),
        ("train", "training"),
        ("evaluate", "processing"),
    ]
    assert {job["status"] for job in record["jobs"]} == {"Completed"}
    assert sharding["instance_count"] == 2
    assert record["dataset"]["source_files"] == NUM_FILES
    assert len(training["artifact_sha256"]) == 64
    assert told["unsettled"] == record["ledger"]["unsettled"] == []
    assert [(each["name"], each["status"]) for each in record["ledger"]["entries"]] == [
        (job["name"], "Completed") for job in record["jobs"]
    ]
    assert training["final_metrics"]["validation:loss"] > 0
    assert record["history"]
    assert record["dataset"]["shards"]
    assert record["evaluation"]["metrics"]["test_loss"] > 0
    assert record["tuning"] is None
    assert b'id="tuning"' not in stored(s3, told["report_html"])
    assert b"<html" in stored(s3, told["report_html"])[:200].lower()
    assert recounted(s3, told["report_json"], tmp_path) == 0

    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    lineage = package["CustomerMetadataProperties"]
    assert lineage["training_job"] == training["name"]
    assert lineage["data_fingerprint"] == record["dataset"]["fingerprint"]
    assert lineage["code_sha256"] == record["code_sha256"]
    assert lineage["training_image"] == IMAGE
    assert lineage["training_image_digest"] == training["image_digest"]
    (container,) = package["InferenceSpecification"]["Containers"]
    assert container["Image"].endswith("/pytorch-inference:2.6.0-cpu-py312")
    assert container["ModelDataUrl"] == training["artifact_uri"]
    card = json.loads(package["ModelCard"]["ModelCardContent"])
    job = card["training_details"]["training_job_details"]
    assert job["training_arn"] == training["arn"]
    assert record["dataset"]["fingerprint"] in card["training_details"]["training_observations"]
    (measured,) = card["evaluation_details"][0]["metric_groups"]
    values = {each["name"]: each["value"] for each in measured["metric_data"]}
    assert values["test_loss"] == record["evaluation"]["metrics"]["test_loss"]
    with tarfile.open(fileobj=io.BytesIO(stored(s3, training["artifact_uri"]))) as archive:
        assert {"code/inference.py", "code/trainer/serving.py"} <= set(archive.getnames())


SEARCH = {
    "tune": True,
    "tuning_max_jobs": 2,
    "tuning_max_steps": 3,
    "tuning_instance_count": 1,
    "budget_usd": 9,
    "hyperparameters": {"num_threads": 1, "eval_batches": 1},
}


@pytest.mark.slow
def test_search_comes_before_the_training_which_takes_the_winner(database, aws_connection, s3):
    dag_run, states = run(database, **SEARCH)

    assert states.pop("smoke_test") == "skipped"
    assert set(states.values()) == {"success"}
    found = result(dag_run, "tune")
    assert found["is_complete"]
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    search = record["jobs"][0]
    assert [each["kind"] for each in record["jobs"]] == ["tuning", "training", "processing"]
    assert search["name"] == found["tuning_job_name"]
    assert search["cost"]["cost_usd"] == pytest.approx(found["cost_usd"], abs=1e-4)
    assert record["cost"]["total_usd"] == pytest.approx(
        sum(each["cost"]["cost_usd"] for each in record["jobs"])
    )
    assert record["ledger"]["unsettled"] == []
    assert {each["kind"] for each in record["ledger"]["entries"]} == {
        "tuning",
        "training",
        "processing",
    }

    shown = AwsEndpoint(aws_connection.endpoint_url).job(search["name"], kind="tuning")
    assert (shown.status, shown.metrics["trials_ended"], shown.metrics["trials"]) == (
        "Completed",
        2,
        2,
    )
    assert shown.metrics["best"] == pytest.approx(found["best"]["value"], rel=1e-5)

    trials = record["tuning"]["trials"]
    assert len(trials) == 2
    best = min(trials, key=lambda each: each["objective"])
    assert best["training_job_name"] == found["best"]["training_job_name"]
    tuned = {
        each["name"]: each
        for each in record["tuning"]["hyperparameters"]
        if each["origin"] == "tuned"
    }
    assert {name: each["value"] for name, each in tuned.items()} == best["tuned_hyperparameters"]
    rate = best["tuned_hyperparameters"]["learning_rate"]
    assert record["conf"]["learning_rate"] == rate
    rates = [each["learning_rate"] for each in record["history"] if each["event"] == "step"]
    assert max(rates) == pytest.approx(rate)
    beside = result(dag_run, "report")["report_json"].rpartition("/")[0]
    assert json.loads(stored(s3, f"{beside}/tuning.json")) == record["tuning"]
    assert stored(s3, f"{beside}/trials.parquet")[:4] == b"PAR1"
    assert b'id="tuning"' in stored(s3, result(dag_run, "report")["report_html"])


SPREAD = {
    "the planner's": {
        "strategy": "auto",
        "instance_type": "auto",
        "instance_count": 0,
        "hyperparameters": {"compile": False},
    },
    "fsdp on two hosts": {"strategy": "fsdp", "instance_count": 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", SPREAD)
def test_other_strategies_are_trained_evaluated_registered_and_reported(
    database, aws_connection, s3, sagemaker, asked
):
    dag_run, states = run(database, **SPREAD[asked])

    assert (states.pop("smoke_test"), states.pop("tune")) == ("skipped", "skipped")
    assert set(states.values()) == {"success"}
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    training, _ = record["jobs"]
    request = sagemaker.describe_training_job(TrainingJobName=training["name"])
    has_hosts = request["ResourceConfig"]["InstanceCount"]
    script = json.loads(request["HyperParameters"]["sagemaker_program"])
    if asked == "fsdp on two hosts":
        assert (has_hosts, script) == (2, "train_fsdp.py")
    else:
        chosen = result(dag_run, "preflight")["plan"]["auto"]["chosen"]
        assert request["ResourceConfig"]["InstanceType"] == chosen["instance_type"]
        assert (has_hosts, script) == (chosen["instance_count"], "train_ddp.py")
    losses = [each["loss"] for each in record["history"] if each["event"] == "step"]
    assert losses[-1] < losses[0]
    assert record["evaluation"]["metrics"]["test_loss"] == pytest.approx(
        training["final_metrics"]["validation:loss"], rel=0.1
    )
    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    assert package["CustomerMetadataProperties"]["training_job"] == training["name"]


@pytest.mark.slow
def test_a_training_measures_at_its_end_if_no_job_shall(database, aws_connection, s3, sagemaker):
    dag_run, states = run(
        database, evaluation_place="training", strategy="fsdp", register_when="test_loss < 100"
    )

    assert (states.pop("smoke_test"), states.pop("tune")) == ("skipped", "skipped")
    assert set(states.values()) == {"success"}
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    (training,) = record["jobs"]
    assert result(dag_run, "evaluate")["measured_by"] == training["name"]
    assert record["plan"]["evaluation"]["place"] == "training"
    assert record["evaluation"]["measured"]["place"] == "training"
    assert record["evaluation"]["metrics"]["test_loss"] == pytest.approx(
        training["final_metrics"]["validation:loss"], rel=0.1
    )
    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    assert package["CustomerMetadataProperties"]["evaluation_job"] == training["name"]


@pytest.mark.slow
def test_training_begins_in_a_plan_and_ends_on_the_next_tier(
    database, aws_connection, s3, sagemaker, monkeypatch
):
    monkeypatch.setattr(training_plan, "LEAST_USE_S", 5)
    plan = plan_of(aws_connection, left_s=40_000)

    def close_after_sharding() -> None:
        def is_sharded() -> bool:
            jobs = sagemaker.list_processing_jobs(StatusEquals="Completed")[
                "ProcessingJobSummaries"
            ]
            return any(each["CreationTime"] > began for each in jobs)

        while not is_sharded():
            if has_ended.wait(0.5):
                return
        close_soon(aws_connection, plan, left_s=20)

    began, has_ended = datetime.now(UTC), Event()
    with ThreadPoolExecutor() as beside:
        closing = beside.submit(close_after_sharding)
        try:
            dag_run, states = run(
                database,
                capacity_ladder=ladder(plan["TrainingPlanName"], ON_DEMAND),
                stop_reserve_s=RESERVE_S,
                source=put_source(s3, aws_connection.bucket, of="planned"),
                shard_instance_count=1,
                instance_count=1,
                max_steps=1500,
                checkpoint_interval=200,
                eval_interval=0,
            )
        finally:
            has_ended.set()
        closing.result()

    assert states["train"] == states["evaluate"] == states["register"] == "success"
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    in_plan, after = (each for each in record["jobs"] if each["kind"] == "training")
    assert (in_plan["status"], after["status"]) == ("Stopped", "Completed")
    assert in_plan["cost"]["cost_usd"] == 0 < after["cost"]["cost_usd"]
    assert record["continuity"]["steps_redone"] == 0
    entries = {each["name"]: each for each in record["ledger"]["entries"]}
    assert entries[in_plan["name"]]["training_plan"] == plan["TrainingPlanArn"]


@pytest.mark.slow
def test_each_injected_delay_is_at_its_cause(database, aws_connection, s3):
    no_capacity_s, before_step = 8.0, 12
    put_faults(
        aws_connection,
        {"what": "no_capacity", "job": "*-train-*", "duration_s": no_capacity_s},
        {"what": "interrupt", "job": "*-train-*", "at": {"step": before_step}},
    )
    try:
        dag_run, states = run(
            database, use_spot_instances=True, max_steps=20, checkpoint_interval=5
        )
    finally:
        put_faults(aws_connection)

    assert states["train"] == "success"
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    told, continuity = record["goodput"], record["continuity"]
    assert continuity["interruptions"] == 1
    assert sum(told["seconds"].values()) == pytest.approx(told["wall_seconds"], rel=0.01)
    assert told["seconds"]["waiting for capacity"] >= no_capacity_s
    assert told["seconds"]["steps redone later"] == pytest.approx(
        continuity["lost_work_seconds"], abs=0.5
    )
    assert told["seconds"]["starting"] >= continuity["startup_seconds"] * 0.9
    training = next(each for each in record["tasks"] if each["task_id"] == "evaluate")
    assert told["seconds"]["evaluating"] <= training["end"] - training["start"]


@pytest.mark.slow
def test_a_failed_watch_fails_no_run_and_the_report_says_so(
    database, aws_connection, s3, sagemaker
):
    began, has_ended = datetime.now(UTC), Event()

    def spoil_statistics() -> None:
        """Put an object that is no bundle beside the statistics of the training's hosts."""
        while not has_ended.wait(0.5):
            found = sagemaker.list_training_jobs(CreationTimeAfter=began)["TrainingJobSummaries"]
            for name in (each["TrainingJobName"] for each in found):
                described = sagemaker.describe_training_job(TrainingJobName=name)
                uri = described["Environment"]["TRAINYARD_STATISTICS_S3_URI"]
                bucket, _, key = uri.removeprefix("s3://").partition("/")
                s3.put_object(Bucket=bucket, Key=f"{key}0001.algo-9/00000001.bundle", Body=b"{}\n")
                return

    with ThreadPoolExecutor() as beside:
        spoiling = beside.submit(spoil_statistics)
        try:
            dag_run, states = run(database, evaluation_place="training")
        finally:
            has_ended.set()
        spoiling.result()

    assert str(dag_run.state) == "success"
    assert states["watch_rules"] == "failed"
    assert states["register"] == states["report"] == states["outcome"] == "success"
    told = result(dag_run, "report")
    record = json.loads(stored(s3, told["report_json"]))
    assert (record["status"], record["failure"]) == ("succeeded", None)
    assert "rules not watched to the end" in told["note"]
    (training,) = record["jobs"]
    rules = json.loads(stored(s3, f"{told['report_json'].rpartition('/')[0]}/rules.json"))
    assert rules == record["rules"]
    assert (rules["judged"], rules["unwatched"]) == ("log", [training["name"]])
    assert b"the task watch_rules failed" in stored(s3, told["report_html"])


@pytest.mark.slow
def test_a_mixture_is_trained_by_its_shares_and_resumes_exactly(
    database, aws_connection, s3, sagemaker, tmp_path
):
    bucket = aws_connection.bucket
    for number in range(3):
        rows = (json.dumps({"body": f"def f_{n}(): return {number}"}) for n in range(3000))
        body = "\n".join(rows).encode()
        s3.put_object(Bucket=bucket, Key=f"raw/mixed-code/{number}.jsonl", Body=body)
    code = {"source": f"s3://{bucket}/raw/mixed-code/", "weight": 1, "text_column": "body"}
    mixture = {"web": {"source": put_source(s3, bucket, of="mixed-web"), "weight": 3}, "code": code}
    put_faults(aws_connection, {"what": "interrupt", "job": "*-train-*", "at": {"step": 12}})
    try:
        dag_run, states = run(
            database,
            data_mixture=mixture,
            shard_instance_count=2,
            use_spot_instances=True,
            max_steps=20,
            checkpoint_interval=5,
        )
    finally:
        put_faults(aws_connection)

    assert states["train"] == states["evaluate"] == states["register"] == "success"
    told = result(dag_run, "report")
    record = json.loads(stored(s3, told["report_json"]))
    assert record["continuity"]["interruptions"] == 1
    assert recounted(s3, told["report_json"], tmp_path) == 0
    assert [job["task_id"] for job in record["jobs"]] == ["shard", "train", "evaluate"]
    assert [(each["name"], each["share"]) for each in record["dataset"]["mixture"]] == [
        ("code", 0.25),
        ("web", 0.75),
    ]
    losses = record["evaluation"]["metrics"]
    by_share = 0.25 * losses["test_loss_code"] + 0.75 * losses["test_loss_web"]
    assert losses["test_loss"] == pytest.approx(by_share)
    assert "75 % of the samples" in stored(s3, told["report_html"]).decode()
    package = sagemaker.describe_model_package(ModelPackageName=record["model_package_arn"])
    lineage = package["CustomerMetadataProperties"]
    assert lineage["data_fingerprint"] == record["dataset"]["fingerprint"]


@pytest.mark.slow
def test_every_accelerator_of_the_evaluations_type_measures(database, aws_connection, s3):
    put_quotas(aws_connection, "ml.g7e.12xlarge for processing job usage")
    dag_run, states = run(database, evaluation_instance_type="ml.g7e.12xlarge")

    assert (states.pop("smoke_test"), states.pop("tune")) == ("skipped", "skipped")
    assert set(states.values()) == {"success"}
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert record["evaluation"]["measured"]["num_ranks"] == 2


def test_bad_conf_is_refused_whole_and_the_run_fails_with_a_report(
    database, aws_connection, access, s3
):
    access.expected = {"iam:GetRole"}  # of a role that is not the deployment's
    dag_run, states = run(
        database, source="/nowhere", role="NoSuchRole", warmup_steps=99, hyperparameters={"typo": 1}
    )

    assert str(dag_run.state) == "failed"
    assert states["preflight"] == "failed"
    assert states["report"] == "success"
    assert states["train"] == states["outcome"] == "upstream_failed"
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert record["status"] == "failed"
    assert record["failure"]["task_id"] == "preflight"
    told = json.dumps(record["failure"])
    for part in ("warmup_steps", "/nowhere", "NoSuchRole", "typo"):
        assert part in told
    assert record["jobs"] == []
    assert "tune" not in {each["task_id"] for each in record["tasks"]}


@pytest.mark.slow
def test_failing_script_fails_the_run_once_and_the_report_says_why(database, aws_connection, s3):
    dag_run, states = run(database, global_batch_size=65536)  # more than the split has: a rank sees

    assert str(dag_run.state) == "failed"
    assert states["train"] == "failed"
    assert states["report"] == "success"
    record = json.loads(stored(s3, result(dag_run, "report")["report_json"]))
    assert record["failure"]["task_id"] == "train"
    assert "fewer than one global_batch_size" in json.dumps(record["failure"])
    assert record["failure"]["log_tail"]
    assert [job["status"] for job in record["jobs"]] == ["Failed"]


def test_a_bucket_that_is_missing_is_told_by_preflight_alone(database, aws_connection):
    dag_run, states = run(database, bucket="no-such-bucket-of-anyone")

    assert [task for task, state in states.items() if state == "failed"] == ["preflight"]
    assert states["report"] == "skipped"
    assert str(dag_run.state) == "failed"
