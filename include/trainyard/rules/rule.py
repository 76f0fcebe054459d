"""The one interface of all rules: parameters are a frozen value, watching one run is a state made from them."""

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
    """Whose rule it is."""

    DEBUGGER = "SageMaker Debugger"
    PROFILER = "SageMaker Profiler"
    TRAINYARD = "Trainyard"
    AUTHOR = "the run's author"


class RuleProfile(StrEnum):
    """The set of defaults for what the author leaves open."""

    DOCUMENTED = "documented"
    ROBUST = "robust"


class RuleAction(StrEnum):
    """The reaction to an issue, the mildest first."""

    WARN = "warn"
    """Say it, and go on."""
    STOP = "stop"
    """Stop the training, which saves a checkpoint; the verdict is the task's result."""
    FAIL = "fail"
    """Stop it likewise; the task fails."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """A rule's judgement of one observation.

    Attributes:
        key: what of: a tensor, a class, a host; empty for the run itself.
        text: what is wrong, with numbers and units. numbers: the same as data.
        severity: None for the rule's own.
        rank: None for that of the record. step: likewise.
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

    why_not = ""  # why it could not judge what it saw so far; the rule's NEEDS where it saw nothing

    @abstractmethod
    def see(self, record: Seen_contra) -> Iterable[Judgement]:
        """Take one record of a kind that the rule reads, and judge what can be judged by now."""

    def roll_back(self, step: int) -> None:
        """Forget what came after `step`: the run goes on from there."""

    def summary(self) -> Mapping[str, float]:
        """Return numbers about the whole run, for rules that only report."""
        return {}


class Stateless(RuleState[Seen_contra]):
    """Judges each record by itself."""

    def __init__(self, judge: Callable[[Seen_contra], Iterable[Judgement]]) -> None:
        self._judge = judge

    def see(self, record: Seen_contra) -> Iterable[Judgement]:
        """Judge one record."""
        return self._judge(record)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule(ABC):
    """One rule with its parameters; subclasses add theirs under AWS's names.

    Attributes:
        warm_up: steps during which nothing counts as a violation.
        persistence: how many violations in a row make an issue.

    Class attributes: READS: the kinds of records it takes. NEEDS: what it needs, for `not evaluated`. IS_PER_RANK: it
    judges each rank alone. ROBUST: parameters of the robust profile, over the documented defaults. ON_REQUEST: why it
    is evaluated only where it is asked for by name; None where it always is. ENDS_WITH_ATTEMPT: violations of one
    attempt and of the next are not in a row.
    """

    ORIGIN: ClassVar[Origin] = Origin.TRAINYARD
    SEVERITY: ClassVar[Severity] = Severity.WARNING
    READS: ClassVar[tuple[type[Record], ...]]
    NEEDS: ClassVar[str]
    IS_PER_RANK: ClassVar[bool] = True
    ROBUST: ClassVar[Mapping[str, Any]] = {}
    ON_REQUEST: ClassVar[str | None] = None
    ENDS_WITH_ATTEMPT: ClassVar[bool] = False

    warm_up: int = 0
    persistence: int = 1

    @property
    def name(self) -> str:
        """AWS's name where it is AWS's."""
        return type(self).__name__

    def settings(self) -> dict[str, Any]:
        """Return the parameters that are set, JSON-safe."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return {key: value for key, value in own.items() if value is not None}

    @abstractmethod
    def watch(self, facts: Facts) -> RuleState[Any]:
        """Return a new state that has seen nothing."""
