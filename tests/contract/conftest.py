"""The place the conformance suite talks to: the local engine, or with `--aws` a real account.

The tests know an `Endpoint` only; they assert what SageMaker documents or was seen to answer.
"""

from __future__ import annotations

import os
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config

from tests.contract.proofs import RECORD_VARIABLE, record, unproved_by
from tests.contract.response_shapes import ShapeCheck
from tests.contract.waiting import WaitClock, wait_until
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RunningEngine

TERMINAL = frozenset({"Completed", "Failed", "Stopped"})
SHELL = ["/bin/sh", "-c"]


@dataclass(kw_only=True)
class Endpoint:
    """Clients of one account and region, what its tests may use, and what they have made."""

    client_of: Callable[..., Any]
    bucket: str
    role_arn: str
    image: str
    connection: dict[str, Any]
    """An Airflow connection to this account, as JSON."""
    clock: WaitClock
    shapes: ShapeCheck
    prefix: str = field(default_factory=lambda: f"contract-{uuid.uuid4().hex[:8]}")
    _clients: dict[str, Any] = field(default_factory=dict)

    def client(self, service: str, *, validates: bool = True) -> Any:
        """Return the client of a service; its answers are checked against the service's model.

        One that does not validate sends what a client in another language could send.
        """
        key = f"{service} {validates}"
        if key not in self._clients:
            client = self.client_of(service, config=Config(parameter_validation=validates))
            self.shapes.watch(client)
            self._clients[key] = client
        return self._clients[key]

    @property
    def sagemaker(self) -> Any:
        """Return the SageMaker client."""
        return self.client("sagemaker")

    def name(self, stem: str = "job") -> str:
        """Return a name that nobody has used."""
        return f"{self.prefix}-{stem}-{uuid.uuid4().hex[:8]}"

    def uri(self, key: str = "") -> str:
        """Return the S3 URI of a key below this session's prefix."""
        return f"s3://{self.bucket}/{self.prefix}/{key}"

    def put(self, key: str, body: bytes = b"data") -> str:
        """Store an object below this session's prefix and return its URI."""
        self.client("s3").put_object(Bucket=self.bucket, Key=f"{self.prefix}/{key}", Body=body)
        return self.uri(key)

    def training_request(self, script: str = "true", **members: Any) -> dict[str, Any]:
        """Return a small CreateTrainingJob request for a shell script; None drops a member."""
        request = {
            "TrainingJobName": self.name(),
            "RoleArn": self.role_arn,
            "AlgorithmSpecification": {
                "TrainingImage": self.image,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": SHELL,
                "ContainerArguments": [script],
            },
            "OutputDataConfig": {"S3OutputPath": self.uri("output")},
            "ResourceConfig": {
                "InstanceType": "ml.m5.large",
                "InstanceCount": 1,
                "VolumeSizeInGB": 1,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **members,
        }
        return {key: value for key, value in request.items() if value is not None}

    def processing_request(self, script: str = "true", **members: Any) -> dict[str, Any]:
        """Return a small CreateProcessingJob request that runs a shell script."""
        request = {
            "ProcessingJobName": self.name(),
            "RoleArn": self.role_arn,
            "AppSpecification": {
                "ImageUri": self.image,
                "ContainerEntrypoint": SHELL,
                "ContainerArguments": [script],
            },
            "ProcessingResources": {
                "ClusterConfig": {
                    "InstanceType": "ml.m5.large",
                    "InstanceCount": 1,
                    "VolumeSizeInGB": 1,
                }
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 600},
            **members,
        }
        return {key: value for key, value in request.items() if value is not None}

    def start(self, request: dict[str, Any]) -> str:
        """Create a job of either kind and return its name."""
        if "TrainingJobName" in request:
            self.sagemaker.create_training_job(**request)
            return str(request["TrainingJobName"])
        self.sagemaker.create_processing_job(**request)
        return str(request["ProcessingJobName"])

    def describe(self, name: str, *, processing: bool = False) -> dict[str, Any]:
        """Return what Describe says of a job."""
        if processing:
            described = self.sagemaker.describe_processing_job(ProcessingJobName=name)
        else:
            described = self.sagemaker.describe_training_job(TrainingJobName=name)
        return dict(described)

    def finished(self, name: str, *, processing: bool = False) -> dict[str, Any]:
        """Wait for the end of a job and return what Describe says then."""
        key = "ProcessingJobStatus" if processing else "TrainingJobStatus"
        return wait_until(
            lambda: self.describe(name, processing=processing),
            lambda described: described[key] in TERMINAL,
            clock=self.clock,
            what=f"the end of {name}",
        )

    def run(self, request: dict[str, Any]) -> dict[str, Any]:
        """Create a job, wait for its end and return what Describe says then."""
        return self.finished(self.start(request), processing="ProcessingJobName" in request)

    def reaches(self, name: str, secondary: str) -> dict[str, Any]:
        """Wait until a training job has a secondary status and return what Describe says then."""
        return wait_until(
            lambda: self.describe(name),
            lambda described: described["SecondaryStatus"] == secondary,
            clock=self.clock,
            what=f"{secondary} of {name}",
        )


@pytest.fixture(scope="session")
def endpoint(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    """The account under test."""
    shapes = ShapeCheck()
    if request.config.getoption("--aws"):
        yield _real_account(request.config, shapes)
    else:
        engine: RunningEngine = request.getfixturevalue("engine")
        yield Endpoint(
            client_of=engine.client,
            bucket=engine.bucket,
            role_arn=engine.role_arn,
            image="763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312",
            connection={
                "conn_type": "aws",
                "login": "test",
                "password": "test",
                "extra": {"region_name": engine.region, "endpoint_url": engine.endpoint_url},
            },
            clock=WaitClock(poll_s=0.05, limit_s=EVENT_LIMIT_S),
            shapes=shapes,
        )
    shapes.close()


@pytest.fixture(autouse=True)
def answers_have_the_models_shape(
    endpoint: Endpoint, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Fail a test in which an answer broke the service's model, or that no longer proves what `proofs.json` says."""
    shapes = endpoint.shapes
    for each in (shapes.problems, shapes.succeeded, shapes.rejected):
        each.clear()
    yield
    assert shapes.problems == []
    test = f"{request.path.name}::{request.node.originalname}"
    if recorded := os.environ.get(RECORD_VARIABLE):
        record(Path(recorded), test, shapes)
    assert unproved_by(test, shapes) == set(), "record the proofs anew: tests/contract/proofs.py"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark the suite as what it is when it talks to a real account."""
    if config.getoption("--aws"):
        here = Path(__file__).parent
        for item in items:
            if item.path.is_relative_to(here):
                item.add_marker(pytest.mark.aws)


def _real_account(config: pytest.Config, shapes: ShapeCheck) -> Endpoint:
    options = {name: config.getoption(f"--aws-{name}") for name in ("bucket", "role", "image")}
    missing = [f"--aws-{name}" for name, value in options.items() if not value]
    if missing:
        pytest.fail(f"--aws needs {', '.join(missing)}")
    session = boto3.Session()
    return Endpoint(
        client_of=session.client,
        bucket=options["bucket"],
        role_arn=options["role"],
        image=options["image"],
        connection={"conn_type": "aws", "extra": {"region_name": session.region_name}},
        clock=WaitClock(poll_s=5, limit_s=900),
        shapes=shapes,
    )
