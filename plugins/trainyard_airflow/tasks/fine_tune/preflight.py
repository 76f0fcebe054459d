"""The first task of a fine-tuning: its params as those of an own script's run, which is checked as any other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard_airflow.tasks.fine_tune.params import fine_tune_params
from trainyard_airflow.tasks.own_script.preflight import ScriptPreflightOperator

if TYPE_CHECKING:
    from collections.abc import Mapping

    from airflow.sdk import Param

    from trainyard.planning.auto_plan import AutoChoice


class FineTunePreflightOperator(ScriptPreflightOperator):
    """Checks a fine-tuning, and fixes what holds for the whole run; returns the `RunState` of its script."""

    def form(self) -> Mapping[str, Param]:
        """Return the params that the run's form has."""
        return fine_tune_params()

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return the params of the own-script run that the fine-tuning is.

        Raises:
            SpecError: everything that is wrong with the fine-tuning's own, at once.
        """
        return FineTuneConf.from_params(params).script_params(), None
