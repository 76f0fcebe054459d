"""A throw-away Airflow for the tests of one process: set up before the first import of airflow."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]


@cache
def prepared_airflow_home() -> Path:
    """Return the folder of this process's Airflow; its environment is set when this returns."""
    home = Path(tempfile.mkdtemp(prefix="trainyard-airflow-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    os.environ |= {
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(REPOSITORY / "dags"),
        "AIRFLOW__CORE__PLUGINS_FOLDER": str(REPOSITORY / "plugins"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__LOGGING__LOGGING_LEVEL": "INFO",
        "AIRFLOW__CORE__FERNET_KEY": "",
        # One Airflow for all tests that share an engine's bucket, whichever database they have.
        "AIRFLOW_VAR_TRAINYARD_AIRFLOW_OF_SAGEMAKER-US-EAST-1-123456789012": "tests",
        # No scheduler reads the end of a worker here: a deferred task may be resumed at once.
        "AIRFLOW__WORKERS__MIN_HEARTBEAT_INTERVAL": "0",
    }
    return home


prepared_airflow_home()
