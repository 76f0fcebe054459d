"""Rules of a training job: the process that evaluates them, and their status in the API.

As on SageMaker, each configured rule is a processing job that can be described, listed and stopped. Unlike on
SageMaker, one process (`python -m trainyard.rules.watch`) evaluates all of them, because twenty processes would cost
more than the training. The engine itself contains no rule: it starts the program, passes it the file locations and
receives verdicts.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sagemaker_engine import SOURCE_FOLDER
from sagemaker_engine.jobs.failures import INTERNAL_ERROR
from sagemaker_engine.jobs.rule_actions import act
from sagemaker_engine.jobs.rule_statuses import RuleStatuses
from sagemaker_engine.state.jobs import UnknownJobError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.jobs.job import Job

log = logging.getLogger(__name__)

CARE_S = 0.5
FINISH_S = 20.0
"""Timeout in seconds of the last evaluation, which takes a tenth of a second."""
MESSAGE_S = 180.0
_FAULTS = (OSError, sqlite3.Error, RuntimeError)
"""Errors of processes, disks, the store and threads: the rules are then in Error, and the training continues."""


@dataclass(slots=True, kw_only=True)
class RuleWatch:
    """The rules of one job over all its attempts.

    No thread is started until the job has rules. UpdateTrainingJob may add rules to a job that had none.

    `folders` are the folders of the instances' statistics on this machine. Errors of this class never end a
    training. They set the rules to `Error`, with the reason.
    """

    job: Job
    folders: Sequence[Path]
    _statuses: RuleStatuses | None = field(default=None, init=False)
    _process: subprocess.Popen[str] | None = field(default=None, init=False)
    _receiver: threading.Thread | None = field(default=None, init=False)
    _care: threading.Thread | None = field(default=None, init=False)
    _looked_at: float = field(default=0.0, init=False)
    _ending: threading.Event = field(default_factory=threading.Event, init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, init=False)
    _trains_since: float | None = field(default=None, init=False)
    _rules: list[dict[str, Any]] = field(default_factory=list, init=False)
    _messages: list[threading.Thread] = field(default_factory=list, init=False)

    def start(self) -> None:
        """Start the evaluation. From now on Describe lists the rules."""
        try:
            self._statuses = RuleStatuses(self.job)
            self._take_up()
        except _FAULTS:
            log.exception("the rules of %s cannot be read", self.job.name)

    def heed_update(self) -> None:
        """Start the evaluation of rules that UpdateTrainingJob added.

        A call within 0.5 s of the last check of the job's request has no effect.
        """
        now = time.monotonic()
        if self._care or self._ending.is_set() or now - self._looked_at < CARE_S:
            return
        self._looked_at = now
        try:
            self._take_up()
        except _FAULTS as error:
            log.warning("the rules of %s cannot be read: %s", self.job.name, error)

    def _take_up(self) -> None:
        rules = self._configured()
        if not rules or rules == self._rules:
            return
        with self._lock:
            self._begin(rules)
        care = threading.Thread(target=self._look_after, daemon=True, name="rules")
        care.start()
        self._care = care

    def trains(self, since: float | None) -> None:
        """Report to the rules' process that instances train, or that no instance trains.

        `since` is the time in epoch seconds at which instances began to train; None if no instance trains.
        The rules treat missing output as a finding only while instances train.
        """
        with self._lock:
            self._trains_since = since
            self._send_trains_since()

    def finish(self) -> None:
        """Evaluate the remaining output and set the final status of every rule. Repeated calls have no effect."""
        self._ending.set()
        if self._care is not None:
            self._care.join()
            self._care = None
        with self._lock:
            self._end()
        if self._statuses is not None:
            self._statuses.finish()

    def deliver(self) -> None:
        """Wait until the messages of the rules' actions (mail, SMS) are sent. Call this after the job has ended.

        The wait for each message is limited to `MESSAGE_S` seconds.
        """
        for message in self._messages:
            message.join(timeout=MESSAGE_S)

    def _configured(self) -> list[dict[str, Any]]:
        """Return the rules in the stored request.

        The request is read at each call, because UpdateTrainingJob may have changed its profiler rules.
        """
        request = self.job.store.get(self.job.kind, self.job.name).request
        disabled = (request.get("ProfilerConfig") or {}).get("DisableProfiler")
        profiler = [] if disabled else request.get("ProfilerRuleConfigurations") or []
        return [
            *({**each, "_kind": "Debug"} for each in request.get("DebugRuleConfigurations") or ()),
            *({**each, "_kind": "Profiler"} for each in profiler),
        ]

    def _begin(self, rules: list[dict[str, Any]]) -> None:
        self._rules = rules
        if self._statuses is None:
            self._statuses = RuleStatuses(self.job)
        try:
            self._statuses.expect(rules)
            if rules:
                self._start_process(rules)
        except _FAULTS as error:
            log.exception("the rules of %s are not evaluated", self.job.name)
            cause = f"the rules' process did not start: {type(error).__name__}: {error}"
            self._statuses.fail(f"{INTERNAL_ERROR} ({cause})")

    def _start_process(self, rules: Sequence[Mapping[str, Any]]) -> None:
        if not (SOURCE_FOLDER / "trainyard" / "rules").is_dir():
            raise FileNotFoundError(
                "the package `trainyard`, which evaluates rules, is not installed; install it"
            )
        spec = self.job.folder / "rules.json"
        spec.write_text(
            json.dumps(
                {
                    "folders": [str(each) for each in self.folders],
                    "rules": [_sent(each) for each in rules],
                    "hyperparameters": self.job.request.get("HyperParameters", {}),
                    "since": self.job.created_at,
                }
            )
        )
        with (self.job.folder / "rules.log").open("ab") as errors:
            self._process = subprocess.Popen(  # noqa: S603  # this project's own program
                [sys.executable, "-S", "-m", "trainyard.rules.watch", str(spec)],
                cwd=SOURCE_FOLDER,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                start_new_session=True,
            )
        receiver = threading.Thread(
            target=self._receive, args=(self._process,), daemon=True, name="verdicts"
        )
        receiver.start()
        self._receiver = receiver
        self._send_trains_since()

    def _send_trains_since(self) -> None:
        if self._process is None or self._process.stdin is None:
            return
        try:
            self._process.stdin.write(json.dumps({"trains_since": self._trains_since}) + "\n")
            self._process.stdin.flush()
        except (OSError, ValueError):
            log.warning("the rules' process no longer reads messages")

    def _receive(self, process: subprocess.Popen[str]) -> None:
        assert process.stdout is not None  # noqa: S101  # a pipe
        is_final = False
        with process.stdout as lines:
            for line in lines:
                try:
                    message = json.loads(line)
                    is_final = bool(message.get("is_final"))
                    self._take(message["verdicts"])
                except (ValueError, KeyError, TypeError, AttributeError, *_FAULTS):
                    log.exception("a message of the rules' process is ignored: %.200s", line)
        if not is_final and self._statuses is not None:
            cause = f"the rules' process ended early with exit code {process.wait()}"
            self._statuses.fail(f"{INTERNAL_ERROR} ({cause})")

    def _take(self, verdicts: Sequence[Mapping[str, Any]]) -> None:
        """Store the verdicts, and carry out the actions of rules that fired for the first time."""
        assert self._statuses is not None  # noqa: S101  # set by start
        try:
            fired = self._statuses.show(verdicts)
        except UnknownJobError:
            return  # the job was deleted meanwhile
        for rule, verdict in fired:
            log.info("rule %s fired at step %s", verdict["name"], verdict["step"])
            self._messages += act(self.job, rule, verdict)

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None or process.stdin is None:
            return
        process.stdin.close()
        if self._receiver is not None:
            self._receiver.join(timeout=FINISH_S)
        if process.poll() is None:
            process.kill()
        process.wait()

    def _look_after(self) -> None:
        """Restart the evaluation if the rules change, and stop rules whose processing job has a stop request."""
        while not self._ending.wait(CARE_S):
            try:
                rules = self._configured()
                with self._lock:
                    if rules != self._rules and self._statuses is not None:
                        self._end()
                        self._begin(rules)
                if self._statuses is not None:
                    self._statuses.heed_stops()
            except UnknownJobError:
                return
            except _FAULTS as error:
                log.warning(
                    "the rules of %s could not be checked; they are checked again: %s",
                    self.job.name,
                    error,
                )


def _sent(rule: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in rule.items() if not key.startswith("_")}
