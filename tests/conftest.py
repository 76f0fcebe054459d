"""Fixtures that all parts share: a real engine as a process of its own, and clients of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from botocore.config import Config
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator

# A busy machine is no failure: no example has a time limit of its own.
settings.register_profile("trainyard", deadline=None)
settings.load_profile("trainyard")

REPOSITORY = Path(__file__).resolve().parents[1]
# Every program that a test starts finds this checkout's packages, as under `make`.
os.environ["PYTHONPATH"] = os.pathsep.join(
    str(REPOSITORY / each) for each in ("include", "plugins", "tools", "tests/oracle")
)
TIME_SCALE = 0.02
# They start a whole Airflow: one at a time, and first, since they take longest.
LIVE_FOLDERS = ("tests/resilience/", "tests/stack/", "tests/deployment/")


@dataclass(kw_only=True)
class RunningEngine:
    """`python -m sagemaker_engine` as a process, over a state folder that outlives it."""

    root: Path
    region: str = "us-east-1"
    account: str = "123456789012"
    time_scale: float = TIME_SCALE
    warm: str = "use"
    arguments: tuple[str, ...] = ()
    endpoint_url: str = ""
    process: subprocess.Popen[str] | None = field(default=None, repr=False)

    @property
    def bucket(self) -> str:
        """The bucket that exists from the start."""
        return f"sagemaker-{self.region}-{self.account}"

    @property
    def role_arn(self) -> str:
        """The execution role that exists from the start."""
        return f"arn:aws:iam::{self.account}:role/TrainyardExecutionRole"

    def start(self) -> RunningEngine:
        """Start the process, wait until it is ready, and return self."""
        self.root.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "sagemaker_engine", "--port", "0"]
        command += ["--root", str(self.root), "--time-scale", str(self.time_scale)]
        command += ["--region", self.region, "--account", self.account]
        command += ["--warm", self.warm, *self.arguments]
        environment = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        with (self.root / "engine.log").open("a") as log:
            self.process = subprocess.Popen(
                command,
                cwd=REPOSITORY,
                env={**environment, "OMP_NUM_THREADS": "1"},
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self.endpoint_url = self._wait_until_ready()
        return self

    def kill(self) -> None:
        """End the process as `kill -9` does: it can clean up nothing."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """Ask the process to end and return its exit status."""
        return self._end(signal.SIGTERM)

    def restart(self) -> RunningEngine:
        """Kill the process if it runs, start another over the same state, and return self."""
        if self.process is not None:
            self.kill()
        return self.start()

    def client(self, service: str, **options: Any) -> Any:
        """Return a boto3 client of any service of this engine."""
        retries = {"total_max_attempts": 2, "mode": "standard"}
        config = Config(retries=retries, connect_timeout=5, read_timeout=60)
        return boto3.client(
            service,
            endpoint_url=self.endpoint_url,
            region_name=options.pop("region_name", self.region),
            aws_access_key_id="test",
            aws_secret_access_key="test",  # noqa: S106
            config=config.merge(options.pop("config", Config())),
            **options,
        )

    def _wait_until_ready(self) -> str:
        assert self.process is not None
        assert self.process.stdout is not None
        ready, _, _ = select.select([self.process.stdout], [], [], EVENT_LIMIT_S)
        line = self.process.stdout.readline() if ready else ""
        if not line.startswith("engine ready "):
            self.kill()
            pytest.fail(f"the engine did not start: {(self.root / 'engine.log').read_text()}")
        return line.split()[2]

    def _end(self, number: int) -> int:
        if self.process is None:
            return 0
        self.process.send_signal(number)
        try:
            status = self.process.wait(EVENT_LIMIT_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            raise
        finally:
            if self.process.stdout is not None:
                self.process.stdout.close()
            self.process = None
        return status


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the conformance suite run against a real account."""
    group = parser.getgroup("trainyard")
    group.addoption("--aws", action="store_true", help="run tests/contract against real AWS")
    group.addoption("--aws-bucket", help="bucket for the objects of the tests (with --aws)")
    group.addoption("--aws-role", help="execution role of the tests' jobs (with --aws)")
    group.addoption("--aws-image", help="training image of the tests' jobs (with --aws)")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, in however many processes: a live Airflow, then a whole DAG.

    Those with an Airflow of their own come before the shared one is up: even idle, it takes a part of a core.
    """
    items.sort(
        key=lambda item: (
            not _is_live(item.nodeid),
            "/dags/" not in item.nodeid,
            "stack" in getattr(item, "fixturenames", ()),
        )
    )


class OneAirflow(LoadScopeScheduling):
    """Hands a process of `pytest -n` all tests of a file; all with a live Airflow to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        return "live" if _is_live(nodeid) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneAirflow:
    """Return what hands out the tests under `pytest -n`."""
    return OneAirflow(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the live Airflow with the last test that needs one."""
    if _is_live(item.nodeid) and not (nextitem and _is_live(nextitem.nodeid)):
        from tests.stack.conftest import take_down_all

        take_down_all()


def _is_live(nodeid: str) -> bool:
    return nodeid.startswith(LIVE_FOLDERS)


@pytest.fixture(scope="session")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """A running engine that all tests of the session share."""
    running = RunningEngine(root=tmp_path_factory.mktemp("engine")).start()
    yield running
    running.stop()


@pytest.fixture
def own_engine(tmp_path: Path) -> Iterator[RunningEngine]:
    """A running engine of one test, to be killed, restarted and looked into."""
    running = RunningEngine(root=tmp_path / "engine", warm="never").start()
    yield running
    running.stop()


@pytest.fixture(scope="session")
def sagemaker(engine: RunningEngine) -> Iterator[Any]:
    """A SageMaker client of the shared engine."""
    client = engine.client("sagemaker")
    yield client
    client.close()


@pytest.fixture(scope="session")
def s3(engine: RunningEngine) -> Iterator[Any]:
    """An S3 client of the shared engine."""
    client = engine.client("s3")
    yield client
    client.close()


@pytest.fixture(scope="session")
def logs(engine: RunningEngine) -> Iterator[Any]:
    """A CloudWatch Logs client of the shared engine."""
    client = engine.client("logs")
    yield client
    client.close()
