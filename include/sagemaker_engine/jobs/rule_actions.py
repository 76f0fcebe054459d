"""Actions of a rule that fires: stop the training job, send an e-mail or a text message.

The actions follow AWS's rule container. StopTraining searches the running jobs by name prefix, and stops a job only if
it is the only match. Messages go to the SNS topic SMDebugRules. Sources: smdebug-rulesconfig 1.0.1, `actions`;
developer guide, "Debugger built-in actions for rules".
"""

from __future__ import annotations

import json
import logging
import re
import sqlite3
import threading
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.state.jobs import JobQuery, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sagemaker_engine.jobs.job import Job

log = logging.getLogger(__name__)

TOPIC = "SMDebugRules"
STOP_PAUSES_S = (0.2, 1.0, 5.0)
"""Seconds before each further attempt, if the busy store rejected a stop request."""
ANSWER_S = 60.0
"""Timeout of a request to SNS in seconds. It is long, because the first request loads moto's SNS."""
_NEEDS = {"stoptraining": None, "email": "endpoint", "sms": "endpoint"}
"""Required parameter per action; None if it has none."""


def act(job: Job, rule: Mapping[str, Any], verdict: Mapping[str, Any]) -> list[threading.Thread]:
    """Carry out the rule's `action_json`, and return the threads that are still sending messages.

    Errors are logged; the training continues.
    """
    messages = []
    text = (rule.get("RuleParameters") or {}).get("action_json")
    for action in (parsed_actions(text) or []) if text else []:
        if action["name"] == "stoptraining":
            _stop_patiently(job, prefix=action.get("training_job_prefix") or job.name)
        else:
            # Sending a message takes time and must not delay a stop.
            message = threading.Thread(target=_notify, args=(job, action, verdict), daemon=True)
            message.start()
            messages.append(message)
    return messages


def parsed_actions(text: str) -> list[dict[str, str]] | None:
    """Return the actions in `text`, the value of the rule parameter `action_json`; None if the value is invalid.

    Text that is not JSON is read again without the backslashes before quotes: the SDK's `ActionList.serialize`
    adds them for a shell, and the engine runs no shell.
    """
    found = _json_or_none(text) or _json_or_none(text.replace('\\"', '"'))
    if found is None:
        return None
    actions = found if isinstance(found, list) else [found]
    for each in actions:
        if not isinstance(each, dict) or each.get("name") not in _NEEDS:
            return None
        needed = _NEEDS[each["name"]]
        if needed is not None and not each.get(needed):
            return None
    return actions


def _json_or_none(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _stop_patiently(job: Job, *, prefix: str) -> None:
    for pause_s in (0.0, *STOP_PAUSES_S):
        time.sleep(pause_s)
        try:
            _stop(job, prefix=prefix)
        except sqlite3.Error as error:
            log.warning("StopTraining of %s is not stored: %s", prefix, error)
        else:
            return


def _stop(job: Job, *, prefix: str) -> None:
    running = job.store.list(ResourceKind.TRAINING, JobQuery(statuses=frozenset({"InProgress"})))
    names = [each.name for each in running if each.name.startswith(prefix)]
    if len(names) != 1:
        log.warning(
            "StopTraining: %d running jobs begin with %s: no job is stopped", len(names), prefix
        )
        return
    now = time.time()

    def change(state: dict[str, Any]) -> None:
        if state["TrainingJobStatus"] == "InProgress":
            life_cycle.enter(ResourceKind.TRAINING, state, "Stopping", at=now)

    job.store.request_stop(ResourceKind.TRAINING, names[0], at=now, change=change)


def _notify(job: Job, action: Mapping[str, str], verdict: Mapping[str, Any]) -> None:
    topics = _Topics(endpoint_url=job.settings.endpoint_url, region=job.arn.split(":")[3])
    try:
        arn = topics.call("CreateTopic", Name=TOPIC)
        topics.call("Subscribe", TopicArn=arn, Protocol=action["name"], Endpoint=action["endpoint"])
        topics.call(
            "Publish",
            TopicArn=arn,
            Subject="SageMaker Debugger Rule Evaluation Update",
            Message=f"Training job {job.name}: rule {verdict['name']} fired. {verdict['details']}",
        )
    except OSError as error:
        log.warning("the %s of rule %s was not sent: %s", action["name"], verdict["name"], error)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topics:
    """SNS client for the engine's port.

    It uses only the standard library, because a runner has no other packages. Its requests have a false
    signature, because the engine ignores signatures.
    """

    endpoint_url: str
    region: str

    def call(self, action: str, **parameters: str) -> str:
        """Call an SNS action with its parameters; return the TopicArn in the response, empty if it has none.

        Raises OSError if the engine is not reachable or rejects the request.
        """
        body = urllib.parse.urlencode({"Action": action, "Version": "2010-03-31", **parameters})
        scope = f"ASIATRAINYARDRULE000/20260101/{self.region}/sns/aws4_request"
        request = urllib.request.Request(  # noqa: S310  # the engine's own URL
            self.endpoint_url,
            data=body.encode(),
            headers={
                "Content-Type": "application/x-www-form-urlencoded",
                "Authorization": f"AWS4-HMAC-SHA256 Credential={scope}, SignedHeaders=host, Signature=none",
            },
        )
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:  # noqa: S310
            found = re.search(rb"<TopicArn>(.*?)</TopicArn>", answer.read())
        return found[1].decode() if found else ""
