"""Setup and teardown tasks of a training's alarms and dashboard; the teardown runs in every case."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import catalogue
from trainyard.runs.run_tags import Owner
from trainyard.sagemaker_api.monitoring_requests import MonitoredTraining
from trainyard.specs.monitoring import Dashboard, Monitoring
from trainyard.task_ids import TaskId
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.tasks.shared.default_args import JOB_RETRIES
from trainyard_airflow.tasks.shared.leftover_jobs import job_name_of
from trainyard_airflow.tasks.shared.run_state import RunState

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard.specs.base_run_conf import BaseRunConf
    from trainyard_airflow.hooks.monitoring import TrainingMonitor


def monitored_training(state: RunState[BaseRunConf]) -> MonitoredTraining:
    """Return the description of a run's training for CloudWatch, with the names of all jobs that it may start."""
    rungs, types = state.conf.rungs, catalogue().types
    clusters = [state.conf.instances_on(each) for each in rungs]
    known = [types.get(name) for each in clusters for name in each]
    return MonitoredTraining(
        job_names=tuple(
            job_name_of(state.paths, task_id=TaskId.TRAIN, attempt=attempt)
            for attempt in range(1, JOB_RETRIES + len(rungs) + 1)
        ),
        num_hosts=max(sum(each.values()) for each in clusters),
        has_gpus=any(each is not None and each.num_accelerators > 0 for each in known),
    )


class _MonitoringOperator(ConnectedOperator):
    """Base of the operators that create or remove the alarms and dashboard of a training."""

    ui_color = "#f6efe2"

    def _monitor(self, state: RunState[BaseRunConf]) -> TrainingMonitor:
        from trainyard_airflow.hooks.monitoring import TrainingMonitor

        return TrainingMonitor(self.clients, monitored_training(state))


class SetUpMonitoringOperator(_MonitoringOperator):
    """Creates the alarms and the dashboard of the conf's `monitoring`; without that field `preflight` skips the task.

    Alarms notify the topic of the conf's `notifications`, if any. Returns the names of alarms and dashboard.
    """

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the names of the run's `alarms` and `dashboard`; a rejection by CloudWatch is logged as a warning."""
        from trainyard_airflow.hooks.refusals import faults_logged

        state = RunState.of_any(context)
        wanted, monitor = state.conf.monitoring or Monitoring(), self._monitor(state)
        topic = state.conf.notifications
        owner = Owner(
            dag_id=state.paths.dag_id, run_id=state.paths.run_id, task_id=context["ti"].task_id
        )
        alarms: list[str] = []
        dashboard = None
        if wanted.alarms:
            actions = [topic.topic_arn] if topic else []
            with faults_logged(self.log, "The training runs without alarms"):
                alarms = monitor.put_alarms(actions=actions, tags=owner.tags())
        if wanted.dashboard is not Dashboard.NONE:
            with faults_logged(self.log, "The training runs without a dashboard"):
                dashboard = monitor.put_dashboard()
        self.log.info("Alarms: %s; dashboard: %s", ", ".join(alarms) or "none", dashboard)
        return {"alarms": alarms, "dashboard": dashboard}


class TearDownMonitoringOperator(_MonitoringOperator):
    """Removes the run's alarms, and its dashboard unless the conf keeps it; both are found by their names."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the names of the removed `alarms`, and whether the `dashboard` was removed.

        Raises:
            TrainingRunError: CloudWatch rejected a call. The remaining resources cost money, so the task fails, but not
                the run.
        """
        state = RunState.of_any(context)
        wanted, monitor = state.conf.monitoring or Monitoring(), self._monitor(state)
        alarms = monitor.remove_alarms()
        is_removed = wanted.dashboard is Dashboard.RUN and monitor.remove_dashboard()
        self.log.info("Removed alarms: %s; dashboard: %s", ", ".join(alarms) or "none", is_removed)
        return {"alarms": alarms, "dashboard": is_removed}
