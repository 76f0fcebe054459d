"""An account with rules: permissions without one action, and guard rails that refuse every unprotected job."""

from __future__ import annotations

import json
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.conftest import REPOSITORY
from tests.dags.account_rules import (
    DONE_WITHOUT,
    OF_OTHER_LIVES,
    actions_of,
    printed,
    without,
)
from tests.dags.test_train_end_to_end import put_source, result, run
from tests.plugins.conftest import connection_json
from trainyard.permissions.policies import Account, airflow_policy, execution_policy
from trainyard_airflow.tasks.shared.task_notes import FAILURE_XCOM_KEY

if TYPE_CHECKING:
    from tests.conftest import RunningEngine
    from tests.engine_access import EngineAccess

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.filterwarnings("ignore"),
]

DEPLOYMENT = "team-a"
KEY = "arn:aws:kms:us-east-1:123456789012:key/7b3f0c9e-0000-4000-8000-1234567890ab"
PROTECTED = {
    "subnets": ["subnet-0aaaaaaaaaaaaaaaa"],
    "security_group_ids": ["sg-0aaaaaaaaaaaaaaaa"],
    "volume_kms_key": KEY,
    "output_kms_key": KEY,
    "encrypt_inter_container_traffic": True,
    "tags": {"cost-center": "42"},
}
LIMITS = {
    "required": [
        "subnets",
        "volume_kms_key",
        "output_kms_key",
        "encrypt_inter_container_traffic",
    ],
    "required_tags": ["cost-center"],
}


@pytest.fixture
def guarded(access: EngineAccess, account: Account) -> Account:
    """The account with the guard rails of docs/examples/guarded_account.json."""
    guarded = replace(account, kms_keys=(KEY,), has_network=True, deployment=DEPLOYMENT)
    rails = json.loads((REPOSITORY / "docs/examples/guarded_account.json").read_text())
    access.put(
        airflow=airflow_policy(guarded),
        role=execution_policy(guarded),
        guard_rails=tuple(rails["guard_rails"]),
    )
    return guarded


def connect(engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, **trainyard: Any) -> None:
    given = connection_json(engine, deployment=DEPLOYMENT, **trainyard)
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", given)


@pytest.mark.slow
@pytest.mark.usefixtures("guarded")
def test_a_run_with_the_connections_defaults_is_green_in_a_guarded_account(
    database: Any, engine: RunningEngine, monkeypatch: pytest.MonkeyPatch, s3: Any
) -> None:
    source = put_source(s3, engine.bucket)
    connect(engine, monkeypatch, job_defaults=PROTECTED, job_limits=LIMITS, kms_key_id=KEY)

    _, states = run(database, source=source, shard_instance_count=1)

    assert set(states.values()) == {"success", "skipped"}, states


@pytest.mark.usefixtures("guarded")
def test_preflight_says_all_that_is_missing_before_a_job_is_asked_for(
    database: Any,
    engine: RunningEngine,
    monkeypatch: pytest.MonkeyPatch,
    access: EngineAccess,
) -> None:
    connect(engine, monkeypatch, job_limits={**LIMITS, "instance_types": ["ml.g5.*"]})

    dag_run, states = run(database)
    failure = result(dag_run, "preflight", FAILURE_XCOM_KEY)

    assert states["preflight"] == "failed"
    missing = {*LIMITS["required"], "tags.cost-center", "instance_type"}
    assert {each["where"] for each in failure["findings"] if each["severity"] == "error"} == missing
    assert not any("Create" in each and "sagemaker" in each for each in access.actions())
    access.expected = {"s3:PutObject"}  # the report, which names no key


ACTIONS = actions_of(airflow_policy(Account(account="1", region="r", bucket="b", role_arn="r"), ()))


def small(s3: Any, bucket: str) -> dict[str, Any]:
    """Return the conf of a run that makes everything anew: data set, shards and model group."""
    new = uuid.uuid4().hex[:8]
    source = put_source(s3, bucket, of=new)
    return {"source": source, "shard_instance_count": 1, "model_package_group": f"group-{new}"}


@pytest.mark.slow
def test_a_run_uses_every_permission_but_those_of_other_lives(
    database: Any, aws_connection: RunningEngine, access: EngineAccess, s3: Any
) -> None:
    _, states = run(database, **small(s3, aws_connection.bucket))

    assert set(states.values()) == {"success", "skipped"}, states
    assert ACTIONS - access.actions() == OF_OTHER_LIVES


@pytest.mark.slow
@pytest.mark.parametrize("action", sorted(ACTIONS - OF_OTHER_LIVES))
def test_without_a_permission_a_run_fails_and_names_it(
    action: str,
    database: Any,
    aws_connection: RunningEngine,
    access: EngineAccess,
    account: Account,
    s3: Any,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    access.expected = {action}
    access.put(airflow=without(action, airflow_policy(account, ())), role=execution_policy(account))

    _, states = run(database, **small(s3, aws_connection.bucket))

    assert ("failed" in states.values()) is (action not in DONE_WITHOUT), states
    assert action in printed(caplog, capfd)
