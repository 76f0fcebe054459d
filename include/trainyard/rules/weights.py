"""Rules on weights: the size of their updates, and their values."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import GRADIENTS, WEIGHTS, Facts, StepRecord, TensorStatistics
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import SeriesRow
from trainyard.rules.tensors import selected

if TYPE_CHECKING:
    from collections.abc import Iterator

_UPDATES = "update_l2 and l2 of weights by tensor"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightUpdateRatio(Rule):
    """The ratio of an update's norm to its weight's norm is above `large_threshold` or below `small_threshold`.

    Source: SageMaker Developer Guide, WeightUpdateRatio. Its defaults are used: `large_threshold` 10,
    `small_threshold` 1e-8 and `epsilon` 1e-9. The guide does not state the formula. Here it is
    norm(update) / (norm(weight) + epsilon). Worked: norms of 0.02 and 2.0 give 0.01.

    Attributes:
        num_steps: steps between two evaluations; None evaluates each step that has an update.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = _UPDATES
    ROBUST: ClassVar[Mapping[str, Any]] = {"warm_up": 50, "persistence": 3}
    num_steps: int | None = None
    large_threshold: float = 10.0
    small_threshold: float = 1e-8
    epsilon: float = 1e-9

    def judge(self, record: StepRecord) -> Iterator[Judgement]:
        """Yield a result for each weight whose update ratio is known; nothing between evaluations."""
        if self.num_steps and record.step % self.num_steps:
            return
        for name, each in record.collection(WEIGHTS).items():
            ratio = _update_ratio(each, self.epsilon)
            if ratio is not None:
                yield Judgement(
                    key=name,
                    is_violated=not self.small_threshold <= ratio <= self.large_threshold,
                    text=f"update / weight is {ratio:.3g}, outside {self.small_threshold:g} to "
                    f"{self.large_threshold:g}",
                    numbers={"ratio": ratio},
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRatio(Rule):
    """norm(update) / norm(weight) of a tensor is outside `smallest` to `largest`; about 1e-3 is usual.

    A ratio below `smallest` counts only while the learning rate is at least `share_of_peak` of the highest so far,
    because updates vanish at the end of a decay. Tensors with a norm of at most `epsilon` are skipped, such as those
    initialized with zeros.
    """

    READS = (StepRecord,)
    NEEDS = _UPDATES
    smallest: float = 1e-7
    largest: float = 0.1
    share_of_peak: float = 0.01
    epsilon: float = 1e-6
    warm_up: int = 50
    persistence: int = 3

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _UpdateRatio(self)


class _UpdateRatio(RuleState[StepRecord]):
    def __init__(self, rule: UpdateRatio) -> None:
        self._rule, self._peak = rule, 0.0

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule, rate = self._rule, record.learning_rate
        self._peak = max(self._peak, rate or 0.0)
        is_decayed = rate is not None and rate < rule.share_of_peak * self._peak
        for name, each in record.collection(WEIGHTS).items():
            ratio = _update_ratio(each, 0.0) if (each.l2 or 0.0) > rule.epsilon else None
            if ratio is None:
                continue
            is_small = ratio < rule.smallest and not is_decayed
            yield Judgement(
                key=name,
                is_violated=is_small or ratio > rule.largest or math.isnan(ratio),
                text=f"update / weight is {ratio:.3g}, outside {rule.smallest:g} to {rule.largest:g}",
                numbers={"ratio": ratio},
            )


def _update_ratio(each: TensorStatistics, epsilon: float) -> float | None:
    if each.update_l2 is None or each.l2 is None:
        return None
    return each.update_l2 / max(each.l2 + epsilon, 1e-300)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnchangedTensor(Rule):
    """A tensor is the same over the last `num_steps` observations.

    Source: SageMaker Developer Guide, UnchangedTensor, which compares the values by numpy.allclose. Here a
    tensor is unchanged if its checksum equals the previous one. A tensor without a checksum counts as unchanged
    if the norm of its update is at most atol * sqrt(n) + rtol * norm(tensor). Here n is the number of elements.
    A tensor that is unchanged according to numpy.allclose is always within this bound.
    In the robust profile, `num_steps` is ten.

    Attributes:
        equal_nan: whether a tensor whose update has a NaN counts as unchanged.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = (
        "a choice of tensors (collection_names or tensor_regex), and their checksum or update_l2"
    )
    ROBUST: ClassVar[Mapping[str, Any]] = {"collection_names": WEIGHTS, "num_steps": 10}
    collection_names: str | None = None
    tensor_regex: str | None = None
    num_steps: int = 3
    rtol: float = 1e-5
    atol: float = 1e-8
    equal_nan: bool = False

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _UnchangedTensor(self)


class _UnchangedTensor(RuleState[StepRecord]):
    def __init__(self, rule: UnchangedTensor) -> None:
        self._rule = rule
        self._rows: dict[str, SeriesRow] = {}
        self._checksums: dict[str, tuple[str, int]] = {}
        """By tensor: the last checksum, and the first step that had it."""

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule = self._rule
        if rule.collection_names is None and rule.tensor_regex is None:
            return
        chosen = selected(
            record, collection_names=rule.collection_names, tensor_regex=rule.tensor_regex
        )
        for key, each in chosen:
            is_same = self._is_same(key, each, record.step)
            if is_same is None:
                continue
            row = self._rows.setdefault(key, SeriesRow(rule.num_steps)).add(
                record.step, is_met=is_same
            )
            yield Judgement(
                key=key,
                is_violated=row >= rule.num_steps,
                text=f"unchanged over {row} observations",
                numbers={"observations": row},
            )

    def _is_same(self, key: str, each: TensorStatistics, step: int) -> bool | None:
        """Return whether the tensor is unchanged; None if this is unknown."""
        rule = self._rule
        if each.checksum is not None:
            before = self._checksums.get(key)
            is_same = before is not None and before[0] == each.checksum
            if not is_same:
                self._checksums[key] = each.checksum, step
            return None if before is None else is_same
        if each.update_l2 is None or each.l2 is None:
            return None
        if math.isnan(each.update_l2):
            return rule.equal_nan
        return each.update_l2 <= rule.atol * math.sqrt(each.num_elements or 1) + rule.rtol * each.l2

    def roll_back(self, step: int) -> None:
        for row in self._rows.values():
            row.roll_back(step)
        self._checksums = {key: each for key, each in self._checksums.items() if each[1] <= step}


@dataclass(frozen=True, slots=True, kw_only=True)
class AllZero(Rule):
    """At least `threshold` percent of a tensor's values are zero.

    Source: SageMaker Developer Guide, AllZero, which requires `collection_names` or `tensor_regex`. In the
    robust profile, the tensors are weights and gradients, `warm_up` is 50 and `persistence` is ten.

    If a tensor's share of zeros is unknown and `threshold` is 100, a norm of zero counts as a violation.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = (
        "a choice of tensors (collection_names or tensor_regex), and their zero_fraction (or l2)"
    )
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "collection_names": f"{WEIGHTS},{GRADIENTS}",
        "warm_up": 50,
        "persistence": 10,
    }
    collection_names: str | None = None
    tensor_regex: str | None = None
    threshold: float = 100.0

    def judge(self, record: StepRecord) -> Iterator[Judgement]:
        """Yield a result for each selected tensor; none without a selection.

        A tensor with an unknown share of zeros is skipped, unless the threshold is 100 and its norm is known.
        """
        if self.collection_names is None and self.tensor_regex is None:
            return
        chosen = selected(
            record, collection_names=self.collection_names, tensor_regex=self.tensor_regex
        )
        for key, each in chosen:
            share = each.zero_fraction
            if share is None and each.l2 is not None and self.threshold == 100:
                share = float(each.l2 == 0)  # equivalent, and recorded more often
            if share is not None:
                percent = 100 * share
                yield Judgement(
                    key=key,
                    is_violated=percent >= self.threshold,
                    text=f"{percent:.4g} % of the values are zero",
                    numbers={"zero_percent": percent},
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorVariance(Rule):
    """A tensor's variance is above `max_threshold` or below `min_threshold`; either may be None.

    Source: SageMaker Developer Guide, TensorVariance, which has no defaults.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "min_threshold or max_threshold, and the variance by tensor"
    collection_names: str | None = None
    tensor_regex: str | None = None
    max_threshold: float | None = None
    min_threshold: float | None = None

    def judge(self, record: StepRecord) -> Iterator[Judgement]:
        """Yield a result for each selected tensor with a known variance; nothing without a threshold."""
        if self.max_threshold is None and self.min_threshold is None:
            return
        high = math.inf if self.max_threshold is None else self.max_threshold
        low = -math.inf if self.min_threshold is None else self.min_threshold
        chosen = selected(
            record, collection_names=self.collection_names, tensor_regex=self.tensor_regex
        )
        for key, each in chosen:
            if each.variance is not None:
                yield Judgement(
                    key=key,
                    is_violated=not low <= each.variance <= high,
                    text=f"the variance is {each.variance:.4g}, outside {low:g} to {high:g}",
                    numbers={"variance": each.variance},
                )


RULES: tuple[type[Rule], ...] = (
    WeightUpdateRatio,
    UpdateRatio,
    UnchangedTensor,
    AllZero,
    TensorVariance,
)
