"""State of a task that survives its tries: in Airflow's task state store, or in S3 on Airflow 3.2."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError
from trainyard_airflow.jobs.task_memory import TaskMemory

if TYPE_CHECKING:
    from airflow.sdk import Context

    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.hooks.objects import S3Objects


def task_memory(
    context: Context, clients: AwsClients, *, ledger_uri: str | None = None
) -> TaskMemory:
    """Return the memory of a task, which survives its tries.

    Without Airflow's task state store, the memory is an object in S3, below the run's prefix.

    Args:
        context: the task's context.
        clients: clients of the connection.
        ledger_uri: S3 prefix of the run's ledger, from which the run's prefix is derived. If `ledger_uri` is
            None, or does not contain the run's prefix, a prefix below `clients.root` is used.

    Raises:
        SpecError: there is no task state store, `ledger_uri` does not contain the run's prefix, and the
            connection names no bucket.
    """
    store: Any = context.get("task_state_store")
    if store is None:
        return TaskMemory(StateObject.of(context, clients, ledger_uri=ledger_uri))
    from airflow.sdk.execution_time.context import NEVER_EXPIRE

    return TaskMemory(store, forever=NEVER_EXPIRE)


class StateObject:
    """The state of one task as a JSON object in S3, in place of the task state store. Only that task writes it.

    Args:
        objects: access to S3 objects.
        uri: address of the object.
    """

    def __init__(self, objects: S3Objects, uri: str) -> None:
        self._objects = objects
        self._uri = uri

    @classmethod
    def of(cls, context: Context, clients: AwsClients, *, ledger_uri: str | None) -> StateObject:
        """Return the state of a running task, an object below the run's prefix.

        If `ledger_uri` is `<run's prefix>/ledger`, the run's prefix is taken from it. Otherwise the prefix is derived
        from the bucket of the connection.

        Raises:
            SpecError: the run's prefix cannot be taken from `ledger_uri`, and the connection names no bucket.
        """
        from trainyard.sagemaker_api.names import run_uri
        from trainyard_airflow.hooks.objects import S3Objects

        ti = context["ti"]
        name = ti.task_id if ti.map_index in (None, -1) else f"{ti.task_id}-{ti.map_index}"
        end = run_uri("", dag_id=ti.dag_id, run_id=ti.run_id)
        run = (ledger_uri or "").rstrip("/").removesuffix("/ledger")
        if not run.endswith(end):  # the author's own address may be that of several runs
            run = f"{_root(clients)}{end}"
        return cls(S3Objects(clients.client("s3")), f"{run}/task-state/{name}.json")

    def get(self, key: str) -> Any:
        """Return the value of a key, or None if there is none.

        Raises:
            TrainingRunError: S3 rejected the read.
        """
        return self._all().get(key)

    def set(self, key: str, value: Any, **_retention: Any) -> None:
        """Store a value; it is kept as long as the bucket keeps the object.

        Raises:
            TrainingRunError: S3 rejected the write.
        """
        self._objects.write_json(self._uri, json.dumps({**self._all(), key: value}))

    def _all(self) -> dict[str, Any]:
        return dict(self._objects.json_or_none(self._uri) or {})


def _root(clients: AwsClients) -> str:
    try:
        return clients.root
    except SpecError as error:
        finding = Finding(
            where="bucket",
            what="is missing for the task's state, which Airflow 3.2 cannot store",
            next_step="set trainyard.bucket in the connection's extra, or upgrade to Airflow 3.3",
        )
        raise SpecError([finding, *error.findings]) from error
