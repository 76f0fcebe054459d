"""Fixtures that all parts share: a real engine as a process of its own, and clients of it."""

from __future__ import annotations

import gc
import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.loaders import JSONFileLoader
from hypothesis import settings
from xdist.scheduler import LoadScopeScheduling

from sagemaker_engine.testing import RunningEngine

if TYPE_CHECKING:
    from collections.abc import Iterator

# A busy machine is no failure: no example has a time limit of its own.
settings.register_profile("trainyard", deadline=None)
settings.load_profile("trainyard")

_read = JSONFileLoader.load_file
# Each test has AWS sessions of its own, and each of these would parse the same megabytes of botocore's data again.
JSONFileLoader.load_file = lambda _, path: _parsed(path)  # type: ignore[method-assign]


@cache
def _parsed(path: str) -> Any:
    return _read(JSONFileLoader(), path)


REPOSITORY = Path(__file__).resolve().parents[1]
# Every program that a test starts finds this checkout's packages, as under `make`.
os.environ["PYTHONPATH"] = os.pathsep.join(
    str(REPOSITORY / each) for each in ("include", "plugins", "tools", "tests/oracle")
)
# They start a whole Airflow, and come first, since they take longest: the users' own one beside the session's one.
DEPLOYMENT_FOLDER = "tests/deployment/"
LIVE_FOLDERS = ("tests/resilience/", "tests/stack/", DEPLOYMENT_FOLDER)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let the conformance suite run against a real account."""
    group = parser.getgroup("trainyard")
    group.addoption("--aws", action="store_true", help="run tests/contract against real AWS")
    group.addoption("--aws-bucket", help="bucket for the objects of the tests (with --aws)")
    group.addoption("--aws-role", help="execution role of the tests' jobs (with --aws)")
    group.addoption("--aws-image", help="training image of the tests' jobs (with --aws)")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Collect without garbage collection, and exempt the imported modules and the tests from it for good.

    It would take a fifth of the time that thousands of tests need.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


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
    """Hands a process of `pytest -n` all tests of a file; all with the session's live Airflow to the same one."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(DEPLOYMENT_FOLDER):
            return DEPLOYMENT_FOLDER
        return "live" if _is_live(nodeid) else nodeid.partition("::")[0]


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneAirflow:
    """Return what hands out the tests under `pytest -n`."""
    return OneAirflow(config, log)


@pytest.hookimpl(trylast=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> None:
    """End the live Airflow with the last test that needs one."""
    if _is_live(item.nodeid) and not (nextitem and _is_live(nextitem.nodeid)):
        from tests.stack.live_stack import take_down_all

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
