"""Shared state of a run's tasks: the result of `preflight` as a dataclass."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from trainyard.errors import ContractError
from trainyard.runs.notifier import Notifier
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.reading import read_spec
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf
from trainyard.task_ids import TaskId
from trainyard_airflow.tasks.shared.run_paths import RunPaths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Context

    from trainyard.specs.monitoring import Notifications


C_co = TypeVar("C_co", bound=BaseRunConf, covariant=True)

CONF_TYPES: Mapping[str, type[BaseRunConf]] = {
    each.__name__: each for each in (RunConf, ScriptConf)
}
"""Conf classes by their name in a stored state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunState(Generic[C_co]):
    """Checked conf of a run, with its addresses, role, region and plan.

    Attributes:
        conf: the checked conf.
        paths: S3 addresses of the run.
        role: ARN of the execution role.
        region: AWS region.
        plan: the run's plan, as JSON-safe data.
    """

    conf: C_co
    paths: RunPaths
    role: str
    region: str
    plan: Mapping[str, Any]

    @staticmethod
    def of(context: Context) -> RunState[RunConf]:
        """Return the state of a run with a model that Trainyard ships, from the result of `preflight`.

        Raises:
            ContractError: `preflight` has returned no result.
        """
        return cast("RunState[RunConf]", RunState.of_any(context))

    @staticmethod
    def of_script(context: Context) -> RunState[ScriptConf]:
        """Return the state of a run with the user's own script, from the result of `preflight`.

        Raises:
            ContractError: as `of`.
        """
        return cast("RunState[ScriptConf]", RunState.of_any(context))

    @staticmethod
    def of_any(context: Context) -> RunState[BaseRunConf]:
        """Return the state of a run with any type of conf, from the result of `preflight`.

        Raises:
            ContractError: `preflight` has returned no result.
        """
        return RunState.from_dict(result_of(context, TaskId.PREFLIGHT))

    def to_dict(self) -> dict[str, Any]:
        """Return the state as JSON-safe data; `from_dict` reads it back."""
        return {
            "conf": asdict(self.conf),
            "conf_type": type(self.conf).__name__,
            "paths": asdict(self.paths),
            "role": self.role,
            "region": self.region,
            "plan": dict(self.plan),
            "ledger_uri": self.paths.ledger,
            "notifier": None if self.notifier is None else self.notifier.to_dict(),
            "trials_uri": f"{self.paths.tuning}/trials.parquet",
        }

    @property
    def notifier(self) -> Notifier | None:
        """Recipient of messages about the run, or None."""
        return notifier_of(self.conf.notifications, self.paths)

    @staticmethod
    def from_dict(data: Mapping[str, Any]) -> RunState[BaseRunConf]:
        """Return the state from the result of `to_dict`.

        Earlier versions of Trainyard stored no `conf_type`; the conf is then a `RunConf`.
        """
        conf_type = CONF_TYPES[data.get("conf_type", RunConf.__name__)]
        return RunState(
            conf=read_spec(conf_type, data["conf"]),
            paths=RunPaths(**data["paths"]),
            role=data["role"],
            region=data["region"],
            plan=data["plan"],
        )


def notifier_of(notifications: Notifications | None, paths: RunPaths) -> Notifier | None:
    """Return the recipient of a run's messages; None without notifications."""
    if notifications is None:
        return None
    return Notifier(
        notifications=notifications,
        place=paths.notifications,
        dag_id=paths.dag_id,
        run_id=paths.run_id,
    )


def result_of(context: Context, task_id: str) -> dict[str, Any]:
    """Return the result of another task of this run.

    Raises:
        ContractError: that task returned no mapping.
    """
    result = context["ti"].xcom_pull(task_ids=task_id)
    if not isinstance(result, dict):
        raise ContractError(f"the result of task {task_id} is not a mapping", got=repr(result))
    return result
