"""Check that a job with a task's name belongs to that task. Pure.

A job's name is derived from deployment, DAG, run and task. Two deployments without a name give equal names to equal
runs. In that case the job's tag and its output prefixes distinguish them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import RejectedRequestError
from trainyard.runs.run_tags import DEPLOYMENT

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot


def check_own_job(
    snapshot: JobSnapshot,
    *,
    destinations: Iterable[str],
    tags: Mapping[str, str],
    deployment: str | None,
) -> None:
    """Check that a job belongs to this deployment and writes to the prefixes of the task's job.

    Args:
        snapshot: the job found by its name.
        destinations: the `s3://` prefixes of the task's job; if empty, they are not checked.
        tags: tags of the job; without a deployment's tag only the destinations count.
        deployment: name of this deployment, or None.

    Raises:
        RejectedRequestError: the job belongs to another deployment, or writes to none of the prefixes.
    """
    owner = tags.get(DEPLOYMENT)
    if owner is not None and owner != deployment:
        raise RejectedRequestError(
            "the job of this name belongs to another deployment",
            operation=f"Create a {snapshot.kind} job",
            code="ResourceInUse",
            where=f"job {snapshot.name}, tag {DEPLOYMENT}",
            got=owner,
            allowed=deployment or "a job without the tag",
            next_step="set a unique name for this Airflow: the connection's extra, trainyard.deployment",
        )
    own = {uri.rstrip("/") for uri in destinations}
    found = {uri.rstrip("/") for uri in (snapshot.output_path, *snapshot.outputs.values()) if uri}
    if own and found and own.isdisjoint(found):
        raise RejectedRequestError(
            "the job's name is taken by a job with another output path: a job of another deployment, or a job of this "
            "task before its output path was changed",
            operation=f"Create a {snapshot.kind} job",
            code="ResourceInUse",
            where=f"job {snapshot.name}",
            got=", ".join(sorted(found)),
            allowed=", ".join(sorted(own)),
            next_step="change the DAG id or the run id, or restore the output path",
        )
