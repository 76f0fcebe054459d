"""A fine-tuning's conf, and the own-script run that it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.installation import TRAINING_SCRIPTS
from trainyard.specs.fine_tune_conf import FineTuneConf
from trainyard.specs.script_conf import ScriptConf

PLACES = {"base_model": "s3://bucket/base/", "train_data": "s3://bucket/train/"}
SHARDED = {"strategy": "fsdp", "instance_count": 2}
ZERO = {"strategy": "deepspeed", "instance_count": 2}
STAGE_3 = {"zero_optimization": {"stage": 3}}
LADDER = [{"instance_type": "ml.g5.12xlarge"}, {"instance_type": "ml.g5.2xlarge"}]
MEASURED = {**PLACES, "validation_data": "s3://bucket/test/"}


def script_of(**params: Any) -> ScriptConf:
    """Return the run of the script that params stand for."""
    return ScriptConf.from_mapping(FineTuneConf.from_mapping(params).script_params())


def test_a_fine_tuning_is_a_run_of_the_shipped_script() -> None:
    conf = script_of(**MEASURED, rank=8, approval=True, init_from="s3://bucket/old/model.tar.gz")

    assert (conf.source_dir, conf.entry_point) == ("shipped:fine_tuning", "train_sft.py")
    assert conf.framework == "huggingface"
    assert conf.inputs == {
        "model": "s3://bucket/base/",
        "train": "s3://bucket/train/",
        "validation": "s3://bucket/test/",
        "init": "s3://bucket/old/model.tar.gz",
    }
    assert conf.evaluation_inputs == {"base": "s3://bucket/base/", "test": "s3://bucket/test/"}
    assert conf.register_when == "gain > 0"
    assert conf.approval
    assert conf.hyperparameters["rank"] == 8
    assert "learning_rate" not in conf.hyperparameters


def test_without_validation_data_nothing_is_measured_and_no_gate_holds() -> None:
    conf = script_of(**PLACES)

    assert conf.evaluation_entry_point is None
    assert conf.register_when is None


def test_a_hub_model_is_a_hyperparameter_and_no_channel() -> None:
    conf = script_of(**{**MEASURED, "base_model": "owner/some-model"})

    assert conf.hyperparameters["hub_model"] == "owner/some-model"
    assert "model" not in conf.inputs
    assert "base" not in conf.evaluation_inputs


def test_strategy_and_bits_of_the_base_are_hyperparameters() -> None:
    sharded = script_of(**PLACES, **SHARDED, adapter="none")
    eight = script_of(**PLACES, adapter="qlora", hyperparameters={"load_in_8bit": True})

    assert sharded.hyperparameters["strategy"] == "fsdp"
    assert sharded.world_size == 2
    assert eight.hyperparameters["load_in_8bit"] is True
    assert eight.hyperparameters["strategy"] == "ddp"


def test_deepspeed_has_its_configuration_and_its_own_requirements() -> None:
    zero = script_of(**PLACES, **ZERO, hyperparameters={"ds_config": STAGE_3})

    assert zero.hyperparameters["strategy"] == "deepspeed"
    assert zero.hyperparameters["ds_config"] == STAGE_3
    assert zero.requirements == "requirements_deepspeed.txt"
    assert script_of(**PLACES, **SHARDED).requirements is None


def test_requirements_of_deepspeed_are_the_others_and_deepspeed() -> None:
    folder = TRAINING_SCRIPTS / "fine_tuning"
    lines = (folder / "requirements_deepspeed.txt").read_text().splitlines()

    common = (folder / "requirements.txt").read_text().splitlines()
    (added,) = sorted(set(lines) - set(common))
    assert added.startswith("deepspeed==")
    assert set(common) < set(lines)
    assert added in (TRAINING_SCRIPTS.parent / "images/deepspeed/requirements.txt").read_text()


def test_a_capacity_ladder_and_notifications_reach_the_run() -> None:
    ladder = [{"instance_type": "ml.g5.2xlarge", "use_spot_instances": True}]
    topic = {"topic_arn": "arn:aws:sns:us-east-1:123456789012:runs"}
    conf = script_of(**PLACES, capacity_ladder=ladder, notifications=topic)

    assert conf.capacity_ladder[0].use_spot_instances
    assert conf.notifications is not None
    assert conf.notifications.topic_arn == topic["topic_arn"]


@pytest.mark.parametrize(
    ("params", "where", "says"),
    [
        ({"metod": "dpo"}, "metod", "'method'"),
        ({"method": "ppo"}, "method", "sft, dpo"),
        ({"base_model": "/models/base"}, "base_model", "owner/name"),
        ({"train_data": "train.jsonl"}, "train_data", "s3://bucket/prefix"),
        ({"artifact": "adapter", "adapter": "none"}, "artifact", 'set artifact to "merged"'),
        ({"method": "dpo", "packing": True}, "packing", "is not supported by method dpo"),
        ({"strategy": "zero"}, "strategy", "ddp, fsdp, deepspeed"),
        (
            {**SHARDED, "adapter": "qlora", "hyperparameters": {"load_in_8bit": True}},
            "hyperparameters.load_in_8bit",
            "the base model then has 4 bits",
        ),
        ({**SHARDED, "instance_count": 1}, "strategy", "only one rank to shard over"),
        ({"strategy": "fsdp", "capacity_ladder": LADDER}, "strategy", "1 x ml.g5.2xlarge"),
        ({**ZERO, "instance_count": 1}, "strategy", "is deepspeed, but there is only one rank"),
        (
            {
                **ZERO,
                "adapter": "qlora",
                "hyperparameters": {"ds_config": STAGE_3, "load_in_8bit": True},
            },
            "hyperparameters.load_in_8bit",
            "ZeRO-3, which cannot shard an 8-bit base model",
        ),
        (
            {**SHARDED, "hyperparameters": {"ds_config": STAGE_3}},
            "hyperparameters.ds_config",
            'set strategy to "deepspeed"',
        ),
        (
            {**ZERO, "hyperparameters": {"ds_config": {**STAGE_3, "bf61": {"enabled": True}}}},
            "hyperparameters.ds_config.bf61",
            "'bf16'",
        ),
        (
            {**ZERO, "hyperparameters": {"ds_config": {"zero_optimization": {"stage": 0}}}},
            "hyperparameters.ds_config.zero_optimization.stage",
            "1, 2, 3",
        ),
        (
            {**ZERO, "hyperparameters": {"ds_config": {**STAGE_3, "optimizer": {}}}},
            "hyperparameters.ds_config.optimizer",
            "learning_rate",
        ),
        (
            {**ZERO, "hyperparameters": {"ds_config": {**STAGE_3, "train_batch_size": 8}}},
            "hyperparameters.ds_config.train_batch_size",
            "batch_size",
        ),
        (
            {**ZERO, "hyperparameters": {"ds_config": "ds.json"}},
            "hyperparameters.ds_config",
            "JSON",
        ),
        ({"hyperparameters": {"load_in_8bit": True}}, "hyperparameters.load_in_8bit", "qlora"),
        ({"epochs": 0}, "epochs", "more than 0"),
        ({"rank": 0}, "rank", "at least 1"),
        ({"hyperparameters": {"rank": 4}}, "hyperparameters.rank", "set the field 'rank' instead"),
        ({"hyperparameters": {"warmup": 4}}, "hyperparameters.warmup", "warmup_steps"),
    ],
    ids=lambda each: str(each)[:30],
)
def test_what_cannot_be_is_refused_by_its_place(
    params: dict[str, Any], where: str, says: str
) -> None:
    with pytest.raises(SpecError) as caught:
        FineTuneConf.from_mapping({**PLACES, **params})

    (finding,) = caught.value.findings
    assert finding.where == where
    assert says in str(finding)
