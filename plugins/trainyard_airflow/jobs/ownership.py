"""Check that a job that bears a task's name is that task's. Pure.

A name is derived from deployment, DAG, run and task. Deployments without a name give equal names to equal runs: then
the job's tag and where it writes tell them apart.
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
    """Refuse a job of another deployment, and one that writes elsewhere than the task's own job would.

    Args:
        snapshot: the job that was found by its name.
        destinations: the `s3://` prefixes that the task's job would write to; none leaves it unchecked.
        tags: of the job; without a deployment's tag only the destinations count.
        deployment: this one's name; None where it has none.

    Raises:
        RejectedRequestError: it is another's, or writes to none of them.
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
            next_step="give this Airflow a name of its own: the connection's extra, trainyard.deployment",
        )
    own = {uri.rstrip("/") for uri in destinations}
    found = {uri.rstrip("/") for uri in (snapshot.output_path, *snapshot.outputs.values()) if uri}
    if own and found and own.isdisjoint(found):
        raise RejectedRequestError(
            "the job's name is taken by a job that writes elsewhere: another deployment's, or this "
            "task's from before its output was moved",
            operation=f"Create a {snapshot.kind} job",
            code="ResourceInUse",
            where=f"job {snapshot.name}",
            got=", ".join(sorted(found)),
            allowed=", ".join(sorted(own)),
            next_step="give DAG or run another id, or move the output back",
        )
