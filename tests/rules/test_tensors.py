"""Each rule on gradients, weights and activations fires at its step, spares its neighbor, and does not guess."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, noisy, steps, tensor_steps
from trainyard.rules.records import (
    ACTIVATIONS,
    GRADIENTS,
    WEIGHTS,
    Facts,
    Record,
    StepRecord,
    TensorStatistics as Tensor,
)
from trainyard.rules.rule import RuleProfile

PLAIN = steps(100, loss=1.0)
MOVING = tensor_steps(100, collection=WEIGHTS, l2=2.0, update_l2=0.002)
DOCUMENTED = RuleProfile.DOCUMENTED


def initial(
    count: int, *, loss: object, small: float = 1e-4, span: float = 0.1
) -> list[StepRecord]:
    """Return the first steps of a network whose two weights have the variances 1e-2 and `small`."""
    weights = {"a": Tensor(variance=1e-2), "b": Tensor(variance=small)}
    gradients = {"a": Tensor(p5=-span / 2, p95=span / 2)}
    return [
        StepRecord(
            step=step,
            loss=loss(step) if callable(loss) else loss,  # type: ignore[arg-type]  # one of both
            tensors={WEIGHTS: weights, GRADIENTS: gradients},
        )
        for step in range(1, count + 1)
    ]


def two_gradients(count: int, /, *, largest: float = 1.0, **fields: Any) -> list[Record]:
    """Return steps with two gradients, the mean of the second one's size being `largest`."""
    small = tensor_steps(count, **fields)
    return [
        replace(
            each, tensors={GRADIENTS: {**each.tensors[GRADIENTS], "out": Tensor(mean_abs=largest)}}
        )
        for each in small
        if isinstance(each, StepRecord)
    ]


CASES = [
    JudgedCase(
        name="VanishingGradient: documented",
        rule="VanishingGradient",
        profile=DOCUMENTED,
        faulty=tensor_steps(50, mean_abs=jump(1e-3, 0.9e-7, at=30)),
        healthy=tensor_steps(50, mean_abs=jump(1e-3, 1.1e-7, at=30)),
        without=PLAIN,
        fires=30, onset=30, says="9e-08, below 1e-07", needs="gradients by tensor",
    ),
    JudgedCase(
        name="VanishingGradient: by the norm",
        rule="VanishingGradient",
        faulty=two_gradients(50, l2=jump(1.0, 1e-6, at=30), num_elements=400),
        healthy=two_gradients(50, l2=lambda step: 1e-6 if step % 10 else 1.0, num_elements=400),
        without=tensor_steps(50, l2=1e-9),
        fires=39, onset=30, says="5e-08", needs="l2 with num_elements",
    ),
    JudgedCase(
        name="VanishingGradient: of a large model",
        rule="VanishingGradient",
        faulty=two_gradients(50, mean_abs=1e-12),
        healthy=two_gradients(50, largest=1e-8, mean_abs=1e-11),
        without=tensor_steps(50, tensor="key.bias", mean_abs=1e-12),
        fires=10, onset=0, says="1e-12, below 1e-07", needs="gradients by tensor",
    ),
    JudgedCase(
        name="VanishingGradient: exactly zero",
        rule="VanishingGradient",
        profile=DOCUMENTED,
        faulty=tensor_steps(50, mean_abs=0.0),
        healthy=tensor_steps(50, mean_abs=1e-3),
        without=PLAIN,
        fires=1, onset=0, says="0, below 1e-07", needs="gradients by tensor",
    ),
    JudgedCase(
        rule="ExplodingTensor",
        facts=Facts(precision="bf16", skipped_steps=0),
        faulty=tensor_steps(50, l2=jump(1.0, math.inf, at=20)),
        healthy=tensor_steps(50, l2=1e30),
        without=PLAIN,
        fires=20, onset=20, says="has an infinity", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: only NaN",
        rule="ExplodingTensor",
        facts=Facts(precision="bf16", skipped_steps=0),
        parameters={"only_nan": "true", "collection_names": "gradients"},
        faulty=tensor_steps(50, l2=jump(1.0, math.nan, at=20)),
        healthy=tensor_steps(50, l2=jump(1.0, math.inf, at=20)),
        without=tensor_steps(50, collection=WEIGHTS, l2=math.nan),
        fires=20, onset=20, says="has a NaN", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: a loss scaler skips",
        rule="ExplodingTensor",
        facts=Facts(precision="fp16"),
        faulty=tensor_steps(70, l2=jump(1.0, math.inf, at=20)),
        healthy=tensor_steps(70, l2=lambda step: math.inf if step <= 33 else 1.0),
        without=PLAIN,
        fires=59, onset=20, says="has an infinity", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: the script may skip batches",
        rule="ExplodingTensor",
        facts=Facts(precision="bf16"),
        faulty=tensor_steps(50, l2=jump(1.0, math.nan, at=20)),
        healthy=tensor_steps(50, l2=lambda step: math.nan if step % 5 else 1.0),
        without=PLAIN,
        fires=24, onset=20, says="has a NaN", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: the script skips batches",
        rule="ExplodingTensor",
        facts=Facts(precision="bf16", skipped_steps=5),
        faulty=tensor_steps(50, l2=jump(1.0, math.nan, at=20)),
        healthy=tensor_steps(50, l2=lambda step: math.nan if step % 6 else 1.0),
        without=PLAIN,
        fires=25, onset=20, says="has a NaN", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: a weight is not skipped",
        rule="ExplodingTensor",
        facts=Facts(precision="fp16", skipped_steps=5),
        faulty=tensor_steps(50, collection=WEIGHTS, l2=jump(1.0, math.nan, at=20)),
        healthy=tensor_steps(50, collection=WEIGHTS, l2=1.0),
        without=PLAIN,
        fires=20, onset=20, says="has a NaN", needs="statistics by tensor",
        severity="error",
    ),
    JudgedCase(
        name="ExplodingTensor: an output, masked",
        rule="ExplodingTensor",
        facts=Facts(precision="bf16", skipped_steps=0),
        faulty=tensor_steps(50, collection=ACTIVATIONS, minimum=0.0, maximum=jump(1.0, math.inf, at=20)),
        healthy=tensor_steps(
            50, collection=ACTIVATIONS, minimum=-math.inf, maximum=1.0, mean=-math.inf, variance=math.nan
        ),
        without=PLAIN,
        fires=20, onset=20, says="has an infinity", needs="statistics by tensor",
    ),
    JudgedCase(
        name="ExplodingTensor: documented, at once",
        rule="ExplodingTensor",
        profile=DOCUMENTED,
        facts=Facts(precision="fp16"),
        faulty=tensor_steps(50, collection=ACTIVATIONS, minimum=jump(0.0, -math.inf, at=20)),
        healthy=tensor_steps(50, l2=1e30),
        without=PLAIN,
        fires=20, onset=20, says="has an infinity", needs="statistics by tensor",
    ),
    JudgedCase(
        rule="GradNormSpike",
        faulty=steps(80, gradient_norm=lambda step: 30.0 if step == 60 else noisy(1.0, 0.2)(step)),
        healthy=steps(80, gradient_norm=lambda step: 8.0 if step == 60 else noisy(1.0, 0.2)(step)),
        without=PLAIN,
        fires=60, onset=60, says="gradient norm 30 against a median", needs="the gradient norm",
    ),
    JudgedCase(
        name="WeightUpdateRatio: documented",
        rule="WeightUpdateRatio",
        profile=DOCUMENTED,
        faulty=tensor_steps(50, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 21.0, at=25)),
        healthy=tensor_steps(50, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 19.0, at=25)),
        without=tensor_steps(50, collection=WEIGHTS, l2=2.0),
        fires=25, onset=25, says="update / weight is 10.5", needs="update_l2 and l2 of weights",
    ),
    JudgedCase(
        name="WeightUpdateRatio: robust",
        rule="WeightUpdateRatio",
        parameters={"num_steps": "10"},
        faulty=tensor_steps(100, collection=WEIGHTS, l2=2.0, update_l2=0.0),
        healthy=MOVING,
        without=tensor_steps(50, collection=WEIGHTS, l2=2.0, update_l2=0.0),
        fires=80, onset=0, says="update / weight is 0", needs="after the warm-up of 50 steps",
    ),
    JudgedCase(
        rule="UpdateRatio",
        faulty=tensor_steps(100, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 0.3, at=70)),
        healthy=tensor_steps(100, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 0.19, at=70)),
        without=PLAIN,
        fires=72, onset=70, says="update / weight is 0.15", needs="update_l2 and l2 of weights",
    ),
    JudgedCase(
        name="UnchangedTensor: documented",
        rule="UnchangedTensor",
        profile=DOCUMENTED,
        parameters={"collection_names": "weights"},
        faulty=tensor_steps(50, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 1e-5, at=20)),
        healthy=tensor_steps(50, collection=WEIGHTS, l2=2.0, update_l2=jump(0.002, 1e-4, at=20)),
        without=MOVING[:0],
        fires=22, onset=20, says="unchanged over 3 observations", needs="a choice of tensors",
    ),
    JudgedCase(
        name="UnchangedTensor: by checksums",
        rule="UnchangedTensor",
        faulty=tensor_steps(50, collection=WEIGHTS, checksum=lambda step: str(min(step, 20))),
        healthy=tensor_steps(50, collection=WEIGHTS, checksum=lambda step: str(step // 5)),
        without=tensor_steps(50, checksum="same"),
        fires=30, onset=20, says="unchanged over 10 observations", needs="their checksum",
    ),
    JudgedCase(
        name="AllZero: documented",
        rule="AllZero",
        profile=DOCUMENTED,
        parameters={"tensor_regex": ".*weight", "threshold": "90"},
        faulty=tensor_steps(50, zero_fraction=jump(0.1, 0.9, at=15)),
        healthy=tensor_steps(50, zero_fraction=jump(0.1, 0.89, at=15)),
        without=tensor_steps(50, tensor="0.bias", zero_fraction=1.0),
        fires=15, onset=15, says="90 % of the values are zero", needs="a choice of tensors",
    ),
    JudgedCase(
        name="AllZero: robust",
        rule="AllZero",
        faulty=tensor_steps(90, zero_fraction=1.0),
        healthy=tensor_steps(90, zero_fraction=0.99),
        without=tensor_steps(50, zero_fraction=1.0),
        fires=60, onset=0, says="100 %", needs="after the warm-up of 50 steps",
    ),
    JudgedCase(
        rule="TensorVariance",
        parameters={"max_threshold": 4.0, "min_threshold": 1e-6},
        faulty=tensor_steps(50, variance=jump(1.0, 5.0, at=12)),
        healthy=tensor_steps(50, variance=jump(1.0, 3.9, at=12)),
        without=PLAIN,
        fires=12, onset=12, says="the variance is 5, outside 1e-06 to 4", needs="min_threshold or max_threshold",
    ),
    JudgedCase(
        name="PoorWeightInitialization: documented",
        rule="PoorWeightInitialization",
        profile=DOCUMENTED,
        faulty=initial(10, loss=lambda step: 2.0 - step / 10, span=0.0009),
        healthy=initial(10, loss=lambda step: 2.0 - step / 10, small=1.1e-3, span=0.0011),
        without=steps(10, loss=2.0),
        fires=1, onset=0, says="spans 0.0009", needs="in the first steps",
    ),
    JudgedCase(
        name="PoorWeightInitialization: robust",
        rule="PoorWeightInitialization",
        faulty=initial(200, loss=noisy(2.0, 0.01)),
        healthy=initial(200, loss=lambda step: 2.0 - step / 500),
        without=steps(200, loss=2.0),
        fires=100, onset=0, says="100 times the smallest; the loss does not fall", needs="in the first steps",
    ),
    JudgedCase(
        name="DeadRelu: documented",
        rule="DeadRelu",
        profile=DOCUMENTED,
        faulty=tensor_steps(
            20, collection=ACTIVATIONS, tensor="act_relu_output", inactive_fraction=jump(0.1, 0.51, at=7)
        ),
        healthy=tensor_steps(20, collection=ACTIVATIONS, tensor="act_relu_output", inactive_fraction=0.5),
        without=tensor_steps(20, collection=ACTIVATIONS, tensor="2.act_output_0", inactive_fraction=0.9),
        fires=7, onset=7, says="51 % of the units are dead", needs="ReLU modules",
    ),
    JudgedCase(
        name="DeadRelu: by class",
        rule="DeadRelu",
        faulty=tensor_steps(
            20, collection=ACTIVATIONS, module_class="ReLU",
            inactivity_percent=1.0, inactive_fraction=jump(0.1, 0.9, at=7),
        ),
        healthy=tensor_steps(20, collection=ACTIVATIONS, module_class="ReLU6", inactive_fraction=0.4),
        without=tensor_steps(
            20, collection=ACTIVATIONS, module_class="ReLU", inactivity_percent=5.0, inactive_fraction=0.9
        ),
        fires=9, onset=7, says="90 % of the units are dead", needs="inactive units were counted below 5 %, not 1 %",
    ),
    JudgedCase(
        rule="SaturatedActivation",
        faulty=tensor_steps(20, collection=ACTIVATIONS, module_class="Tanh", saturated_fraction=jump(0.1, 0.6, at=7)),
        healthy=tensor_steps(20, collection=ACTIVATIONS, module_class="Sigmoid", saturated_fraction=0.5),
        without=tensor_steps(20, collection=ACTIVATIONS, module_class="GELU", saturated_fraction=0.9),
        fires=9, onset=7, says="60 % of the units are saturated", needs="tanh or sigmoid modules",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_updates_that_vanish_with_the_learning_rate_are_meant_to() -> None:
    decayed = [
        StepRecord(
            step=step,
            learning_rate=rate,
            tensors={WEIGHTS: {"w": Tensor(l2=2.0, update_l2=1e-8)}},
        )
        for step, rate in [(1, 1e-2), *((step, 1e-5) for step in range(90, 100))]
    ]

    assert judged("UpdateRatio", decayed).issues == ()
    held = [
        StepRecord(step=each.step, learning_rate=1e-2, tensors=each.tensors) for each in decayed
    ]
    assert [issue.step for issue in judged("UpdateRatio", held).issues] == [92]


def test_a_weight_that_begins_at_zero_is_passed_by_until_it_has_a_size() -> None:
    zero = tensor_steps(100, collection=WEIGHTS, l2=1e-9, update_l2=1e-3)

    assert judged("UpdateRatio", zero).num_judged == 0


def test_the_issue_names_its_tensor() -> None:
    exploded = tensor_steps(3, tensor="block.3.weight", l2=math.nan)
    verdict = judged("ExplodingTensor", exploded, facts=Facts(precision="bf16", skipped_steps=0))

    assert verdict.issues[0].key == "gradients/block.3.weight"
    assert "gradients/block.3.weight: has a NaN" in verdict.status_details
