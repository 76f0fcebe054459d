"""What the planner fills in where a conf says "auto", and what it refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from trainyard.errors import FindingsError
from trainyard.planning.auto_plan import AutoChoice, choose_auto
from trainyard.planning.run_plan import plan_run
from trainyard.specs.run_conf_rules import OF_SHARDS

if TYPE_CHECKING:
    from collections.abc import Mapping

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
BEYOND_ONE: dict[str, Any] = {
    **LARGE,
    "num_layers": 80,
    "hidden_size": 8192,
    "num_heads": 64,
    "deadline_h": None,
}
"""A decoder of 64e9 parameters: 960 GiB of states."""
TIGHT: dict[str, Any] = {
    "num_layers": 28,
    "hidden_size": 2048,
    "num_heads": 16,
    "sequence_length": 512,
    "global_batch_size": 64,
    "precision": "bf16",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 0,
}
"""Copies fit 40 GB, and shards of one instance are more than a tenth faster."""
PARTS = ("parameters", "gradients", "optimizer", "activations", "buffers")
OPEN = {"strategy": "auto", "instance_type": "auto", "instance_count": 0}


def refused(**params: Any) -> str:
    with pytest.raises(FindingsError) as caught:
        choose_auto(params)
    return str(caught.value)


def resolved(params: Mapping[str, Any]) -> tuple[dict[str, Any], AutoChoice]:
    """Return the params with the planner's choices, and the choices."""
    choice = choose_auto(params)
    assert choice is not None
    return {**params, **choice.chosen}, choice


def test_conf_that_leaves_nothing_open_has_no_choices() -> None:
    assert choose_auto({"instance_type": "ml.m5.large"}) is None


def test_small_model_goes_onto_one_accelerator() -> None:
    params, choice = resolved({**OPEN, "precision": "bf16"})

    assert (params["strategy"], params["instance_count"]) == ("ddp", 1)
    assert params["instance_type"].startswith("ml.g")
    assert "left to the planner: strategy, instance_type, instance_count" in choice.reasons[0]
    assert "one accelerator holds it" in choice.reasons[1]


def test_large_model_is_sharded_and_the_run_s_own_plan_agrees() -> None:
    params, choice = resolved({**OPEN, **LARGE, "max_run_s": 400_000})

    assert params["strategy"] == "fsdp"
    ranks = params["instance_count"] * params["processes_per_instance"]
    assert params["hyperparameters"]["hybrid_shard_degree"] == ranks
    assert "nothing simpler fits" in choice.reasons[1]
    plan = plan_run(params)
    assert plan.world_size == ranks
    assert plan.gradient_accumulation_steps == choice.plan["gradient_accumulation_steps"]


def test_shards_that_the_conf_asks_for_are_planned_where_copies_would_do() -> None:
    conf = {
        "instance_type": "ml.g5.12xlarge",
        "instance_count": 0,
        "global_batch_size": 64,
        "num_layers": 12,
        "hidden_size": 1024,
        "num_heads": 16,
    }
    params, choice = resolved({**conf, "strategy": "fsdp"})

    assert params["hyperparameters"]["hybrid_shard_degree"] == 4
    assert choice.plan["mesh"] == {"dp_replicate": 1, "dp_shard": 4, "tp": 1, "pp": 1}
    assert choice.reasons[1].endswith("fsdp, since the conf requests strategy fsdp")
    copies, _ = resolved({**conf, "strategy": "auto"})
    assert copies["strategy"] == "ddp"


def test_one_accelerator_holds_all_shards() -> None:
    params, choice = resolved(
        {"strategy": "fsdp", "instance_type": "ml.g5.xlarge", "instance_count": 0}
    )

    assert params["processes_per_instance"] == params["instance_count"] == 1
    assert params["hyperparameters"]["hybrid_shard_degree"] == 1
    assert "one accelerator holds it" in choice.reasons[1]


def test_copies_that_the_conf_asks_for_are_planned_where_shards_are_better() -> None:
    free, _ = resolved({**TIGHT, "strategy": "auto"})
    params, choice = resolved({**TIGHT, "strategy": "ddp"})

    assert free["strategy"] == "fsdp"
    assert (params["strategy"], params["instance_count"]) == ("ddp", 1)
    assert not set(params["hyperparameters"]) & set(OF_SHARDS)
    assert choice.plan["mesh"]["dp_replicate"] == 8
    assert choice.plan["recompute"] == "none"
    assert sum(choice.plan["memory_bytes"][part] for part in PARTS) <= choice.plan["usable_bytes"]


def test_copies_that_no_cluster_holds_are_refused_with_the_reason_for_each() -> None:
    said = refused(**BEYOND_ONE, strategy="ddp", instance_type="ml.p5.48xlarge", instance_count=0)

    assert (
        "strategy: is ddp, but no cluster can train the model without sharding or activation recomputation"
        in said
    )
    for count in (1, 2, 4, 8, 16):
        assert (
            f" {count} x ml.p5.48xlarge: cannot hold the model, because each accelerator has 74.1 GiB but "
            "needs at least 1.1" in said
        )
    assert f"optimizer state; dp_replicate {16 * 8}, recompute none" in said


def test_copies_of_a_batch_too_small_for_all_ranks_are_refused_with_that_reason() -> None:
    said = refused(**{**TIGHT, "strategy": "ddp", "global_batch_size": 4})

    assert (
        "a global batch of 4 cannot be divided evenly over 8 ranks, and the conf requests" in said
    )


@pytest.mark.parametrize("strategy", ["fsdp", "auto"])
@pytest.mark.parametrize("name", OF_SHARDS)
def test_what_belongs_to_a_layout_is_the_planner_s(name: str, strategy: str) -> None:
    said = refused(strategy=strategy, instance_type="auto", hyperparameters={name: 2})

    assert "1 problem" in said
    assert f"hyperparameters.{name}: is set, but the planner chooses it" in said


def test_tied_embeddings_are_not_planned() -> None:
    said = refused(instance_type="auto", hyperparameters={"tied_embeddings": True})

    assert (
        "hyperparameters.tied_embeddings: is set, but the planner may choose pipeline stages"
        in said
    )


def test_layouts_of_shards_are_not_for_copies() -> None:
    said = refused(strategy="ddp", instance_type="auto", hyperparameters={"cpu_offload": True})

    assert "hyperparameters.cpu_offload: is an unknown key" in said


@pytest.mark.parametrize("strategy", ["ddp", "fsdp", "auto"])
def test_other_hyperparameters_stay(strategy: str) -> None:
    params, _ = resolved(
        {"strategy": strategy, "instance_type": "auto", "hyperparameters": {"num_workers": 2}}
    )

    assert params["hyperparameters"]["num_workers"] == 2


def test_what_the_speeds_were_measured_with_is_set() -> None:
    params, choice = resolved(OPEN)

    assert params["precision"] == choice.plan["precision"] == "bf16"
    assert (params["hyperparameters"]["compile"], params["hyperparameters"]["num_workers"]) == (
        True,
        2,
    )
    assert "bf16, compiled" in choice.reasons
    assert not [each for each in plan_run(params).warnings if each.where == "precision"]


def test_an_eager_training_is_planned_as_slower() -> None:
    said = {**OPEN, **LARGE, "instance_type": "ml.p5.48xlarge", "instance_count": 2}
    _, compiled = resolved(said)
    params, eager = resolved({**said, "hyperparameters": {"compile": False}})

    assert params["hyperparameters"]["compile"] is False
    assert eager.plan["step_s"]["compute"] > 1.1 * compiled.plan["step_s"]["compute"]


def test_a_fixed_type_without_bf16_keeps_fp32() -> None:
    params, _ = resolved(
        {"strategy": "auto", "instance_type": "ml.g4dn.12xlarge", "instance_count": 1}
    )

    assert params["precision"] == "fp32"
    assert params["hyperparameters"]["compile"] is False


@pytest.mark.parametrize(
    "conf",
    [
        OPEN,
        {"strategy": "auto", "instance_type": "ml.p4d.24xlarge", "instance_count": 1},
        {"strategy": "auto", "instance_type": "ml.g5.12xlarge", "instance_count": 1},
    ],
    ids=["open", "p4d", "g5"],
)
def test_explicit_fp32_is_kept(conf: dict[str, Any]) -> None:
    params, choice = resolved({**conf, "precision": "fp32"})

    assert params["precision"] == choice.plan["precision"] == "fp32"


def test_what_is_said_stays() -> None:
    params, choice = resolved(
        {**LARGE, "strategy": "auto", "instance_type": "ml.p5.48xlarge", "instance_count": 2}
    )

    assert (params["instance_type"], params["instance_count"]) == ("ml.p5.48xlarge", 2)
    assert params["processes_per_instance"] == 8
    assert set(choice.chosen) >= {"strategy", "processes_per_instance", "micro_batch_size"}
    assert "instance_type" not in choice.chosen


def test_limit_shorter_than_the_plan_is_told() -> None:
    _, choice = resolved({**OPEN, **LARGE, "max_run_s": 3600})

    assert "max_run_s 3600 is shorter" in choice.reasons[-1]


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {**OPEN, "model": "mlp", "target_column": "y"},
            "is left to the planner, which supports decoder models only",
        ),
        ({**OPEN, "precision": "fp16"}, "precision: is not an allowed value"),
        ({"strategy": "auto", "instance_type": "ml.m5.large"}, "is not an NVIDIA instance type"),
        ({**OPEN, "max_steps": "many"}, "max_steps: has the wrong type"),
        ({**OPEN, "capacity_ladder": [{"instance_type": "ml.g5.xlarge"}]}, "capacity_ladder"),
        (
            {**OPEN, "hyperparameters": {"tensor_parallel_degree": 2}},
            "hyperparameters.tensor_parallel_degree: is set, but the planner chooses it",
        ),
        ({**OPEN, "strategy": "horovod"}, "strategy: is not an allowed value"),
        ({**OPEN, "hyperparameters": "none"}, "hyperparameters: has the wrong type"),
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
        "strategy",
        "bad hyperparameters",
        "deadline and budget",
    ],
)
def test_what_cannot_be_planned_is_refused_with_the_reason(
    params: dict[str, Any], says: str
) -> None:
    assert says in refused(**params)
