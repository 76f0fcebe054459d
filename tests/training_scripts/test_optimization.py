"""Learning rate, optimizer groups and the cutting of batches."""

from __future__ import annotations

from contextlib import nullcontext

import pytest
from hypothesis import given, strategies as st
from torch import nn

from trainer.batching import plan_batches
from trainer.hyperparameters import Hyperparameters
from trainer.optimization import keeping_weight_decay, make_optimizer, set_learning_rate
from trainer.schedule import LearningRateSchedule, make_schedule
from trainyard_watch.errors import HyperparameterError

pytestmark = pytest.mark.torch


def test_schedule_warms_up_linearly_then_follows_the_cosine():
    schedule = LearningRateSchedule(peak=1.0, warmup_steps=4, max_steps=104, min_ratio=0.1)

    assert [schedule.at(step) for step in range(4)] == [0.25, 0.5, 0.75, 1.0]
    assert schedule.at(4) == pytest.approx(1.0)
    assert schedule.at(54) == pytest.approx(0.55)
    assert schedule.at(104) == pytest.approx(0.1)
    assert schedule.at(10_000) == pytest.approx(0.1)


def test_schedule_reaches_its_worked_number():
    schedule = LearningRateSchedule(peak=1.0, warmup_steps=0, max_steps=100, min_ratio=0.0)

    assert schedule.at(50) == pytest.approx(0.5)


@pytest.mark.parametrize(("scaling", "peak"), [("linear", 4e-3), ("sqrt", 2e-3)])
def test_peak_follows_the_batch_size(scaling, peak):
    hyperparameters = Hyperparameters(
        learning_rate=1e-3,
        reference_batch_size=8,
        global_batch_size=32,
        learning_rate_scaling=scaling,
    )

    assert make_schedule(hyperparameters, max_steps=10).peak == pytest.approx(peak)


def test_peak_is_as_given_without_a_reference():
    assert make_schedule(Hyperparameters(learning_rate=1e-3), max_steps=10).peak == 1e-3


def test_warm_up_is_a_tenth_unless_given():
    assert make_schedule(Hyperparameters(), max_steps=50).warmup_steps == 5
    assert make_schedule(Hyperparameters(warmup_steps=0), max_steps=50).warmup_steps == 0


def test_only_matrices_decay():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))

    optimizer = make_optimizer(model, weight_decay=0.3)

    groups = {group["weight_decay"]: len(group["params"]) for group in optimizer.param_groups}
    assert groups == {0.3: 1, 0.0: 3}
    set_learning_rate(optimizer, 0.5)
    assert {group["lr"] for group in optimizer.param_groups} == {0.5}


def test_a_restored_optimizer_keeps_the_weight_decay_of_this_start():
    model = nn.Sequential(nn.Linear(4, 3), nn.LayerNorm(3))
    saved = make_optimizer(model, weight_decay=0.3).state_dict()
    optimizer = make_optimizer(model, weight_decay=0.1)

    with keeping_weight_decay(optimizer):
        optimizer.load_state_dict(saved)

    assert [group["weight_decay"] for group in optimizer.param_groups] == [0.1, 0.0]


@given(
    world_size=st.integers(1, 16),
    micro=st.none() | st.integers(1, 16),
    batch=st.integers(1, 256),
)
def test_plan_multiplies_to_the_global_batch_or_is_refused(world_size, micro, batch):
    hyperparameters = Hyperparameters(global_batch_size=batch, micro_batch_size=micro)
    divides = batch % (world_size * (micro or max(1, batch // world_size))) == 0

    with nullcontext() if divides else pytest.raises(HyperparameterError, match="a multiple of"):
        plan = plan_batches(hyperparameters, world_size=world_size, num_samples=10_000)
        assert plan.gradient_accumulation_steps * plan.micro_batch_size * world_size == batch


def test_the_shorter_of_steps_and_epochs_ends_the_run():
    def steps(**values):
        hyperparameters = Hyperparameters(global_batch_size=10, **values)
        return hyperparameters.num_steps(num_samples=95)

    assert steps(max_steps=7) == 7
    assert steps(max_steps=0, epochs=2) == 19
    assert steps(max_steps=7, epochs=2) == 7
    assert steps(max_steps=30, epochs=0.5) == 4
