"""Rejection of a run whose conf has keys that are not params of its DAG."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError, unknown_key
from trainyard_airflow.retry_policy import HAS_RETRY_POLICIES, final_errors_fail

if TYPE_CHECKING:
    from airflow.sdk import Context


def _reject_unknown_params(context: Context) -> None:
    """Raise an error if the run's conf has keys that are not params of the DAG.

    This function is meant as the `pre_execute` of an operator. Airflow itself accepts such keys, so a misspelt
    param would have no effect. Do not use this check in a DAG that reads further keys of the conf: the check
    rejects them.

    Raises:
        SpecError: there are unknown keys; it names the nearest param of each.
    """
    run: Any = context["dag_run"]
    params = list(context["dag"].params)
    findings = [unknown_key("conf", key, params) for key in run.conf or {} if key not in params]
    if findings:
        raise SpecError(findings, subject=f"{run.dag_id} run {run.run_id}")


reject_unknown_params = (
    _reject_unknown_params if HAS_RETRY_POLICIES else final_errors_fail(_reject_unknown_params)
)
