"""First task of a fine-tuning: conversion of its params to those of an own script's run, and the checks of that run."""

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
    """Checks a fine-tuning, and returns the `RunState` of its script's run for all other tasks."""

    def form(self) -> Mapping[str, Param]:
        """Return the params of the run's form."""
        return fine_tune_params()

    def resolve(self, params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice | None]:
        """Return the fine-tuning's params as those of an own script's run; the second value is always None.

        Raises:
            SpecError: the fine-tuning's params are invalid; it lists all findings.
        """
        return FineTuneConf.from_params(params).script_params(), None
