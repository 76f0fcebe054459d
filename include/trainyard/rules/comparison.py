"""Rule that compares a run with another run that is known to be good."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.rules.records import Facts, StepRecord
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.tensors import selected

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarAcrossRuns(Rule):
    """The loss or a tensor's norm differs from that of another run at the same step by more than `rtol`.

    Source: SageMaker Developer Guide, SimilarAcrossRuns, which does not state its criterion. Here the criterion
    is |own - other| > atol + rtol * |other|. It applies to the norms of the tensors that `collection_names` or
    `tensor_regex` selects. If neither is set, it applies to the losses.

    Attributes:
        other_trial_0: folder of the other run.
        other_trials: the SDK's name for the same parameter.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (StepRecord,)
    NEEDS = "another run to compare with (other_trial_0)"
    other_trial_0: str | None = None
    other_trials: str | None = None
    collection_names: str | None = None
    tensor_regex: str | None = None
    rtol: float = 1e-3
    atol: float = 1e-8

    @property
    def other(self) -> str | None:
        """The folder of the other run: `other_trial_0` or `other_trials`; None if neither is set."""
        return self.other_trial_0 or self.other_trials

    def watch(self, facts: Facts) -> RuleState[StepRecord]:
        """Return the state of this rule before the first record of a training."""
        return _SimilarAcrossRuns(self, facts)


class _SimilarAcrossRuns(RuleState[StepRecord]):
    def __init__(self, rule: SimilarAcrossRuns, facts: Facts) -> None:
        self._rule = rule
        known = facts.other_runs.get(rule.other or "", ())
        self._others = {(each.rank, each.step): dict(self._numbers(each)) for each in known}
        if rule.other and not known:
            self.why_not = f"there are no steps of the other run {rule.other}"

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        rule = self._rule
        others = self._others.get((record.rank, record.step), {})
        for key, own in self._numbers(record):
            other = others.get(key)
            if other is None:
                continue
            is_far = abs(own - other) > rule.atol + rule.rtol * abs(other)
            yield Judgement(
                key=key,
                is_violated=is_far or math.isnan(own) != math.isnan(other),
                text=f"{own:.6g} in this run, {other:.6g} in the other",
                numbers={"own": own, "other": other},
            )

    def _numbers(self, record: StepRecord) -> Iterator[tuple[str, float]]:
        rule = self._rule
        if rule.collection_names is None and rule.tensor_regex is None:
            if record.loss is not None:
                yield "loss", record.loss
            return
        chosen = selected(
            record, collection_names=rule.collection_names, tensor_regex=rule.tensor_regex
        )
        for key, each in chosen:
            if each.l2 is not None:
                yield key, each.l2


RULES: tuple[type[Rule], ...] = (SimilarAcrossRuns,)
