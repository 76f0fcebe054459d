"""`JanitorOperator`: stops paid resources that no live run owns."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, TrainingRunError
from trainyard.runs.orphans import OrphanVerdict, judge
from trainyard.runs.run_tags import DAG, RUN
from trainyard_airflow.operators.connected import ConnectedOperator
from trainyard_airflow.retry_policy import RETRIES, retried_by_error

if TYPE_CHECKING:
    from collections.abc import Sequence

    from airflow.sdk import Context

    from trainyard.runs.orphans import PaidThing
    from trainyard.runs.run_tags import Owner


@retried_by_error
class JanitorOperator(ConnectedOperator):
    """Stops the jobs, endpoints and warm pools of this deployment that no queued or running DAG run owns.

    Tasks have no access to the metadata database. This task therefore queries the execution API for live runs,
    with the task SDK's `get_dr_count`. A deleted run is not live. Resources without a tag of this deployment
    are never stopped.

    Args:
        is_dry_run: whether to report resources without stopping them. Templated: a boolean or its text.
        grace_minutes: resources younger than this number of minutes are not stopped.
        aws_conn_id: the connection; its extra's `trainyard.deployment` names the deployment.
    """

    template_fields: Sequence[str] = ("is_dry_run", "grace_minutes", "aws_conn_id")
    ui_color = "#f7ecd8"

    def __init__(
        self,
        *,
        is_dry_run: bool | str = False,
        grace_minutes: float | str = 5,
        **kwargs: Any,
    ) -> None:
        super().__init__(**{**RETRIES, **kwargs})
        self.is_dry_run = is_dry_run
        self.grace_minutes = grace_minutes

    def execute(self, context: Context) -> dict[str, Any]:
        """Return `dry_run`, and the list `things` with one mapping per resource that costs money.

        The keys of each mapping are `kind`, `name`, `run`, `age_s`, `verdict` and `is_stopped`.

        Raises:
            SpecError: the connection names no deployment.
            TrainingRunError: the service rejected a listing, a read of a resource's tags, or a stop. After a
                rejected read or stop, all other resources that must be stopped are still stopped before the error
                is raised.
        """
        from trainyard_airflow.hooks.paid_things import PaidThings

        things, deployment = PaidThings(self.clients), self._deployment()
        rows, refusals = [], []
        for thing in things.live():
            verdict = self._verdict(context, thing, deployment=deployment)
            is_stopped = False
            if verdict is OrphanVerdict.ORPHAN and not self._is_dry:
                try:
                    things.stop(thing)
                    is_stopped = True
                except TrainingRunError as error:
                    refusals.append(error)
            rows.append(_row(thing, verdict, is_stopped=is_stopped))
        refusals += things.refusals
        self._log_things(rows)
        found = {"dry_run": self._is_dry, "things": rows}
        if refusals:
            context["ti"].xcom_push(key="return_value", value=found)
            raise refusals[0]
        return found

    @property
    def _is_dry(self) -> bool:
        return str(self.is_dry_run).lower() == "true"

    def _deployment(self) -> str:
        deployment = self.clients.deployment
        if not deployment:
            finding = Finding(
                where=f"connection {self.aws_conn_id!r}, extra trainyard.deployment",
                what="is not set, so this Airflow's orphans cannot be distinguished from other jobs",
                allowed="a name that no other Airflow of this AWS account has",
                next_step="set a name; jobs that were started without it are never cleaned up",
            )
            raise SpecError(finding)
        return str(deployment)

    def _verdict(self, context: Context, thing: PaidThing, *, deployment: str) -> OrphanVerdict:
        def is_live(owner: Owner) -> bool:
            ti: Any = context["ti"]
            states = ["queued", "running"]
            runs = ti.get_dr_count(dag_id=owner.dag_id, run_ids=[owner.run_id], states=states)
            return bool(runs)

        return judge(
            thing,
            deployment=deployment,
            now=time.time(),
            grace_s=60 * float(self.grace_minutes),
            is_live=is_live,
        )

    def _log_things(self, rows: Sequence[dict[str, Any]]) -> None:
        stopped = sum(row["is_stopped"] for row in rows)
        self.log.info("%d resources cost money now, %d were stopped", len(rows), stopped)
        for row in rows:
            line = "%-14s %-63s %8d s  %-7s %s (%s)"
            done = "stopped" if row["is_stopped"] else "left"
            values = (row["kind"], row["name"], row["age_s"], done, row["verdict"], row["run"])
            self.log.info(line, *values)


def _row(thing: PaidThing, verdict: OrphanVerdict, *, is_stopped: bool) -> dict[str, Any]:
    return {
        "kind": str(thing.kind),
        "name": thing.name,
        "run": f"{thing.tags.get(DAG, '?')}/{thing.tags.get(RUN, '?')}",
        "age_s": round(time.time() - thing.since),
        "verdict": str(verdict),
        "is_stopped": is_stopped,
    }
