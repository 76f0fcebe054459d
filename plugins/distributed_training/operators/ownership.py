"""Whether a job that bears a task's name is that task's. Pure.

A name is derived from DAG, run and task, so two deployments in one account and region give equal names to
equal runs. Where the job writes tells them apart.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from include.errors import RejectedRequestError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from include.sagemaker_api.snapshot import JobSnapshot


def check_own_job(snapshot: JobSnapshot, *, destinations: Iterable[str]) -> None:
    """Refuse a job that writes elsewhere than the task's own job would.

    Args:
        snapshot: the job that was found by its name.
        destinations: the `s3://` prefixes that the task's job would write to; none leaves it unchecked.

    Raises:
        RejectedRequestError: it writes to none of them.
    """
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
