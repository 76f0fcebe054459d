"""Sharding by a processing job over several instances, against a real engine."""

from __future__ import annotations

import asyncio
import itertools
import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from airflow.sdk.exceptions import TaskDeferred
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.plugins.conftest import IMAGE, TaskSurroundings, connection_json
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardIndex, ShardSettings, Source
from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.jobs.sharding import ShardingSpec
from trainyard_airflow.jobs.sharding_job import ShardingJob
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

NUM_FILES, NUM_ROWS = 5, 1000
COLORS = ("red", "green", "blue", "gray", "pink")


def source_files(data_format: str) -> dict[str, str]:
    """Return files whose rows are all different and whose categories come in another order in each."""
    files = {}
    for number in range(NUM_FILES):
        own = COLORS[number:] + COLORS[:number]
        rows = [
            {"number": at, "color": own[at % 5], "label": at % 2}
            for at in range(number, NUM_ROWS, NUM_FILES)
        ]
        if data_format == "csv":
            lines = ["number,color,label", *(",".join(map(str, row.values())) for row in rows)]
        else:
            lines = [json.dumps(row) for row in rows]
        files[f"part-{number}.{data_format}"] = "\n".join(lines) + "\n"
    return files


def put_source(s3: Any, engine: Any, run_id: str, files: dict[str, str]) -> str:
    for name, text in files.items():
        s3.put_object(Bucket=engine.bucket, Key=f"{run_id}/raw/{name}", Body=text.encode())
    return f"s3://{engine.bucket}/{run_id}/raw/"


def sharding(
    engine: Any, source: str, run_id: str, *, instance_count: int | None = 2
) -> ShardingSpec:
    destination = f"s3://{engine.bucket}/{run_id}"
    job = ShardingJob(
        instance_count=instance_count or 0,
        instance_type="ml.m5.large",
        role=engine.role_arn,
        code_location=f"{destination}/code",
        image_uri=IMAGE,
    )
    return ShardingSpec(
        source=Source(uri=source),
        settings=ShardSettings(
            target_column="label",
            validation_fraction=0.2,
            test_fraction=0.2,
            max_bad_row_fraction=0.0,
        ),
        destination=destination,
        job=job if instance_count else None,
    )


def execute(spec: ShardingSpec, task: TaskSurroundings) -> dict[str, Any]:
    made = ShardDatasetOperator(task_id="shard", spec=spec, deferrable=False, poll_interval_s=1)
    told: dict[str, Any] = type(made).execute.__wrapped__(made, task.context)
    return told


def rows_of(told: dict[str, Any]) -> dict[str, list[tuple[int, str, int]]]:
    """Return the rows of each split as the shards and the index say them, sorted."""
    objects = S3DatasetObjects(AwsClients(ConnectionArguments()).client("s3"))
    with objects.open(f"{told['dataset_uri']}/index/index.json") as stream:
        index = ShardIndex.from_json(stream.read())
    schema = {column.name: column for column in index.schema or ()}
    assert {name: column.dtype for name, column in schema.items()} == {
        "number": "int64",
        "color": "int32",
        "label": "int64",
    }
    colors = schema["color"].categories or ()
    found = {}
    for split, described in index.splits.items():
        rows = []
        for shard in described.shards:
            with objects.open(f"{told['dataset_uri']}/{shard.file}") as stream:
                content = stream.read()
            columns = {
                place.name: np.frombuffer(content, place.dtype, shard.rows, place.offset).tolist()
                for place in shard.columns
            }
            rows += [
                (int(number), colors[int(color)], int(label))
                for number, color, label in zip(
                    columns["number"], columns["color"], columns["label"], strict=True
                )
            ]
        found[split] = sorted(rows)
    return found


@pytest.mark.parametrize("data_format", [pytest.param("jsonl", marks=pytest.mark.slow), "csv"])
def test_two_instances_shard_every_row_once_and_as_the_worker_does(
    aws_connection, task, s3, sagemaker, data_format
):
    source = put_source(s3, aws_connection, task.run_id, source_files(data_format))
    told = execute(sharding(aws_connection, source, task.run_id), task)
    by_worker = execute(
        sharding(aws_connection, source, task.run_id, instance_count=None),
        TaskSurroundings(run_id=f"{task.run_id}-worker"),
    )

    rows = rows_of(told)
    expected = {
        (at, (COLORS[at % 5 :] + COLORS[: at % 5])[at % 5], at % 2) for at in range(NUM_ROWS)
    }
    assert sorted(row for split in rows.values() for row in split) == sorted(expected)
    assert rows == rows_of(by_worker)
    assert told.keys() == by_worker.keys()
    assert told["kind"] == "columns"
    assert told["job"]["status"] == "Completed"
    assert told["job"]["instance_count"] == 2
    job = sagemaker.describe_processing_job(ProcessingJobName=task.xcoms["job_name"])
    assert job["ProcessingResources"]["ClusterConfig"]["InstanceCount"] == 2
    arguments = job["AppSpecification"]["ContainerArguments"]
    assert arguments[arguments.index("--region") + 1] == aws_connection.region

    later = TaskSurroundings(run_id=f"{task.run_id}-later")
    again = execute(sharding(aws_connection, source, task.run_id), later)

    assert again["was_reused"]
    assert (again["dataset_uri"], again["splits"]) == (told["dataset_uri"], told["splits"])
    assert "job_name" not in later.xcoms


@pytest.mark.slow
def test_deferred_job_is_merged_when_the_trigger_fires(
    aws_connection, task, s3, sagemaker, monkeypatch
):
    defaults = {"enable_network_isolation": True, "tags": {"team": "a"}}
    given = connection_json(aws_connection, job_defaults=defaults)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    source = put_source(s3, aws_connection, task.run_id, source_files("jsonl"))
    spec = sharding(aws_connection, source, task.run_id, instance_count=1)
    made = ShardDatasetOperator(task_id="shard", spec=spec, poll_interval_s=1)
    with pytest.raises(TaskDeferred) as deferred:
        type(made).execute.__wrapped__(made, task.context)

    async def only_event() -> Any:
        (payload,) = [event.payload async for event in deferred.value.trigger.run()]
        return payload

    resumed = ShardDatasetOperator(task_id="shard", spec=spec, poll_interval_s=1)
    told = resumed.execute_complete(task.context, asyncio.run(only_event()))

    assert sum(len(each) for each in rows_of(told).values()) == NUM_ROWS
    assert told["job"]["job_name"] == task.xcoms["job_name"]
    job = sagemaker.describe_processing_job(ProcessingJobName=told["job"]["job_name"])
    tags = sagemaker.list_tags(ResourceArn=job["ProcessingJobArn"])["Tags"]
    assert {"Key": "team", "Value": "a"} in tags
    assert not job.get("NetworkConfig", {}).get("EnableNetworkIsolation"), "it reads S3 itself"


@pytest.mark.slow
def test_part_that_fails_names_the_fault_and_leaves_no_index(aws_connection, task, s3):
    files = source_files("csv") | {"part-9.csv.gz": "this is no gzip\n"}
    source = put_source(s3, aws_connection, task.run_id, files)
    spec = sharding(aws_connection, source, task.run_id)

    with pytest.raises(DataError, match=r"part-9\.csv\.gz"):
        execute(spec, task)
    listed = s3.list_objects_v2(Bucket=aws_connection.bucket, Prefix=f"{task.run_id}/datasets/")
    assert not any("index.json" in each["Key"] for each in listed["Contents"])


def test_source_on_the_workers_disk_starts_no_job(aws_connection, task, tmp_path):
    (tmp_path / "a.csv").write_text(source_files("csv")["part-0.csv"])
    with pytest.raises(SpecError, match="copy the data to S3"):
        execute(sharding(aws_connection, str(tmp_path), task.run_id), task)
    assert "job_name" not in task.xcoms


def text_files() -> dict[str, str]:
    """Return text files of words that a small vocabulary splits into several tokens each."""
    words = ("training", "trainer", "sharding", "shards", "tokens", "tokenizer", "rows")
    return {
        f"{number}.txt": "".join(
            f"{words[(at * at + number) % 7]} {words[at % 7]} {at}\n" for at in range(400)
        )
        for number in range(NUM_FILES)
    }


def write_tokenizer(path: Path) -> Path:
    """Train a byte-pair tokenizer on the test's text."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = trainers.BpeTrainer(vocab_size=300, special_tokens=["</s>"], show_progress=False)
    tokenizer.train_from_iterator(text_files().values(), trainer)
    tokenizer.save(str(path))
    return path


def token_rows_of(told: dict[str, Any]) -> tuple[ShardIndex, dict[str, list[tuple[int, ...]]]]:
    """Return the index, and the tokens of each row of each split, sorted."""
    objects = S3DatasetObjects(AwsClients(ConnectionArguments()).client("s3"))
    with objects.open(f"{told['dataset_uri']}/index/index.json") as stream:
        index = ShardIndex.from_json(stream.read())
    found: dict[str, list[tuple[int, ...]]] = {}
    for split, described in index.splits.items():
        rows = []
        for shard in described.shards:
            with objects.open(f"{told['dataset_uri']}/{shard.file}") as stream:
                content = stream.read()
            places = {place.name: place for place in shard.columns}
            tokens, ends = (
                np.frombuffer(content[at.offset : at.offset + at.bytes], at.dtype).tolist()
                for at in (places["tokens"], places["row_ends"])
            )
            rows += [tuple(tokens[a:b]) for a, b in itertools.pairwise([0, *ends])]
        found[split] = sorted(rows)
    return index, found


@pytest.mark.slow
def test_instances_tokenize_by_the_workers_file_as_the_worker_does(
    aws_connection, task, s3, tmp_path, monkeypatch
):
    given = connection_json(aws_connection, source_roots=[str(tmp_path)])
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)
    file = write_tokenizer(tmp_path / "own.json")
    source = put_source(s3, aws_connection, task.run_id, text_files())

    def sharded(instance_count: int | None) -> tuple[dict[str, Any], ShardIndex, Any]:
        spec = sharding(aws_connection, source, task.run_id, instance_count=instance_count)
        settings = replace(
            spec.settings, target_column=None, text_row_bytes=64, num_shards=2, tokenizer=str(file)
        )
        told = execute(replace(spec, settings=settings), task)
        return told, *token_rows_of(told)

    _, worker, rows = sharded(None)
    told, index, found = sharded(2)

    assert told["job"]["status"] == "Completed"
    assert found == rows
    assert index.tokenizer == worker.tokenizer
    assert index.tokenizer["name"] == "own.json"
    assert index.dtype == worker.dtype
    assert index.baseline == pytest.approx(worker.baseline)
    copied = f"{told['dataset_uri']}/parts/tokenizer/own.json"
    with S3DatasetObjects(s3).open(copied) as stream:
        assert stream.read() == file.read_bytes()
