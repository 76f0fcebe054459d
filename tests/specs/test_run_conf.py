"""A run's conf is checked beyond its JSON schema, all problems together."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from trainer.hyperparameters import Hyperparameters
from trainyard import sharding
from trainyard.errors import SpecError
from trainyard.rules.conf_facts import facts_of
from trainyard.sharding.settings import ShardSettings
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_rules import FURTHER_HYPERPARAMETERS


def refusal(**params: Any) -> str:
    with pytest.raises(SpecError) as caught:
        RunConf.from_mapping(params)
    return str(caught.value)


def test_the_defaults_are_a_good_conf() -> None:
    assert RunConf.from_mapping({}) == RunConf()


def test_text_from_a_form_is_read() -> None:
    conf = RunConf.from_mapping({"max_steps": "120", "learning_rate": "1e-3", "budget_usd": None})

    assert (conf.max_steps, conf.learning_rate, conf.budget_usd) == (120, 1e-3, None)


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"instance_typ": "x"}, "did you mean 'instance_type'?"),
        ({"strategy": "zero"}, "strategy: is not an allowed value; got 'zero'; allowed: ddp, fsdp"),
        ({"model": "lstm"}, "model: is not an allowed value"),
        ({"data_format": "xml"}, "data_format: is not an allowed value"),
        ({"instance_count": 0}, "instance_count: is too small; got 0; allowed: at least 1"),
        ({"seed": -1}, "seed: is too small"),
        ({"learning_rate": 0}, "learning_rate: is too small; got 0; allowed: more than 0"),
        ({"budget_usd": -1}, "budget_usd: is too small"),
        ({"instance_type": "m5.large"}, "instance_type: is malformed; got 'm5.large'"),
        ({"bucket": "s3://b"}, "bucket: is malformed"),
        ({"role": "not a role!"}, "role: is malformed"),
        ({"prefix": "/x"}, "prefix: is malformed"),
        ({"prefix": "a/../../x"}, "prefix: is malformed"),
        ({"prefix": "a//x"}, "prefix: is malformed"),
        ({"prefix": "x\n"}, "prefix: is malformed"),
        ({"image_uri": "docker.io/evil/img:latest; rm -rf /"}, "image_uri: is malformed"),
        ({"image_uri": "no-registry"}, "image_uri: is malformed"),
        ({"max_steps": 10**30}, "max_steps: is too large; got 1000"),
        ({"evaluation_max_samples": 10**30}, "evaluation_max_samples: is too large"),
        ({"budget_usd": 1e300}, "budget_usd: is too large"),
        ({"learning_rate": float("nan")}, "learning_rate: has the wrong type or value"),
        ({"learning_rate": None}, "learning_rate: has the wrong type or value; got nothing"),
        ({"model_package_group": "-x"}, "model_package_group: is malformed"),
        ({"source": "  "}, "source: is empty"),
        ({"tokenizer": "gpt2"}, "tokenizer: is not a tokenizer"),
        ({"data_format": "tokens"}, 'vocab_size: is required for data_format "tokens"'),
        (
            {"vocab_size": 9, "tokenizer": "own.json"},
            "vocab_size: is set together with a tokenizer, which defines its own vocabulary size",
        ),
        ({"vocab_size": 9, "eos_token_id": 9}, "eos_token_id: is not an id of the vocabulary"),
        ({"validation_fraction": 0}, "validation_fraction: is not a share of the rows"),
        ({"sample_fraction": 0}, "sample_fraction: is not a share of the rows"),
        (
            {"validation_fraction": 0.6, "test_fraction": 0.4},
            "validation_fraction: leaves, together with test_fraction, no rows to train on; got a sum of 1",
        ),
        ({"max_bad_row_fraction": 1.5}, "max_bad_row_fraction: is not a share"),
        (
            {"hidden_size": 100, "num_heads": 3},
            ("(each head has the same even width); got 100 with num_heads 3; nearest: 96 or 102"),
        ),
        ({"model": "mlp"}, "target_column: is required for the mlp model"),
        (
            {"model": "mlp", "target_column": "y", "data_format": "text"},
            "data_format: is a format without columns, but the mlp model needs columns",
        ),
        ({"target_column": "y"}, "target_column: is allowed for the mlp model only"),
        (
            {"global_batch_size": 10, "micro_batch_size": 4, "instance_count": 2},
            "got 10 with micro_batch_size 4 and 2 data-parallel ranks; nearest: 8 or 16",
        ),
        ({"global_batch_size": 3}, "nearest: 16"),
        ({"warmup_steps": 300, "max_steps": 300}, "warmup_steps: leaves no step"),
        ({"early_stopping_patience": 2, "eval_interval": 0}, "early_stopping_patience: needs"),
        (
            {"max_run_s": 10**7},
            "max_run_s: is too large; got 10000000; allowed: at most 2419200 (28 days)",
        ),
        (
            {"max_wait_s": 7200},
            "max_wait_s: is allowed only with use_spot_instances or capacity_ladder",
        ),
        (
            {"use_spot_instances": True, "max_wait_s": 10, "max_run_s": 100},
            "max_wait_s: is shorter than max_run_s",
        ),
        (
            {"use_spot_instances": True, "checkpoint_interval": -1},
            "checkpoint_interval: is -1 (no periodic checkpoints), so a spot interruption may lose the whole training",
        ),
        (
            {"checkpoint_interval": -2},
            "checkpoint_interval: is too small; got -2; allowed: at least -1",
        ),
        ({"mean_time_to_interruption_s": 0}, "mean_time_to_interruption_s: is too small"),
        ({"heartbeat_timeout_s": -1}, "heartbeat_timeout_s: is too small"),
        ({"max_quota_wait_s": -1}, "max_quota_wait_s: is too small"),
        ({"max_retry_attempts": -1}, "max_retry_attempts: is too small"),
        (
            {"max_retry_attempts": 31},
            "max_retry_attempts: is too large; got 31; allowed: at most 30",
        ),
        (
            {"shard_instance_count": 2},
            "shard_instance_count: needs an s3:// source, because the instances of a sharding job read from S3 only",
        ),
        (
            {"shard_instance_count": 2, "source": "s3://b/raw/", "num_shards": 5},
            "num_shards: must be a multiple of shard_instance_count",
        ),
        ({"shard_instance_count": -1}, "shard_instance_count: is too small"),
        ({"shard_instance_type": "m5.xlarge"}, "shard_instance_type: is malformed"),
        ({"hyperparameters": {"clip_nrom": 1}}, "did you mean 'clip_norm'?"),
        ({"evaluation_instance_type": "big"}, "evaluation_instance_type: is malformed"),
        (
            {"hyperparameters": {"num_workers": -1}},
            "num_workers: is not a number of processes; got -1",
        ),
        ({"hyperparameters": {"num_workers": 1.5}}, "num_workers: is not a number of processes"),
        ({"ignore_columns": "id"}, "ignore_columns: has the wrong type"),
        ({"hyperparameters": {"seed": 1}}, "hyperparameters.seed: has its own field in the conf"),
    ],
    ids=lambda v: v[:45] if isinstance(v, str) else None,
)
def test_a_wrong_value_is_refused(params: dict[str, Any], says: str) -> None:
    assert says in refusal(**params)


def test_a_mistyped_field_is_not_blamed_on_its_neighbors() -> None:
    message = refusal(max_steps="many", warmup_steps=500)

    assert message.startswith("RunConf: 1 problem(s)")


@pytest.mark.parametrize(("steps", "warmup"), [(5, 0), (1, 0), (400, 40), (1000, 100)])
def test_warm_up_follows_the_steps(steps: int, warmup: int) -> None:
    conf = RunConf.from_mapping({"max_steps": steps})

    assert conf.num_warmup_steps == warmup
    assert facts_of(dataclasses.asdict(conf)).warmup_steps == warmup


@pytest.mark.parametrize(
    ("params", "arithmetic"),
    [
        ({}, ("fp32", False)),
        ({"instance_type": "ml.g5.xlarge"}, ("bf16", True)),
        ({"instance_type": "ml.p5.48xlarge", "global_batch_size": 128}, ("bf16", True)),
        ({"instance_type": "ml.g4dn.xlarge"}, ("fp32", False)),
        ({"instance_type": "ml.p3.2xlarge"}, ("fp32", False)),
        ({"instance_type": "ml.g5.xlarge", "precision": "fp32"}, ("fp32", True)),
        ({"instance_type": "ml.m5.large", "precision": "bf16"}, ("bf16", False)),
        ({"instance_type": "ml.g5.xlarge", "hyperparameters": {"compile": False}}, ("bf16", False)),
        (
            {"instance_type": "ml.g5.xlarge", "hyperparameters": {"compile": "false"}},
            ("bf16", False),
        ),
        ({"instance_type": "ml.g5.xlarge", "hyperparameters": {"compile": None}}, ("bf16", True)),
        ({"hyperparameters": {"compile": True}}, ("fp32", True)),
        (
            {
                "capacity_ladder": [
                    {"instance_type": "ml.g5.xlarge"},
                    {"instance_type": "ml.g6.xlarge"},
                ]
            },
            ("bf16", True),
        ),
        (
            {
                "capacity_ladder": [
                    {"instance_type": "ml.g5.xlarge"},
                    {"instance_type": "ml.p3.2xlarge"},
                ]
            },
            ("fp32", False),
        ),
    ],
    ids=str,
)
def test_arithmetic_follows_the_accelerators_unless_the_conf_names_it(
    params: dict[str, Any], arithmetic: tuple[str, bool]
) -> None:
    conf = RunConf.from_mapping(params)

    assert (conf.training_precision, conf.is_compiled) == arithmetic


@pytest.mark.parametrize(
    ("params", "says"),
    [
        ({"init_from": "models/llama"}, "init_from: is not an S3 URI"),
        (
            {"init_from": "s3://b/m/", "model": "mlp", "target_column": "y"},
            "init_from: is allowed for the gpt model only",
        ),
    ],
    ids=["path", "mlp"],
)
def test_initial_weights_are_those_of_a_decoder_in_s3(params: dict[str, Any], says: str) -> None:
    assert says in refusal(**params)


def test_all_problems_are_reported_together() -> None:
    message = refusal(strategy="x", model="y", instance_count=0, color=1)

    assert message.startswith("RunConf: 4 problem(s)")


def test_further_hyperparameters_are_those_of_the_training_script() -> None:
    known = {each.name for each in dataclasses.fields(Hyperparameters)}
    own = {each.name for each in dataclasses.fields(RunConf)}

    # Only SageMaker's own checkpoint folder is mirrored to S3: elsewhere an interruption would lose everything.
    # What the training measures at its end follows from the plan of the evaluation.
    assert set(FURTHER_HYPERPARAMETERS) == known - own - {"checkpoint_dir", "test_samples"}


def test_every_setting_that_a_message_of_sharding_names_is_a_field_of_the_conf() -> None:
    settings = {each.name for each in dataclasses.fields(ShardSettings)}
    folder = Path(sharding.__file__).parent
    texts = [text for path in folder.glob("*.py") for text in messages(ast.parse(path.read_text()))]
    named = settings & set(re.findall(r"\w+", "\n".join(texts)))

    assert "csv_options" in named
    assert named <= {each.name for each in dataclasses.fields(RunConf)}


def messages(module: ast.Module) -> list[str]:
    """Return the texts of several words in a module, without docstrings."""
    docs = {id(node.value) for node in ast.walk(module) if isinstance(node, ast.Expr)}
    return [
        node.value
        for node in ast.walk(module)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and " " in node.value
        and id(node) not in docs
    ]


def test_ranks_are_instances_times_processes() -> None:
    conf = RunConf(instance_count=3, processes_per_instance=2, global_batch_size=48)

    assert conf.world_size == 6


LADDER: list[dict[str, Any]] = [
    {"instance_type": "ml.g5.xlarge", "instance_count": 4, "max_wait_s": 600},
    {"instance_type": "ml.g6.xlarge"},
    {"instance_type": "ml.g5.xlarge", "use_spot_instances": False, "max_cost_usd": 20},
]


def test_the_first_rung_takes_the_place_of_the_instances() -> None:
    conf = RunConf.from_mapping({"capacity_ladder": LADDER, "global_batch_size": 32})

    assert (conf.instance_type, conf.instance_count, conf.use_spot_instances) == (
        "ml.g5.xlarge",
        4,
        True,
    )
    assert conf.world_size == 4


def test_a_rung_without_a_count_has_that_of_the_run() -> None:
    conf = RunConf.from_mapping({"capacity_ladder": LADDER, "global_batch_size": 32})

    assert [str(each) for each in conf.rungs] == [
        "4 x ml.g5.xlarge spot",
        "4 x ml.g6.xlarge spot",
        "4 x ml.g5.xlarge on demand",
    ]


def test_without_a_ladder_the_one_rung_is_the_runs_own_instances() -> None:
    (rung,) = RunConf().rungs

    assert str(rung) == "2 x ml.m5.large on demand"


def test_a_conf_with_a_ladder_is_read_back_from_its_own_data() -> None:
    conf = RunConf.from_mapping({"capacity_ladder": LADDER, "global_batch_size": 32})

    assert RunConf.from_mapping(dataclasses.asdict(conf)) == conf


@pytest.mark.parametrize(
    ("params", "says"),
    [
        (
            {"capacity_ladder": [{"instance_type": "g5"}]},
            "capacity_ladder[0].instance_type: is malformed; got 'g5'",
        ),
        (
            {"capacity_ladder": [{"instance_type": "ml.g5.xlarge", "max_wait": 1}]},
            "did you mean 'max_wait_s'?",
        ),
        (
            {"capacity_ladder": [{"instance_type": "ml.g5.xlarge", "max_cost_usd": 0}]},
            "capacity_ladder[0].max_cost_usd: is too small",
        ),
        (
            {"capacity_ladder": LADDER[:1], "instance_type": "ml.p5.48xlarge"},
            "instance_type: differs from the first tier of capacity_ladder, which replaces it",
        ),
        (
            {"capacity_ladder": LADDER[2:], "use_spot_instances": True},
            "use_spot_instances: differs from the first tier of capacity_ladder, which replaces it",
        ),
        (
            {"capacity_ladder": [*LADDER[1:], LADDER[1]], "global_batch_size": 32},
            "capacity_ladder[2]: is the same capacity as capacity_ladder[0]; got ml.g6.xlarge spot",
        ),
        (
            {"capacity_ladder": [LADDER[1], {**LADDER[0], "instance_count": 3}]},
            "capacity_ladder[1].instance_count: gives a number of ranks that does not fit global_batch_size",
        ),
        (
            {"capacity_ladder": LADDER[2:] + LADDER[1:2], "checkpoint_interval": -1},
            "checkpoint_interval: is -1 (no periodic checkpoints), so a spot interruption may lose the whole training",
        ),
    ],
    ids=lambda v: v[:45] if isinstance(v, str) else None,
)
def test_a_wrong_ladder_is_refused(params: dict[str, Any], says: str) -> None:
    assert says in refusal(**params)


def test_ranks_that_split_one_model_count_once_on_every_rung() -> None:
    ladder = [{"instance_type": f"ml.{name}.xlarge", "instance_count": 2} for name in ("g5", "g6")]
    conf = {
        "strategy": "fsdp",
        "hyperparameters": {"tensor_parallel_degree": 2},
        "global_batch_size": 8,
        "micro_batch_size": 8,
        "capacity_ladder": ladder,
    }

    assert "fit global_batch_size" not in refusal(**conf, max_run_s=-1)
    message = refusal(**{**conf, "global_batch_size": 12})
    assert "got 12 with micro_batch_size 8 and 1 data-parallel rank; nearest: 8 or 16" in message
    assert "got global_batch_size 12 with micro_batch_size 8 and 1 data-parallel rank;" in message


def test_all_rungs_are_checked_at_once() -> None:
    message = refusal(
        capacity_ladder=[{**each, "instance_count": 3} for each in LADDER], global_batch_size=16
    )

    assert message.count("gives a number of ranks that does not fit global_batch_size") == 2
    assert "global_batch_size: must be a multiple" in message


def test_idle_accelerators_are_watched_for_on_gpus_only() -> None:
    idle = {"stop_if_idle_minutes": 30}
    assert (
        RunConf.from_mapping({**idle, "instance_type": "ml.g5.xlarge"}).stop_if_idle_minutes == 30
    )
    for params, why in (
        ({"instance_type": "ml.m5.large"}, "needs instances with NVIDIA GPUs"),
        ({"instance_type": "ml.trn1.2xlarge"}, "needs instances with NVIDIA GPUs"),
        ({"instance_type": "ml.g5.xlarge", "watch_rules": False}, "needs watch_rules"),
        ({"instance_type": "ml.g5.xlarge", "stop_if_idle_minutes": 4}, "at least 5"),
    ):
        with pytest.raises(SpecError, match=why):
            RunConf.from_mapping({**idle, **params})


def test_warm_pool_needs_instances_on_demand_and_no_limit_of_the_cost() -> None:
    pool = {"keep_alive_period_in_seconds": 120}
    assert RunConf.from_mapping(pool).keep_alive_period_in_seconds == 120
    for params, why in (
        ({"use_spot_instances": True}, "cannot be combined with spot instances"),
        ({"max_cost_usd": 1.0}, "cannot be combined with max_cost_usd"),
        ({"budget_usd": 1.0}, "cannot be combined with budget_usd"),
        ({"keep_alive_period_in_seconds": 21_601}, "at most 21600"),
    ):
        with pytest.raises(SpecError, match=why):
            RunConf.from_mapping({**pool, **params})


def test_a_condition_for_the_registration_is_read_with_the_conf() -> None:
    condition = RunConf(register_when="test_loss <= 2.5").condition

    assert str(condition) == "test_loss <= 2.5"
    with pytest.raises(SpecError, match="register_when: is not a condition"):
        RunConf(register_when="test_loss = 2")
