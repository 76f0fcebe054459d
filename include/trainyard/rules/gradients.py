"""Rules on gradients, and on values that are not finite."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.errors import Severity
from trainyard.rules.loss import SCALER_SKIPS, UNKNOWN_SKIPS, is_scaled
from trainyard.rules.records import ACTIVATIONS, GRADIENTS, WEIGHTS, Facts, StepRecord
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import LEAST_OBSERVATIONS, History, SeriesRow, median_and_mad
from trainyard.rules.tensors import selected

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.rules.records import TensorStatistics


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradient(Rule):
    """The mean of a tensor's absolute gradient is below `threshold`.

    Source: SageMaker Developer Guide, VanishingGradient (1e-7). If only the Euclidean norm is known, the root
    mean square is used instead. The root mean square is never smaller than the mean, so it does not fall below
    `threshold` earlier.

    In the robust profile, an issue needs ten violations in a row. The tensor's mean must also be below
    `relative` times the largest mean of all gradients in the step, because all gradients of a large model are
    small. Two kinds of gradients are skipped in this profile:

    - those of biases, because a bias before a normalization and a bias of attention keys have the gradient 0;
    - gradients of exactly 0, because `AllZero` reports them.

    In any profile, an issue is only a warning: the gradients of an unused expert or branch also vanish, which is
    not a fault.

    Attributes:
        relative: share of the largest mean absolute gradient of the step; None disables this condition.
        exempt_regex: pattern on the names of tensors to skip; None skips none.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "gradients by tensor: mean_abs, or l2 with num_elements"
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "persistence": 10,
        "relative": 1e-4,
        "exempt_regex": r"(^|[._])(bias|b)$",
    }
    threshold: float = 1e-7
    relative: float | None = None
    exempt_regex: str | None = None

    def judge(self, record: StepRecord) -> Iterator[Judgement]:
        """Yield a result for each gradient with a known mean absolute value, except those that `exempt_regex` names."""
        sizes = {
            name: size
            for name, each in record.collection(GRADIENTS).items()
            if (size := _mean_abs(each)) is not None
        }
        limit = self.threshold
        if self.relative is not None:
            largest = max((size for size in sizes.values() if math.isfinite(size)), default=0.0)
            limit = min(limit, self.relative * largest)
        for name, size in sizes.items():
            is_exempt = self.exempt_regex is not None and re.search(self.exempt_regex, name)
            if not is_exempt:
                yield Judgement(
                    key=name,
                    is_violated=size < limit and (size > 0 or self.relative is None),
                    text=f"the mean absolute gradient is {size:.3g}, below {limit:.3g}",
                    numbers={"mean_abs": size},
                )


def _mean_abs(each: TensorStatistics) -> float | None:
    """Return the mean absolute value of a tensor, or its root mean square; None if neither is known."""
    if each.mean_abs is None and each.l2 is not None and each.num_elements:
        return each.l2 / math.sqrt(each.num_elements)
    return each.mean_abs


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingTensor(Rule):
    """A tensor has a NaN or, without `only_nan`, an infinity.

    In weights and gradients this is an error. In the output of a module it is a warning, because masks are
    infinite and masked values may be NaN. A tensor's norm is enough to detect both, since NaN and infinity
    propagate through the sum. Source: SageMaker Developer Guide, ExplodingTensor.

    If `skipped_steps` is set, as in the robust profile, the rule tolerates steps that the training skips
    because of non-finite values. For gradients and outputs, an issue then needs N non-finite steps in a row. N
    is one more than the number of steps that the script skips, or 5 if that number is unknown. If a loss scaler
    may skip steps (see `NonFinite`), N is at least `skipped_steps`.

    If `skipped_steps` is set, minus infinities in an output do not count, because masks have them. They make
    the output's norm infinite and its variance NaN. Therefore only the minimum and the maximum are checked, for
    NaN and for plus infinity. All statistics are checked only if both the minimum and the maximum are unknown.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "statistics by tensor (l2, mean, minimum or maximum)"
    ROBUST: ClassVar[Mapping[str, Any]] = {"skipped_steps": SCALER_SKIPS}
    collection_names: str | None = None
    tensor_regex: str | None = None
    only_nan: bool = False
    skipped_steps: int | None = None

    def watch(self, facts: Facts) -> RuleState[StepRecord]:
        """Return the state of this rule before the first record of a training."""
        scaled = (self.skipped_steps or 1) - 1 if is_scaled(facts) else 0
        known = UNKNOWN_SKIPS - 1 if facts.skipped_steps is None else facts.skipped_steps
        allowed = known if self.skipped_steps else 0
        return _ExplodingTensor(self, 1 + max(allowed, scaled))


class _ExplodingTensor(RuleState[StepRecord]):
    def __init__(self, rule: ExplodingTensor, most: int) -> None:
        self._rule, self._most = rule, most
        self._rows: dict[str, SeriesRow] = {}

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule = self._rule
        for key, each in selected(
            record, collection_names=rule.collection_names, tensor_regex=rule.tensor_regex
        ):
            if not each.values:
                continue
            is_weight, is_output = key.startswith(WEIGHTS), key.startswith(ACTIVATIONS)
            has_nan, has_infinity = each.has_nan, each.has_infinity
            if is_output and rule.skipped_steps:
                has_nan, has_infinity = _output_has(each)
            is_met = has_nan or (has_infinity and not rule.only_nan)
            most = 1 if is_weight else self._most
            row = self._rows.setdefault(key, SeriesRow(most)).add(record.step, is_met=is_met)
            yield Judgement(
                key=key,
                is_violated=row >= most,
                text=f"has {'a NaN' if has_nan else 'an infinity'}",
                severity=None if is_output else Severity.ERROR,
            )

    def roll_back(self, step: int) -> None:
        for row in self._rows.values():
            row.roll_back(step)


def _output_has(each: TensorStatistics) -> tuple[bool, bool]:
    """Return whether a module's output has a NaN, and whether it has a positive infinity."""
    ends = [end for end in (each.minimum, each.maximum) if end is not None]
    if not ends:
        return each.has_nan, each.has_infinity
    return any(map(math.isnan, ends)), math.inf in ends


@dataclass(frozen=True, slots=True, kw_only=True)
class GradNormSpike(Rule):
    """The gradient norm is above `median + num_mads * MAD`, `ratio` times the median and `jump` times recent norms.

    All three limits must be exceeded at the same time. The last one is `jump` times the highest of the last 20
    norms. It is needed because norms rise tenfold within a few steps early in a training
    (measured on the default MLP). Median and MAD cover the last `window` steps. Spikes are not added to this
    window.

    One violation is an issue, since gradient norms often jump before the loss does (OLMo et al. 2025, OLMo 2).
    `NonFinite` reports norms that are not finite.
    """

    READS = (StepRecord,)
    NEEDS = "the gradient norm of steps"
    SHARED = ("gradient_norm",)
    window: int = 100
    num_mads: float = 10.0
    ratio: float = 10.0
    jump: float = 5.0
    warm_up: int = 20

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _GradNormSpike(self)


class _GradNormSpike(RuleState[StepRecord]):
    def __init__(self, rule: GradNormSpike) -> None:
        self._rule, self._seen, self._all = rule, History(), History()

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        norm, rule = record.gradient_norm, self._rule
        if norm is None or not math.isfinite(norm):
            return
        before = self._seen.last(rule.window)
        if len(before) < LEAST_OBSERVATIONS:
            self._seen.add(record.step, norm)
            self.why_not = f"{len(before) + 1} gradient norms; needs {LEAST_OBSERVATIONS}"
            return
        middle, mad = median_and_mad(before)
        highest = max(self._all.values[-20:], default=0.0)
        self._all.add(record.step, norm)
        is_high = norm > middle + rule.num_mads * mad and norm > rule.ratio * middle
        is_spike = is_high and norm > rule.jump * highest
        if not is_spike:
            self._seen.add(record.step, norm)
        yield Judgement(
            is_violated=is_spike,
            text=f"gradient norm {norm:.4g} against a median of {middle:.4g} over the last {rule.window} steps",
            numbers={"gradient_norm": norm, "median": middle, "mad": mad},
        )

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._all.roll_back(step)


RULES: tuple[type[Rule], ...] = (VanishingGradient, ExplodingTensor, GradNormSpike)
