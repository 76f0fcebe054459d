"""The interface of all rules: frozen parameters that create a mutable state per run or rank."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar

from trainyard.errors import Severity
from trainyard.rules.records import Record

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainyard.rules.records import Facts


class Origin(StrEnum):
    """Origin of a rule: one of AWS's products, Trainyard, or the run's author."""

    DEBUGGER = "SageMaker Debugger"
    PROFILER = "SageMaker Profiler"
    TRAINYARD = "Trainyard"
    AUTHOR = "the run's author"


class RuleProfile(StrEnum):
    """The set of defaults for parameters that the user does not set."""

    DOCUMENTED = "documented"
    """The defaults in AWS's documentation."""
    ROBUST = "robust"
    """Trainyard's defaults, with which healthy trainings have no issues."""


class RuleAction(StrEnum):
    """Reactions to an issue, from the mildest to the most severe."""

    WARN = "warn"
    """Report the issue; the training continues."""
    STOP = "stop"
    """Stop the training, which saves a checkpoint; the verdict is the task's result."""
    FAIL = "fail"
    """Stop the training in the same way; the task fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Result of a rule for one observation.

    Attributes:
        key: the tensor, class or host; empty for the whole run.
        text: the fault, with numbers and units.
        numbers: the numbers of the text as data.
        severity: None uses the rule's severity.
        rank, step: None uses the record's.
    """

    is_violated: bool
    key: str = ""
    text: str = ""
    numbers: Mapping[str, float] = field(default_factory=dict)
    severity: Severity | None = None
    rank: int | None = None
    step: int | None = None


HEALTHY = Judgement(is_violated=False)


Seen_contra = TypeVar("Seen_contra", bound=Record, contravariant=True)


class RuleState(ABC, Generic[Seen_contra]):
    """The state of one rule over one run, or over one rank of it."""

    why_not = ""  # why the records so far could not be evaluated; without records, the rule's NEEDS is the reason

    @abstractmethod
    def see(self, record: Seen_contra) -> Iterable[Judgement]:
        """Process one record of a kind that the rule reads; return the judgements that are now possible."""

    def roll_back(self, step: int) -> None:
        """Drop the state of all steps after `step`, because the run resumes after this step."""

    def summary(self) -> Mapping[str, float]:
        """Return numbers about the whole run, for rules that only report."""
        return {}


class Stateless(RuleState[Seen_contra]):
    """State of a rule that evaluates each record separately."""

    def __init__(self, judge: Callable[[Seen_contra], Iterable[Judgement]]) -> None:
        self._judge = judge

    def see(self, record: Seen_contra) -> Iterable[Judgement]:
        """Return the judgements of the rule for one record."""
        return self._judge(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ABC):
    """One rule with its parameters; subclasses add parameters under AWS's names.

    Attributes:
        warm_up: number of steps at the start of the run in which violations do not count.
        persistence: number of consecutive violations that make an issue.

    | class attribute | meaning |
    |---|---|
    | READS | kinds of records that the rule reads |
    | NEEDS | text that names the required data; `needs <NEEDS>` explains why the rule was not evaluated |
    | IS_PER_RANK | whether each rank is evaluated separately |
    | SHARED | fields equal on all ranks; only the lowest rank with a value is read. Empty: all ranks are read |
    | ROBUST | values of the robust profile (see below) that replace the documented defaults |
    | ON_REQUEST | why the rule is evaluated only if it is named; None if it always is |
    | ENDS_WITH_ATTEMPT | whether a new attempt resets the consecutive violations |

    The robust profile is a choice of parameters with which healthy trainings have no issues.
    """

    ORIGIN: ClassVar[Origin] = Origin.TRAINYARD
    SEVERITY: ClassVar[Severity] = Severity.WARNING
    READS: ClassVar[tuple[type[Record], ...]]
    NEEDS: ClassVar[str]
    IS_PER_RANK: ClassVar[bool] = True
    SHARED: ClassVar[tuple[str, ...]] = ()
    ROBUST: ClassVar[Mapping[str, Any]] = {}
    ON_REQUEST: ClassVar[str | None] = None
    ENDS_WITH_ATTEMPT: ClassVar[bool] = False

    warm_up: int = 0
    persistence: int = 1

    @property
    def name(self) -> str:
        """The rule's name; for rules of AWS, AWS's name."""
        return type(self).__name__

    @property
    def shared(self) -> tuple[str, ...]:
        """Fields with the same values on all ranks: `SHARED`, unless a subclass derives them from its parameters."""
        return self.SHARED

    def settings(self) -> dict[str, Any]:
        """Return the parameters that are not None, by name, with JSON-safe values."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {key: value for key, value in own.items() if value is not None}

    def watch(self, facts: Facts) -> RuleState[Any]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a run, or of a rank.

        A subclass overrides either this method or, if its rule needs no state, `judge`.
        """
        return Stateless(self.judge)

    def judge(self, record: Any) -> Iterable[Judgement]:
        """Return the rule's judgements on one record. They do not depend on other records."""
        raise NotImplementedError
