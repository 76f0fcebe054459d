"""A plan fits, or everything that does not fit is said at once."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.catalog.instances import catalogue
from trainyard.errors import BudgetExceededError, SpecError
from trainyard.planning.checkpoint_disk import KEPT_CHECKPOINTS, LARGE_CHECKPOINT_BYTES
from trainyard.planning.evaluation_plan import plan_evaluation
from trainyard.planning.run_cost import training_budget_usd
from trainyard.planning.run_plan import num_parameters, plan_run
from trainyard.specs.run_conf import RunConf
from trainyard.units import format_usd
from trainyard_watch.retention import KEPT, LARGE_BYTES


def refusal(**params: Any) -> str:
    with pytest.raises(SpecError) as caught:
        plan_run(params)
    return str(caught.value)


def test_the_default_conf_fits() -> None:
    plan = plan_run({})

    assert plan.world_size == 2
    assert plan.num_shards % plan.world_size == 0
    assert plan.ceiling_usd is not None
    assert not plan.warnings


@given(
    instances=st.integers(1, 8),
    processes=st.integers(1, 2),
    micro=st.integers(1, 8),
    accumulation=st.integers(1, 8),
)
def test_ranks_micro_batches_and_accumulation_make_the_global_batch(
    instances: int, processes: int, micro: int, accumulation: int
) -> None:
    batch = instances * processes * micro * accumulation

    plan = plan_run(
        {
            "instance_count": instances,
            "processes_per_instance": processes,
            "micro_batch_size": micro,
            "global_batch_size": batch,
        }
    )

    assert plan.gradient_accumulation_steps == accumulation
    assert plan.world_size * micro * plan.gradient_accumulation_steps == batch
    assert plan.samples == RunConf().max_steps * batch


def test_problems_of_conf_and_cluster_are_reported_together() -> None:
    message = refusal(instance_type="ml.m5.lrge", global_batch_size=9, lerning_rate=1, model="mlp")

    for part in ("ml.m5.large", "global_batch_size", "learning_rate", "target_column"):
        assert part in message
    assert message.startswith("run conf: 4 problem(s)")


def test_more_ranks_than_accelerators_are_refused() -> None:
    message = refusal(instance_type="ml.g5.xlarge", processes_per_instance=2, global_batch_size=32)

    assert "at most 1 (ml.g5.xlarge has 1 NVIDIA A10G)" in message


def test_every_neuron_core_has_a_rank() -> None:
    batch = {"instance_count": 1, "global_batch_size": 64, "micro_batch_size": 1}
    conf = {"instance_type": "ml.trn1.32xlarge", **batch}
    whole, half = plan_run(conf), plan_run({**conf, "processes_per_instance": 16})
    message = refusal(**conf, processes_per_instance=64)

    assert whole.world_size == 32
    assert "processes_per_instance" not in {each.where for each in whole.warnings}
    assert any("leaves 16 of 32 paid NeuronCores idle" in str(each) for each in half.warnings)
    assert "at most 32 (ml.trn1.32xlarge has 32 NeuronCores)" in message


def test_more_ranks_than_processors_are_refused() -> None:
    message = refusal(instance_type="ml.m5.large", processes_per_instance=4, global_batch_size=64)

    assert "at most 2 (ml.m5.large has 2 vCPUs)" in message


def test_a_model_that_cannot_fit_a_rank_is_refused() -> None:
    message = refusal(num_layers=80, hidden_size=8192, num_heads=64)

    assert (
        "is too large with this num_layers, so the model does not fit into a rank's memory"
        in message
    )


def test_bf16_on_hardware_without_it_is_refused() -> None:
    assert "NVIDIA T4" in refusal(precision="bf16", instance_type="ml.g4dn.xlarge")


def test_an_instance_has_a_rank_for_each_accelerator() -> None:
    # 2 x 4 A10G with 8 samples at a time, in batches of 64
    plan = plan_run(
        {
            "instance_type": "ml.g5.12xlarge",
            "instance_count": 2,
            "global_batch_size": 64,
            "precision": "bf16",
        }
    )

    assert (plan.world_size, plan.gradient_accumulation_steps) == (8, 1)
    assert plan.num_shards % 8 == 0
    assert plan.warnings == ()
    assert plan_run({}).world_size == 2


def test_fp32_where_bf16_is_many_times_faster_is_a_warning() -> None:
    conf = {"instance_type": "ml.p5.48xlarge", "global_batch_size": 128, "precision": "fp32"}
    (warning,) = (each for each in plan_run(conf).warnings if each.where == "precision")

    assert "15 times slower than bf16" in str(warning)
    assert "67 TFLOPS in fp32 and 989 in bf16 on NVIDIA H100" in str(warning)
    for other in (
        {**conf, "precision": "bf16"},
        {**conf, "precision": "auto"},
        {"instance_type": "ml.g5.xlarge"},
        {"instance_type": "ml.g4dn.xlarge"},
    ):
        assert not [each for each in plan_run(other).warnings if each.where == "precision"]


BILLION = {"num_layers": 24, "hidden_size": 2048, "num_heads": 16}
"""1.2 billion parameters: 13.5 GiB a checkpoint."""


@pytest.mark.parametrize(
    ("change", "is_warned"),
    [
        ({"volume_size_gb": 99}, True),
        ({"volume_size_gb": 100}, False),
        ({"volume_size_gb": 100, "hyperparameters": {"keep_checkpoints": 3}}, True),
        ({"volume_size_gb": 54, "strategy": "fsdp"}, False),
        (
            {
                "volume_size_gb": 30,
                "strategy": "fsdp",
                "instance_count": 8,
                "global_batch_size": 64,
            },
            True,
        ),
        ({"volume_size_gb": 30, "instance_type": "ml.g5.xlarge"}, False),
    ],
    ids=[
        *("too small", "enough", "more are kept", "shards on two hosts"),
        *("a restart brings all hosts' shards", "disks of its own"),
    ],
)
def test_checkpoints_that_may_fill_the_volume_are_a_warning(change, is_warned) -> None:
    conf = {**BILLION, "instance_type": "ml.m5.24xlarge", **change}
    warnings = [each for each in plan_run(conf).warnings if each.where == "volume_size_gb"]
    assert bool(warnings) is is_warned


TWELVE_BILLION = {
    "num_layers": 40,
    "hidden_size": 5120,
    "num_heads": 40,
    "strategy": "fsdp",
    "global_batch_size": 512,
}


@pytest.mark.parametrize(
    ("num_layers", "needed"), [(40, "at least 372 GB"), (28, "at least 261 GB")]
)
def test_disks_too_small_for_a_restart_are_a_warning(num_layers: int, needed: str) -> None:
    """The disks have 250 GB, which are 233 GiB."""
    sizes = {**TWELVE_BILLION, "num_layers": num_layers}
    conf = {**sizes, "instance_type": "ml.g5.xlarge", "instance_count": 8}
    (warning,) = (each for each in plan_run(conf).warnings if each.where == "instance_type")
    assert "250 GB of local disks" in str(warning)
    assert needed in str(warning)


def test_download_of_checkpoints_at_a_restart_is_told_with_its_price() -> None:
    """12.6 billion parameters: 151 GB for each of 8 hosts, and up to as much on its way."""
    conf = {**TWELVE_BILLION, "instance_type": "ml.p4d.24xlarge", "instance_count": 8}
    spot = {**conf, "use_spot_instances": True}
    (warning,) = (each for each in plan_run(spot).warnings if each.where == "use_spot_instances")
    told = str(warning)
    assert "every host first downloads 1 to 2 checkpoints of 141 GiB each" in told
    price = catalogue().find("ml.p4d.24xlarge").price_usd_per_hour or 0.0
    assert f"5 min 02 s and costs {format_usd(8 * price * 302 / 3600)[:4]}" in told
    tiers = [
        {"instance_type": conf["instance_type"], "use_spot_instances": is_spot}
        for is_spot in (True, False)
    ]
    on_ladder = plan_run({**TWELVE_BILLION, "instance_count": 8, "capacity_ladder": tiers}).warnings
    assert [each for each in on_ladder if each.where == "use_spot_instances"] == [warning]
    for other in ({**spot, "use_spot_instances": False}, {**spot, "num_layers": 10}):
        found = plan_run(other).warnings
        assert not [each for each in found if each.where == "use_spot_instances"]


def test_plan_keeps_as_many_checkpoints_as_the_scripts() -> None:
    assert (LARGE_CHECKPOINT_BYTES, KEPT_CHECKPOINTS) == (LARGE_BYTES, KEPT)


@pytest.mark.parametrize(
    ("params", "where", "got"),
    [
        ({"instance_type": "ml.g5.xlarge", "volume_size_gb": 500}, "", "500 GB on ml.g5.xlarge"),
        (
            {"instance_type": "ml.g4dn.xlarge", "volume_size_gb": 300},
            "",
            "300 GB on ml.g4dn.xlarge",
        ),
        (
            {
                "capacity_ladder": [
                    {"instance_type": "ml.g5.4xlarge"},
                    {"instance_type": "ml.g5.xlarge"},
                ],
                "volume_size_gb": 500,
            },
            " (capacity_ladder[1])",
            "500 GB on ml.g5.xlarge",
        ),
        (
            {
                "source": "s3://bucket/text/",
                "shard_instance_count": 1,
                "shard_instance_type": "ml.r5d.large",
                "volume_size_gb": 76,
            },
            "",
            "76 GB on ml.r5d.large",
        ),
    ],
    ids=["g5", "g4dn", "rung", "sharding"],
)
def test_a_volume_above_the_local_disks_is_refused(params: Any, where: str, got: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan_run({"precision": "fp32", **params})

    assert [
        f"{each.where} {each.got}" for each in caught.value.findings if "local disks" in each.what
    ] == [f"volume_size_gb{where} {got}"]


def test_a_rung_without_bf16_makes_the_whole_ladder_fp32_with_a_warning() -> None:
    ladder = [{"instance_type": "ml.g5.xlarge"}, {"instance_type": "ml.g4dn.xlarge"}]
    (warning,) = (
        each for each in plan_run({"capacity_ladder": ladder}).warnings if each.where == "precision"
    )

    assert "remove ml.g4dn.xlarge from capacity_ladder: it has no bf16" in str(warning)


def test_idle_accelerators_are_a_warning_with_their_price() -> None:
    plan = plan_run(
        {
            "instance_type": "ml.g5.12xlarge",
            "instance_count": 2,
            "processes_per_instance": 1,
            "precision": "bf16",
        }
    )

    assert [each.where for each in plan.warnings] == ["processes_per_instance"]
    price = catalogue().find("ml.g5.12xlarge").price_usd_per_hour
    assert price is not None
    said = str(plan.warnings[0])
    assert "leaves 6 of 8 paid accelerators idle" in said
    assert f"{format_usd(2 * price * 3 / 4)} of {format_usd(2 * price)} an hour" in said


def test_each_rung_has_a_rank_for_each_of_its_own_accelerators() -> None:
    ladder = [
        {"instance_type": "ml.g5.12xlarge", "instance_count": 1},
        {"instance_type": "ml.g5.xlarge", "instance_count": 4},
    ]

    plan = plan_run({"capacity_ladder": ladder, "global_batch_size": 32, "precision": "bf16"})

    assert plan.world_size == 4
    assert plan.warnings == ()


def test_shards_that_the_ranks_cannot_share_are_refused() -> None:
    message = refusal(num_shards=5)

    assert "num_shards" in message
    assert "0 to choose the number automatically, or a multiple of" in message
    assert "for example 4 or 6" in message


def test_a_run_that_could_cost_more_than_its_budget_does_not_start() -> None:
    with pytest.raises(BudgetExceededError) as caught:
        plan_run({"budget_usd": 0.1, "max_run_s": 3600})

    assert caught.value.needed_usd == pytest.approx(0.345)
    assert "lower max_run_s to 1043" in str(caught.value)


def test_the_proposed_max_run_keeps_the_budget() -> None:
    assert plan_run({"budget_usd": 0.1, "max_run_s": 1043}).ceiling_usd == pytest.approx(
        0.1, abs=1e-3
    )


@pytest.mark.parametrize("budget_usd", [0.0001, 0.005])
def test_no_max_run_is_proposed_that_a_run_may_not_have(budget_usd: float) -> None:
    with pytest.raises(BudgetExceededError) as caught:
        plan_run({"budget_usd": budget_usd, "max_run_s": 3600})

    said = str(caught.value)
    assert "lower max_run_s" not in said
    assert "raise budget_usd, or use fewer or cheaper instances" in said


def test_a_budget_without_a_price_is_a_warning_not_a_pass() -> None:
    plan = plan_run({"budget_usd": 5, "instance_type": "ml.g6e.xlarge", "precision": "bf16"})

    assert plan.ceiling_usd is None
    assert "cannot be checked" in str(plan.warnings[0])


def test_the_ceiling_holds_every_attempt_of_training_evaluation_and_sharding() -> None:
    hour = {"ml.m5.large": 0.115, "ml.m5.xlarge": 0.23}
    plan = plan_run(
        {"max_run_s": 3600, "source": "s3://b/raw/", "shard_instance_count": 3}, job_attempts=4
    )

    once = 2 * hour["ml.m5.large"] + hour["ml.m5.large"] + 3 * hour["ml.m5.xlarge"]
    assert plan.once_usd == pytest.approx(once)
    assert plan.ceiling_usd == pytest.approx(4 * once)
    for part in ("each job at most 4 times; ", "train: 2 x", "evaluate: 1 x", "shard: 3 x"):
        assert part in plan.cost_note


def test_a_budget_that_one_attempt_keeps_and_its_retries_break_is_refused() -> None:
    assert plan_run({"budget_usd": 1, "max_run_s": 3600}).ceiling_usd == pytest.approx(0.345)

    with pytest.raises(
        BudgetExceededError, match=r"up to \$1\.38 \(\$0\.345 with one attempt per job; "
    ):
        plan_run({"budget_usd": 1, "max_run_s": 3600}, job_attempts=4)


def test_known_prices_alone_can_break_a_budget() -> None:
    with pytest.raises(BudgetExceededError):
        plan_run(
            {"budget_usd": 0.1, "max_run_s": 3600, "evaluation_instance_type": "ml.g6e.xlarge"}
        )


def test_evaluation_runs_on_the_type_of_training_where_processing_jobs_may_have_it() -> None:
    assert plan_evaluation(RunConf(instance_type="ml.g5.xlarge")).instance_type == "ml.g5.xlarge"
    own = RunConf(
        instance_type="ml.p4d.24xlarge",
        processes_per_instance=1,
        evaluation_instance_type="ml.g5.2xlarge",
    )
    assert plan_evaluation(own).instance_type == "ml.g5.2xlarge"
    assert plan_evaluation(own, trained_on="ml.g5.xlarge").instance_type == "ml.g5.2xlarge"


def test_evaluation_runs_on_the_type_that_training_got() -> None:
    conf = RunConf(instance_type="ml.g5.xlarge")
    assert plan_evaluation(conf, trained_on="ml.m5.xlarge").instance_type == "ml.m5.xlarge"
    assert plan_evaluation(conf, trained_on="ml.p4d.24xlarge").instance_type == "ml.m5.xlarge"


@pytest.mark.parametrize("name", ["ml.p4d.24xlarge", "ml.p5.48xlarge", "ml.trn1.2xlarge"])
def test_a_type_for_training_alone_is_evaluated_on_another_and_that_is_said(name: str) -> None:
    plan = plan_run({"instance_type": name, "global_batch_size": 32, "micro_batch_size": 1})

    assert plan.evaluation.instance_type == "ml.m5.xlarge"
    assert f"since processing jobs cannot have {name}" in plan.evaluation.reason


@pytest.mark.parametrize(
    "params",
    [
        {"evaluation_instance_type": "ml.p5.48xlarge"},
        {
            "shard_instance_type": "ml.p5.48xlarge",
            "shard_instance_count": 1,
            "source": "s3://b/raw/",
        },
    ],
    ids=["evaluate", "shard"],
)
def test_a_processing_job_on_a_type_for_training_alone_is_refused(params: dict[str, Any]) -> None:
    message = refusal(**params)

    assert (
        f"{next(iter(params))}: is an instance type of training jobs, but not of processing jobs"
        in message
    )


def test_wrong_csv_options_are_refused_by_their_place() -> None:
    options = {"csv_options": {"delimeter": ";"}}
    web, code = ({"source": f"s3://b/{name}/", "weight": 1} for name in ("web", "code"))
    mixture = {"web": web, "code": code | options}
    unsupported = (
        "problem(s) to fix before anything starts\n  1. {}.delimeter: is an unknown option"
    )

    assert unsupported.format("csv_options") in refusal(**options)
    assert unsupported.format("csv_options") in refusal(
        data_mixture={"web": web, "code": code}, **options
    )
    assert unsupported.format("data_mixture.code.csv_options") in refusal(data_mixture=mixture)


def test_shards_are_counted_for_the_loader_workers_of_each_rank() -> None:
    assert plan_run({"hyperparameters": {"num_workers": 3}}).num_shards == 6
    assert "a multiple of 6" in refusal(num_shards=4, hyperparameters={"num_workers": 3})


def test_a_target_among_the_columns_left_out_is_refused() -> None:
    assert "ignore_columns" in refusal(model="mlp", target_column="y", ignore_columns=["y"])


def test_the_parameter_count_follows_its_formula() -> None:
    conf = RunConf(num_layers=4, hidden_size=128, num_heads=4)

    assert num_parameters(conf) == 869_760


IDLE = {"instance_type": "ml.g5.12xlarge", "processes_per_instance": 1}


def test_a_plan_is_json() -> None:
    data = json.loads(json.dumps(plan_run(IDLE).to_dict()))

    assert data["num_shards"] == 2
    assert data["warnings"]
    assert "conf" not in data


LADDER = [
    {"instance_type": "ml.m5.large"},
    {"instance_type": "ml.m5.xlarge"},
    {"instance_type": "ml.m5.large", "use_spot_instances": False},
]


def test_every_rung_of_a_ladder_is_looked_at_and_all_is_reported_together() -> None:
    message = refusal(
        capacity_ladder=[
            {"instance_type": "ml.m5.large", "max_cost_usd": 0.1},
            {"instance_type": "ml.m5.lrge"},
            {"instance_type": "ml.g5.xlarge"},
        ],
        processes_per_instance=2,
        global_batch_size=32,
    )

    assert (
        "capacity_ladder[0].max_cost_usd: is less than one attempt can cost, so the tier would never be used"
        in message
    )
    assert "got $0.10 for an attempt of up to $0.23" in message
    assert (
        "capacity_ladder[1].instance_type: is not a training instance type of the catalogue"
        in message
    )
    assert (
        "processes_per_instance (capacity_ladder[2]): is more than the instance supports" in message
    )
    assert message.startswith("run conf: 3 problem(s)")


def test_a_ladder_costs_what_its_dearest_rung_costs() -> None:
    plan = plan_run({"capacity_ladder": LADDER}, job_attempts=2)

    assert plan.ceiling_usd == pytest.approx(2 * (2 * 0.23 + 0.23))


def test_a_ladder_with_a_rung_of_unknown_price_has_no_known_ceiling() -> None:
    unknown = {"instance_type": "ml.p2.xlarge"}

    assert plan_run({"capacity_ladder": [*LADDER, unknown]}).ceiling_usd is None


def test_training_may_spend_the_budget_less_the_other_jobs() -> None:
    conf = RunConf(budget_usd=2.0, max_run_s=3600)

    assert training_budget_usd(conf) == pytest.approx(2.0 - 0.115)
    assert training_budget_usd(RunConf()) is None
