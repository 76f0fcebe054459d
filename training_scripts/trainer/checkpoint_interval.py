"""Checkpoint interval with the least cost over an interrupted run."""

from __future__ import annotations

import math
from dataclasses import dataclass

MAX_COST_SHARE = 0.01
MAX_STRETCH = 2.0


def young_interval_s(*, cost_s: float, mean_time_to_interruption_s: float) -> float:
    """Return the first-order optimum of the training seconds between checkpoints.

    Source: Young 1974, "A first order approximation to the optimum checkpoint interval", sqrt(2 C M).
    Worked: a cost of 0.1 s and one interruption per hour (3600 s): 26.8 s.
    """
    return math.sqrt(2 * cost_s * mean_time_to_interruption_s)


def daly_interval_s(*, cost_s: float, mean_time_to_interruption_s: float) -> float:
    """Return the higher-order optimum of the training seconds between checkpoints.

    Source: Daly 2006, "A higher order estimate of the optimum checkpoint interval for restart dumps",
    equation 37: sqrt(2 C M) [1 + 1/3 sqrt(C / 2M) + 1/9 (C / 2M)] - C if C < 2M, else M.
    Worked (his figures 3 to 5): a cost of 5 min gives 117 min for M = 24 h, 57 min for M = 6 h and
    9.1 min for M = 15 min.
    """
    mean = mean_time_to_interruption_s
    if cost_s >= 2 * mean:
        return mean
    part = cost_s / (2 * mean)
    series = 1 + math.sqrt(part) / 3 + part / 9
    first_order = young_interval_s(cost_s=cost_s, mean_time_to_interruption_s=mean)
    return first_order * series - cost_s


@dataclass(frozen=True, slots=True, kw_only=True)
class IntervalChoice:
    """A checkpoint interval in steps, and the reason for its length."""

    steps: int
    reason: str


def choose_interval(
    *, cost_s: float, step_s: float, mean_time_to_interruption_s: float
) -> IntervalChoice:
    """Return the interval, in steps of `step_s` seconds, for checkpoints that stall training for `cost_s` seconds.

    The interval is Daly's optimum, stretched until checkpoints cost at most 1 % of the training time, but at most to
    twice the optimum. At twice the optimum, checkpoints and redone work together cost a quarter more than at the
    optimum: (T / T_opt + T_opt / T) / 2 is 1.25 for T = 2 T_opt.

    Worked: 0.1 s per checkpoint, 0.2 s per step, M = 3600 s: 26.8 s, 134 steps.
    """
    best_s = daly_interval_s(cost_s=cost_s, mean_time_to_interruption_s=mean_time_to_interruption_s)
    cheap_s = cost_s / MAX_COST_SHARE
    interval_s = max(best_s, min(cheap_s, MAX_STRETCH * best_s))
    steps = max(1, math.ceil(interval_s / step_s))
    share = cost_s / (steps * step_s)
    why = "stretched to cost less" if interval_s > best_s else "Daly's optimum"
    reason = (
        f"{why}: {interval_s:.3g} s at {step_s:.3g} s a step; a checkpoint costs {cost_s:.3g} s "
        f"({share:.2%} of training), an interruption each {mean_time_to_interruption_s:g} s"
    )
    return IntervalChoice(steps=steps, reason=reason)
