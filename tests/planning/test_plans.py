"""What the planner chooses: one larger instance first, replicas where they fit, shards and split layers where not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from trainyard.errors import PlanError, SpecError
from trainyard.planning.candidates import candidates, meshes
from trainyard.planning.compute import Cluster
from trainyard.planning.mesh import Mesh
from trainyard.planning.plan_request import PlanRequest
from trainyard.planning.plans import Plans, clusters, make_plans
from trainyard.planning.shapes import PUBLISHED

P4D, P4DE, P5 = "ml.p4d.24xlarge", "ml.p4de.24xlarge", "ml.p5.48xlarge"
G5_1, G5_4, G5_8 = "ml.g5.xlarge", "ml.g5.12xlarge", "ml.g5.48xlarge"


def request(**given: Any) -> PlanRequest:
    named = {"model", "num_parameters", "num_layers"} & set(given)
    model = {} if named else {"model": "gpt2-124m"}
    return PlanRequest.from_mapping({"global_batch_size": 64, "tokens": 1e9, **model, **given})


def plans(**given: Any) -> Plans:
    return make_plans(request(**given))


@dataclass(frozen=True, kw_only=True)
class ChosenPlan:
    """What is asked for, and the cluster, mesh and reason that come first."""

    ask: dict[str, Any]
    cluster: str
    mesh: Mesh
    reason: str = ""


def on(name: str, count: int = 1, **more: Any) -> dict[str, Any]:
    return {"instance_types": [name], "instance_count": count, **more}


GPT2: dict[str, Any] = {"model": "gpt2-124m", "global_batch_size": 480, "tokens": 9e9}
LLAMA8: dict[str, Any] = {"model": "llama3-8b"}
LLAMA70: dict[str, Any] = {"model": "llama3-70b"}
GPT3: dict[str, Any] = {"model": "gpt3-175b"}
COMMON: dict[str, Any] = {"instance_types": [G5_1, G5_8, P4D, P5], "max_instances": 4}
DDP = "each accelerator holds the whole model, so data parallel"
NOTHING_SIMPLER = "since nothing simpler fits: weights, gradients and optimizer state alone are"

CHOICES: dict[str, ChosenPlan] = {
    # as they were published
    "Llama 3 8B on 64 A100 as torchtitan ran it": ChosenPlan(
        ask={**LLAMA8, **on(P4DE, 8)},
        cluster=f"8 x {P4DE}",
        mesh=Mesh(dp_shard=64),
        reason=NOTHING_SIMPLER,
    ),
    "Llama 3 70B on 64 A100 as torchtitan ran it": ChosenPlan(
        ask={**LLAMA70, **on(P4DE, 8)},
        cluster=f"8 x {P4DE}",
        mesh=Mesh(dp_shard=64),
        reason=NOTHING_SIMPLER,
    ),
    "Llama 3 8B on 8 H100 as torchtitan ran it": ChosenPlan(
        ask={**LLAMA8, **on(P5), "global_batch_size": 16},
        cluster=f"1 x {P5}",
        mesh=Mesh(dp_shard=8),
        reason=NOTHING_SIMPLER,
    ),
    "Llama 3 8B on 128 H100 as torchtitan ran it": ChosenPlan(
        ask={**LLAMA8, **on(P5, 16), "global_batch_size": 256},
        cluster=f"16 x {P5}",
        mesh=Mesh(dp_shard=128),
    ),
    "GPT-3 175B on 64 A100 as Korthikanti et al. ran it": ChosenPlan(
        ask={**GPT3, **on(P4DE, 8)},
        cluster=f"8 x {P4DE}",
        mesh=Mesh(tp=8, pp=8),
        reason="tp+pp, since fsdp takes 2.62 x the time",
    ),
    # torchtitan took TP 8 x FSDP 32 with 16 sequences on each group, in float8; by the model two ranks to a group are
    # enough to keep more activations, which saves more than their talk costs
    "Llama 3 70B on 256 H100, where torchtitan took TP 8": ChosenPlan(
        ask={**LLAMA70, **on(P5, 32), "global_batch_size": 512},
        cluster=f"32 x {P5}",
        mesh=Mesh(dp_shard=128, tp=2),
        reason="fsdp+tp, since fsdp takes 1.12 x the time",
    ),
    "GPT-2 124M on 8 A100 as nanoGPT ran it": ChosenPlan(
        ask={**GPT2, **on(P4D)}, cluster=f"1 x {P4D}", mesh=Mesh(dp_replicate=8), reason=DDP
    ),
    # one accelerator, then one instance
    "GPT-2 on one accelerator": ChosenPlan(
        ask={**GPT2, **on(G5_1)},
        cluster=f"1 x {G5_1}",
        mesh=Mesh(),
        reason="cheapest; one accelerator holds it",
    ),
    "GPT-2 where there are small ones only": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_1, G5_4]}, cluster=f"1 x {G5_1}", mesh=Mesh()
    ),
    "GPT-2 in less time than one accelerator takes": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_1, G5_4, G5_8], "deadline_h": 24},
        cluster=f"1 x {G5_4}",
        mesh=Mesh(dp_replicate=4),
        reason="cheapest within 24.0 h",
    ),
    "GPT-2 in still less time: one larger instance, not two": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_1, G5_4, G5_8], "deadline_h": 12},
        cluster=f"1 x {G5_8}",
        mesh=Mesh(dp_replicate=8),
    ),
    "GPT-2 in less than one instance takes": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_8], "deadline_h": 5},
        cluster=f"2 x {G5_8}",
        mesh=Mesh(dp_replicate=16),
    ),
    "GPT-2 anywhere": ChosenPlan(
        ask=GPT2, cluster=f"1 x {P4D}", mesh=Mesh(dp_replicate=8), reason="cheapest;"
    ),
    "GPT-2 anywhere, within an hour": ChosenPlan(
        ask={**GPT2, **COMMON, "deadline_h": 1},
        cluster=f"2 x {P4D}",
        mesh=Mesh(dp_replicate=16),
        reason=DDP,
    ),
    "GPT-2 as fast as 50 USD allow": ChosenPlan(
        ask={**GPT2, **COMMON, "budget_usd": 50},
        cluster=f"4 x {P4D}",
        mesh=Mesh(dp_replicate=4, dp_shard=8),
        reason="fastest within $50.00",
    ),
    "GPT-2 as fast as 5000 USD allow, where more hardly pays": ChosenPlan(
        ask={**GPT2, "global_batch_size": 512, "budget_usd": 5000, "instance_types": [P5]},
        cluster=f"16 x {P5}",
        mesh=Mesh(dp_shard=128),
    ),
    "GPT-2 within a deadline and a budget": ChosenPlan(
        ask={**GPT2, **COMMON, "deadline_h": 2, "budget_usd": 60},
        cluster=f"1 x {P4D}",
        mesh=Mesh(dp_replicate=8),
    ),
    # replicas while they fit, shards when not
    "1B on A100 40 GB: replicas": ChosenPlan(
        ask={"num_parameters": 1e9, **on(P4D)},
        cluster=f"1 x {P4D}",
        mesh=Mesh(dp_replicate=8),
        reason=DDP,
    ),
    "1B on A10G: shards": ChosenPlan(
        ask={"num_parameters": 1e9, **on(G5_8)}, cluster=f"1 x {G5_8}", mesh=Mesh(dp_shard=8)
    ),
    "1B on one A10G does not fit, four do": ChosenPlan(
        ask={"num_parameters": 1.5e9, "instance_types": [G5_1, G5_4]},
        cluster=f"1 x {G5_4}",
        mesh=Mesh(dp_shard=4),
        reason=NOTHING_SIMPLER,
    ),
    "3B on A100 40 GB: shards": ChosenPlan(
        ask={"num_parameters": 3e9, **on(P4D)},
        cluster=f"1 x {P4D}",
        mesh=Mesh(dp_shard=8),
        reason=NOTHING_SIMPLER,
    ),
    "3B on H100 80 GB: replicas": ChosenPlan(
        ask={"num_parameters": 3e9, **on(P5)},
        cluster=f"1 x {P5}",
        mesh=Mesh(dp_replicate=8),
        reason=DDP,
    ),
    "3B on H200": ChosenPlan(
        ask={"num_parameters": 3e9, **on("ml.p5e.48xlarge")},
        cluster="1 x ml.p5e.48xlarge",
        mesh=Mesh(dp_replicate=8),
        reason="cheapest of unknown price",
    ),
    "8B on H200: shards": ChosenPlan(
        ask={**LLAMA8, **on("ml.p5e.48xlarge")},
        cluster="1 x ml.p5e.48xlarge",
        mesh=Mesh(dp_shard=8),
    ),
    "8B on B200": ChosenPlan(
        ask={**LLAMA8, **on("ml.p6-b200.48xlarge")},
        cluster="1 x ml.p6-b200.48xlarge",
        mesh=Mesh(dp_shard=8),
    ),
    "8B on one instance of A100 80 GB": ChosenPlan(
        ask={**LLAMA8, **on(P4DE)}, cluster=f"1 x {P4DE}", mesh=Mesh(dp_shard=8)
    ),
    "8B on two instances of A100 80 GB": ChosenPlan(
        ask={**LLAMA8, **on(P4DE, 2)}, cluster=f"2 x {P4DE}", mesh=Mesh(dp_shard=16)
    ),
    "8B on one instance of A100 40 GB needs the batch of a rank split": ChosenPlan(
        ask={**LLAMA8, **on(P4D)},
        cluster=f"1 x {P4D}",
        mesh=Mesh(dp_shard=4, tp=2),
        reason="fsdp+tp, since tp takes 1.11 x the time of the fastest",
    ),
    "13B on 64 A100 as torchtitan ran Llama 2 13B": ChosenPlan(
        ask={
            "num_parameters": 13e9,
            "sequence_length": 4096,
            **on(P4DE, 8),
            "global_batch_size": 128,
        },
        cluster=f"8 x {P4DE}",
        mesh=Mesh(dp_shard=64),
    ),
    "13B with half the batch, when the network of P4 is too slow for the gradients": ChosenPlan(
        ask={"num_parameters": 13e9, "sequence_length": 4096, **on(P4DE, 8)},
        cluster=f"8 x {P4DE}",
        mesh=Mesh(dp_replicate=2, tp=4, pp=8),
    ),
    "30B on one H100 instance: split layers keep more activations": ChosenPlan(
        ask={"num_parameters": 30e9, **on(P5)},
        cluster=f"1 x {P5}",
        mesh=Mesh(dp_shard=4, tp=2),
        reason="fsdp+tp, since fsdp takes 1.12 x the time of the fastest",
    ),
    "30B within a week: one instance that recomputes nothing, since two ranks share each layer": ChosenPlan(
        ask={"num_parameters": 30e9, "instance_types": [P4D, P4DE, P5], "deadline_h": 168},
        cluster=f"1 x {P5}",
        mesh=Mesh(dp_shard=4, tp=2),
        reason="cheapest within 168.0 h; fsdp+tp, since fsdp takes 1.12 x the time",
    ),
    "70B on four H100 instances": ChosenPlan(
        ask={**LLAMA70, **on(P5, 4)}, cluster=f"4 x {P5}", mesh=Mesh(dp_shard=32)
    ),
    "70B on H200: two instances": ChosenPlan(
        ask={**LLAMA70, "instance_types": ["ml.p5en.48xlarge"]},
        cluster="2 x ml.p5en.48xlarge",
        mesh=Mesh(dp_shard=8, tp=2),
    ),
    "70B with fewer sequences than ranks": ChosenPlan(
        ask={**LLAMA70, **on(P5, 8), "global_batch_size": 16},
        cluster=f"8 x {P5}",
        mesh=Mesh(dp_shard=16, tp=4),
    ),
    "8B with fewer sequences than ranks": ChosenPlan(
        ask={**LLAMA8, **on(P5), "global_batch_size": 4},
        cluster=f"1 x {P5}",
        mesh=Mesh(dp_replicate=2, tp=4),
        reason="ddp+tp, since tp takes",
    ),
    "one sequence at a time": ChosenPlan(
        ask={**LLAMA8, **on(P5), "global_batch_size": 1},
        cluster=f"1 x {P5}",
        mesh=Mesh(tp=8),
    ),
    "175B on H100": ChosenPlan(
        ask={**GPT3, **on(P5, 16), "global_batch_size": 128},
        cluster=f"16 x {P5}",
        mesh=Mesh(dp_shard=128),
    ),
    "175B on slow networks is split": ChosenPlan(
        ask={**GPT3, **on(P4D, 16), "global_batch_size": 128},
        cluster=f"16 x {P4D}",
        mesh=Mesh(tp=8, pp=16),
    ),
    # precision, hardware
    "fp32 on V100": ChosenPlan(
        ask={**GPT2, **on("ml.p3.16xlarge"), "precision": "fp32"},
        cluster="1 x ml.p3.16xlarge",
        mesh=Mesh(dp_replicate=8),
    ),
    "fp32 on T4": ChosenPlan(
        ask={**GPT2, **on("ml.g4dn.12xlarge"), "precision": "fp32"},
        cluster="1 x ml.g4dn.12xlarge",
        mesh=Mesh(dp_replicate=4),
    ),
    "L4 beside A10G": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_1, "ml.g6.xlarge"]},
        cluster="1 x ml.g6.xlarge",
        mesh=Mesh(),
    ),
    "larger host, same accelerators": ChosenPlan(
        ask={**GPT2, "instance_types": [G5_4, "ml.g5.24xlarge"]},
        cluster=f"1 x {G5_4}",
        mesh=Mesh(dp_replicate=4),
    ),
    "a shape by its layers": ChosenPlan(
        ask={"num_layers": 24, "hidden_size": 1024, "num_heads": 16, **on(P4D)},
        cluster=f"1 x {P4D}",
        mesh=Mesh(dp_replicate=8),
    ),
}


@pytest.mark.parametrize("case", CHOICES)
def test_a_choice(case: str) -> None:
    each = CHOICES[case]

    first = plans(**each.ask).plans[0]

    assert first.candidate.name == each.cluster
    assert first.candidate.mesh == each.mesh, first.reason
    assert each.reason in first.reason


def test_there_are_at_least_forty_choices() -> None:
    assert len(CHOICES) >= 40


REJECTIONS: dict[str, tuple[dict[str, Any], str, str]] = {
    "too large": (
        {**LLAMA70, "instance_types": [G5_8, P5], "max_instances": 4},
        f"1 x {G5_8}",
        "cannot hold the model, because each accelerator has 20.9 GiB but needs at least",
    ),
    "one accelerator is too small": (
        {"num_parameters": 1.5e9, "instance_types": [G5_1, G5_4]},
        f"1 x {G5_1}",
        "of it for weights, gradients and optimizer state; 1 rank, recompute full)",
    ),
    "too late": (
        {**GPT2, "instance_types": [G5_1, P4D], "deadline_h": 10},
        f"1 x {G5_1}",
        "h, and the deadline is 10.0 h",
    ),
    "too dear": (
        {**GPT2, "instance_types": [P4D, P5], "budget_usd": 42},
        f"1 x {P5}",
        "costs $46.60, and the budget is $42.00",
    ),
    "unknown price": (
        {**GPT2, "instance_types": [P4D, "ml.p5en.48xlarge"], "budget_usd": 100},
        "1 x ml.p5en.48xlarge",
        "its price is not in the catalogue, so the budget cannot be checked",
    ),
    "no bf16": (
        {**GPT2, "instance_types": [P4D, "ml.p3.16xlarge"]},
        "1 x ml.p3.16xlarge",
        "NVIDIA V100 has no bf16 in its hardware",
    ),
    "no efa": (
        {
            **GPT2,
            "precision": "fp32",
            "instance_types": [P4D, "ml.p3.16xlarge"],
            "instance_count": 2,
        },
        "2 x ml.p3.16xlarge",
        "the type has no EFA, which a cluster of several instances needs",
    ),
}


@pytest.mark.parametrize("case", REJECTIONS)
def test_a_rejected_cluster_says_why(case: str) -> None:
    ask, cluster, says = REJECTIONS[case]

    reasons = {each.cluster: each.reason for each in plans(**ask).rejected}

    assert says in reasons[cluster]


def test_others_say_what_they_cost_against_the_first() -> None:
    found = plans(**GPT2, instance_types=[P4D, P5])

    by_cluster = {each.candidate.name: each for each in found.plans}
    assert by_cluster[f"1 x {P5}"].reason.startswith("1.30 x the cost, 0.52 x the time")
    assert [each.rank for each in found.plans] == list(range(1, len(found.plans) + 1))


def test_unknown_prices_go_last() -> None:
    found = plans(**GPT2, instance_types=[P5, "ml.p5en.48xlarge"], max_instances=1)

    assert [each.candidate.cost_usd is None for each in found.plans] == [False, True]
    assert found.plans[1].reason.startswith("its price is not in the catalogue")


def test_nothing_fits_is_an_error_with_every_reason() -> None:
    with pytest.raises(PlanError) as caught:
        plans(**LLAMA70, instance_types=[G5_1, G5_4])

    message = str(caught.value)
    assert f"1 x {G5_1}: cannot hold the model" in message
    assert f"1 x {G5_4}: cannot hold the model" in message


def test_small_types_are_planned_one_at_a_time_and_the_largest_in_numbers() -> None:
    asked = request(**GPT2, instance_types=[G5_1, G5_8], max_instances=4)

    names = [f"{c.instance_count} x {c.hardware.instance.name}" for c in clusters(asked)]

    assert names == [f"1 x {G5_1}", f"1 x {G5_8}", f"2 x {G5_8}", f"4 x {G5_8}"]


def test_a_plan_is_data_that_json_takes() -> None:
    import json

    data = json.loads(json.dumps(plans(**GPT2, instance_types=[P4D]).to_dict()))

    first = data["plans"][0]
    assert first["mesh"] == {"dp_replicate": 8, "dp_shard": 1, "tp": 1, "pp": 1}
    assert first["distribution"] == {"torch_distributed": {"enabled": True}}
    parts = first["memory_bytes"]
    assert parts.pop("total") == pytest.approx(sum(parts.values()))


@given(
    name=st.sampled_from(sorted(PUBLISHED)),
    type_name=st.sampled_from([G5_4, P4D, P5]),
    count=st.sampled_from([1, 2, 4]),
    batch=st.sampled_from([8, 48, 256]),
)
@settings(max_examples=12, deadline=None)
def test_every_candidate_uses_all_ranks_and_takes_the_whole_batch(
    name: str, type_name: str, count: int, batch: int
) -> None:
    asked = request(model=name, global_batch_size=batch)
    cluster = Cluster(
        hardware=next(c.hardware for c in clusters(request(**GPT2, instance_types=[type_name]))),
        instance_count=count,
    )

    for each in candidates(asked, cluster):
        assert each.mesh.num_ranks == cluster.num_ranks
        samples = each.mesh.dp * each.batching.micro_batch_size * each.batching.num_micro_batches
        assert samples == batch
    for mesh in meshes(asked.shape, cluster):
        assert cluster.ranks_per_instance % mesh.tp == 0
        assert asked.shape.num_layers % mesh.pp == 0


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"model": "llama3-9b"}, "model: is not a known model; got llama3-9b"),
        ({"model": None}, "model: is not set"),
        ({"num_parameters": 1e9, "model": "llama3-8b"}, "model: is set in several ways"),
        ({"model": None, "num_layers": 2}, "num_layers: needs hidden_size and num_heads too"),
        ({"sequence_length": 4096}, "sequence_length: is already defined by the given model"),
        ({"family": "gpt"}, "family: is already defined by the given model"),
        ({"global_batch_size": 0}, "global_batch_size: is too small"),
        ({"tokens": -1}, "tokens: is too small"),
        ({"deadline_h": 0}, "deadline_h: is too small"),
        ({"precision": "fp8"}, "precision: is not an allowed value; got fp8; allowed: bf16, fp32"),
        ({"instance_types": ["ml.p4d.24xlrge"]}, "did you mean 'ml.p4d.24xlarge'"),
        (
            {"instance_types": ["ml.trn1.32xlarge"]},
            "is not an NVIDIA instance type of the catalogue",
        ),
        ({"dead_line_h": 4}, "did you mean 'deadline_h'?"),
    ],
)
def test_a_wrong_request_says_what_is_right(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(SpecError) as caught:
        PlanRequest.from_mapping(
            {"model": "llama3-8b", "global_batch_size": 8, "tokens": 1e9, **changes}
        )

    assert says in str(caught.value)


def test_a_batch_that_no_mesh_can_share_out_is_a_rejection() -> None:
    """One head and three layers cannot be split over eight ranks, so three sequences would have to go to eight."""
    shape = {"num_layers": 3, "hidden_size": 128, "num_heads": 1}

    found = plans(**shape, global_batch_size=3, instance_types=[P4D, G5_1], max_instances=1)

    assert [each.cluster for each in found.rejected] == [f"1 x {P4D}"]
    reason = found.rejected[0].reason
    assert reason == "a global batch of 3 cannot be divided evenly over 8 ranks"
