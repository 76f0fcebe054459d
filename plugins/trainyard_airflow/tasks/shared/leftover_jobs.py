"""Stop of a run's leftover jobs, which still run although their tasks have ended. Each job is found by name."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError
from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.job_kinds import TASK_KINDS, JobKind
from trainyard_airflow.jobs.task_jobs import TaskKey
from trainyard_airflow.triggers.pace import backoff_s

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.jobs import SageMakerJobs
    from trainyard_airflow.tasks.shared.run_paths import RunPaths

log = logging.getLogger(__name__)

_MOST_TRIES = 4


def stop_leftover_jobs(
    clients: AwsClients,
    paths: RunPaths,
    *,
    task_ids: Iterable[str],
    trial_tasks: Iterable[str] = (),
    num_mapped: int = 0,
) -> list[str]:
    """Stop the jobs of the given tasks if they still run, and return the names of the stopped jobs.

    The tasks must have ended, which is not checked here. The names are derived instead of read from XComs,
    because a task may end before it can push the name of a new job. A job that writes outside this run's prefix
    belongs to another deployment and is not stopped. If the service does not answer or rejects a call, it is
    called up to four times per task; then an error is logged.

    Args:
        clients: clients of the run's connection.
        paths: addresses of the run.
        task_ids: tasks that have ended; tasks without jobs are skipped.
        trial_tasks: mapped tasks with one training job per mapped instance.
        num_mapped: maximum number of mapped instances of each of `trial_tasks`.
    """
    from trainyard_airflow.hooks.jobs import SageMakerJobs

    asked = [(each, -1) for each in task_ids if each in TASK_KINDS]
    asked += [(each, index) for each in trial_tasks for index in range(num_mapped)]
    return [
        name
        for task_id, map_index in asked
        for name in _stop_patiently(
            SageMakerJobs(clients, TASK_KINDS.get(task_id, JobKind.TRAINING)),
            paths,
            task_id=task_id,
            map_index=map_index,
        )
    ]


def _stop_patiently(
    jobs: SageMakerJobs, paths: RunPaths, *, task_id: str, map_index: int
) -> list[str]:
    from botocore.exceptions import BotoCoreError

    for tries in range(1, _MOST_TRIES + 1):
        try:
            return _stop_running(jobs, paths, task_id=task_id, map_index=map_index)
        except (TrainingRunError, BotoCoreError) as error:
            log.warning("Job of task %s cannot be described or stopped: %s", task_id, error)
        if tries < _MOST_TRIES:
            time.sleep(backoff_s(tries))
    log.error(
        "A job of task %s may still run: look for %s and its next attempts, and stop them by hand",
        task_id,
        job_name_of(paths, task_id=task_id, attempt=1, map_index=map_index),
    )
    return []


def _stop_running(
    jobs: SageMakerJobs, paths: RunPaths, *, task_id: str, map_index: int
) -> list[str]:
    def name(attempt: int) -> str:
        return job_name_of(paths, task_id=task_id, attempt=attempt, map_index=map_index)

    stopped, attempt = [], 1
    while snapshot := jobs.describe(name(attempt)):
        attempt += 1
        if snapshot.status == JobStatus.IN_PROGRESS and _is_of_run(snapshot, paths):
            log.warning("Job %s still runs after its task: stopping it", snapshot.name)
            if jobs.stop(snapshot.name):
                stopped.append(snapshot.name)
    return stopped


def job_name_of(paths: RunPaths, *, task_id: str, attempt: int, map_index: int = -1) -> str:
    """Return the name of a task's job; `attempt` counts from 1."""
    task = TaskKey(dag_id=paths.dag_id, run_id=paths.run_id, task_id=task_id, map_index=map_index)
    kind = TASK_KINDS.get(task_id, JobKind.TRAINING)
    return task.job_name(kind, attempt, deployment=paths.deployment)


def _is_of_run(snapshot: JobSnapshot, paths: RunPaths) -> bool:
    written = [*filter(None, [snapshot.output_path]), *snapshot.outputs.values()]
    return not written or any(uri.startswith(f"{paths.run}/") for uri in written)
