"""Followers of a search or an AutoML job.

A follower polls its job, and logs the job's trials or candidates if one of them has changed. The follower
of a search also stops the search before it exceeds its limits on cost or time.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from trainyard.job_status import JobStatus
from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate, AutoMLFacts, leaderboard
from trainyard.sagemaker_api.failures import is_unknown_job
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard.sagemaker_api.stop_cause import StopCause
from trainyard.sagemaker_api.tuning_snapshot import SearchFacts, trial_of
from trainyard.tuning.ceiling import Ceiling, judge, spent_usd
from trainyard.tuning.result import EndedBy
from trainyard.tuning.trial_table import trial_table
from trainyard.units import format_usd
from trainyard_airflow.hooks.automl_candidates import LISTING as CANDIDATES
from trainyard_airflow.hooks.redaction import masked_snapshot
from trainyard_airflow.hooks.refusals import code_and_message
from trainyard_airflow.hooks.tuning_trials import LISTING, without_secrets
from trainyard_airflow.triggers.kill_job import stop_job
from trainyard_airflow.triggers.look import Look

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard.sagemaker_api.snapshot import JobSnapshot
    from trainyard.tuning.trials import Trial

log = logging.getLogger(__name__)

_SEARCH, _TRIAL = JOB_APIS[JobKind.TUNING], JOB_APIS[JobKind.TRAINING]
_AUTOML = JOB_APIS[JobKind.AUTOML]
_WITHOUT_CANDIDATES = frozenset({"Starting", "AnalyzingData"})
_CAUSES = {EndedBy.BUDGET: StopCause.BUDGET, EndedBy.TIME: StopCause.TIME}


@dataclass(slots=True)
class SearchLook(Look):
    """Polls of a search: they list its trials if its status counters changed, and describe each ended trial once."""

    trials: dict[str, Trial] = field(default_factory=dict)
    jobs: dict[str, JobSnapshot | None] = field(default_factory=dict)
    counters: Mapping[str, int] | None = None
    reported: Mapping[str, tuple[Any, ...]] = field(default_factory=dict)
    max_jobs: int | None = None

    async def now(self) -> JobSnapshot:
        """Return the search's current snapshot; log its trials if one of them has changed."""
        snapshot = await super(
            SearchLook, self
        ).now()  # in a slotted dataclass, `super()` without arguments fails
        facts = SearchFacts.from_describe(self.described)
        if facts.counters != self.counters or self._awaits_start:
            self.trials = {each.training_job_name: each for each in await self._listed()}
            self.counters = facts.counters  # last: after an error the next poll lists again
        self.max_jobs = facts.max_jobs
        self._log_trials(facts)
        return snapshot

    async def give_up_on(self, snapshot: JobSnapshot) -> None:
        """Stop the search if its limits on cost or time leave no room for a further result.

        That is the case if the next trial is expected to end only after the budget or the time is used up. It is
        also the case if the search would exceed its budget before the next poll.
        """
        verdict = None
        if snapshot.status == JobStatus.IN_PROGRESS:
            verdict = judge(
                list(self.trials.values()),
                ceiling=self._ceiling,
                created_at=snapshot.created_at or self.now_s,
                now=self.now_s,
                reaction_s=self.followed.poll_interval_s,
                max_jobs=self.max_jobs,
                max_runtime_s=snapshot.max_run_s,
            )
        if verdict is not None:
            log.warning("Search %s is stopped: %s", snapshot.name, verdict.reason)
            await stop_job(self.followed, tag=_CAUSES[verdict.cause].tag)

    @property
    def _ceiling(self) -> Ceiling:
        return self.followed.patience.ceiling or Ceiling()

    @property
    def _awaits_start(self) -> bool:
        """True if a trial has not started; its start does not change the counters."""
        return any(not t.is_terminal and t.started_at is None for t in self.trials.values())

    async def _listed(self) -> list[Trial]:
        pages = self.sagemaker.get_paginator(LISTING).paginate(
            **_SEARCH.named(self.followed.job_name),
            PaginationConfig={"PageSize": 100},
        )
        summaries = [each async for page in pages for each in page[_TRIAL.summaries_key]]
        trials = [await self._trial(each) for each in summaries]
        return sorted(trials, key=lambda each: each.training_job_name)

    async def _trial(self, summary: Mapping[str, Any]) -> Trial:
        """Return the trial of a summary; the billed time of an ended trial is queried once, because it is final."""
        trial = trial_of(summary, usd_per_s=self._ceiling.usd_per_s)
        name = trial.training_job_name
        if trial.is_terminal:
            if name not in self.jobs:
                self.jobs[name] = await self._job(name)
            trial = trial_of(summary, job=self.jobs[name], usd_per_s=self._ceiling.usd_per_s)
        return without_secrets(trial, self.secrets)

    async def _job(self, name: str) -> JobSnapshot | None:
        try:
            describe = getattr(self.sagemaker, _TRIAL.describe)
            return masked_snapshot(await describe(**_TRIAL.named(name)))
        except ClientError as error:
            if is_unknown_job(*code_and_message(error)):
                return None
            raise

    def _log_trials(self, facts: SearchFacts) -> None:
        """Log the table of trials if a trial is new or has a new state or objective."""
        state = {name: (each.status, each.objective) for name, each in self.trials.items()}
        changed = {name for name, each in state.items() if self.reported.get(name) != each}
        if not changed:
            return
        trials = list(self.trials.values())
        spent = spent_usd(trials, ceiling=self._ceiling, now=self.now_s)
        ended = sum(each.is_terminal for each in trials)
        budget = self._ceiling.budget_usd
        log.info(
            "Search %s: %d trials have ended, %d run%s; %s%s spent\n%s",
            self.followed.job_name,
            ended,
            len(trials) - ended,
            "" if facts.max_jobs is None else f", of at most {facts.max_jobs}",
            format_usd(spent),
            "" if budget is None else f" of {format_usd(budget)}",
            trial_table(trials, maximize=facts.maximize, now=self.now_s, changed=changed),
        )
        self.reported = state


@dataclass(slots=True)
class AutoMLLook(Look):
    """Polls of an AutoML job, which also list its candidates."""

    reported: dict[str, tuple[str, float | None]] = field(default_factory=dict)

    async def now(self) -> JobSnapshot:
        """Return the job's current snapshot; log its candidates if one of them has changed."""
        snapshot = await super(
            AutoMLLook, self
        ).now()  # in a slotted dataclass, `super()` without arguments fails
        if snapshot.secondary_status not in _WITHOUT_CANDIDATES:
            self._log_candidates(await self._listed())
        return snapshot

    async def _listed(self) -> list[AutoMLCandidate]:
        pages = self.sagemaker.get_paginator(CANDIDATES).paginate(
            **_AUTOML.named(self.followed.job_name)
        )
        return [
            AutoMLCandidate.from_wire(each) async for page in pages for each in page["Candidates"]
        ]

    def _log_candidates(self, candidates: list[AutoMLCandidate]) -> None:
        news = {each.name: (each.status, each.value) for each in candidates}
        if news == self.reported:
            return
        facts = AutoMLFacts.from_describe(self.described)
        log.info(
            "AutoML job %s: %d of its %d candidates have ended\n%s",
            self.followed.job_name,
            sum(each.is_terminal for each in candidates),
            len(candidates),
            leaderboard(candidates, metric=facts.metric_name, maximize=facts.maximize),
        )
        self.reported = news
