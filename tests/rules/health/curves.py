"""Curves of healthy trainings by family, drawn from a seed: what their logs look like, after published shapes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.rules.records import (
    Facts,
    MarkRecord,
    Predictions,
    Record,
    Start,
    StepRecord,
    Validation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

    Series = NDArray[np.float64]

BEGAN_AT = 1_795_000_000.0


@dataclass(frozen=True, kw_only=True)
class LossCurve:
    """One training. All series begin with step 1.

    Attributes:
        loss: of each step. rate: the learning rate. norm: of the gradient, or None.
        validation: loss on the validation split, every `eval_every` steps. accuracy: likewise.
        seconds: of each step. units: tokens or samples of each step.
        every: steps between two lines; None for what the reader asks for.
        confusion: labels against predictions, every `eval_every` steps.
    """

    loss: Series
    rate: Series
    norm: Series | None
    validation: Series | None = None
    accuracy: Series | None = None
    eval_every: int = 0
    seconds: Series | None = None
    units: Series | None = None
    every: int | None = None
    confusion: tuple[tuple[int, ...], ...] | None = None
    facts: Facts = field(default_factory=lambda: Facts(precision="bf16"))

    @property
    def max_steps(self) -> int:
        """The number of steps."""
        return len(self.loss)

    def records(
        self,
        *,
        every: int,
        begin: int = 0,
        end: int | None = None,
        attempt: int = 1,
        time: float = BEGAN_AT,
    ) -> list[Record]:
        """Return the records of one attempt: steps `begin + 1` to `end`, a line each `every` steps."""
        every, last = self.every or every, end or self.max_steps
        start = Start(
            step=begin, time=time, attempt=attempt, world_size=1, max_steps=self.max_steps
        )
        found: list[Record] = [start]
        now, since, units = time + 5, 0.0, 0.0
        count = 0
        for step in range(begin + 1, last + 1):
            seconds = 0.2 if self.seconds is None else float(self.seconds[step - 1])
            now, since, count = now + seconds, since + seconds, count + 1
            units += 1000.0 if self.units is None else float(self.units[step - 1])
            if step % every == 0 or step in {1, self.max_steps}:
                found.append(self._line(step, now, units / since, since / count))
                since, units, count = 0.0, 0.0, 0
            if self.eval_every and step % self.eval_every == 0:
                now += 10
                found += self._validated(step, now)
        if last == self.max_steps:
            found.append(MarkRecord(kind="done", step=last, time=now))
        return found

    def _line(self, step: int, now: float, units_per_second: float, seconds: float) -> StepRecord:
        place = step - 1
        return StepRecord(
            step=step,
            time=now,
            loss=float(self.loss[place]),
            learning_rate=float(self.rate[place]),
            gradient_norm=None if self.norm is None else float(self.norm[place]),
            units_per_second=units_per_second,
            step_seconds=seconds,
        )

    def _validated(self, step: int, now: float) -> list[Record]:
        found: list[Record] = []
        if self.validation is not None:
            accuracy = None if self.accuracy is None else float(self.accuracy[step - 1])
            loss = float(self.validation[step - 1])
            found.append(Validation(step=step, time=now, loss=loss, accuracy=accuracy))
        if self.confusion is not None:
            found.append(Predictions(step=step, time=now, confusion=self.confusion))
        return found


class Draw:
    """Random series for one curve of `n` steps."""

    def __init__(self, seed: int, n: int) -> None:
        self.random, self.n = np.random.default_rng(seed), n
        self.uniform, self.integers = self.random.uniform, self.random.integers
        self.steps = np.arange(1, n + 1)
        self.x = self.steps / n

    def noise(self, deviation: float) -> Series:
        """Return normal noise."""
        return self.random.normal(0, deviation, self.n)

    def spread(self, deviation: float) -> Series:
        """Return log-normal factors around 1."""
        return np.exp(self.noise(deviation))

    def curve(self, loss: Series, rate: Callable[[float], float], **other: Any) -> LossCurve:
        """Return a curve; a rate is a function of the step, as a share of its peak."""
        peak = 10 ** self.uniform(-5, -3)
        other.setdefault("norm", self.spread(0.35) * self.uniform(0.3, 1.5))
        if other.get("validation") is not None:
            other.setdefault("eval_every", self.n // 20)
        return LossCurve(loss=loss, rate=peak * np.array([rate(s) for s in self.steps]), **other)

    def power_law(self) -> Series:
        """Return how the loss of a network that begins at random weights falls."""
        fall = (1 + self.steps / self.uniform(10, 40)) ** -self.uniform(0.3, 0.8)
        return self.uniform(1.5, 3) + self.uniform(2, 5) * fall


def constant(warm: float = 0) -> Callable[[float], float]:
    """Return a constant rate after a linear warm-up."""
    return lambda step: min(1.0, step / warm) if warm else 1.0


def cosine(n: int, warm: int, ratio: float = 0.1) -> Callable[[float], float]:
    """Return a linear warm-up and a cosine down to `ratio`."""

    def at(step: float) -> float:
        if step <= warm:
            return step / warm
        return ratio + (1 - ratio) * (1 + math.cos(math.pi * (step - 1 - warm) / (n - warm))) / 2

    return at


def linear(n: int, warm: int, *, from_share: float = 0.0) -> Callable[[float], float]:
    """Return a warm-up, a constant rate up to a share of the steps, and a straight line to 0."""
    turn = max(warm, int(n * from_share))
    return lambda step: (
        step / warm if step <= warm else 1.0 if step <= turn else max(0.0, (n - step) / (n - turn))
    )


def _pulse(draw: Draw, at: int, height: float, length: float) -> Series:
    """Return a factor that jumps up by `height` at a step and falls back to 1."""
    since = draw.steps - at
    return np.where(since >= 0, 1 + height * np.exp(-np.maximum(since, 0) / length), 1.0)


def fine_tuning(draw: Draw) -> LossCurve:
    """Loss 1.6 to 1.5 under noise of 0.15."""
    loss = 1.5 + 0.1 * np.exp(-draw.x * draw.uniform(3, 10))
    validation = 1.01 * loss + draw.noise(0.003)
    return draw.curve(
        loss + draw.noise(0.15), cosine(draw.n, draw.n // 30, 0), validation=validation
    )


def fine_tuning_of_three_epochs(draw: Draw) -> LossCurve:
    """The loss falls in steps at each epoch; validation rises from the second on."""
    epoch = np.floor(draw.x * 2.9999)
    loss = 1.55 - 0.25 * epoch - 0.03 * (3 * draw.x - epoch)
    rise = draw.uniform(0.03, 0.12) * np.maximum(0, 3 * draw.x - 1) / 2
    validation = (1.52 - 0.06 * np.minimum(3 * draw.x, 1)) * (1 + rise) + draw.noise(0.003)
    return draw.curve(
        loss + draw.noise(0.12), cosine(draw.n, draw.n // 30, 0), validation=validation
    )


def diffusion_fine_tuning(draw: Draw) -> LossCurve:
    """Flat, and the timesteps make it vary by a factor of two."""
    return draw.curve(0.12 * draw.spread(0.6) * (1 - 0.02 * draw.x), constant(draw.n // 20))


def preference_optimization(draw: Draw) -> LossCurve:
    """DPO: from ln 2 down a little."""
    loss = math.log(2) - draw.uniform(0.02, 0.12) * (1 - np.exp(-3 * draw.x))
    rate = linear(draw.n, draw.n // 10)
    return draw.curve(loss + draw.noise(0.06), rate, validation=loss + draw.noise(0.004))


def lora(draw: Draw) -> LossCurve:
    """Adapters at a constant rate: some percent are gained."""
    fall = draw.uniform(0.03, 0.15) * (1 - np.exp(-draw.x * draw.uniform(3, 12)))
    loss = draw.uniform(1.2, 2.2) * (1 - fall)
    noise = draw.noise(draw.uniform(0.05, 0.15))
    return draw.curve(loss + noise, constant(draw.n // 20), validation=loss + draw.noise(0.003))


def grpo(draw: Draw) -> LossCurve:
    """A policy's loss lies around 0, and is 0 at first."""
    loss = draw.noise(draw.uniform(0.005, 0.05)) + draw.uniform(0, 0.02) * draw.x
    loss[0] = 0.0
    return draw.curve(loss, constant(10), norm=0.3 * draw.spread(0.6))


def ppo(draw: Draw) -> LossCurve:
    """The clipped objective: below 0."""
    loss = -0.01 + draw.noise(0.02) + 0.05 * np.exp(-5 * draw.x) * draw.noise(1.0) ** 2
    return draw.curve(loss, linear(draw.n, 10))


def gan_generator(draw: Draw) -> LossCurve:
    """Rises as the discriminator gets better, and swings."""
    swing = 0.35 * np.sin(2 * math.pi * draw.steps / draw.uniform(100, 800) + draw.uniform(0, 6))
    begin = draw.uniform(0.7, 1.5)
    loss = begin * (1 + swing) + draw.uniform(0.3, 3) * draw.x + draw.noise(0.2)
    return draw.curve(np.abs(loss), constant(1), norm=draw.spread(0.8))


def wgan_critic(draw: Draw) -> LossCurve:
    """A distance with its sign turned: below 0, towards it."""
    swing = 0.4 * np.sin(2 * math.pi * draw.steps / draw.uniform(100, 800))
    loss = -draw.uniform(0.5, 3) * np.exp(-2 * draw.x) + swing + draw.noise(0.3)
    return draw.curve(loss, constant(1))


def warm_restarts(draw: Draw) -> LossCurve:
    """SGDR: the cosine begins anew several times."""
    length, ratio = draw.n / int(draw.integers(3, 8)), draw.uniform(0, 0.1)

    def rate(step: float) -> float:
        return ratio + (1 - ratio) * (1 + math.cos(math.pi * ((step - 1) % length) / length)) / 2

    base = draw.power_law() * (1 + 0.03 * np.array([rate(s) for s in draw.steps]))
    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=1.02 * base)


def warm_up_stable_decay(draw: Draw) -> LossCurve:
    """WSD: constant, then straight to 0."""
    base = draw.power_law() * (1 - 0.04 * np.clip((draw.x - 0.8) / 0.2, 0, 1))
    rate = linear(draw.n, draw.n // 40, from_share=0.8)
    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=1.02 * base)


def warm_up_by_epoch(draw: Draw) -> LossCurve:
    """As timm has it: five epochs of warm-up, and the rate changes once an epoch."""
    base, first, epochs = draw.power_law(), 10 ** draw.uniform(-3, -1), 20

    def rate(step: float) -> float:
        epoch = int((step - 1) * epochs / draw.n)
        if epoch < 5:
            return first + (1 - first) * epoch / 5
        return 0.01 + 0.99 * (1 + math.cos(math.pi * epoch / epochs)) / 2

    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=1.02 * base)


def warm_up_by_one_step(draw: Draw) -> LossCurve:
    """He et al. 2016, section 4.2: a tenth of the rate for some hundred steps, then all of it."""
    base, until = draw.power_law(), draw.integers(50, draw.n // 4)
    return draw.curve(base * (1 + draw.noise(0.03)), lambda step: 0.1 if step <= until else 1.0)


def linear_with_few_lines(draw: Draw) -> LossCurve:
    """Straight to 0, a line every tenth of the run."""
    base = draw.power_law()
    rate = linear(draw.n, draw.n // 20)
    return draw.curve(base * (1 + draw.noise(0.03)), rate, every=draw.n // 10, validation=base)


def warmed_up_again(draw: Draw) -> LossCurve:
    """Continual pre-training: a second warm-up, and the loss rises a little meanwhile."""
    half = draw.n // 2
    one = cosine(half, half // 20)
    base = (2 + 0.3 * np.exp(-6 * draw.x)) * _pulse(draw, half, 0.05, draw.n / 30)
    rate = lambda step: one(step if step <= half else step - half)  # noqa: E731
    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=1.01 * base)


def frozen_at_first(draw: Draw) -> LossCurve:
    """The first group of parameters is held for some hundred steps: its rate is 0."""
    until = draw.integers(50, 300)
    base = draw.power_law()
    return draw.curve(base * (1 + draw.noise(0.03)), lambda step: 0.0 if step <= until else 1.0)


def curriculum(draw: Draw) -> LossCurve:
    """Harder data from a step on: 30 % more, learned again."""
    jump = _pulse(
        draw, int(draw.uniform(0.3, 0.7) * draw.n), 0.3, draw.n * draw.uniform(0.03, 0.15)
    )
    base = draw.power_law() * jump
    return draw.curve(base * (1 + draw.noise(0.03)), cosine(draw.n, draw.n // 40), validation=base)


def data_mixture(draw: Draw) -> LossCurve:
    """Another mixture in mid-training: 30 % more, and little to learn."""
    jump = _pulse(draw, int(draw.uniform(0.3, 0.7) * draw.n), 0.3, draw.n * draw.uniform(0.05, 0.2))
    base = 2.0 + 0.2 * np.exp(-8 * draw.x)
    loss = base * jump * (1 + draw.noise(0.03))
    return draw.curve(loss, cosine(draw.n, draw.n // 40), validation=base * np.sqrt(jump))


def another_domain(draw: Draw) -> LossCurve:
    """From code to prose: the loss doubles and more, for good, and falls slowly from there."""
    at = int(draw.uniform(0.2, 0.7) * draw.n)
    after = draw.uniform(2.1, 3.5) * (
        1 + 0.1 * np.exp(-np.maximum(0, draw.steps - at) / draw.n * 5)
    )
    base = np.where(draw.steps < at, 0.9 + 0.5 * np.exp(-8 * draw.x), 0.9 * after)
    return draw.curve(base * (1 + draw.noise(0.03)), cosine(draw.n, draw.n // 40))


def pre_training_with_spikes(draw: Draw) -> LossCurve:
    """Heavy-tailed gradients, and spikes that recover within fifty steps."""
    base = 1.9 + 9 * (1 + draw.steps / draw.uniform(10, 40)) ** -0.5
    norm = 0.2 + 0.15 * np.abs(draw.random.standard_t(2.5, draw.n))
    loss = base * (1 + draw.noise(0.015))
    for at in draw.integers(draw.n // 5, draw.n - 100, 4):
        loss = loss * _pulse(draw, int(at), math.exp(draw.uniform(math.log(0.1), math.log(2))), 15)
        norm[at : at + 20] *= 10 ** draw.uniform(0.5, 2)
    return draw.curve(loss, cosine(draw.n, draw.n // 50), norm=norm, validation=1.01 * base)


def momentum_contrast(draw: Draw) -> LossCurve:
    """MoCo: the queue makes the task harder than it was at first."""
    rise = draw.uniform(1, 2) * (1 - np.exp(-draw.x * draw.uniform(15, 60)))
    fall = draw.uniform(1.2, 2.4) * (1 - np.exp(-draw.x * draw.uniform(0.8, 2)))
    return draw.curve((6.9 + rise - fall) * (1 + draw.noise(0.01)), cosine(draw.n, 1, 0))


def moving_target(draw: Draw) -> LossCurve:
    """BYOL, data2vec: the target learns too, and the loss ends above its start."""
    rise = draw.uniform(0.2, 0.6) * (1 - np.exp(-draw.x * draw.uniform(10, 40)))
    base = draw.uniform(0.2, 0.4) + rise - 0.1 * draw.x
    rate = cosine(draw.n, draw.n // 20, 0)
    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=base)


def regression(draw: Draw) -> LossCurve:
    """An error that falls to 1e-6."""
    base = 10 ** (-1 - 5 * (1 - np.exp(-draw.x * draw.uniform(2, 5))))
    loss, norm = base * draw.spread(draw.uniform(0.1, 0.5)), np.sqrt(base) * draw.spread(0.4)
    validation = 1.3 * base * draw.spread(0.1)
    return draw.curve(loss, cosine(draw.n, 20, 0.01), norm=norm, validation=validation)


def regression_in_bursts(draw: Draw) -> LossCurve:
    """The same at a constant rate: Adam bursts now and then where the loss is tiny."""
    base = 10 ** (-1 - 5 * (1 - np.exp(-draw.x * draw.uniform(4, 9))))
    bursts = np.ones(draw.n)
    for at in draw.integers(int(0.3 * draw.n), draw.n - 40, 6):
        bursts = bursts * _pulse(draw, int(at), draw.uniform(1, 20), 8)
    norm = np.sqrt(base * bursts) * draw.spread(0.4)
    validation = 1.3 * base * draw.spread(0.1)
    return draw.curve(
        base * bursts * draw.spread(0.3), constant(20), norm=norm, validation=validation
    )


def classification_to_zero(draw: Draw) -> LossCurve:
    """By heart: validation's loss rises, its accuracy too."""
    base = 2.3 * np.exp(-draw.x * draw.uniform(8, 20))
    is_hard = draw.random.random(draw.n) < 0.1
    hard = is_hard * draw.random.exponential(1, draw.n) * np.maximum(8 * base, 1e-5)
    rise = draw.uniform(0.02, 0.4) * np.maximum(0, draw.x - 0.25)
    validation = 0.3 + 0.9 * np.exp(-15 * draw.x) + rise + draw.noise(0.005)
    accuracy = 0.6 + 0.3 * (1 - np.exp(-5 * draw.x))
    loss = base * draw.spread(0.5) + hard
    rate = cosine(draw.n, draw.n // 40, 0)
    return draw.curve(loss, rate, validation=validation, accuracy=accuracy)


def early_plateau(draw: Draw) -> LossCurve:
    """Nothing more to learn after a twentieth of the run."""
    base = draw.uniform(0.3, 2) * (1 + draw.uniform(0.5, 2) * np.exp(-60 * draw.x))
    validation = 1.02 * base * (1 + draw.noise(0.004))
    rate = cosine(draw.n, 20)
    return draw.curve(
        base * (1 + draw.noise(draw.uniform(0.005, 0.05))), rate, validation=validation
    )


def uneven_steps(draw: Draw) -> LossCurve:
    """Batches of very different length, a cold cache, pauses for evaluation."""
    base = draw.power_law()
    seconds = np.exp(draw.uniform(math.log(0.25), 0, draw.n))
    seconds[: draw.n // 10] *= 3
    seconds[draw.steps % 100 == 0] += 20
    units = draw.uniform(900, 1100, draw.n)
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(base * (1 + draw.noise(0.03)), rate, seconds=seconds, units=units)


def longer_texts_later(draw: Draw) -> LossCurve:
    """Samples a second fall with the length of texts."""
    seconds = 0.3 * np.exp(draw.uniform(0, math.log(4), draw.n))
    seconds[draw.n // 2 :] *= draw.uniform(1.2, 1.8)
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(draw.power_law() * (1 + draw.noise(0.03)), rate, seconds=seconds)


def fast_first_epoch(draw: Draw) -> LossCurve:
    """A processor that clocks down, or small files first."""
    seconds = 0.2 * draw.spread(0.05)
    seconds[: draw.n // 7] *= 0.6
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(draw.power_law() * (1 + draw.noise(0.03)), rate, seconds=seconds)


def slow_checkpoints(draw: Draw) -> LossCurve:
    """Every fiftieth step waits for a checkpoint as long as thirty others."""
    seconds = 0.2 * draw.spread(0.05)
    seconds[draw.steps % 50 == 0] += 6
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(draw.power_law() * (1 + draw.noise(0.03)), rate, seconds=seconds)


def rare_class(draw: Draw) -> LossCurve:
    """A hundred to one."""
    base, right = 0.1 * draw.power_law(), int(draw.integers(25, 80))
    confusion = ((9781, 20), (99 - right, right))
    validation = base * draw.spread(0.01)
    loss = base * draw.spread(0.3)
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(loss, rate, validation=validation, confusion=confusion)


def overflowing_scaler(draw: Draw) -> LossCurve:
    """fp16: the scaler skips steps whose gradients overflow, a few at a time."""
    norm = draw.spread(0.3)
    for at in draw.integers(1, draw.n - 5, 10):
        norm[at : at + int(draw.integers(1, 4))] = math.inf
    loss = draw.power_law() * (1 + draw.noise(0.03))
    return draw.curve(loss, cosine(draw.n, draw.n // 40), norm=norm, facts=Facts(precision="fp16"))


def skipped_batches(draw: Draw) -> LossCurve:
    """`on_non_finite: skip` with broken samples here and there."""
    loss, norm = draw.power_law() * (1 + draw.noise(0.03)), draw.spread(0.3)
    for at in draw.integers(1, draw.n - 5, 4):
        loss[at : at + int(draw.integers(1, 4))] = math.nan
    facts = Facts(precision="bf16", skipped_steps=5)
    return draw.curve(loss, cosine(draw.n, draw.n // 40), norm=norm, facts=facts)


def adversarial_term(draw: Draw) -> LossCurve:
    """A generator whose discriminator learns later: near zero, then up by orders of magnitude."""
    rise = _s_curve(draw, begin=draw.uniform(0.2, 0.6), length=draw.uniform(0.01, 0.1))
    loss = 1e-4 + draw.uniform(2, 30) * rise * draw.spread(draw.uniform(0.05, 0.4))
    return draw.curve(loss, constant(1), norm=draw.spread(0.8))


def penalty_from_zero(draw: Draw) -> LossCurve:
    """A KL term: zero at the reference, first quadratic in the distance from it, then level."""
    distance = draw.x / draw.uniform(0.02, 0.5)
    loss = 10 ** draw.uniform(0, 3) * distance**2 / (1 + distance**2) * draw.spread(0.2)
    loss[0] = 0.0
    return draw.curve(loss, constant(10), norm=draw.spread(0.5))


def value_of_rising_returns(draw: Draw) -> LossCurve:
    """A critic without normalized returns, up to scores of 100,000: its error is squared."""
    returns = _s_curve(draw, begin=draw.uniform(0.2, 0.7), length=draw.uniform(0.01, 0.1))
    loss = 0.01 + 10 ** draw.uniform(1, 9) * returns**2 * draw.spread(0.4)
    return draw.curve(loss, constant(10), norm=np.sqrt(loss) * draw.spread(0.5))


def unlabeled_batches(draw: Draw) -> LossCurve:
    """Cross entropy of batches that have no label: the loss is NaN and the gradient is zero."""
    loss, norm = draw.power_law() * (1 + draw.noise(0.03)), draw.spread(0.3)
    for at in draw.integers(1, draw.n - 5, 6):
        few = slice(at, at + int(draw.integers(1, 4)))
        loss[few], norm[few] = math.nan, 0.0
    facts = Facts(precision="bf16")
    return draw.curve(loss, cosine(draw.n, draw.n // 40), norm=norm, facts=facts)


def unlabeled_batches_without_norm(draw: Draw) -> LossCurve:
    """The same from a script that records no gradient norm."""
    return replace(unlabeled_batches(draw), norm=None)


def infinite_losses_of_fp16(draw: Draw) -> LossCurve:
    """CTC in fp16: a text longer than its audio has an infinite loss, and the scaler skips the step."""
    loss, norm = draw.power_law() * (1 + draw.noise(0.03)), draw.spread(0.3)
    for at in draw.integers(1, draw.n - 5, 8):
        few = slice(at, at + int(draw.integers(1, 4)))
        loss[few], norm[few] = math.inf, math.nan
    return draw.curve(loss, cosine(draw.n, draw.n // 40), norm=norm, facts=Facts(precision="fp16"))


def _s_curve(draw: Draw, *, begin: float, length: float) -> Series:
    """Return the logistic function from 0 to 1 over shares of the run."""
    rise: Series = 1 / (1 + np.exp((begin - draw.x) / length))
    return rise


def reference(draw: Draw) -> LossCurve:
    """Pre-training as in the books."""
    base = draw.power_law()
    rate = cosine(draw.n, draw.n // 40)
    return draw.curve(base * (1 + draw.noise(0.03)), rate, validation=1.02 * base)


FAMILIES: Mapping[str, Callable[[Draw], LossCurve]] = {
    each.__name__.replace("_", " "): each
    for each in (
        fine_tuning, fine_tuning_of_three_epochs, diffusion_fine_tuning, preference_optimization, lora, grpo, ppo,
        gan_generator, wgan_critic, warm_restarts, warm_up_stable_decay, warm_up_by_epoch, warm_up_by_one_step,
        linear_with_few_lines, warmed_up_again, frozen_at_first, curriculum, data_mixture, another_domain,
        pre_training_with_spikes, momentum_contrast, moving_target, regression, regression_in_bursts,
        classification_to_zero, early_plateau, uneven_steps, longer_texts_later, fast_first_epoch, slow_checkpoints,
        rare_class, overflowing_scaler, skipped_batches, reference,
        adversarial_term, penalty_from_zero, value_of_rising_returns, unlabeled_batches,
        unlabeled_batches_without_norm, infinite_losses_of_fp16,
    )
}  # fmt: skip


def draw_curve(family: str, seed: int, *, max_steps: int) -> LossCurve:
    """Return the curve of a family for a seed."""
    number = list(FAMILIES).index(family)
    return FAMILIES[family](Draw(1000 * number + seed, max_steps))
