"""Fixtures of the operators' tests: the connection to the shared engine, and a task's surroundings."""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.conftest import RunningEngine
    from trainyard_airflow.hooks.aws_clients import AwsClients

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.6.0-cpu-py312"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Let Airflow's own deprecations pass: they are not ours to mend."""
    for item in items:
        if "tests/plugins" in str(item.path) or "tests/dags" in str(item.path):
            item.add_marker(pytest.mark.filterwarnings("ignore::DeprecationWarning"))


@dataclass
class StateStore:
    """Airflow's task state store: it outlives a task's tries."""

    values: dict[str, Any] = field(default_factory=dict)

    def get(self, key: str, default: Any = None) -> Any:
        return self.values.get(key, default)

    retentions: dict[str, timedelta | None] = field(default_factory=dict)

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        self.values[key] = json.loads(json.dumps(value))
        self.retentions[key] = retention


class UnwritableStore(StateStore):
    """A task state store that cannot be written."""

    def set(self, key: str, value: Any, *, retention: timedelta | None = None) -> None:
        raise ConnectionError(f"{key} = {value} cannot be stored for {retention}")


class UnreadableStore(UnwritableStore):
    """A task state store that can be neither written nor read."""

    def get(self, key: str, default: Any = None) -> Any:
        raise ConnectionError(f"{key} cannot be read, nor its default {default}")


@dataclass
class TaskSurroundings:
    """What Airflow gives a running task: its instance, XComs and state store."""

    dag_id: str = "plugins_test"
    run_id: str = "run"
    task_id: str = "train"
    map_index: int = -1
    try_number: int = 1
    state: str = "running"
    start_date: datetime = field(default_factory=lambda: datetime.now(UTC))
    xcoms: dict[str, Any] = field(default_factory=dict)
    store: StateStore = field(default_factory=StateStore)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))

    def xcom_pull(self, *, key: str, **_: Any) -> Any:
        return self.xcoms.get(key)

    def get_task_states(self, **_: Any) -> dict[str, dict[str, str]]:
        return {self.run_id: {self.task_id: self.state}}

    @property
    def context(self) -> dict[str, Any]:
        return {"ti": self, "task_state_store": self.store, "params": {}}


def connection_json(
    engine: RunningEngine, *, trainyard: dict[str, Any] | None = None, **more: Any
) -> str:
    """Return `AIRFLOW_CONN_AWS_DEFAULT` for an engine, with `trainyard` or the usual keys, and `more` of them."""
    defaults = {
        "bucket": engine.bucket,
        "execution_role_arn": engine.role_arn,
        "source_roots": ["/"],
        "shortest_poll_s": 0.5,
        "rules_poll_interval_s": 1,
    }
    extra = {
        "region_name": engine.region,
        "endpoint_url": engine.endpoint_url,
        "trainyard": (defaults if trainyard is None else trainyard) | more,
        "config_kwargs": {"retries": {"total_max_attempts": 2, "mode": "standard"}},
    }
    credentials = {"login": "test-login", "password": "test-password"}
    return json.dumps({"conn_type": "aws", **credentials, "extra": extra})


@pytest.fixture
def aws_connection(engine: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> RunningEngine:
    """The connection `aws_default` leads to the shared engine."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
    return engine


@pytest.fixture(scope="module")
def clients(engine: RunningEngine) -> Iterator[AwsClients]:
    """The connection's clients, made once for all cases of a module."""
    from trainyard_airflow.hooks.aws_clients import AwsClients, ConnectionArguments

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
        yield AwsClients(ConnectionArguments())


@pytest.fixture
def task() -> TaskSurroundings:
    """A task of a run nobody else has."""
    return TaskSurroundings(run_id=f"run-{uuid.uuid4().hex[:8]}")


@pytest.fixture
def script(tmp_path: Path) -> Any:
    """Write a training script and return the spec of a job that runs it on one instance."""

    def write(source: str, **members: Any) -> dict[str, Any]:
        folder = tmp_path / "source"
        folder.mkdir(exist_ok=True)
        (folder / "job.py").write_text(source)
        return {
            "entry_point": "job.py",
            "source_dir": str(folder),
            "instance_type": "ml.m5.large",
            "instance_count": 1,
            "image_uri": IMAGE,
            "max_run": 600,
            **members,
        }

    return write
