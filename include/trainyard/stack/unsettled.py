"""Unsettled resources of a finished run: ledger entries that have not ended by the service's status."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.task_ids import TaskId

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.stack.airflow_api import AirflowApi
    from trainyard.stack.aws import AwsEndpoint

_NEVER_CREATED = "NeverCreated"
_OVER = frozenset({"Completed", "Failed", "Stopped", None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Unsettled:
    """One resource that is not known to have ended.

    Attributes:
        status: status of the service, or the reason why it is unknown.
    """

    kind: str
    name: str
    status: str


def find_unsettled(api: AirflowApi, aws: AwsEndpoint, dag_id: str, run_id: str) -> list[Unsettled]:
    """Return the entries of the run's ledger that have not ended; none if the run has no ledger."""
    prepared = api.xcom(dag_id, run_id, TaskId.PREFLIGHT, "return_value")
    uri = prepared.get("ledger_uri") if isinstance(prepared, dict) else None
    return list(_unsettled(aws, str(uri))) if uri else []


def unsettled_lines(unsettled: list[Unsettled]) -> list[str]:
    """Return the warning about unsettled resources as lines; none without them."""
    if not unsettled:
        return []
    return [
        "",
        "!! STILL PAID FOR: this run created what has not ended. Stop it by hand, or run the DAG clean_up_orphans:",
        *(f"!!   {each.kind} {each.name}: {each.status}" for each in unsettled),
    ]


def _unsettled(aws: AwsEndpoint, uri: str) -> Iterator[Unsettled]:
    try:
        entries = [aws.json_object(each) for each in aws.objects_below(f"{uri}/")]
    except (BotoCoreError, ClientError, ValueError) as error:
        yield Unsettled(kind="ledger", name=uri, status=f"cannot be read: {error}")
        return
    for entry in entries:
        kind, name = str(entry["kind"]), str(entry["name"])
        if entry["settled_at"] is not None and entry.get("status") != _NEVER_CREATED:
            continue  # NeverCreated is checked, too: a slow Create may have succeeded later.
        try:
            status = aws.job_status(name, kind=kind)
        except (BotoCoreError, ClientError) as error:
            yield Unsettled(kind=kind, name=name, status=f"is not known: {error}")
        else:
            if status not in _OVER:
                yield Unsettled(kind=kind, name=name, status=str(status))
