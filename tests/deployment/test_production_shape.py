"""The production shape runs the DAG end to end: PostgreSQL, Redis, Celery, and every service of the file."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from tests.deployment.compose_file import SECRETS
from tests.deployment.native_services import Deployment, missing_programs
from tests.stack.small_run import SMALL_RUN, SUCCEEDED
from trainyard.stack import leftovers
from trainyard.stack.airflow_api import AirflowApi

if TYPE_CHECKING:
    from collections.abc import Iterator

DAG_ID = "train_end_to_end"

pytestmark = [
    pytest.mark.slow,  # `test_docker_image.py` is the fast representative
    pytest.mark.skipif(sys.platform != "linux", reason="processes by mark: Linux only"),
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {missing_programs()}"),
]


@pytest.fixture(scope="module")
def deployment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Deployment]:
    deployment = Deployment(folder=tmp_path_factory.mktemp("production"))
    try:
        deployment.install()
        deployment.start()
        yield deployment
    finally:
        deployment.stop()
        assert leftovers.marked(deployment.home) == []


def test_a_run_succeeds_on_celery_and_every_service_passes_its_health_check(
    deployment: Deployment,
) -> None:
    url = f"http://127.0.0.1:{deployment.ports['api-server']}"
    api = AirflowApi(url, password=SECRETS["AIRFLOW_ADMIN_PASSWORD"])
    deployment.wait(lambda: api.health() is not None, "the api-server's answer")
    deployment.wait(lambda: api.has_dag(DAG_ID), "parsing of the DAG")
    api.set_paused(DAG_ID, paused=False)

    run_id = api.trigger(DAG_ID, conf=SMALL_RUN)
    deployment.wait(
        lambda: api.run(DAG_ID, run_id)["state"] in ("success", "failed"), "the run's end"
    )

    tasks = {task["task_id"]: task for task in api.tasks(DAG_ID, run_id)}
    states = {task_id: task["state"] for task_id, task in tasks.items()}
    assert states == SUCCEEDED, f"{states}\n{deployment.log('')}"
    assert api.run(DAG_ID, run_id)["note"].startswith("Succeeded; test loss ")
    assert (tasks["train"]["pool"], tasks["train"]["pool_slots"]) == ("training_instances", 2)
    assert (tasks["shard"]["pool"], tasks["shard"]["pool_slots"]) == ("default_pool", 1)
    own = {"preflight", "shard", "train", "evaluate", "register"}
    # Airflow reports a task's success before it uploads the log.
    deployment.wait(lambda: own <= deployment.remote_logs(), "the tasks' logs in S3")
    assert deployment.has("airflow"), "the wheel's own environment has Airflow"
    assert not deployment.has("torch"), "Airflow's services need no torch"
    checked = [name for name, service in deployment.services.items() if "healthcheck" in service]
    native = [name for name in checked if name not in ("postgres", "redis")]
    assert [name for name in native if not deployment.is_healthy(name)] == [], deployment.log("")
