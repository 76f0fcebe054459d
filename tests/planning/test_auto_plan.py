"""What the planner fills in where a conf says "auto", and what it refuses."""

from __future__ import annotations

from typing import Any

import pytest

from include.errors import FindingsError
from include.planning.auto_plan import resolve_auto
from include.planning.run_plan import plan_run

LARGE: dict[str, Any] = {
    "num_layers": 32,
    "hidden_size": 4096,
    "num_heads": 32,
    "sequence_length": 4096,
    "global_batch_size": 512,
    "max_steps": 2000,
    "precision": "bf16",
    "deadline_h": 100,
}
OPEN = {"strategy": "auto", "instance_type": "auto", "instance_count": 0}


def refused(**params: Any) -> str:
    with pytest.raises(FindingsError) as caught:
        resolve_auto(params)
    return str(caught.value)


def test_conf_that_leaves_nothing_open_is_as_it_was() -> None:
    assert resolve_auto({"instance_type": "ml.m5.large"}) == (
        {"instance_type": "ml.m5.large"},
        None,
    )


def test_small_model_goes_onto_one_accelerator() -> None:
    params, choice = resolve_auto({**OPEN, "precision": "bf16"})

    assert choice is not None
    assert (params["strategy"], params["instance_count"]) == ("ddp", 1)
    assert params["instance_type"].startswith("ml.g")
    assert "left to the planner: strategy, instance_type, instance_count" in choice.reasons[0]
    assert "one accelerator holds it" in choice.reasons[1]


def test_large_model_is_sharded_and_the_run_s_own_plan_agrees() -> None:
    params, choice = resolve_auto({**OPEN, **LARGE, "max_run_s": 400_000})

    assert choice is not None
    assert params["strategy"] == "fsdp"
    ranks = params["instance_count"] * params["processes_per_instance"]
    assert params["hyperparameters"]["hybrid_shard_degree"] == ranks
    assert "nothing simpler fits" in choice.reasons[1]
    plan = plan_run(params)
    assert plan.world_size == ranks
    assert plan.gradient_accumulation_steps == choice.plan["gradient_accumulation_steps"]


def test_what_is_said_stays() -> None:
    params, choice = resolve_auto(
        {**LARGE, "strategy": "auto", "instance_type": "ml.p5.48xlarge", "instance_count": 2}
    )

    assert choice is not None
    assert (params["instance_type"], params["instance_count"]) == ("ml.p5.48xlarge", 2)
    assert params["processes_per_instance"] == 8
    assert set(choice.chosen) >= {"strategy", "processes_per_instance", "micro_batch_size"}
    assert "instance_type" not in choice.chosen


def test_limit_shorter_than_the_plan_is_told() -> None:
    _, choice = resolve_auto({**OPEN, **LARGE, "max_run_s": 3600})

    assert choice is not None
    assert "max_run_s 3600 is shorter" in choice.reasons[-1]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({**OPEN, "model": "mlp", "target_column": "y"}, "the planner knows decoders only"),
        ({**OPEN, "precision": "fp16"}, "precision: is not a choice"),
        ({"strategy": "auto", "instance_type": "ml.m5.large"}, "is no NVIDIA type"),
        ({**OPEN, "max_steps": "many"}, "max_steps: has the wrong type"),
        ({**OPEN, "capacity_ladder": [{"instance_type": "ml.g5.xlarge"}]}, "capacity_ladder"),
        (
            {**OPEN, "hyperparameters": {"tensor_parallel_degree": 2}},
            "hyperparameters.tensor_parallel_degree: is what the planner chooses",
        ),
        (
            {
                **LARGE,
                "strategy": "ddp",
                "instance_type": "auto",
                "instance_count": 16,
                "num_layers": 80,
                "hidden_size": 8192,
                "num_heads": 64,
                "deadline_h": None,
            },
            "no cluster holds the model in copies",
        ),
        (
            {**LARGE, **OPEN, "deadline_h": 0.2, "budget_usd": 1},
            "no plan fits",
        ),
    ],
    ids=[
        "table",
        "fp16",
        "no GPU",
        "bad conf",
        "ladder",
        "degrees",
        "copies",
        "deadline and budget",
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(
    params: dict[str, Any], says: str
) -> None:
    assert says in refused(**params)
