"""State of a run, read over Airflow's REST API and the AWS endpoint."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard.stack.airflow_api import AirflowApi
    from trainyard.stack.aws import AwsEndpoint, JobView

FINISHED = ("success", "failed")
JOB_IS_SHOWN_IN = ("running", "deferred", "up_for_retry", "queued", "scheduled")


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskView:
    """One task of the run."""

    task_id: str
    state: str
    try_number: int
    duration_s: float | None
    operator: str = ""
    instance_id: str = ""

    @property
    def job_kind(self) -> str:
        """Kind of the task's job, if it has one: `training`, `processing`, `tuning` or `automl`."""
        if "TuneHyperparameters" in self.operator:
            return "tuning"
        if "AutoML" in self.operator:
            return "automl"
        return "processing" if "Processing" in self.operator else "training"


@dataclass(frozen=True, slots=True, kw_only=True)
class RunView:
    """State of a run at one moment.

    Attributes:
        job: job of an active task; None without one.
        job_task: id of the active task with a job.
        cost_usd: sum of the known costs of the jobs seen so far; None if no cost is known.
        max_cost_usd: cost cap of the run; None without one.
    """

    run_id: str
    state: str
    tasks: tuple[TaskView, ...] = ()
    job: JobView | None = None
    job_task: str | None = None
    cost_usd: float | None = None
    max_cost_usd: float | None = None

    @property
    def is_finished(self) -> bool:
        """True if the run has ended."""
        return self.state in FINISHED


class RunFollower:
    """Reader of one run. It queries a job only while the job's task is active."""

    def __init__(self, *, api: AirflowApi, aws: AwsEndpoint, dag_id: str, run_id: str) -> None:
        self._api = api
        self._aws = aws
        self._dag_id = dag_id
        self._run_id = run_id
        self._job_names: dict[tuple[str, int], str] = {}
        self._costs: dict[str, float] = {}
        self._order = {task_id: position for position, task_id in enumerate(api.task_order(dag_id))}

    def poll(self) -> RunView:
        """Return the run's current state. Raises `requests.RequestException` if the API server does not respond."""
        run = self._api.run(self._dag_id, self._run_id)
        tasks = tuple(
            sorted(map(_task_view, self._api.tasks(self._dag_id, self._run_id)), key=self._position)
        )
        active: TaskView | None = None
        job: JobView | None = None
        for task in tasks:
            if task.state in JOB_IS_SHOWN_IN and (name := self._job_name(task)):
                active, job = task, self._aws.job(name, kind=task.job_kind)
                break
        if job is not None and job.cost_usd is not None:
            self._costs[job.name] = job.cost_usd
        return RunView(
            run_id=self._run_id,
            state=str(run["state"]),
            tasks=tasks,
            job=job,
            job_task=active.task_id if active else None,
            cost_usd=sum(self._costs.values()) if self._costs else None,
            max_cost_usd=(run.get("conf") or {}).get("max_cost_usd"),
        )

    def _position(self, task: TaskView) -> tuple[int, str]:
        return self._order.get(task.task_id, len(self._order)), task.task_id

    def _job_name(self, task: TaskView) -> str | None:
        """Return the name of the task's job; None until the task has pushed it to XCom.

        When a new try starts, XCom still has the job name of the previous try. Once the task is deferred, the name
        is that of the current try. So only the name of a deferred task is cached.
        """
        if task.try_number == 0 or task.state in ("scheduled", "queued"):
            return None
        key = (task.task_id, task.try_number)
        if key in self._job_names:
            return self._job_names[key]
        name = self._api.xcom(self._dag_id, self._run_id, task.task_id, "job_name")
        if name is not None and task.state == "deferred":
            self._job_names[key] = str(name)
        return None if name is None else str(name)


def _task_view(instance: dict[str, Any]) -> TaskView:
    return TaskView(
        task_id=str(instance["task_id"]),
        state=str(instance["state"] or "waiting"),
        try_number=int(instance.get("try_number") or 0),
        duration_s=instance.get("duration"),
        operator=str(instance.get("operator") or ""),
        instance_id=str(instance.get("id") or ""),
    )
