"""Fixtures of the DAGs' tests: one metadata database and one parsed bag for the session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.airflow_home import REPOSITORY
from tests.engine_access import EngineAccess
from tests.plugins.conftest import connection_json
from trainyard.permissions.policies import Account, airflow_policy, execution_policy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import RunningEngine


def parsed_bag() -> Any:
    """Return the DAGs as the dag processor sees them, freshly parsed."""
    from airflow.dag_processing.dagbag import DagBag

    return DagBag(REPOSITORY / "dags", bundle_path=REPOSITORY / "dags", bundle_name="dags-folder")


@pytest.fixture(scope="session")
def bag() -> Any:
    """The DAGs of the session, for looking at only."""
    return parsed_bag()


@pytest.fixture(scope="session")
def database(bag: Any) -> Callable[[str], Any]:
    """A migrated metadata database that knows the DAGs (about 15 s, once), and a way to get a DAG to run.

    Each call parses anew: `dag.test()` leaves a run's conf in the params of the DAG object.
    """
    from airflow.dag_processing.bundles.manager import DagBundlesManager
    from airflow.dag_processing.dagbag import sync_bag_to_db
    from airflow.utils.db import initdb

    initdb()
    DagBundlesManager().sync_bundles_to_db()
    sync_bag_to_db(bag, "dags-folder", None)
    return lambda dag_id: parsed_bag().dags[dag_id]


@pytest.fixture
def account(engine: RunningEngine) -> Account:
    """The shared engine's account, as `trainyard permissions` is told of it."""
    return Account(
        account=engine.account,
        region=engine.region,
        bucket=engine.bucket,
        role_arn=engine.role_arn,
        sources=(f"s3://{engine.bucket}/raw",),
    )


@pytest.fixture
def access(engine: RunningEngine, account: Account) -> Iterator[EngineAccess]:
    """The engine's permissions: Airflow and the jobs have what `trainyard permissions` prints, and no more."""
    made = EngineAccess(engine)
    made.put(airflow=airflow_policy(account), role=execution_policy(account))
    yield made
    denied = made.denied() - made.expected, made.denied(engine.role_arn) - made.expected
    made.clear()
    assert denied == (set(), set()), "the generated policies lack what a DAG asked for"


@pytest.fixture
def aws_connection(
    engine: RunningEngine, access: EngineAccess, monkeypatch: pytest.MonkeyPatch
) -> RunningEngine:
    """The connection `aws_default` leads to the shared engine, whose permissions hold."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(engine))
    return engine
