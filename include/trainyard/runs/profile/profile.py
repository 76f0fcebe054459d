"""Profile of a run, calculated from its records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import HostSample, Record, Start, StepRecord
from trainyard.runs.profile.breakdown import (
    RankBreakdown,
    StepBin,
    mean_shares,
    over_steps,
    rank_breakdowns,
)
from trainyard.runs.profile.diagnosis import Diagnosis, diagnose, judges
from trainyard.runs.profile.outliers import Outliers, find_outliers
from trainyard.runs.profile.step_times import Part, StepTime, steady, step_times
from trainyard.runs.profile.usage import (
    MeasuredMemory,
    Point,
    Usage,
    memory_uses,
    thinned_points,
    usages,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard.rules.evaluation import Verdict
    from trainyard.rules.records import Facts
    from trainyard.runs.profile.traces import Trace

MOST_LOCAL_POINTS = 200
NO_STEPS = "no times of steps in the training's statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptBegin:
    """Start of the training processes in one attempt.

    Attributes:
        seconds: seconds since the run's first record; None if the time of the start is unknown.
        step: the step from which the processes resumed.
    """

    attempt: int
    seconds: float | None
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RankWait:
    """Time that a rank needs for its own work in a step, compared with that of the fastest rank.

    Attributes:
        local_seconds: median seconds from the start of a step to its first collective; None if not measured.
        score: the fastest rank's `local_seconds` divided by this rank's, 1 for the fastest rank. None if the
            training has only one rank, or if any rank was not measured.
        waited_seconds: mean seconds per step during which collectives blocked the rank.
        points: (step, seconds from the start of this step to its first collective), thinned.
        issue: text of the issue that the rule Straggler reported for this rank; empty if it reported none.
    """

    rank: int
    local_seconds: float | None
    score: float | None
    waited_seconds: float
    points: tuple[Point, ...]
    issue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """Profile of one training: step time by part, outliers, resource use and diagnosis.

    Attributes:
        num_steps: number of steps, without those that a restart discarded.
        num_first_steps: how many of these steps were the first after a start of the training. They include
            one-time work, so the means leave them out.
        why_no_steps: why there are no step times; empty if the profile has step times.
        why_no_stragglers: why ranks cannot be compared; empty if they can be compared.
        verdicts: verdicts of the rules on speed, hosts and memory.
    """

    num_steps: int
    num_first_steps: int
    num_ranks: int
    attempts: tuple[AttemptBegin, ...]
    ranks: tuple[RankBreakdown, ...]
    bins: tuple[StepBin, ...]
    shares: Mapping[Part, float]
    outliers: Outliers
    waits: tuple[RankWait, ...]
    usages: tuple[Usage, ...]
    memory: tuple[MeasuredMemory, ...]
    diagnosis: Diagnosis
    verdicts: tuple[Verdict, ...]
    traces: tuple[Trace, ...] = ()
    why_no_steps: str = ""
    why_no_stragglers: str = ""

    @property
    def is_empty(self) -> bool:
        """True if neither the training's speed nor its hosts were observed."""
        return not self.ranks and not any(each.series for each in self.usages)


def profile_of(
    records: Sequence[Record],
    facts: Facts,
    *,
    rules: Sequence[object] = (),
    traces: Sequence[Trace] = (),
) -> Profile:
    """Return the profile of a run.

    Args:
        records: records of all ranks and attempts, in order.
        facts: facts of the run's conf.
        rules: the rules as the run's conf lists them; their parameters apply here, too.
        traces: the traces that the training wrote.

    Raises:
        SpecError: `rules` is not a list of rules.
    """
    times = step_times(records)
    usual = steady(times)
    ranks = rank_breakdowns(usual)
    has_parts = any(each.has_parts for each in usual)
    shares = mean_shares(ranks) if has_parts else {}
    verdicts = evaluate(judges(rules), records, facts)
    begin = min((each.time for each in records if each.time is not None), default=0.0)
    return Profile(
        num_steps=len({each.step for each in times}),
        num_first_steps=len({each.step for each in times if each.is_first}),
        num_ranks=len({each.rank for each in times}),
        attempts=_attempts(records, begin),
        ranks=ranks,
        bins=over_steps(usual),
        shares=shares,
        outliers=find_outliers(usual, records),
        waits=_waits(usual, ranks, verdicts),
        usages=usages(records, begin=begin),
        memory=memory_uses(records),
        diagnosis=diagnose(verdicts, shares),
        verdicts=verdicts,
        traces=tuple(traces),
        why_no_steps="" if ranks else _why_no_steps(records),
        why_no_stragglers=_why_no_stragglers(ranks),
    )


def _attempts(records: Sequence[Record], begin: float) -> tuple[AttemptBegin, ...]:
    found: dict[int, AttemptBegin] = {}
    for record in records:
        if isinstance(record, Start) and record.attempt not in found:
            seconds = None if record.time is None else record.time - begin
            found[record.attempt] = AttemptBegin(
                attempt=record.attempt, seconds=seconds, step=record.step
            )
    return tuple(found.values())


def _waits(
    times: Sequence[StepTime], ranks: Sequence[RankBreakdown], verdicts: Sequence[Verdict]
) -> tuple[RankWait, ...]:
    points: defaultdict[int, list[Point]] = defaultdict(list)
    for time in times:
        if time.local_seconds is not None:
            points[time.rank].append((float(time.step), time.local_seconds))
    known = [each.local_seconds for each in ranks if each.local_seconds]
    fastest = min(known) if len(known) == len(ranks) > 1 else None
    issue_texts = {
        issue.rank: f"{issue.text} (step {issue.step})"
        for verdict in verdicts
        if verdict.rule == "Straggler"
        for issue in verdict.issues
    }
    return tuple(
        RankWait(
            rank=each.rank,
            local_seconds=each.local_seconds,
            score=fastest / each.local_seconds if fastest and each.local_seconds else None,
            waited_seconds=each.parts[Part.COMMUNICATION],
            points=thinned_points(tuple(points[each.rank]), most=MOST_LOCAL_POINTS),
            issue=issue_texts.get(each.rank, ""),
        )
        for each in ranks
    )


def _why_no_steps(records: Sequence[Record]) -> str:
    steps = sum(isinstance(each, StepRecord) for each in records)
    timed = sum(isinstance(each, StepRecord) and bool(each.step_seconds) for each in records)
    if timed:
        return f"{timed} steps with a time, each the first of a start: those are left out"
    samples = sum(isinstance(each, HostSample) for each in records)
    seen = [f"{steps} steps without their times"] if steps else []
    seen += [f"{samples} samples of hosts"] if samples else []
    return f"{NO_STEPS}{': there are ' + ' and '.join(seen) if seen else ''}"


def _why_no_stragglers(ranks: Sequence[RankBreakdown]) -> str:
    if not ranks:
        return NO_STEPS
    if len(ranks) == 1:
        return "the training had one rank: there is no other rank to compare it with"
    without = [str(each.rank) for each in ranks if each.local_seconds is None]
    if without:
        return f"no times before the first collective on rank {', '.join(without)}"
    return ""
