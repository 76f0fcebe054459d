from __future__ import annotations

import fcntl
import io
import json
import tarfile
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.faults.reader import read_plan
from sagemaker_engine.faults.store import FaultStore
from sagemaker_engine.http.server import serve
from sagemaker_engine.jobs import launching
from sagemaker_engine.jobs.launching import launch
from sagemaker_engine.s3.application import S3Application
from sagemaker_engine.s3.object_store import ObjectStore
from sagemaker_engine.s3.objects import ObjectInfo
from sagemaker_engine.state.jobs import JobRow, ResourceKind
from sagemaker_engine.state.settings import EngineSettings
from sagemaker_engine.state.store import JobStore
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

BUCKET = "jobs-bucket"
SPOT: dict[str, Any] = {
    "EnableManagedSpotTraining": True,
    "StoppingCondition": {"MaxRuntimeInSeconds": 600, "MaxWaitTimeInSeconds": 700},
    "CheckpointConfig": {"S3Uri": f"s3://{BUCKET}/checkpoints"},
}
"""The members of a spot job that keeps its checkpoints in S3."""
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"


@dataclass(kw_only=True)
class JobBench:
    """Everything of an engine that a runner needs, without the API in front."""

    settings: EngineSettings
    store: JobStore
    objects: ObjectStore

    def submit(
        self, name: str, *, kind: ResourceKind = ResourceKind.TRAINING, **request: Any
    ) -> None:
        """Store a job and start its runner."""
        now = time.time()
        self.store.create(
            kind,
            name,
            arn=f"arn:aws:sagemaker:us-east-1:123456789012:{kind.value}-job/{name}",
            request={"RoleArn": self.settings.default_role_arn, **request},
            created_at=now,
            state=_first_state(kind, now),
        )
        launch(kind, name, self.settings)

    def train(self, name: str, command: str | None = None, **members: Any) -> None:
        """Start a training job that runs a shell command, or AWS's toolkit without one."""
        entry = {"ContainerEntrypoint": ["/bin/sh", "-c", command]} if command else {}
        algorithm = {"TrainingImage": IMAGE, "TrainingInputMode": "File", **entry}
        algorithm |= members.pop("algorithm", {})
        resources = {"InstanceType": "ml.m5.large", "InstanceCount": members.pop("instances", 1)}
        request = {
            "AlgorithmSpecification": algorithm,
            "OutputDataConfig": {"S3OutputPath": f"s3://{BUCKET}/out"},
            "ResourceConfig": resources,
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **members,
        }
        self.submit(name, **request)

    def row(self, name: str, kind: ResourceKind = ResourceKind.TRAINING) -> JobRow:
        """Return the job as it is stored now."""
        return self.store.get(kind, name)

    def wait(
        self,
        name: str,
        condition: Callable[[JobRow], bool] = lambda row: row.is_terminal,
        *,
        kind: ResourceKind = ResourceKind.TRAINING,
        limit_s: float = EVENT_LIMIT_S,
    ) -> JobRow:
        """Wait until the condition holds for the job and return it."""
        return wait_for(lambda: self.row(name, kind), condition, limit_s=limit_s)

    def run(self, name: str, command: str | None = None, **members: Any) -> JobRow:
        """Run a training job to its end and return it."""
        self.train(name, command, **members)
        return self.wait(name)

    def log(
        self, name: str, host: str = "algo-1", kind: ResourceKind = ResourceKind.TRAINING
    ) -> list[str]:
        """Return the lines of an instance's log."""
        folder = self.settings.job_folder(kind, name) / "logs"
        return [
            json.loads(line)["m"]
            for path in sorted(folder.glob(f"{host}-*.jsonl"))
            for line in path.read_text().splitlines()
        ]

    def wait_for_line(self, name: str, text: str, host: str = "algo-1") -> None:
        """Wait until an instance has printed a line with this text."""
        wait_for(lambda: self.log(name, host), lambda lines: any(text in line for line in lines))

    def keys(self, prefix: str = "") -> list[str]:
        """Return the keys of all objects."""
        found = self.objects.list(BUCKET, prefix)
        return [each.key for each in found if isinstance(each, ObjectInfo)]

    def archive(self, key: str) -> dict[str, bytes]:
        """Return the files of a tar.gz object."""
        with self.objects.open(BUCKET, key) as file, tarfile.open(fileobj=file) as tar:
            members = {each.name: tar.extractfile(each) for each in tar.getmembers()}
            return {name: member.read() for name, member in members.items() if member}

    def put_source(self, files: dict[str, str | bytes]) -> dict[str, str]:
        """Store a source archive; return the hyperparameters that run its train.py."""
        data = io.BytesIO()
        with tarfile.open(fileobj=data, mode="w:gz") as tar:
            for name, content in files.items():
                raw = content.encode() if isinstance(content, str) else content
                member = tarfile.TarInfo(name)
                member.size = len(raw)
                tar.addfile(member, io.BytesIO(raw))
        self.objects.put(BUCKET, "code/sourcedir.tar.gz", data.getvalue())
        uri = f"s3://{BUCKET}/code/sourcedir.tar.gz"
        return {"sagemaker_program": "train.py", "sagemaker_submit_directory": uri}


def wait_for(
    look: Callable[[], Any], condition: Callable[[Any], bool], *, limit_s: float = EVENT_LIMIT_S
) -> Any:
    """Look until the condition holds and return what was seen then."""
    deadline = time.monotonic() + limit_s
    waiting = threading.Event()
    while not condition(seen := look()):
        assert time.monotonic() < deadline, f"still {seen}"
        waiting.wait(0.02)
    return seen


def put_faults(bench: JobBench, *faults: dict[str, Any]) -> FaultStore:
    """Let these faults hold and return the fault store they are in."""
    fault_store = FaultStore(bench.settings.root)
    fault_store.replace(read_plan(list(faults))[0])
    return fault_store


def statuses(row: JobRow) -> list[str]:
    """Return the secondary statuses that the job went through."""
    return [each["Status"] for each in row.state["SecondaryStatusTransitions"]]


def channel(name: str, uri: str, **members: Any) -> dict[str, Any]:
    """Return an input channel over an S3 prefix."""
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, **members.pop("source", {})}
    return {"ChannelName": name, "DataSource": {"S3DataSource": source}, **members}


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[JobBench]:
    """A bench of one test."""
    with open_bench(tmp_path) as opened:
        yield opened


@contextmanager
def open_bench(root: Path) -> Iterator[JobBench]:
    """A state folder with an engine's S3 in front of it, and its lock held as an engine does."""
    objects = ObjectStore(root / "s3")
    objects.create_bucket(BUCKET)
    server = serve(S3Application(objects), "127.0.0.1", 0)
    settings = EngineSettings(
        root=root, endpoint_url=f"http://127.0.0.1:{server.port}", time_scale=0.01
    )
    store = JobStore(settings.database_path)
    with settings.lock_path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield JobBench(settings=settings, store=store, objects=objects)
        for kind in ResourceKind:
            for row in store.list(kind):
                if not row.is_terminal:
                    store.request_stop(kind, row.name, at=time.time())
        wait_for(lambda: launching.reap() or launching._started, lambda left: not left)
    server.shutdown()
    store.close()


def _first_state(kind: ResourceKind, now: float) -> dict[str, Any]:
    if kind is ResourceKind.PROCESSING:
        return {"ProcessingJobStatus": "InProgress"}
    return {
        "TrainingJobStatus": "InProgress",
        "SecondaryStatus": "Starting",
        "SecondaryStatusTransitions": [{"Status": "Starting", "StartTime": now}],
    }
