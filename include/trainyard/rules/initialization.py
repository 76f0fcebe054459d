"""Rules on the start of a training: weights, gradients and losses of its first steps."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import GRADIENTS, WEIGHTS, Facts, StepRecord
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import History

if TYPE_CHECKING:
    from collections.abc import Iterator

_STANDING = 0.97  # of the first losses' median


@dataclass(frozen=True, slots=True, kw_only=True)
class PoorWeightInitialization(Rule):
    """In the first `steps` steps, weights differ too much in variance, a gradient is too narrow, or the loss is flat.

    One of three conditions holds:

    - The largest variance of a weight is more than `threshold` times the smallest.
    - The narrowest p95 - p5 of a gradient is below `distribution_range`.
    - The loss is flat: the last `patience` losses are not below the lowest one before.

    Source: SageMaker Developer Guide, PoorWeightInitialization, which does not state how the conditions combine: any
    one is enough here. The layers of healthy networks differ by more than these thresholds. The robust profile
    therefore requires a flat loss and one of the other two conditions.

    Attributes:
        activation_inputs_regex: AWS's parameter, without effect: weights are evaluated in place of activations.
        needs_standing_loss: whether the first two conditions count only while the loss is flat. Flat then means that
            the median of the last `patience` losses is at least 97 % of the median of the first `patience` losses.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "variance of weights or p5 and p95 of gradients by tensor, in the first steps"
    ROBUST: ClassVar[Mapping[str, Any]] = {
        "needs_standing_loss": True,
        "steps": 200,
        "patience": 50,
    }
    activation_inputs_regex: str = ".*relu_input"
    threshold: float = 10.0
    distribution_range: float = 0.001
    patience: int = 5
    steps: int = 10
    needs_standing_loss: bool = False

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _PoorWeightInitialization(self)


class _PoorWeightInitialization(RuleState[StepRecord]):
    def __init__(self, rule: PoorWeightInitialization) -> None:
        self._rule, self._losses = rule, History()

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule = self._rule
        if record.step > rule.steps:
            return
        if record.loss is not None:
            self._losses.add(record.step, record.loss)
        faults = [fault for fault in (self._variances(record), self._ranges(record)) if fault]
        if not (record.tensors.get(WEIGHTS) or record.tensors.get(GRADIENTS)):
            return
        is_standing = self._is_standing()
        is_violated = (
            bool(faults) and is_standing
            if rule.needs_standing_loss
            else bool(faults) or is_standing
        )
        reasons = [*faults, *(["the loss does not fall"] if is_standing else [])]
        yield Judgement(is_violated=is_violated, text="; ".join(reasons))

    def _variances(self, record: StepRecord) -> str | None:
        weights = record.collection(WEIGHTS).values()
        known = [each.variance for each in weights if each.variance]
        if len(known) < 2 or max(known) <= self._rule.threshold * min(known):
            return None
        return (
            f"the largest variance of a weight is {max(known) / min(known):.3g} times the smallest"
        )

    def _ranges(self, record: StepRecord) -> str | None:
        gradients = record.collection(GRADIENTS).values()
        known = [e.p95 - e.p5 for e in gradients if e.p95 is not None and e.p5 is not None]
        if not known or min(known) >= self._rule.distribution_range:
            return None
        return f"the narrowest gradient spans {min(known):.3g} from p5 to p95"

    def _is_standing(self) -> bool:
        patience, losses = self._rule.patience, self._losses.values
        if self._rule.needs_standing_loss:
            if len(losses) < 2 * patience:
                return False
            return median(losses[-patience:]) >= _STANDING * median(losses[:patience])
        return len(losses) > patience and min(losses[-patience:]) >= min(losses[:-patience])

    def roll_back(self, step: int) -> None:
        self._losses.roll_back(step)


RULES: tuple[type[Rule], ...] = (PoorWeightInitialization,)
