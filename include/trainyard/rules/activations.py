"""Rules on activations: units that are dead or saturated."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from trainyard.rules.records import ACTIVATIONS, Facts, StepRecord, TensorStatistics
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.tensors import selected

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_SATURATING = frozenset({"Tanh", "Sigmoid", "Hardtanh", "Hardsigmoid", "LSTM", "GRU"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadRelu(Rule):
    """More than `threshold_layer` % of a ReLU layer's units are dead.

    A unit is dead if it is active in less than `threshold_inactivity` % of the observations. Source: SageMaker
    Developer Guide, DeadRelu (`threshold_inactivity` 1 %, `threshold_layer` 50 %). AWS's default pattern
    matches no tensor names of ordinary PyTorch models. In the robust profile (`ROBUST`), the rule selects
    layers by the module's class, and an issue needs three violations in a row. GELU and SiLU units do not die.

    Attributes:
        tensor_regex: pattern on the names of activations; None selects ReLU layers by the module's class.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "inactive_fraction of the activations of ReLU modules"
    ROBUST: ClassVar[Mapping[str, Any]] = {"tensor_regex": None, "persistence": 3}
    tensor_regex: str | None = ".*relu_output"
    threshold_inactivity: float = 1.0
    threshold_layer: float = 50.0

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _DeadRelu(self)


class _DeadRelu(RuleState[StepRecord]):
    def __init__(self, rule: DeadRelu) -> None:
        self._rule = rule

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule = self._rule
        for name, each in _layers(record, rule.tensor_regex, lambda kind: "ReLU" in kind):
            if each.inactive_fraction is None:
                continue
            counted_at = each.inactivity_percent
            if counted_at is not None and counted_at != rule.threshold_inactivity:
                wanted = rule.threshold_inactivity
                self.why_not = (
                    f"inactive units were counted below {counted_at:g} %, not {wanted:g} %"
                )
                continue
            percent = 100 * each.inactive_fraction
            yield Judgement(
                key=name,
                is_violated=percent > rule.threshold_layer,
                text=f"{percent:.3g} % of the units are dead",
                numbers={"dead_percent": percent},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class SaturatedActivation(Rule):
    """More than `threshold_layer` percent of a tanh or sigmoid layer's units are saturated.

    Source: SageMaker Developer Guide, SaturatedActivation. The shipped scripts count a unit as saturated if
    over 99 % of its inputs are outside of AWS's default bounds (tanh -9.4999 to 9.4999, sigmoid -23 to
    16.99999). The parameters `threshold_tanh_*`, `threshold_sigmoid_*` and `threshold_inactivity` have no
    effect on this count. In the robust profile, `tensor_regex` is None, and layers are selected by the class of
    their module.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "saturated_fraction of the activations of tanh or sigmoid modules"
    ROBUST: ClassVar[Mapping[str, Any]] = {"tensor_regex": None, "persistence": 3}
    collection_names: str | None = None
    tensor_regex: str | None = ".*tanh_input|.*sigmoid_input"
    threshold_tanh_min: float = -9.4999
    threshold_tanh_max: float = 9.4999
    threshold_sigmoid_min: float = -23.0
    threshold_sigmoid_max: float = 16.99999
    threshold_inactivity: float = 1.0
    threshold_layer: float = 50.0

    def judge(self, record: StepRecord) -> Iterator[Judgement]:
        """Yield a result for each tanh or sigmoid layer whose saturated share is known."""
        for name, each in _layers(record, self.tensor_regex, _SATURATING.__contains__):
            if each.saturated_fraction is not None:
                percent = 100 * each.saturated_fraction
                yield Judgement(
                    key=name,
                    is_violated=percent > self.threshold_layer,
                    text=f"{percent:.3g} % of the units are saturated",
                    numbers={"saturated_percent": percent},
                )


def _layers(
    record: StepRecord, tensor_regex: str | None, is_wanted: Callable[[str], bool]
) -> Iterator[tuple[str, TensorStatistics]]:
    """Yield (name, statistics) of each activation whose name matches `tensor_regex`.

    If `tensor_regex` is None, yield the activations of the modules whose class `is_wanted` accepts.
    """
    for key, each in selected(record, collection_names=ACTIVATIONS, tensor_regex=tensor_regex):
        if tensor_regex is not None or is_wanted(each.module_class or ""):
            yield key.partition("/")[2], each


RULES: tuple[type[Rule], ...] = (DeadRelu, SaturatedActivation)
