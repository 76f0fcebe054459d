"""Settings of an SDK estimator as defaults of an own script's run. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping

_OTHER_NAMES = {"max_run": "max_run_s", "max_wait": "max_wait_s", "volume_size": "volume_size_gb"}
"""Fields of the form whose name has a unit, by the estimator's name. All other fields have the estimator's names."""
_OF_THE_RUN = {
    "output_path": "bucket and prefix",
    "code_location": "bucket and prefix",
    "checkpoint_s3_uri": "bucket and prefix",
    "checkpoint_local_path": "nothing: it is /opt/ml/checkpoints",
    "base_job_name": "nothing: the job's name follows from DAG, run and task",
    "sagemaker_session": "aws_conn_id",
}
"""Settings that the run makes itself, and what to set instead."""


def estimator_defaults(estimator: Mapping[str, Any]) -> dict[str, Any]:
    """Return the defaults of the form for the keyword arguments of an estimator of SDK v2.

    Unknown names are returned unchanged; `script_pipeline` rejects them with its other faults.

    Raises:
        SpecError: there are settings that the run makes itself; it lists all of them.
    """
    made = [
        Finding(
            where=f"estimator.{name}",
            what="is made by the run",
            got=str(estimator[name]),
            next_step=f"remove it, and set {_OF_THE_RUN[name]}",
        )
        for name in estimator
        if name in _OF_THE_RUN
    ]
    if made:
        raise SpecError(made, subject="estimator")
    defaults = {_OTHER_NAMES.get(name, name): value for name, value in estimator.items()}
    if metrics := defaults.get("metric_definitions"):
        defaults["metric_definitions"] = [
            {key.lower(): value for key, value in each.items()} for each in metrics
        ]
    return defaults
