"""Evaluation of rules over a stream of records. The same records give the same verdicts during a run and after it."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.errors import Severity, shortened
from trainyard.rules.records import Facts, Record, Start
from trainyard.rules.series import SeriesRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainyard.rules.rule import Judgement, Rule, RuleAction, RuleState

MOST_ISSUES = 20
MOST_DETAILS = 1024  # characters of StatusDetails
GONE_AFTER_S = 600.0
"""Seconds without a record after which a rank counts as gone, and a higher rank is read in its place."""


class RuleStatus(StrEnum):
    """SageMaker's `RuleEvaluationStatus`, and `NotEvaluated` for a rule that evaluated nothing."""

    IN_PROGRESS = "InProgress"
    NO_ISSUES_FOUND = "NoIssuesFound"
    ISSUES_FOUND = "IssuesFound"
    ERROR = "Error"
    STOPPING = "Stopping"
    STOPPED = "Stopped"
    NOT_EVALUATED = "NotEvaluated"
    """Trainyard's own status; the service has no equivalent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfiguredRule:
    """A rule under its configured name.

    Attributes:
        left_out: the reason why this rule is not evaluated although it is configured; None if it is evaluated.
        action: action that follows the rule's issues; None uses the action of the issue's severity.
    """

    name: str
    rule: Rule
    severity: Severity
    left_out: str | None = None
    action: RuleAction | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Issue:
    """One occurrence of a rule's condition.

    Attributes:
        step: the step at which the issue was found.
        onset: the step of the first of the consecutive violations that led to it.
        key: the tensor, class or host; empty for the whole run.
    """

    step: int
    onset: int
    rank: int
    key: str
    severity: Severity
    text: str
    numbers: Mapping[str, float | None] = field(default_factory=dict)
    time: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Findings of one rule in a run.

    Attributes:
        not_evaluated: the reason why the rule evaluated nothing; None if it evaluated something or failed.
        lacks_input: whether the run has no data of the kind that the rule reads; the service would skip the rule, too.
        num_judged: number of observations that the rule evaluated.
        num_issues: number of issues, including those beyond the first MOST_ISSUES in `issues`.
        error: the evaluator's own error, which is not a statement about the training.
    """

    name: str
    rule: str
    origin: str
    severity: Severity
    status: RuleStatus
    parameters: Mapping[str, Any] = field(default_factory=dict)
    not_evaluated: str | None = None
    lacks_input: bool = False
    num_judged: int = 0
    num_issues: int = 0
    issues: tuple[Issue, ...] = ()
    summary: Mapping[str, float] = field(default_factory=dict)
    error: str | None = None

    @property
    def worst(self) -> Severity | None:
        """The worst severity of its issues; None if there are none."""
        return worst_of(issue.severity for issue in self.issues)

    @property
    def status_details(self) -> str:
        """Details of the status, at most 1024 characters; empty for an evaluated rule without issues.

        The error if the rule failed, or the reason why it was not evaluated. Otherwise AWS's sentence about the first
        issue, verbatim from its notebooks, and then the evidence.
        """
        if self.error is not None:
            return shortened(self.error, limit=MOST_DETAILS)
        if self.not_evaluated is not None:
            return shortened(f"NotEvaluated: {self.not_evaluated}", limit=MOST_DETAILS)
        if not self.issues:
            return ""
        first = self.issues[0]
        sentence = (
            f"RuleEvaluationConditionMet: Evaluation of the rule {self.rule} at step {first.step} resulted in the "
            f"condition being met\n"
        )
        return shortened(
            sentence + evidence(rank=first.rank, key=first.key, text=first.text), limit=MOST_DETAILS
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the verdict as JSON-safe data."""
        return {**asdict(self), "status_details": self.status_details}


def worst_of(severities: Iterable[Severity]) -> Severity | None:
    """Return the worst severity, or None if there is none."""
    found = set(severities)
    if not found:
        return None
    return Severity.ERROR if Severity.ERROR in found else Severity.WARNING


def _listed(issues: list[Issue]) -> list[Issue]:
    """Return at most MOST_ISSUES issues, with at least one of the worst severity.

    These are the first issues of the list. If none of them has the worst severity, the first later issue of
    that severity replaces the last of them.
    """
    listed, worst = issues[:MOST_ISSUES], worst_of(each.severity for each in issues)
    if worst is not worst_of(each.severity for each in listed):
        listed[-1] = next(each for each in issues if each.severity is worst)
    return listed


def evidence(*, rank: int, key: str, text: str) -> str:
    """Return an issue as one line: `rank 1, block.0.weight: the text`."""
    place = ", ".join(each for each in (f"rank {rank}" if rank else "", key) if each)
    return f"{place}: {text}" if place else text


class Evaluation:
    """Evaluation of all rules over one run. Feed records in the order in which each rank wrote them."""

    def __init__(self, rules: Sequence[ConfiguredRule], facts: Facts | None = None) -> None:
        self._runs = [_RuleRun(each, facts or Facts()) for each in rules]
        self._attempt = 0
        self._readers: dict[type[Record], list[_RuleRun]] = {}

    def feed(self, records: Iterable[Record]) -> list[tuple[str, Issue]]:
        """Evaluate more records; return the new issues, each with its rule's configured name."""
        found = []
        for record in records:
            if isinstance(record, Start):
                is_new_attempt = record.attempt > self._attempt
                self._attempt = max(self._attempt, record.attempt)
                for run in self._runs:
                    run.roll_back(record, is_new_attempt=is_new_attempt)
            for run in self._readers_of(type(record)):
                found += [(run.name, issue) for issue in run.take(record)]
        return found

    def begin_job(self) -> None:
        """Prepare for the records of another job: the rules keep their state, and their issues are dropped.

        A condition that still holds becomes an issue of the new job, too.
        """
        for run in self._runs:
            run.begin_job()

    def _readers_of(self, kind: type[Record]) -> list[_RuleRun]:
        if kind not in self._readers:
            self._readers[kind] = [run for run in self._runs if run.reads(kind)]
        return self._readers[kind]

    def verdicts(self, *, is_final: bool = True) -> tuple[Verdict, ...]:
        """Return each rule's verdict so far. If `is_final` is false, rules without issues are in progress."""
        return tuple(run.verdict(is_final=is_final) for run in self._runs)


def evaluate(
    rules: Sequence[ConfiguredRule], records: Iterable[Record], facts: Facts | None = None
) -> tuple[Verdict, ...]:
    """Return the verdicts over a whole run."""
    evaluation = Evaluation(rules, facts)
    evaluation.feed(records)
    return evaluation.verdicts()


class _RuleRun:
    """One rule over one run: its states, its consecutive violations and its issues."""

    def __init__(self, configured: ConfiguredRule, facts: Facts) -> None:
        self.name = configured.name
        self._configured, self._rule, self._facts = configured, configured.rule, facts
        self._watches: dict[int, RuleState[Any]] = {}
        self._rows: dict[tuple[int, str], SeriesRow] = {}
        self._issues: list[Issue] = []
        self._known: set[tuple[int, int, str]] = set()
        self._of_earlier_job: set[tuple[int, str]] = set()
        """Ranks and keys whose current violations an earlier job reported."""
        self._num_judged = 0
        self._is_warming_up = False
        self._error: str | None = None
        self._one_rank = _OneRank(self._rule.shared) if self._rule.shared else None
        self._has_one_state = self._one_rank is not None or not self._rule.IS_PER_RANK

    def reads(self, kind: type[Record]) -> bool:
        """Return whether the rule reads records of this kind."""
        return self._configured.left_out is None and issubclass(kind, self._rule.READS)

    def take(self, record: Record) -> list[Issue]:
        """Evaluate a record; return the new issues."""
        if self._error is not None or (self._one_rank and not self._one_rank.passes(record)):
            return []
        try:
            judgements = list(self._watch_of(record).see(record))
        except Exception as error:  # noqa: BLE001  # a failing rule says nothing about the training
            self._fail(record, error)
            return []
        return [issue for each in judgements if (issue := self._weigh(each, record))]

    def roll_back(self, start: Start, *, is_new_attempt: bool) -> None:
        """Roll the rule back to the step from which the processes restarted.

        If the rule has a state per rank, the state of `start.rank` is rolled back. If it has one state for all
        ranks, this state is rolled back once per attempt, at the first `Start` record.
        """
        if self._one_rank and is_new_attempt:
            self._one_rank.begin_attempt()
        rank = 0 if self._has_one_state else start.rank
        if rank not in self._watches or (self._has_one_state and not is_new_attempt):
            return
        try:
            self._watches[rank].roll_back(start.step)
        except Exception as error:  # noqa: BLE001  # as above
            self._fail(start, error)
        for (of_rank, key), row in list(self._rows.items()):
            if of_rank != rank and not self._has_one_state:
                continue
            if self._rule.ENDS_WITH_ATTEMPT:
                del self._rows[of_rank, key]
            else:
                row.roll_back(start.step)

    def begin_job(self) -> None:
        """Drop the issues; a condition that still holds becomes an issue again."""
        self._issues, self._known = [], set()
        self._num_judged, self._is_warming_up = 0, False
        self._of_earlier_job = {
            place for place, row in self._rows.items() if row.length == self._rule.persistence
        }

    def verdict(self, *, is_final: bool) -> Verdict:
        """Return the rule's verdict so far."""
        rule = self._rule
        issues = sorted(self._issues, key=lambda each: (each.step, each.rank, each.key))
        status = RuleStatus.NO_ISSUES_FOUND if is_final else RuleStatus.IN_PROGRESS
        if self._error is not None:
            status = RuleStatus.ERROR
        elif issues:
            status = RuleStatus.ISSUES_FOUND
        is_open = not self._num_judged and self._error is None
        if is_open and is_final:
            status = RuleStatus.NOT_EVALUATED
        return Verdict(
            name=self.name,
            rule=rule.name,
            origin=rule.ORIGIN,
            severity=self._configured.severity,
            status=status,
            parameters=rule.settings(),
            not_evaluated=self._why_not() if is_open else None,
            lacks_input=is_open and self._known_reason() is None,
            num_judged=self._num_judged,
            num_issues=len(issues),
            issues=tuple(_listed(issues)),
            summary=self._summary(),
            error=self._error,
        )

    def _fail(self, record: Record, error: Exception) -> None:
        cause = f"{type(error).__name__}: {error}"
        self._error = f"InternalServerError: the rule failed at step {record.step}: {cause}"

    def _watch_of(self, record: Record) -> RuleState[Any]:
        rank = 0 if self._has_one_state else record.rank
        if rank not in self._watches:
            self._watches[rank] = self._rule.watch(self._facts)
        return self._watches[rank]

    def _weigh(self, judgement: Judgement, record: Record) -> Issue | None:
        """Count a judgement; return an issue at the `persistence`-th violation in a row, otherwise None."""
        rule = self._rule
        step = record.step if judgement.step is None else judgement.step
        rank = record.rank if judgement.rank is None else judgement.rank
        if self._one_rank:
            rank = 0  # whichever rank's record was read
        if 0 < rule.warm_up >= step:
            self._is_warming_up = True
            return None
        self._num_judged += 1
        place = (rank, judgement.key)
        if not judgement.is_violated:
            if place in self._rows:
                self._rows[place].add(step, is_met=False)
            return None
        row = self._rows.setdefault(place, SeriesRow(rule.persistence))
        is_reported = row.length == rule.persistence and place not in self._of_earlier_job
        if is_reported or row.add(step, is_met=True) < rule.persistence:
            return None
        self._of_earlier_job.discard(place)
        if (step, rank, judgement.key) in self._known:
            return None  # the same step, taken again after a restart
        self._known.add((step, rank, judgement.key))
        issue = Issue(
            step=step,
            onset=row.onset,
            rank=rank,
            key=judgement.key,
            severity=judgement.severity or self._configured.severity,
            text=judgement.text,
            numbers={
                key: value if math.isfinite(value) else None
                for key, value in judgement.numbers.items()
            },
            time=record.time,
        )
        self._issues.append(issue)
        return issue

    def _why_not(self) -> str:
        return self._known_reason() or f"needs {self._rule.NEEDS}"

    def _known_reason(self) -> str | None:
        """Return the reason why the rule evaluated nothing; None if no reason is known."""
        if self._configured.left_out is not None:
            return self._configured.left_out
        if self._is_warming_up:
            return f"nothing after the warm-up of {self._rule.warm_up} steps"
        reasons = [watch.why_not for watch in self._watches.values() if watch.why_not]
        return reasons[0] if reasons else None

    def _summary(self) -> Mapping[str, float]:
        return {
            key: value
            for watch in self._watches.values()
            for key, value in watch.summary().items()
            if math.isfinite(value)
        }


class _OneRank:
    """Filter for a rule on values that all ranks record; it passes the records of one rank.

    The first rank whose record arrives is chosen, separately for each type of record. Another rank replaces it
    with the first record that meets two conditions:

    - The record has a later step than the chosen rank's last record.
    - The other rank is lower, or the record is more than `GONE_AFTER_S` seconds later than the chosen rank's
      last record.

    The filter passes this record and the later ones of the new rank.

    Args:
        fields: the fields that the rule reads; a rank whose records have none of them is not chosen.
    """

    def __init__(self, fields: tuple[str, ...]) -> None:
        self._fields, self._awaits_start = fields, False
        self._newest: dict[type[Record], Record] = {}

    def begin_attempt(self) -> None:
        """Forget the chosen ranks and their steps.

        A new attempt may repeat steps of the attempt before it, and another rank may then be the first to report
        them.
        """
        self._awaits_start = True
        self._newest.clear()

    def passes(self, record: Record) -> bool:
        """Return whether the rule reads this record.

        Every rank writes a `Start` record in each attempt. The rule reads only the first one of an attempt.
        """
        if isinstance(record, Start):
            is_first, self._awaits_start = self._awaits_start, False
            return is_first
        newest = self._newest.get(type(record))
        has_value = any(getattr(record, name, None) is not None for name in self._fields)
        if newest is not None and record.rank != newest.rank:
            is_next = record.rank < newest.rank or _is_gone(newest, record)
            if not (has_value and is_next and record.step > newest.step):
                return False
        if has_value:
            self._newest[type(record)] = record
        return True


def _is_gone(newest: Record, record: Record) -> bool:
    """Return whether `record`, of another rank, is more than `GONE_AFTER_S` seconds later than `newest`.

    The rank that wrote `newest` then counts as gone.
    """
    if newest.time is None or record.time is None:
        return False
    return record.time - newest.time > GONE_AFTER_S
