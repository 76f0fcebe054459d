"""The operators while S3, SageMaker or CloudWatch Logs fail: they wait, pay once, and take nothing half."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import random
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from botocore.config import Config
from botocore.exceptions import BotoCoreError
from botocore.retries.standard import ExponentialBackoff

from sagemaker_engine.testing import end_faults, faults, times_fired
from tests.plugins.conftest import TaskSurroundings, connection_json
from tests.plugins.lossy_relay import losing_answers
from tests.plugins.test_sharding_job import put_source, rows_of, sharding, source_files
from tests.plugins.test_training_job_operator import deferred, first_event, job_names, operator
from trainyard.errors import TrainingRunError
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.hooks.objects import S3Objects
from trainyard_airflow.hooks.retries import PATIENT_TRIES, patient_config
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.operators.training_job import TrainingJobOperator

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.conftest import RunningEngine

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

LONG = pytest.mark.skipif(
    os.environ.get("TRAINYARD_RESILIENCE_SEEDS") != "all",
    reason="takes minutes: make test-resilience",
)
CONTENT = bytes(range(256)) * 12_000
COUNTS = (
    "import time\nfor n in range(20):\n    print(f'line {n}', flush=True)\n    time.sleep(0.1)\n"
)
READS = """
import hashlib, time, boto3
from botocore.config import Config
from botocore.exceptions import ClientError, IncompleteReadError, ResponseStreamingError

once = boto3.client("s3", config=Config(retries={"total_max_attempts": 1, "mode": "standard"}))
at = {"Bucket": BUCKET, "Key": KEY}
try:
    once.get_object(**at)
except ClientError as error:
    print("once: " + error.response["Error"]["Code"] + "\\n", end="", flush=True)
while True:
    try:
        once.head_bucket(Bucket=BUCKET)
        body = once.get_object(**at)["Body"]
        break
    except ClientError:
        time.sleep(0.1)
try:
    print(f"short: {len(body.read())}\\n", end="", flush=True)
except (IncompleteReadError, ResponseStreamingError) as error:
    print(f"half: {type(error).__name__}\\n", end="", flush=True)
digest = hashlib.sha256(once.get_object(**at)["Body"].read()).hexdigest()
print(f"whole: {digest}\\n", end="", flush=True)
"""


def connect(monkeypatch: Any, engine: RunningEngine, *, url: str = "", tries: int = 0) -> None:
    """Let `aws_default` lead to the engine with our retries; `tries` sets the connection's own."""
    connection = json.loads(connection_json(engine))
    del connection["extra"]["config_kwargs"]
    if tries:
        retries = {"total_max_attempts": tries, "mode": "standard"}
        connection["extra"]["config_kwargs"] = {"retries": retries}
    if url:
        connection["extra"]["service_config"] = {"sagemaker": {"endpoint_url": url}}
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", json.dumps(connection))


@pytest.fixture
def patient(engine: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> RunningEngine:
    """The connection `aws_default` leads to the engine and says nothing about retries."""
    connect(monkeypatch, engine)
    return engine


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let botocore repeat as often as ever, without its pauses."""
    monkeypatch.setattr(ExponentialBackoff, "delay_amount", lambda _self, _context: 0.01)


def execute(made: Any, task: Any) -> Any:
    return type(made).execute.__wrapped__(made, task.context)


def train(spec: Any, task: Any) -> Any:
    made = TrainingJobOperator(task_id="train", spec=spec, deferrable=False, poll_interval_s=1)
    return execute(made, task)


def shard(engine: RunningEngine, source: str, run_id: str, *, instances: int | None = None) -> Any:
    spec = sharding(engine, source, run_id, instance_count=instances)
    made = ShardDatasetOperator(task_id="shard", spec=spec, deferrable=False, poll_interval_s=1)
    return execute(made, TaskSurroundings(run_id=run_id))


def test_patient_retries_outlast_a_minute_but_for_one_call_in_200() -> None:
    rng = random.Random(7)  # noqa: S311  # no secret
    backoff = ExponentialBackoff(random=rng.random)

    def waited_s() -> float:
        attempts = range(1, PATIENT_TRIES)
        return sum(backoff.delay_amount(SimpleNamespace(attempt_number=each)) for each in attempts)

    waits = [waited_s() for _ in range(4000)]

    assert sum(each < 60 for each in waits) < len(waits) / 200
    assert sum(waits) / len(waits) == pytest.approx(115, rel=0.05)


def test_a_connection_or_the_environment_may_set_other_retries(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ours = patient_config(Config(read_timeout=5))
    assert ours is not None
    assert (ours.read_timeout, ours.retries) == (
        5,
        {"mode": "standard", "total_max_attempts": PATIENT_TRIES},
    )
    own = Config(retries={"total_max_attempts": 3})
    assert patient_config(own) is own
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "4")
    assert patient_config(None) is None


def test_sharding_uploads_each_shard_through_a_row_of_500s(patient, task, s3, hurried) -> None:
    source = put_source(s3, patient, task.run_id, source_files("jsonl"))
    expected = rows_of(shard(patient, source, f"{task.run_id}-calm"))
    uploads = {"what": "s3_error", "operation": "PutObject", "key_prefix": task.run_id}
    reads = {"what": "s3_truncate", "key_prefix": f"{task.run_id}/raw/", "count": 4}
    with faults(patient.endpoint_url, {**uploads, "count": PATIENT_TRIES - 1}, reads):
        told = shard(patient, source, task.run_id)
        assert times_fired(patient.endpoint_url) == [PATIENT_TRIES - 1, 4]

    assert rows_of(told) == expected


@pytest.mark.parametrize(
    "outage_s",
    [
        pytest.param(4.0, id="4s", marks=pytest.mark.slow),
        pytest.param(60.0, id="a-minute", marks=LONG),
    ],
)
def test_sharding_outlasts_an_outage_that_ends_others(
    engine, task, s3, monkeypatch, outage_s
) -> None:
    source = put_source(s3, engine, task.run_id, source_files("csv"))
    outage = {"what": "s3_error", "status": 503, "operation": "PutObject"}
    connect(monkeypatch, engine, tries=2)
    with (
        faults(engine.endpoint_url, {**outage, "count": None}),
        pytest.raises(Exception, match="SlowDown"),
    ):
        shard(engine, source, task.run_id)
    connect(monkeypatch, engine)
    with (
        faults(engine.endpoint_url, {**outage, "count": None}),
        ended_after_first_hit(engine.endpoint_url, seconds=outage_s) as num_hits,
    ):
        told = shard(engine, source, task.run_id)
        assert num_hits[0] >= 2

    rows = rows_of(told)
    assert sum(len(split) for split in rows.values()) == 1000


@pytest.mark.slow
def test_a_sharding_job_works_through_500s_and_half_objects(patient, task, s3) -> None:
    source = put_source(s3, patient, task.run_id, source_files("jsonl"))
    expected = rows_of(shard(patient, source, f"{task.run_id}-calm"))
    uploads = {"what": "s3_error", "operation": "PutObject", "key_prefix": f"{task.run_id}/data"}
    reads = {"what": "s3_truncate", "key_prefix": f"{task.run_id}/raw/", "count": 4}
    with faults(patient.endpoint_url, {**uploads, "count": 5}, reads):
        told = shard(patient, source, task.run_id, instances=2)
        assert times_fired(patient.endpoint_url) == [5, 4]

    assert told["job"]["attempt"] == 1
    assert rows_of(told) == expected


@pytest.mark.parametrize("ways", ["read", "blocks", "stream", "open"])
def test_an_object_is_read_whole_through_breaks(patient, s3, hurried, ways) -> None:
    s3.put_object(Bucket=patient.bucket, Key="breaks/a", Body=CONTENT)
    client = AwsClients(ConnectionArguments()).client("s3")
    uri = f"s3://{patient.bucket}/breaks/a"
    objects = S3Objects(client)
    readers = {
        "read": lambda: objects.read(uri),
        "blocks": lambda: b"".join(objects.blocks(uri)),
        "stream": lambda: _read_out(objects.stream(uri)),
        "open": lambda: _read_out(S3DatasetObjects(client).open(uri)),
    }
    with faults(patient.endpoint_url, {"what": "s3_truncate", "key_prefix": "breaks/", "count": 4}):
        assert readers[ways]() == CONTENT
        assert times_fired(patient.endpoint_url) == [4]


def test_an_object_that_always_breaks_is_an_error_and_never_short(patient, s3, hurried) -> None:
    s3.put_object(Bucket=patient.bucket, Key="breaks/b", Body=b"x")
    objects = S3Objects(AwsClients(ConnectionArguments()).client("s3"))
    fault = {"what": "s3_truncate", "key_prefix": "breaks/", "count": None}
    with faults(patient.endpoint_url, fault), pytest.raises(BotoCoreError):
        objects.read(f"s3://{patient.bucket}/breaks/b")


def test_an_object_replaced_while_it_is_read_is_an_error(patient, s3) -> None:
    at = {"Bucket": patient.bucket, "Key": "breaks/c"}
    s3.put_object(**at, Body=CONTENT)
    objects = S3Objects(AwsClients(ConnectionArguments()).client("s3"))
    with faults(patient.endpoint_url, {"what": "s3_truncate", "key_prefix": "breaks/"}):
        stream = objects.stream(f"s3://{patient.bucket}/breaks/c")
    s3.put_object(**at, Body=CONTENT[::-1])
    with stream, pytest.raises(TrainingRunError, match="PreconditionFailed"):
        stream.read()


def test_a_stalled_upload_is_waited_for(patient, task, s3) -> None:
    objects = S3Objects(AwsClients(ConnectionArguments()).client("s3"))
    uri = f"s3://{patient.bucket}/{task.run_id}/late"
    begun = time.monotonic()
    stall = {"what": "s3_stall", "duration_s": 1.0, "key_prefix": f"{task.run_id}/late"}
    with faults(
        patient.endpoint_url, stall
    ):  # other requests, of earlier tests' jobs, are not stalled
        objects.write(uri, b"late", content_type="text/plain")

    assert time.monotonic() - begun >= 1.0
    assert objects.read(uri) == b"late"


def test_throttled_looks_and_logs_never_fail_a_running_job(
    engine, task, script, sagemaker, caplog, monkeypatch
) -> None:
    """The throttling outlasts the clients' own retries: there are none."""
    connect(monkeypatch, engine, tries=1)
    trigger = deferred(operator(script(COUNTS), deferrable=True), task).trigger
    throttle = {"what": "throttle", "count": None}
    with (
        caplog.at_level(logging.INFO),
        faults(
            engine.endpoint_url,
            {**throttle, "operation": "ListTrainingJobs"},
            {**throttle, "operation": "FilterLogEvents"},
        ),
        ended_after_first_hit(engine.endpoint_url, seconds=4.0) as num_hits,
    ):
        event = first_event(trigger)
        assert num_hits[0] >= 2

    assert event["job"]["status"] == "Completed"
    told = [each for each in caplog.messages if each.startswith("[algo-1] line ")]
    assert told == [f"[algo-1] line {n}" for n in range(20)]
    assert len(job_names(sagemaker, task)) == 1


def test_a_throttled_create_makes_one_job(patient, task, script, sagemaker, hurried) -> None:
    fault = {"what": "throttle", "operation": "Create*Job", "count": PATIENT_TRIES - 1}
    with faults(patient.endpoint_url, fault):
        result = train(script("print('done')\n"), task)
        assert times_fired(patient.endpoint_url) == [PATIENT_TRIES - 1]

    assert job_names(sagemaker, task) == [result["job_name"]]
    assert result["attempt"] == 1


@pytest.mark.parametrize(
    ("status", "tries"),
    [(None, 1), (None, 3), (500, 1)],
    ids=["unanswered", "unanswered-asked-again", "failed"],
)
def test_a_create_whose_answer_is_lost_makes_one_job(
    engine, task, script, sagemaker, monkeypatch, status, tries
) -> None:
    relay = losing_answers(engine.endpoint_url, operation="CreateTrainingJob", status=status)
    with relay as url:
        connect(monkeypatch, engine, url=url, tries=tries)
        result = train(script("print('done')\n"), task)

    assert result["status"] == "Completed"
    assert result["attempt"] == 1
    assert job_names(sagemaker, task) == [result["job_name"]]


def test_a_script_meets_the_failures_of_s3_as_its_client_tells_them(
    patient, task, script, s3, caplog
) -> None:
    key = f"{task.run_id}/data"
    s3.put_object(Bucket=patient.bucket, Key=key, Body=CONTENT)
    source = f"BUCKET, KEY = {patient.bucket!r}, {key!r}\n{READS}"
    outage = {"what": "s3_error", "operation": "GetObject", "key_prefix": key, "count": 6}
    half = {"what": "s3_truncate", "key_prefix": key}
    with caplog.at_level(logging.INFO), faults(patient.endpoint_url, outage, half):
        result = train(script(source), task)

    assert result["status"] == "Completed"
    assert "once: InternalError" in caplog.text
    assert "half: " in caplog.text
    assert "short: " not in caplog.text
    assert f"whole: {hashlib.sha256(CONTENT).hexdigest()}" in caplog.text


@contextmanager
def ended_after_first_hit(endpoint_url: str, *, seconds: float) -> Iterator[list[int]]:
    """End all faults so long after the first one came; yield how often they came, once they have ended."""
    num_hits: list[int] = []
    given_up = threading.Event()

    def end() -> None:
        while not given_up.wait(0.02) and not any(times_fired(endpoint_url)):
            pass
        given_up.wait(seconds)
        num_hits.append(sum(times_fired(endpoint_url)))
        end_faults(endpoint_url)

    ending = threading.Thread(target=end)
    ending.start()
    try:
        yield num_hits
    finally:
        given_up.set()
        ending.join()


def _read_out(stream: Any) -> bytes:
    with stream:
        return bytes(stream.read())
