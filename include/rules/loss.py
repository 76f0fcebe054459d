"""Rules on single losses: not a number, or far above what they were."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from include.errors import Severity
from include.rules.records import Facts, StepRecord
from include.rules.rule import HEALTHY, Judgement, Rule, Watch
from include.rules.series import (
    LEAST_OBSERVATIONS,
    History,
    median_and_mad,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class LossRule(Rule):
    """Base of the rules that read the losses of one rank, in order."""

    READS = (StepRecord,)
    NEEDS = "the loss of steps"


@dataclass(frozen=True, slots=True, kw_only=True)
class NonFinite(LossRule):
    """A NaN or an infinity in the loss or the gradient norm, on any rank.

    With fp16 a gradient norm that is not finite is a step that the loss scaler skips and makes up for: only
    `skipped_steps` of them in a row count. Source: torchtitan checks both before each optimizer step
    (torchtitan/train.py, 2026-08).
    """

    SEVERITY = Severity.ERROR
    NEEDS = "the loss or the gradient norm of steps"
    skipped_steps: int = 10

    def watch(self, facts: Facts) -> Watch[StepRecord]:
        """Return a new state."""
        return _NonFinite(self.skipped_steps if facts.precision == "fp16" else 1)


class _NonFinite(Watch[StepRecord]):
    def __init__(self, norms_in_a_row: int) -> None:
        self._needed, self._row = norms_in_a_row, 0

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        if record.loss is None and record.gradient_norm is None:
            return
        if record.loss is not None and not math.isfinite(record.loss):
            yield _not_finite("loss", record.loss)
            return
        norm = record.gradient_norm
        self._row = 0 if norm is None or math.isfinite(norm) else self._row + 1
        if norm is not None and self._row >= self._needed:
            yield _not_finite("gradient norm", norm)
        else:
            yield HEALTHY


def _not_finite(what: str, value: float) -> Judgement:
    return Judgement(is_violated=True, text=f"the {what} is {value}", numbers={what: value})


@dataclass(frozen=True, slots=True, kw_only=True)
class LossSpike(LossRule):
    """The loss jumped up and stayed there.

    Above `median + num_mads * MAD` and above `ratio` times the median of the last `window` steps, `patience` times in a
    row: a warning. Above `stop_ratio` times, `stop_patience` in a row: an error. What is suspicious is not added to the
    window. Source: Llm-foundry's KillLossSpike (2 times the mean, 5 in a row, window 100), with medians in the place of
    means. Remedy: Chowdhery et al. 2022 (PaLM): go back some 100 steps and leave out 200 to 500 batches.
    """

    window: int = 100
    num_mads: float = 8.0
    ratio: float = 1.5
    patience: int = 3
    stop_ratio: float = 2.0
    stop_patience: int = 5
    warm_up: int = 50

    def watch(self, facts: Facts) -> Watch[StepRecord]:  # noqa: ARG002  # the interface
        """Return a new state."""
        return _LossSpike(self)


class _LossSpike(Watch[StepRecord]):
    def __init__(self, rule: LossSpike) -> None:
        self._rule, self._seen = rule, History()
        self._row = self._stop_row = 0

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        loss, rule = record.loss, self._rule
        if loss is None or math.isnan(loss):
            return
        before = self._seen.last(rule.window)
        if len(before) < LEAST_OBSERVATIONS:
            self._seen.add(record.step, loss)
            self.why_not = f"{len(before) + 1} losses; {LEAST_OBSERVATIONS} make a median"
            return
        middle, mad = median_and_mad(before)
        is_high = loss > middle + rule.num_mads * mad and loss > rule.ratio * middle
        if not is_high:
            self._seen.add(record.step, loss)
        self._row = self._row + 1 if is_high else 0
        self._stop_row = self._stop_row + 1 if is_high and loss > rule.stop_ratio * middle else 0
        said = f"loss {loss:.4g} is {_times(loss, middle)} the median {middle:.4g} of the last {rule.window} steps, "
        numbers = {"loss": loss, "median": middle, "mad": mad}
        yield Judgement(
            is_violated=self._row >= rule.patience,
            text=f"{said}{self._row} observations in a row",
            numbers=numbers,
        )
        yield Judgement(
            key="stop",
            is_violated=self._stop_row >= rule.stop_patience,
            text=f"{said}{self._stop_row} observations in a row above {rule.stop_ratio:g} times",
            numbers=numbers,
            severity=Severity.ERROR,
        )

    def roll_back(self, step: int) -> None:
        self._seen.roll_back(step)
        self._row = self._stop_row = 0


def _times(value: float, reference: float) -> str:
    return f"{value / reference:.2g} times" if reference > 0 else "above"


RULES: tuple[type[Rule], ...] = (
    NonFinite,
    LossSpike,
)
