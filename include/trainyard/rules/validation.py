"""Rules on the validation loss, alone and compared with the training loss."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import Facts, Record, StepRecord, Validation
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import History, SeriesRow, Smoothed

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class Overfit(Rule):
    """The validation loss is above (1 + `ratio_threshold`) times the training loss, `patience` times in a row.

    The rule compares `ratio_threshold` with (validation - mean) / mean. Here `mean` is the mean of the training
    losses since the previous validation. Source: SageMaker Developer Guide, Overfit. Worked: a validation loss
    of 2.3 and a mean of 2.0 give 0.15.

    Attributes:
        needs_worse: count only validations that are worse than the best one, because a gap is harmless while
            the validation loss still falls.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord, Validation)
    NEEDS = "training and validation losses"
    SHARED = ("loss",)
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "ratio_threshold": 0.2,
        "patience": 3,
        "needs_worse": True,
    }
    tensor_regex: str | None = None
    start_step: int = 0
    patience: int = 1
    ratio_threshold: float = 0.1
    needs_worse: bool = False

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _Overfit(self)


class _Overfit(RuleState[Record]):
    def __init__(self, rule: Overfit) -> None:
        self._rule, self._train, self._validation = rule, History(), History()
        self._row = SeriesRow(rule.patience)

    def see(self, record: Record) -> Iterator[Judgement]:
        if isinstance(record, StepRecord) and _is_number(record.loss):
            self._train.add(record.step, record.loss or 0.0)
        elif isinstance(record, Validation) and _is_number(record.loss):
            yield from self._judge(record.step, record.loss or 0.0)

    def _judge(self, step: int, loss: float) -> Iterator[Judgement]:
        rule = self._rule
        before = self._validation.steps[-1] if len(self._validation) else 0
        best = min(self._validation.values, default=math.inf)
        self._validation.add(step, loss)
        since = self._train.between(before, step)
        if not since or step < rule.start_step:
            self.why_not = f"no training loss between validations until step {step}"
            return
        train = sum(since) / len(since)
        ratio = (loss - train) / max(abs(train), 1e-12)
        is_worse = loss > best or not rule.needs_worse
        row = self._row.add(step, is_met=ratio > rule.ratio_threshold and is_worse)
        yield Judgement(
            is_violated=row >= rule.patience,
            text=f"validation loss {loss:.4g} is {ratio:.0%} above the training loss {train:.4g}, "
            f"{row} validations in a row",
            numbers={"validation": loss, "training": train, "ratio": ratio},
        )

    def roll_back(self, step: int) -> None:
        self._train.roll_back(step)
        self._validation.roll_back(step)
        self._row.roll_back(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Overtraining(Rule):
    """The training or validation loss improved by at most `delta` over the last `patience_*` observations.

    This is the criterion of early stopping. Source: SageMaker Developer Guide, Overtraining, which does not
    state whether one of the two losses is enough. In this rule, one is enough.

    The robust profile (Trainyard's defaults) evaluates the validation loss only. In this profile, an issue also
    requires that at least half of all validations so far came after the last improvement. The reason is that
    losses fall like a power of the steps, so improvements become rarer.

    Attributes:
        patience_train: observations of the training loss; None ignores this loss.
        patience_validation: observations of the validation loss.
        patience_share: share of all validations so far, 0 to 1. The patience for the validation loss is this
            share of them, but at least `patience_validation`.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord, Validation)
    NEEDS = "validation losses (or training losses, with patience_train)"
    SHARED = ("loss",)
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "patience_train": None,
        "patience_share": 0.5,
        "delta": 0.0,
    }
    patience_train: int | None = 5
    patience_validation: int = 10
    delta: float = 0.01
    patience_share: float = 0.0

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _Overtraining(self)


class _Overtraining(RuleState[Record]):
    def __init__(self, rule: Overtraining) -> None:
        self._rule = rule
        self._train, self._validation = _Gains(rule.delta), _Gains(rule.delta)

    def see(self, record: Record) -> Iterator[Judgement]:
        rule = self._rule
        if not isinstance(record, (StepRecord, Validation)) or not _is_number(record.loss):
            return
        is_validation = isinstance(record, Validation)
        if not is_validation and rule.patience_train is None:
            return
        seen = self._validation if is_validation else self._train
        seen.add(record.step, record.loss or 0.0)
        patience = rule.patience_train or 0
        if is_validation:
            patience = max(rule.patience_validation, round(rule.patience_share * len(seen)))
        kind = "validation" if is_validation else "training"
        if len(seen) <= patience:
            self.why_not = f"{len(seen)} {kind} losses; needs more than {patience}"
            return
        best, age = seen.best, seen.age
        yield Judgement(
            key=kind,
            is_violated=age >= patience,
            text=f"no better by {rule.delta:g} for {age} observations: best {best:.4g}, now {record.loss:.4g}",
            numbers={"best": best, "now": record.loss or 0.0, "observations": age},
        )

    def roll_back(self, step: int) -> None:
        self._train.roll_back(step)
        self._validation.roll_back(step)


class _Gains:
    """Best value so far and its age in observations. Only an improvement of more than `delta` replaces it."""

    def __init__(self, delta: float) -> None:
        self._delta = delta
        self._bests, self._places = History(), History()

    def __len__(self) -> int:
        return len(self._bests)

    @property
    def best(self) -> float:
        return self._bests.values[-1]

    @property
    def age(self) -> int:
        return len(self) - 1 - int(self._places.values[-1])

    def add(self, step: int, value: float) -> None:
        is_gain = not len(self) or value < self.best - self._delta
        place = len(self) if is_gain else self._places.values[-1]
        self._bests.add(step, value if is_gain else self.best)
        self._places.add(step, place)

    def roll_back(self, step: int) -> None:
        self._bests.roll_back(step)
        self._places.roll_back(step)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValRise(Rule):
    """The smoothed validation loss is above `ratio` times its lowest value, for `patience` validations in a row.

    The best model is then an earlier one. The severity is warning, for two reasons: the accuracy may still
    rise, and the loss of a healthy training rises with a moving target or another mixture of data. Example with
    the default `ratio` of 1.05 and `patience` of 3: if the lowest value is 2.0, the limit is 2.1, and three
    smoothed values in a row above the limit are an issue. If the lowest value is negative, the limit is
    lowest + (`ratio` - 1) * |lowest|.

    Attributes:
        smoothing: weight of the previous smoothed value, 0 to 1.
    """

    READS = (Validation,)
    NEEDS = "validation losses"
    SHARED = ("loss",)
    ratio: float = 1.05
    patience: int = 3
    smoothing: float = 0.5

    def watch(self, facts: Facts) -> RuleState[Validation]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _ValRise(self)


class _ValRise(RuleState[Validation]):
    def __init__(self, rule: ValRise) -> None:
        self._rule, self._smooth = rule, Smoothed(rule.smoothing)
        self._steps: list[int] = []
        self._row = SeriesRow(rule.patience)

    def see(self, record: Validation) -> Iterator[Judgement]:
        if not _is_number(record.loss):
            return
        rule = self._rule
        self._steps.append(record.step)
        now = self._smooth.add(len(self._steps), record.loss or 0.0)  # one validation is one step
        best = min(self._smooth.history.values)
        if len(self._steps) < 2:
            self.why_not = "1 validation; needs two to compare"
            return
        limit = best + (rule.ratio - 1) * abs(best)
        row = self._row.add(record.step, is_met=now > limit)
        yield Judgement(
            is_violated=row >= rule.patience,
            text=f"the smoothed validation loss {now:.4g} is above {rule.ratio:g} times its best {best:.4g}, "
            f"{row} validations in a row",
            numbers={"smoothed": now, "best": best, "limit": limit},
        )

    def roll_back(self, step: int) -> None:
        self._steps = [each for each in self._steps if each <= step]
        self._smooth.roll_back(len(self._steps))
        self._row.roll_back(step)


def _is_number(value: float | None) -> bool:
    return value is not None and math.isfinite(value)


RULES: tuple[type[Rule], ...] = (Overfit, Overtraining, ValRise)
