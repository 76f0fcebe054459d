"""Claim of a bucket by an Airflow without a deployment name; only one such Airflow may use a bucket (docs/adr/0079)."""

from __future__ import annotations

import json
import logging
import time
import uuid
from typing import TYPE_CHECKING, Any

from airflow.sdk import Variable

from trainyard.errors import Finding, RejectedRequestError, SpecError
from trainyard.sagemaker_api.names import UNNAMED_MARKER
from trainyard_airflow.hooks.objects import S3Objects

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)

_PAUSES_S = (0.1, 0.4, 1.0, 2.0, 4.0)
"""Seconds before each further read of the variable, which another task may be about to store."""


def variable_of(bucket: str) -> str:
    """Return the key of the Airflow variable that contains this Airflow's id for a bucket."""
    return f"trainyard_airflow_of_{bucket}"


def claim_bucket(
    clients: AwsClients, bucket: str, *, pause: Callable[[float], None] = time.sleep
) -> None:
    """Claim a bucket for this Airflow, unless its connection names a deployment.

    The first Airflow without a deployment name stores a random id in a marker object in the bucket, and then in an
    Airflow variable. Only the task that created the marker stores the variable, so all tasks of an Airflow use the same
    id. If the connection lacks permission for the marker, or Airflow cannot store the variable, a warning is logged.

    Args:
        clients: clients of the connection.
        bucket: the bucket.
        pause: waits for a number of seconds.

    Raises:
        SpecError: another Airflow without a deployment name has claimed the bucket.
        TrainingRunError: S3 failed or throttled a call.
    """
    if clients.deployment is not None:
        return
    own = Variable.get(variable_of(bucket), default=None)
    marker = _Marker(clients.client("s3"), bucket)
    try:
        owner = marker.owner()
        if owner is None:
            proposed = own or uuid.uuid4().hex
            owner = marker.create(proposed)
            if owner == proposed:
                if own is None:
                    _store(proposed, marker)
                return
    except RejectedRequestError as error:
        log.warning("Another Airflow without a name may use bucket %s: %s", bucket, error)
        return
    if own is None:
        own = _stored_by_another_task(owner, bucket, pause)
    if own != owner:
        raise SpecError(_taken(clients, marker, owner))


class _Marker:
    """Object with the id of the Airflow that claimed a bucket.

    Each method raises a TrainingRunError if S3 rejects a call.
    """

    def __init__(self, client: Any, bucket: str) -> None:
        self._objects = S3Objects(client)
        self.bucket = bucket
        self.uri = f"s3://{bucket}/{UNNAMED_MARKER}"

    def owner(self) -> str | None:
        """Return the id in the marker, or None if there is no marker."""
        marker = self._objects.json_or_none(self.uri)
        return None if marker is None else str(marker["airflow"])

    def create(self, airflow: str) -> str | None:
        """Create the marker with the id `airflow`, unless there is a marker; return the id in the marker.

        The result is `airflow` if this call created the marker. It is None if there was a marker, but another task
        deleted it before this call read its id.
        """
        content = json.dumps({"airflow": airflow}).encode()
        is_new = self._objects.create(self.uri, content, content_type="application/json")
        return airflow if is_new else self.owner()

    def delete(self) -> None:
        """Delete the marker."""
        self._objects.delete(self.uri)


def _store(airflow: str, marker: _Marker) -> None:
    """Store `airflow`, this Airflow's id, in the Airflow variable for the bucket that `marker` claims.

    The marker is new and already contains the id. If the variable cannot be stored, delete the marker and log a
    warning.
    """
    text = "This Airflow's id in the bucket, as trainyard.deployment is not set (Trainyard)."
    try:
        Variable.set(variable_of(marker.bucket), airflow, description=text)
    except Exception as error:  # noqa: BLE001  # the job runs without a claim
        marker.delete()
        log.warning(
            "Bucket %s is not claimed, because Airflow cannot store a variable: %s",
            marker.bucket,
            error,
        )


def _stored_by_another_task(
    owner: str | None, bucket: str, pause: Callable[[float], None]
) -> str | None:
    """Return the id in this Airflow's variable for the bucket, after a wait for another task to store it.

    The bucket's marker is an object with the id of the Airflow that claimed the bucket (`owner`). If this
    Airflow claimed it, the task that created the marker may be about to store the same id in the variable.
    The variable is therefore read repeatedly for some seconds, until its value is `owner`. If it never is, the
    value of the last read is returned. The result is None if the variable was not set.
    """
    own = None
    for seconds in _PAUSES_S:
        pause(seconds)
        own = Variable.get(variable_of(bucket), default=None)
        if own == owner:
            break
    return own


def _taken(clients: AwsClients, marker: _Marker, owner: str | None) -> Finding:
    """Return the finding for a bucket that another Airflow without a deployment name has claimed."""
    return Finding(
        where=f"connection {clients.connection.aws_conn_id!r}, extra trainyard.deployment",
        what="is not set, and another Airflow uses the bucket without this setting: each would treat the jobs of "
        "the other as its own",
        got=f"the marker {marker.uri} with the id {owner}",
        allowed="at most one Airflow without this setting per bucket",
        next_step='name this Airflow, as in {"trainyard": {"deployment": "staging"}}; if the other Airflow no longer '
        "exists, or the marker is this Airflow's own, set the Airflow variable "
        f"{variable_of(marker.bucket)} to the marker's id",
    )
