"""Live evaluation of rules on statistics files that are still being written."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from trainyard.rules.conf_facts import conf_of_job, facts_of, facts_of_job
from trainyard.rules.configuration import configured_rules
from trainyard.rules.evaluation import Evaluation
from trainyard.rules.live import LiveFeed
from trainyard.rules.records import Facts, MarkRecord, Record

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from trainyard.rules.evaluation import ConfiguredRule, Issue, Verdict
    from trainyard.rules.live import Piece
    from trainyard.rules.watch_plan import WatchPlan

BY_THE_SERVICE = "evaluated by the service's own Debugger"
CLOCK_S = 1.0
"""Least seconds between two `clock` records of a rank, by which rules notice its silence."""


def planned_evaluation(
    plan: WatchPlan,
    *,
    since: float,
    hyperparameters: Mapping[str, str] | None = None,
    judged_elsewhere: Collection[str] = (),
) -> LiveEvaluation:
    """Return the live evaluation of a plan's rules for one job.

    Args:
        plan: the rules, and the run's conf.
        since: creation time of the job, epoch seconds.
        hyperparameters: hyperparameters of the job, from Describe. Their learning rate takes precedence over
            that of the conf. Without a conf, the rules have no facts of the training except those that
            `facts_of_job` derives from these hyperparameters.
        judged_elsewhere: names of rules that are left out, because the service evaluates them for this job.

    Raises:
        SpecError: the rules are invalid.
    """
    of_job = hyperparameters or {}
    facts = facts_of(conf_of_job(plan.conf, of_job)) if plan.conf else facts_of_job(of_job)
    rules = [
        replace(each, left_out=BY_THE_SERVICE) if each.name in judged_elsewhere else each
        for each in configured_rules(plan.rules)
    ]
    return LiveEvaluation(rules, facts, since=since)


class LiveEvaluation:
    """Live evaluation of one job's rules, beside the job or remotely.

    Repeat three calls: `wanted`, then `take` for each of the returned pieces in their order, then `judge`.

    Args:
        rules: the rules to evaluate.
        facts: facts of the run.
        since: creation time of this job, epoch seconds. The rules also read the records of the
            training's earlier jobs, but they report only issues of this job.
    """

    def __init__(
        self, rules: Sequence[ConfiguredRule], facts: Facts | None = None, *, since: float = 0.0
    ) -> None:
        self._evaluation = Evaluation(rules, facts)
        self._feed = LiveFeed(since=since)
        self._last_records: dict[int, Record] = {}
        self._clock_at = 0.0
        self.num_records = 0

    @property
    def is_behind(self) -> bool:
        """True if the last call of `wanted` reached its limit of bytes before the end of the files.

        Call `wanted` again with the same sizes to get the rest.
        """
        return self._feed.is_behind

    def wanted(self, sizes: Mapping[str, int], *, is_final: bool = False) -> list[Piece]:
        """Return the pieces to read next from files with these sizes; see `LiveFeed.wanted`."""
        return self._feed.wanted(sizes, is_final=is_final)

    def take(self, piece: Piece, data: bytes) -> None:
        """Process the bytes (`data`) of a piece that `wanted` returned.

        Raises:
            ContractError: a line is invalid; the evaluation cannot continue.
        """
        self._feed.take(piece, data)

    def judge(
        self, *, until: float | None = None, trains_since: float | None = None
    ) -> list[tuple[str, Issue]]:
        """Return the issues in the new pieces, each with its rule's configured name.

        Args:
            until: time up to which the records have arrived, epoch seconds. If it is set and no piece is left to read,
                ranks are also checked for silence up to this time.
            trains_since: when the instances last began to train; None if they do not train now. A rank is checked for
                silence only if it has written a record since then.
        """
        if earlier := self._feed.earlier_records():
            self._evaluation.feed(earlier)
            self._evaluation.begin_job()
        records = self._feed.records()
        for record in records:
            if record.time is not None:
                self._last_records[record.rank] = record
        self.num_records += len(records)
        if self._feed.waits:
            until = None
        if until is not None and trains_since is not None and until - self._clock_at >= CLOCK_S:
            self._clock_at = until
            records += [
                MarkRecord(kind="clock", time=until, rank=rank, step=last.step)
                for rank, last in self._last_records.items()
                if (last.time or 0.0) >= trains_since
            ]
        return self._evaluation.feed(records)

    def verdicts(self, *, is_final: bool) -> tuple[Verdict, ...]:
        """Return each rule's verdict so far. If `is_final` is false, rules without issues are in progress."""
        return self._evaluation.verdicts(is_final=is_final)
