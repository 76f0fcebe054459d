"""Polls of an AutoML job, with its candidates logged as a leaderboard after each change."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from trainyard.sagemaker_api.automl_snapshot import AutoMLCandidate, AutoMLFacts, leaderboard
from trainyard.sagemaker_api.job_kinds import JOB_APIS, JobKind
from trainyard_airflow.hooks.automl_candidates import LISTING
from trainyard_airflow.triggers.look import Look

if TYPE_CHECKING:
    from trainyard.sagemaker_api.snapshot import JobSnapshot

log = logging.getLogger(__name__)

_API = JOB_APIS[JobKind.AUTOML]
_WITHOUT_CANDIDATES = frozenset({"Starting", "AnalyzingData"})


@dataclass(slots=True)
class AutoMLLook(Look):
    """Poll of an AutoML job that also lists its candidates."""

    told: dict[str, tuple[str, float | None]] = field(default_factory=dict)

    async def now(self) -> JobSnapshot:
        """Return the job's current snapshot; log its candidates if one of them has changed."""
        snapshot = await super(
            AutoMLLook, self
        ).now()  # in a slotted dataclass, `super()` without arguments fails
        if snapshot.secondary_status not in _WITHOUT_CANDIDATES:
            self._tell(await self._listed())
        return snapshot

    async def _listed(self) -> list[AutoMLCandidate]:
        pages = self.sagemaker.get_paginator(LISTING).paginate(**_API.named(self.followed.job_name))
        return [
            AutoMLCandidate.from_wire(each) async for page in pages for each in page["Candidates"]
        ]

    def _tell(self, candidates: list[AutoMLCandidate]) -> None:
        news = {each.name: (each.status, each.value) for each in candidates}
        if news == self.told:
            return
        facts = AutoMLFacts.from_describe(self.described)
        log.info(
            "AutoML job %s: %d of its %d candidates have ended\n%s",
            self.followed.job_name,
            sum(each.is_terminal for each in candidates),
            len(candidates),
            leaderboard(candidates, metric=facts.metric_name, maximize=facts.maximize),
        )
        self.told = news
