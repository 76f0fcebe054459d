"""Rules on gradients, and on numbers that exploded anywhere."""

from __future__ import annotations

import math
from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from include.errors import Severity
from include.rules.records import GRADIENTS, Facts, StepRecord
from include.rules.rule import Judgement, Origin, Rule, Stateless, Watch
from include.rules.series import LEAST_OBSERVATIONS, History, median_and_mad
from include.rules.tensors import selected

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class VanishingGradient(Rule):
    """The mean of a tensor's absolute gradient is below `threshold`.

    Source: SageMaker Developer Guide, VanishingGradient (1e-7). Where only the Euclidean norm is known, the root mean
    square stands for it: it is never smaller than the mean, so that it never fires too early. The robust profile waits
    for ten steps in a row.
    """

    ORIGIN = Origin.DEBUGGER
    SEVERITY = Severity.ERROR
    READS = (StepRecord,)
    NEEDS = "gradients by tensor: mean_abs, or l2 with num_elements"
    ROBUST: ClassVar[Mapping[str, Any]] = {"persistence": 10}
    threshold: float = 1e-7

    def watch(self, facts: Facts) -> Watch[StepRecord]:  # noqa: ARG002  # the interface
        """Return a new state."""
        return Stateless(self._judge)

    def _judge(self, record: StepRecord) -> Iterator[Judgement]:
        for name, each in record.collection(GRADIENTS).items():
            size = each.mean_abs
            if size is None and each.l2 is not None and each.num_elements:
                size = each.l2 / math.sqrt(each.num_elements)
            if size is not None:
                yield Judgement(
                    key=name,
                    is_violated=size < self.threshold,
                    text=f"the mean absolute gradient is {size:.3g}, below {self.threshold:g}",
                    numbers={"mean_abs": size},
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplodingTensor(Rule):
    """A tensor has a NaN or an infinity, or with `only_nan` a NaN.

    Source: SageMaker Developer Guide, ExplodingTensor. A norm shows it: NaN and infinity propagate through the sum.
    """

    ORIGIN = Origin.DEBUGGER
    SEVERITY = Severity.ERROR
    READS = (StepRecord,)
    NEEDS = "statistics by tensor (l2, mean, minimum or maximum)"
    collection_names: str | None = None
    tensor_regex: str | None = None
    only_nan: bool = False

    def watch(self, facts: Facts) -> Watch[StepRecord]:  # noqa: ARG002
        """Return a new state."""
        return Stateless(self._judge)

    def _judge(self, record: StepRecord) -> Iterator[Judgement]:
        chosen = selected(
            record, collection_names=self.collection_names, tensor_regex=self.tensor_regex
        )
        for key, each in chosen:
            if each.values:
                yield Judgement(
                    key=key,
                    is_violated=each.has_nan or (each.has_infinity and not self.only_nan),
                    text=f"has {'a NaN' if each.has_nan else 'an infinity'}",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class GradNormSpike(Rule):
    """The gradient norm is above `median + num_mads * MAD` and above `ratio` times the median.

    And it is above `jump` times the highest of the last 20: while a network begins to learn, norms rise tenfold within
    some steps (measured on the default MLP). Median and MAD are those of the last `window` steps. Once is enough:
    gradient norms often jump before the loss does (OLMo et al. 2025, OLMo 2). What spikes is not added to the window; a
    norm that is not finite is left to `NonFinite`.
    """

    READS = (StepRecord,)
    NEEDS = "the gradient norm of steps"
    window: int = 100
    num_mads: float = 10.0
    ratio: float = 10.0
    jump: float = 5.0
    warm_up: int = 20

    def watch(self, facts: Facts) -> Watch[StepRecord]:  # noqa: ARG002
        """Return a new state."""
        return _GradNormSpike(self)


class _GradNormSpike(Watch[StepRecord]):
    def __init__(self, rule: GradNormSpike) -> None:
        self._rule, self._seen, self._all = rule, History(), History()

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        norm, rule = record.gradient_norm, self._rule
        if norm is None or not math.isfinite(norm):
            return
        before = self._seen.last(rule.window)
        if len(before) < LEAST_OBSERVATIONS:
            self._seen.add(record.step, norm)
            self.why_not = f"{len(before) + 1} gradient norms; {LEAST_OBSERVATIONS} make a median"
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
