"""Every error of a training run, ordered by who must act on it.

    TrainingRunError
    ├── SpecError (ValueError)         the author fixes spec or conf; has findings
    ├── PlanError                      no plan fits data, cluster and budget; has findings
    ├── RejectedRequestError           the service rejected a request: permission, quota, name, value
    │   ├── ExpiredCredentialsError    the connection's credentials have expired: renew them
    │   ├── QuotaExceededError         the account's quota for this instance type is used up
    │   └── QuotaTooSmallError         the job alone exceeds the quota
    ├── CapacityError                  no instances available now: wait, or use another type
    ├── ThrottledError                 too many calls: wait
    ├── JobFailedError                 the job was accepted and did not complete
    │   ├── ScriptError                the training script raised: fix the code
    │   ├── DeviceMemoryError          out of memory, on the device or on the host
    │   ├── DataError                  a channel could not be read: no prefix, no permission
    │   ├── SpotInterruptionError      the spot wait and the training together reached `max_wait`
    │   ├── InfrastructureError        the service or a machine failed, or a rank was killed
    │   ├── HungJobError               the training logged no progress and was stopped
    │   ├── TimeLimitError             `max_run` or the task's `execution_timeout` ended the job
    │   │   └── ResumableTimeLimitError   `max_run` ended the job after new checkpoints
    │   └── JobStoppedError            the job was stopped, by a person or by Trainyard
    ├── RuleViolatedError              a rule stopped the training
    ├── BudgetExceededError            the run costs, or could cost, more than its budget
    └── ContractError                  our bug: two parts of Trainyard disagree

Standard library only. Each error has one sentence (what) and details (where, got, allowed, next step). It prints as
one multi-line message, can be pickled, and converts to and from JSON (`to_dict`, `error_from_dict`) for triggers and
run records.
"""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

LONGEST_GOT = 1200
"""Longest `got` of an error in characters; the end of longer text is cut."""


class Severity(StrEnum):
    """Severity of a finding, or of an issue that a rule found. A finding of severity error prevents the run's start."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One fault of a spec, a conf or a request: where it is, what is wrong, what to do.

    `why` and `source` are set if the finding follows from a rule of AWS or of its software.
    """

    where: str
    what: str
    got: str | None = None
    allowed: str | None = None
    next_step: str | None = None
    severity: Severity = Severity.ERROR
    why: str | None = None
    source: str | None = None

    def __str__(self) -> str:
        """Return the finding on one line: `where: what; got x; allowed: y; next step; because why (source)`."""
        parts = [f"{self.where}: {self.what}" if self.where else self.what]
        parts += [f"got {self.got}"] if self.got is not None else []
        parts += [f"allowed: {self.allowed}"] if self.allowed else []
        parts += [self.next_step] if self.next_step else []
        parts += [f"because {self.why}"] if self.why else []
        return "; ".join(parts) + (f" ({self.source})" if self.source else "")

    @property
    def field(self) -> str:
        """The name of the field alone, without the place that `at` adds."""
        return self.where.partition(" (")[0]

    def at(self, place: str) -> Finding:
        """Return the finding with a place after its field: `instance_type (capacity_ladder[1])`."""
        return replace(self, where=f"{self.where} ({place})")


def distinct(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return the findings, errors first, without duplicates: several checks may report the same fault."""
    worst_first = sorted(findings, key=lambda each: each.severity is not Severity.ERROR)
    by_fault: dict[tuple[str, str, str | None], Finding] = {}
    for each in worst_first:
        by_fault.setdefault((each.where, each.what, each.got), each)
    return tuple(by_fault.values())


class TrainingRunError(Exception):
    """Base of all errors of a training run.

    Args:
        what: one sentence that names what is wrong.
        where: the place: a field, a task, a job, a file.
        got: the value that was found.
        allowed: the allowed values.
        next_step: the reader's next step.
    """

    def __init__(
        self,
        what: str,
        *,
        where: str | None = None,
        got: object = None,
        allowed: str | None = None,
        next_step: str | None = None,
    ) -> None:
        super().__init__(what)
        self.what = what
        self.where = where
        self.got = None if got is None else shortened(str(got), limit=LONGEST_GOT)
        self.allowed = allowed
        self.next_step = next_step

    def __str__(self) -> str:
        """Return the sentence, then one labeled line for each known fact."""
        return "\n".join([self.what, *self._detail_lines()])

    def _detail_lines(self) -> list[str]:
        labeled = (
            ("where", self.where),
            ("got", self.got),
            ("allowed", self.allowed),
            ("next step", self.next_step),
        )
        return [f"  {label}: {_indented(text)}" for label, text in labeled if text]

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle by class and attributes: the constructors take keywords only."""
        return _revived, (type(self), self.args, dict(self.__dict__))

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON-safe data; `error_from_dict` reads it back."""
        data = {key: value for key, value in self.__dict__.items() if value is not None}
        if "findings" in data:
            data["findings"] = [asdict(finding) for finding in data["findings"]]
        return {"error": type(self).__name__, **data}


class FindingsError(TrainingRunError):
    """An error that reports one finding, or several at once, worst first.

    Raises:
        ContractError: there are no findings, so there is nothing to report.
    """

    headline = "{count} problem(s) found"

    def __init__(
        self, findings: Finding | Iterable[Finding], *, subject: str | None = None
    ) -> None:
        found = distinct([findings] if isinstance(findings, Finding) else findings)
        if not found:
            raise ContractError(f"{type(self).__name__} needs at least one finding")
        headline = self.headline.format(count=len(found))
        super().__init__(f"{subject}: {headline}" if subject else headline)
        self.findings = found

    def _detail_lines(self) -> list[str]:
        return [f"  {number}. {_indented(str(f))}" for number, f in enumerate(self.findings, 1)]


class SpecError(FindingsError, ValueError):
    """The spec or the run's conf is invalid and must be corrected. Nothing was started."""

    headline = "{count} problem(s) to fix before anything starts"


class PlanError(FindingsError):
    """No plan fits the data, the cluster and the budget. Nothing was started."""

    headline = "no plan fits, {count} reason(s)"


class RejectedRequestError(TrainingRunError):
    """The service rejected a request (access, validation, name in use, ...)."""

    def __init__(self, what: str, *, operation: str, code: str, **detail: Any) -> None:
        super().__init__(what, **detail)
        self.operation = operation
        self.code = code


class ExpiredCredentialsError(RejectedRequestError):
    """The caller's temporary credentials have expired; the connection may have new ones at the next try."""


class QuotaExceededError(RejectedRequestError):
    """The account's quota is used up (`ResourceLimitExceeded`) until other jobs end."""


class QuotaTooSmallError(RejectedRequestError):
    """The job alone exceeds the account's quota. Waiting does not help; another instance type may."""


class CapacityError(TrainingRunError):
    """The service has no capacity for the requested instances now; the same request may succeed later."""

    def __init__(self, what: str, *, job_name: str | None = None, **detail: Any) -> None:
        super().__init__(what, **detail)
        self.job_name = job_name


class ThrottledError(TrainingRunError):
    """The service rejected a call because of its rate; the same call may succeed after a wait."""


class JobFailedError(TrainingRunError):
    """A job was accepted and did not complete.

    Attributes:
        job_name: the job's name in SageMaker.
        reason: the service's `FailureReason` or `ExitMessage`, unchanged; None if the service returned none.
        exit_code: the script's exit code, if the reason contains one.
    """

    def __init__(
        self,
        what: str,
        *,
        job_name: str,
        reason: str | None = None,
        exit_code: int | None = None,
        **detail: Any,
    ) -> None:
        super().__init__(what, **{"where": f"job {job_name}", "got": reason, **detail})
        self.job_name = job_name
        self.reason = reason
        self.exit_code = exit_code


class ScriptError(JobFailedError):
    """The training script failed; the same code and data would fail again."""


class DeviceMemoryError(JobFailedError):
    """A rank ran out of memory, on its GPU or on its host."""


class DataError(JobFailedError):
    """A channel or an input could not be read by the job."""


class NoContentError(DataError):
    """A table has no content: all its files are empty.

    If a sharding job splits the files into parts, the error may be about the files of one part.
    """


class SpotInterruptionError(JobFailedError):
    """The wait for spot capacity and the training together reached `max_wait`."""


class InfrastructureError(JobFailedError):
    """The service or a machine failed, or a rank was killed from outside the script."""


class HungJobError(JobFailedError):
    """The training logged no progress for longer than `heartbeat_timeout_s`, and was stopped."""


class TimeLimitError(JobFailedError):
    """The job was ended because it reached `max_run`, or because its task reached `execution_timeout`."""


class ResumableTimeLimitError(TimeLimitError):
    """The job reached `max_run` after it wrote new checkpoints, so the next attempt continues from them."""


class JobStoppedError(JobFailedError):
    """The job was stopped before it completed, by a person or by Trainyard."""


class RuleViolatedError(TrainingRunError):
    """A rule stopped the training."""


class BudgetExceededError(TrainingRunError):
    """The run costs, or could cost, more than its budget. Amounts are in USD."""

    def __init__(self, what: str, *, budget_usd: float, needed_usd: float, **detail: Any) -> None:
        super().__init__(what, **detail)
        self.budget_usd = budget_usd
        self.needed_usd = needed_usd


class ContractError(TrainingRunError):
    """Two parts of Trainyard disagree: a bug in Trainyard, not in the run."""


def error_from_dict(data: Mapping[str, Any]) -> TrainingRunError:
    """Return the error that `to_dict` wrote.

    Raises:
        ContractError: the data does not describe an error of this module.
    """
    kind = {cls.__name__: cls for cls in _family(TrainingRunError)}.get(str(data.get("error")))
    if kind is None:
        raise ContractError("unknown error class", got=data.get("error"))
    attributes = {key: value for key, value in data.items() if key != "error"}
    for key in ("where", "got", "allowed", "next_step"):
        attributes.setdefault(key, None)
    if "findings" in attributes:
        attributes["findings"] = tuple(_finding(each) for each in attributes["findings"])
    return _revived(kind, (attributes["what"],), attributes)


def near_matches(word: str, known: Iterable[str], *, limit: int = 3) -> list[str]:
    """Return the known words most similar to `word`, the most similar first.

    Words that are much less similar than the first are left out.

    Args:
        word: the misspelt word.
        known: the valid words.
        limit: largest number of words.
    """
    lowered = {each.lower(): each for each in known}
    near = difflib.get_close_matches(word.lower(), list(lowered), n=limit, cutoff=0.6)
    ratios = [difflib.SequenceMatcher(None, each, word.lower()).ratio() for each in near]
    close = (each for each, ratio in zip(near, ratios, strict=True) if ratio > ratios[0] - 0.1)
    return [lowered[each] for each in close]


def did_you_mean(near: Sequence[str]) -> str | None:
    """Return the question that suggests the near matches, or None if there are none."""
    return f"did you mean {' or '.join(map(repr, near))}?" if near else None


def unknown_key(where: str, key: str, known: Sequence[str]) -> Finding:
    """Return the finding for an unknown key of `where`, with the most similar known keys, or all if none is similar."""
    near = near_matches(key, known)
    return Finding(
        where=f"{where}.{key}" if where else key,
        what="is an unknown key",
        allowed=None if near else ", ".join(sorted(known)),
        next_step=did_you_mean(near),
    )


def not_an_s3_uri(where: str, got: object) -> Finding:
    """Return the finding for a value that is not an S3 URI."""
    return Finding(
        where=where, what="is not an S3 URI", got=repr(got), allowed="s3://bucket/prefix"
    )


def shortened(text: str, *, limit: int = 200) -> str:
    """Return the text cut to `limit` characters; an ellipsis marks the cut."""
    return text if len(text) <= limit else f"{text[: limit - 1]}…"


def _indented(text: str) -> str:
    return text.strip().replace("\n", "\n    ")


def _finding(data: Mapping[str, Any]) -> Finding:
    return Finding(**{**data, "severity": Severity(data.get("severity", Severity.ERROR))})


def _family(cls: type[TrainingRunError]) -> list[type[TrainingRunError]]:
    return [cls, *(each for sub in cls.__subclasses__() for each in _family(sub))]


def _revived(
    cls: type[TrainingRunError], args: tuple[Any, ...], attributes: Mapping[str, Any]
) -> TrainingRunError:
    error = cls.__new__(cls, *args)
    error.args = tuple(args)
    error.__dict__.update(attributes)
    return error
