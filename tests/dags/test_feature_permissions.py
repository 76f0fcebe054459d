"""A search and an AutoML run under exactly the policies of `trainyard permissions`, and without each action.

`test_account_rules.py` proves the actions that a search shares with any other end-to-end run.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

import pytest

from tests.dags.account_rules import (
    OF_OTHER_LIVES,
    actions_of,
    printed,
    states_of,
    without,
)
from tests.dags.test_account_rules import small
from tests.dags.test_autopilot_tabular import SMALL
from tests.dags.test_train_end_to_end import SEARCH, run
from trainyard.permissions.policies import Account, Feature, airflow_policy, execution_policy

if TYPE_CHECKING:
    from tests.conftest import RunningEngine
    from tests.engine_access import EngineAccess

pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
]

ANY_ACCOUNT = Account(account="1", region="r", bucket="b", role_arn="r")
STOPS_SEARCH = {"sagemaker:StopHyperParameterTuningJob"}
STOPS_AUTOML = {"sagemaker:StopAutoMLJob"}
NOT_OF_AUTOML = {
    "iam:GetRole",
    "s3:DeleteObject",
    "s3:GetEncryptionConfiguration",
    "servicequotas:ListServiceQuotas",
    "logs:DescribeLogStreams",
    "logs:GetLogEvents",
    "sagemaker:CreateTrainingJob",
}
"""Granted for the other DAGs: an AutoML run has no preflight, shards nothing and creates no training job itself."""


AUTOML_DONE_WITHOUT = {"ecr:BatchGetImage", "logs:FilterLogEvents", "s3:ListBucket"}
"""Without them an AutoML run succeeds."""


def actions(*features: Feature) -> set[str]:
    return actions_of(airflow_policy(ANY_ACCOUNT, features))


OF_SEARCH = actions(Feature.TUNE) - actions()
OF_AUTOML = actions(Feature.AUTOML)


def search(database: Any, conf: dict[str, Any]) -> dict[str, str]:
    """Run a search and the training after it; return the tasks' states."""
    return run(database, **conf, **SEARCH)[1]


def automl(database: Any) -> dict[str, str]:
    """Run an AutoML job with its data, evaluation and registration; return the tasks' states."""
    group = f"group-{uuid.uuid4().hex[:8]}"
    conf = {**SMALL, "model_package_group": group}
    return states_of(database("autopilot_tabular").test(run_conf=conf))


def test_a_search_uses_every_permission_but_those_of_other_lives(
    database: Any, aws_connection: RunningEngine, access: EngineAccess, account: Account, s3: Any
) -> None:
    access.put(
        airflow=airflow_policy(account, (Feature.TUNE,)),
        role=execution_policy(account, (Feature.TUNE,)),
    )

    states = search(database, small(s3, aws_connection.bucket))

    assert states["tune"] == states["train"] == "success"
    assert set(states.values()) == {"success", "skipped"}, states
    assert actions(Feature.TUNE) - access.actions() == OF_OTHER_LIVES | STOPS_SEARCH


@pytest.mark.parametrize("action", sorted(OF_SEARCH - STOPS_SEARCH))
def test_without_a_permission_a_search_fails_and_names_it(
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
    policy = airflow_policy(account, (Feature.TUNE,))
    access.put(airflow=without(action, policy), role=execution_policy(account))

    states = search(database, small(s3, aws_connection.bucket))

    assert "failed" in states.values(), states
    assert action in printed(caplog, capfd)


@pytest.mark.usefixtures("aws_connection")
def test_an_automl_run_uses_every_permission_but_those_of_other_dags(
    database: Any, access: EngineAccess, account: Account
) -> None:
    access.put(
        airflow=airflow_policy(account, (Feature.AUTOML,)),
        role=execution_policy(account, (Feature.AUTOML,)),
    )

    states = automl(database)

    assert set(states.values()) == {"success"}, states
    assert OF_AUTOML - access.actions() == OF_OTHER_LIVES | STOPS_AUTOML | NOT_OF_AUTOML


@pytest.mark.usefixtures("aws_connection")
@pytest.mark.parametrize(
    "action", sorted(OF_AUTOML - OF_OTHER_LIVES - STOPS_AUTOML - NOT_OF_AUTOML)
)
def test_without_a_permission_an_automl_run_fails_and_names_it(
    action: str,
    database: Any,
    access: EngineAccess,
    account: Account,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    access.expected = {action}
    policy = airflow_policy(account, (Feature.AUTOML,))
    access.put(airflow=without(action, policy), role=execution_policy(account, (Feature.AUTOML,)))

    states = automl(database)

    assert ("failed" in states.values()) is (action not in AUTOML_DONE_WITHOUT), states
    assert action in printed(caplog, capfd)
