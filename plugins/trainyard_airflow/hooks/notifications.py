"""Messages about a run to an SNS topic. Each is sent at most once, and a failure to send never fails the run.

Before a message is published, its marker is written to S3 by a conditional put, under a name that depends
on the event alone. A restarted triggerer, or a second task that sees the same event, finds the marker and
sends nothing. If a task fails in several tries, each failure is an event of its own, with its own message.

If the process is killed between marker and message, the message is lost. If SNS rejects the message, the
marker is removed, and the next try sends the message.
"""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from botocore.exceptions import BotoCoreError, ClientError

from trainyard.errors import SpecError
from trainyard_airflow.hooks.objects import S3Address
from trainyard_airflow.hooks.refusals import code_and_message, is_present_object
from trainyard_airflow.hooks.shared_clients import shared_clients

if TYPE_CHECKING:
    from trainyard.runs.notifier import Notice, Notifier
    from trainyard_airflow.hooks.aws_clients import AwsClients

log = logging.getLogger(__name__)

_FAULTS = (ClientError, BotoCoreError, SpecError, OSError)


def notify(clients: AwsClients, notifier: Notifier | None, notice: Notice) -> bool:
    """Publish a notice and return whether it was published.

    Nothing is published if `notifier` is None, if the run does not report this kind of event, or if it has already
    reported this event. Failures are logged as warnings, never raised.
    """
    if notifier is None or not notifier.covers(notice):
        return False
    try:
        was_published = _publish(clients.client("s3"), clients.client("sns"), notifier, notice)
    except _FAULTS as error:
        return _warn(notifier, notice, error)
    return was_published and _log(notifier, notice)


async def notify_from_trigger(
    clients: AwsClients, notifier: Notifier | None, notice: Notice
) -> bool:
    """Publish a notice as `notify` does, but with async clients; return whether it was published."""
    if notifier is None or not notifier.covers(notice):
        return False
    try:
        async with shared_clients(clients.connection, "s3", "sns") as opened:
            was_published = await _publish_async(opened["s3"], opened["sns"], notifier, notice)
    except _FAULTS as error:
        return _warn(notifier, notice, error)
    return was_published and _log(notifier, notice)


def _publish(s3: Any, sns: Any, notifier: Notifier, notice: Notice) -> bool:
    """Publish the notice; return False if it was published before.

    Raises:
        ClientError: S3 or SNS rejected a call.
    """
    marker = _marker(notifier, notice)
    try:
        s3.put_object(**marker)
    except ClientError as error:
        if is_present_object(*code_and_message(error)):
            return False
        raise
    try:
        sns.publish(**notifier.message(notice))
    except _FAULTS:
        s3.delete_object(Bucket=marker["Bucket"], Key=marker["Key"])
        raise
    return True


async def _publish_async(s3: Any, sns: Any, notifier: Notifier, notice: Notice) -> bool:
    """Publish the notice with async clients; return False if it was published before.

    Raises:
        ClientError: S3 or SNS rejected a call.
    """
    marker = _marker(notifier, notice)
    try:
        await s3.put_object(**marker)
    except ClientError as error:
        if is_present_object(*code_and_message(error)):
            return False
        raise
    try:
        await sns.publish(**notifier.message(notice))
    except _FAULTS:
        await s3.delete_object(Bucket=marker["Bucket"], Key=marker["Key"])
        raise
    return True


def _marker(notifier: Notifier, notice: Notice) -> dict[str, Any]:
    """Return the PutObject request for the object that marks the notice as sent.

    S3 rejects the request if the object already exists.
    """
    at = S3Address.parse(notifier.marker(notice))
    content = {"occasion": str(notice.occasion), "event": notice.event, "at": time.time()}
    return {
        "Bucket": at.bucket,
        "Key": at.key,
        "Body": json.dumps(content).encode(),
        "ContentType": "application/json",
        "IfNoneMatch": "*",
    }


def _warn(notifier: Notifier, notice: Notice, error: Exception) -> bool:
    topic = notifier.notifications.topic_arn
    log.warning("Topic %s was not notified (%s): %s", topic, notice.summary, error)
    return False


def _log(notifier: Notifier, notice: Notice) -> bool:
    log.info("Topic %s was notified: %s", notifier.notifications.topic_arn, notice.summary)
    return True
