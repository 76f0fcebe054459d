"""Rule statuses of a job as Describe shows them, with one processing job per rule."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

from sagemaker_engine.jobs import life_cycle
from sagemaker_engine.sandbox.processes import start_ticks_of
from sagemaker_engine.state.jobs import JobNameTakenError, ResourceKind, UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sagemaker_engine.jobs.job import Job

log = logging.getLogger(__name__)

MEMBERS = {"Debug": "DebugRuleEvaluationStatuses", "Profiler": "ProfilerRuleEvaluationStatuses"}
MOST_DETAILS = 1024
_DEFAULT_INSTANCE = "ml.m5.large"
_OPEN = frozenset({"InProgress", "Stopping"})

Rule = dict[str, Any]


class RuleStatuses:
    """Statuses of one job's rules, stored in the job's state.

    A final status such as IssuesFound never changes again. If the store is busy and rejects a write, the error
    is logged and the write is repeated with the next change. The error is not raised, because the actions of
    rules that fired must not wait for the store.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._rules: dict[str, Rule] = {}
        self._lock = threading.Lock()
        stored = job.store.get(job.kind, job.name).state
        self._statuses: dict[tuple[str, str], dict[str, Any]] = {
            (kind, each["RuleConfigurationName"]): each
            for kind, member in MEMBERS.items()
            for each in stored.get(member, ())
        }

    def expect(self, rules: Sequence[Rule]) -> None:
        """Set `rules` as the job's rules, and create a processing job for each rule that has no status yet."""
        with self._lock:
            self._rules = {each["RuleConfigurationName"]: each for each in rules}
            for each in rules:
                key = each["_kind"], each["RuleConfigurationName"]
                if key not in self._statuses:
                    self._statuses[key] = {
                        "RuleConfigurationName": key[1],
                        "RuleEvaluationJobArn": self._create_job(each),
                        "RuleEvaluationStatus": "InProgress",
                        "LastModifiedTime": time.time(),
                    }
            self._store()

    def show(self, verdicts: Sequence[Mapping[str, Any]]) -> list[tuple[Rule, Mapping[str, Any]]]:
        """Store the verdicts' statuses; return the rules that fired now, each with its verdict."""
        fired = []
        with self._lock:
            for verdict in verdicts:
                rule = self._rules.get(verdict["name"])
                if rule is None:
                    continue
                status = self._statuses[rule["_kind"], verdict["name"]]
                if status["RuleEvaluationStatus"] not in _OPEN:
                    continue
                changed = self._set(status, verdict["status"], verdict["details"])
                if changed and verdict["status"] == "IssuesFound":
                    fired.append((rule, verdict))
            self._store()
        return fired

    def fail(self, details: str) -> None:
        """Set the unfinished rules to Error, because the evaluator failed."""
        with self._lock:
            for status in self._statuses.values():
                if status["RuleEvaluationStatus"] in _OPEN:
                    self._set(status, "Error", details)
            self._store()

    def heed_stops(self) -> None:
        """Stop the rules whose processing job has a stop request."""
        with self._lock:
            stopped = [
                status
                for status in self._statuses.values()
                if status["RuleEvaluationStatus"] in _OPEN and self._is_to_stop(status)
            ]
            for status in stopped:
                self._set(status, "Stopped", "")
            if stopped:
                self._store()

    def finish(self) -> None:
        """Set the unfinished rules to NoIssuesFound, because the training has ended."""
        with self._lock:
            for status in self._statuses.values():
                if status["RuleEvaluationStatus"] in _OPEN:
                    self._set(status, "NoIssuesFound", status.get("StatusDetails", ""))
            self._store()

    def _set(self, status: dict[str, Any], word: str, details: str) -> bool:
        """Set the status of a rule to `word`, with `details`; return whether it changed.

        A final status also ends the rule's processing job.
        """
        if status["RuleEvaluationStatus"] == word:
            return False
        status["RuleEvaluationStatus"] = word
        status["LastModifiedTime"] = max(time.time(), status["LastModifiedTime"])
        if details:
            status["StatusDetails"] = details[:MOST_DETAILS]
        if word not in _OPEN:
            self._end_job(status, word, details)
        return True

    def _store(self) -> None:
        members = {
            member: [status for (of, _), status in self._statuses.items() if of == kind]
            for kind, member in MEMBERS.items()
        }
        try:
            self._job.change(**{member: found for member, found in members.items() if found})
        except sqlite3.Error as error:
            log.warning("the rules' statuses are not stored yet: %s", error)

    def _create_job(self, rule: Rule) -> str:
        """Create the rule's processing job, with this process as its runner; return its ARN."""
        job, now, pid = self._job, time.time(), os.getpid()
        arn_head = job.arn.rpartition(":")[0]
        name = rule_job_name(job.name, rule["RuleConfigurationName"], arn=job.arn)
        arn = f"{arn_head}:processing-job/{name}"
        try:
            job.store.create(
                ResourceKind.PROCESSING,
                name,
                arn=arn,
                request=rule_job_request(job, rule, name=name),
                created_at=now,
                state={
                    "ProcessingJobStatus": "InProgress",
                    "ProcessingStartTime": now,
                    "LastModifiedTime": now,
                },
                runner=(pid, start_ticks_of(pid) or 0),
            )
        except JobNameTakenError:  # created by an earlier runner of this job
            ticks = start_ticks_of(pid) or 0
            job.store.set_runner(ResourceKind.PROCESSING, name, pid=pid, start_ticks=ticks)
        return arn

    def _is_to_stop(self, status: Mapping[str, Any]) -> bool:
        name = status["RuleEvaluationJobArn"].rpartition("/")[2]
        try:
            return self._job.store.get(ResourceKind.PROCESSING, name).stop_requested_at is not None
        except UnknownJobError:
            return False

    def _end_job(self, status: Mapping[str, Any], word: str, details: str) -> None:
        name = status["RuleEvaluationJobArn"].rpartition("/")[2]
        ends = {"Error": "Failed", "Stopped": "Stopped"}

        def change(state: dict[str, Any]) -> None:
            if word == "IssuesFound":
                state["ExitMessage"] = details[:MOST_DETAILS]
            life_cycle.finish(
                ResourceKind.PROCESSING,
                state,
                status=ends.get(word, "Completed"),
                at=time.time(),
                reason=details if word == "Error" else None,
            )

        try:
            self._job.store.update_state(ResourceKind.PROCESSING, name, change)
        except UnknownJobError:
            return  # a client deleted it
        except sqlite3.Error as error:
            log.warning("the end of the rule's job %s is not stored: %s", name, error)


def rule_job_name(job_name: str, rule_name: str, *, arn: str) -> str:
    """Return the name of a rule's processing job: parts of both names, and a hash.

    It has the form of the service's names, such as `mnist-tensorflow-2020-12-0-vanishinggradient-a5bb2f1c`.
    """
    digest = hashlib.sha256(f"{arn}/{rule_name}".encode()).hexdigest()[:8]
    parts = (job_name[:26], rule_name[:26].lower(), digest)
    return "-".join(re.sub(r"[^a-zA-Z0-9]+", "-", part).strip("-") for part in parts)


def rule_job_request(job: Job, rule: Rule, *, name: str) -> dict[str, Any]:
    """Return the request of a rule's processing job, as DescribeProcessingJob returns it."""
    output = rule.get("S3OutputPath") or job.request["OutputDataConfig"]["S3OutputPath"]
    target = f"{output.rstrip('/')}/{job.name}/rule-output/{rule['RuleConfigurationName']}"
    hook = job.request.get("DebugHookConfig") or job.request.get("ProfilerConfig") or {}
    source = str(hook.get("S3OutputPath") or output).rstrip("/")
    tensors = f"{source}/{job.name}/debug-output"
    return {
        "ProcessingJobName": name,
        "TrainingJobArn": job.arn,
        "RoleArn": job.request["RoleArn"],
        "AppSpecification": {"ImageUri": rule["RuleEvaluatorImage"]},
        "Environment": dict(rule.get("RuleParameters") or {}),
        "ProcessingInputs": [
            {
                "InputName": "debug-output",
                "AppManaged": False,
                "S3Input": {
                    "S3Uri": tensors,
                    "LocalPath": "/opt/ml/processing/input/tensors",
                    "S3DataType": "S3Prefix",
                    "S3InputMode": "File",
                },
            }
        ],
        "ProcessingOutputConfig": {
            "Outputs": [
                {
                    "OutputName": "rule-output",
                    "AppManaged": False,
                    "S3Output": {
                        "S3Uri": target,
                        "LocalPath": rule.get("LocalPath") or "/opt/ml/processing/output/rule/",
                        "S3UploadMode": "Continuous",
                    },
                }
            ]
        },
        "ProcessingResources": {
            "ClusterConfig": {
                "InstanceCount": 1,
                "InstanceType": rule.get("InstanceType") or _DEFAULT_INSTANCE,
                "VolumeSizeInGB": rule.get("VolumeSizeInGB") or 10,
            }
        },
        "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
    }
