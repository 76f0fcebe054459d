"""Airflow's configuration by environment variables, derived from the stack's values."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.stack.identity import USER, Identity

if TYPE_CHECKING:
    from trainyard.stack.addresses import Addresses
    from trainyard.stack.home import Home

REGION = "us-east-1"
TRAINING_POOL = "training_instances"
TRAINING_POOL_SLOTS = 16
ACCOUNT = "123456789012"
ENGINE_LOGIN = "local"
ENGINE_SECRET = "engine-takes-any-secret"  # noqa: S105  # no secret: the engine checks none
"""Airflow masks a connection's password in every log, so this must be a text that no log contains."""

# Airflow 3.3.2, `airflow config list --defaults`. The defaults wait minutes before a killed
# scheduler, triggerer or task is given up (300 s without a heartbeat; orphans looked for every
# 300 s). Trainings of one machine can keep its Airflow waiting for 15 s: only a heartbeat that is later than twice
# that means a dead process. The requests of a task wait longer for the same reason (default: 5 s).
RECOVERY = {
    "AIRFLOW__SCHEDULER__SCHEDULER_HEARTBEAT_SEC": "2",
    "AIRFLOW__SCHEDULER__SCHEDULER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__SCHEDULER__ORPHANED_TASKS_CHECK_INTERVAL": "5",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT": "45",
    "AIRFLOW__SCHEDULER__TASK_INSTANCE_HEARTBEAT_TIMEOUT_DETECTION_INTERVAL": "4",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT": "180",
    "AIRFLOW__SCHEDULER__TASK_QUEUED_TIMEOUT_CHECK_INTERVAL": "10",
    "AIRFLOW__WORKERS__MISSING_DAG_RETRY_DELAY": "5",
    "AIRFLOW__WORKERS__EXECUTION_API_TIMEOUT": "30",
    "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "3",
    "AIRFLOW__WORKERS__MAX_FAILED_HEARTBEATS": "20",
    "AIRFLOW__TRIGGERER__JOB_HEARTBEAT_SEC": "2",
    "AIRFLOW__TRIGGERER__TRIGGERER_HEALTH_CHECK_THRESHOLD": "30",
    "AIRFLOW__DAG_PROCESSOR__HEALTH_CHECK_THRESHOLD": "30",
}

# For one user on one machine: short waits between tasks (0.3 s instead of 0.9 s per task), and few idle processes.
# A scheduler that polls ten times per second would take a fifth of a core from the training. Airflow parses a changed
# DAG file at the next refresh; the interval holds only for files that did not change.
RESPONSIVE = {
    "AIRFLOW__SCHEDULER__SCHEDULER_IDLE_SLEEP_TIME": "0.3",
    "AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK": "False",
    "AIRFLOW__CORE__PARALLELISM": "4",
    "AIRFLOW__DAG_PROCESSOR__PARSING_PROCESSES": "1",
    "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "120",
    "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "30",
    "AIRFLOW__API__WORKERS": "1",
}


def airflow_environment(*, home: Home, identity: Identity, addresses: Addresses) -> dict[str, str]:
    """Return the environment variables that make Airflow's commands use this stack, and no other installation."""
    return {
        **RECOVERY,
        **RESPONSIVE,
        "AIRFLOW_HOME": str(home.airflow),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home.project / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(home.project / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__EXECUTOR": "LocalExecutor",
        "AIRFLOW__CORE__AUTH_MANAGER": (
            "airflow.api_fastapi.auth.managers.simple.simple_auth_manager.SimpleAuthManager"
        ),
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": f"{USER}:admin",
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE": str(home.passwords),
        "AIRFLOW__CORE__EXECUTION_API_SERVER_URL": addresses.execution,
        "AIRFLOW__CORE__FERNET_KEY": identity.fernet_key,
        "AIRFLOW__API__SECRET_KEY": identity.api_secret,
        "AIRFLOW__API__BASE_URL": addresses.ui,
        "AIRFLOW__API_AUTH__JWT_SECRET": identity.jwt_secret,
        # SQLite waits this many seconds for another process's write instead of failing at once.
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home.database}?timeout=30",
        "AIRFLOW__LOGGING__BASE_LOG_FOLDER": str(home.airflow / "logs"),
        "TRAINYARD_TRAINING_POOL": TRAINING_POOL,
        "TRAINYARD_TRAINING_POOL_SLOTS": str(TRAINING_POOL_SLOTS),
        "AIRFLOW__DAG_PROCESSOR__DAG_BUNDLE_CONFIG_LIST": json.dumps(_bundles(home)),
        "AIRFLOW_CONN_AWS_DEFAULT": json.dumps(aws_connection(addresses.engine, home=home)),
    }


def _bundles(home: Home) -> list[dict[str, object]]:
    """Return the bundles of DAG files: the `dags` folders of the project and of the home, if they exist."""
    folders = {"dags-folder": home.project / "dags", "home": home.dags}
    return [
        {
            "name": name,
            "classpath": "airflow.dag_processing.bundles.local.LocalDagBundle",
            "kwargs": {"path": str(folder)},
        }
        for name, folder in folders.items()
        if folder.is_dir()
    ]


def aws_connection(endpoint_url: str, *, home: Home) -> dict[str, Any]:
    """Return the fields of the Airflow connection to the engine.

    The connection allows runs to read all files of this machine that the stack's only user can read, except
    the stack's own state.
    """
    return {
        "conn_type": "aws",
        "login": ENGINE_LOGIN,
        "password": ENGINE_SECRET,
        "extra": {
            "region_name": REGION,
            "endpoint_url": endpoint_url,
            "trainyard": {
                "bucket": f"sagemaker-{REGION}-{ACCOUNT}",
                "rules_poll_interval_s": 0.5,
                "shortest_poll_s": 0.5,
                "deployment": "local",
                "execution_role_arn": f"arn:aws:iam::{ACCOUNT}:role/TrainyardExecutionRole",
                "source_roots": ["/"],
                "private_folders": [str(home.path)],
            },
        },
    }
