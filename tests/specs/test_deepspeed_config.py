"""A wrong ds_config is refused before money is spent, and the message names the key."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.specs.test_training_job import GOOD as JOB
from trainyard.errors import SpecError
from trainyard.specs.strategies.deepspeed import deepspeed_findings
from trainyard.specs.training_job import TrainingJobSpec

if TYPE_CHECKING:
    from trainyard.errors import Finding

# The two examples of DeepSpeed's own page on ZeRO-Infinity and of Hugging Face's on the Trainer.
GOOD: dict[str, dict[str, Any]] = {
    "zero-infinity": {
        "zero_optimization": {
            "stage": 3,
            "contiguous_gradients": True,
            "stage3_max_live_parameters": 1e9,
            "stage3_max_reuse_distance": 1e9,
            "stage3_prefetch_bucket_size": 1e7,
            "stage3_param_persistence_threshold": 1e5,
            "reduce_bucket_size": 1e7,
            "sub_group_size": 1e9,
            "offload_optimizer": {"device": "nvme", "nvme_path": "/tmp"},  # noqa: S108
            "offload_param": {"device": "cpu", "pin_memory": True},
        }
    },
    "hugging-face": {
        "fp16": {"enabled": "auto", "loss_scale": 0, "initial_scale_power": 16},
        "optimizer": {"type": "AdamW", "params": {"lr": "auto"}},
        "zero_optimization": {
            "stage": 2,
            "allgather_bucket_size": 2e8,
            "overlap_comm": True,
            "offload_optimizer": {"device": "cpu", "pin_memory": True},
        },
        "gradient_accumulation_steps": "auto",
        "gradient_clipping": "auto",
        "steps_per_print": 2000,
        "train_batch_size": "auto",
        "train_micro_batch_size_per_gpu": "auto",
        "wall_clock_breakdown": False,
    },
    "batch": {"train_batch_size": 64, "train_micro_batch_size_per_gpu": 4},
}
ZERO = "hyperparameters.ds_config.zero_optimization"
BAD: dict[str, tuple[Any, str, str]] = {
    "no-object": ([], "hyperparameters.ds_config", "allowed: a JSON object"),
    "no-json": ('{"zero_optimization": ', "hyperparameters.ds_config", "allowed: a JSON object"),
    "misspelt": (
        {"zero_optimisation": {"stage": 2}},
        "hyperparameters.ds_config.zero_optimisation",
        "did you mean 'zero_optimization'",
    ),
    "stage-4": ({"zero_optimization": {"stage": 4}}, f"{ZERO}.stage", "got 4"),
    "stage-text": ({"zero_optimization": {"stage": "2"}}, f"{ZERO}.stage", "got '2'"),
    "in-zero": (
        {"zero_optimization": {"stage": 2, "offload_optimiser": {}}},
        f"{ZERO}.offload_optimiser",
        "did you mean 'offload_optimizer'",
    ),
    "device": (
        {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "host"}}},
        f"{ZERO}.offload_optimizer.device",
        "allowed: none, cpu, nvme",
    ),
    "params-below-3": (
        {"zero_optimization": {"stage": 2, "offload_param": {"device": "cpu"}}},
        f"{ZERO}.offload_param",
        "needs ZeRO stage 3; got stage 2",
    ),
    "nvme-nowhere": (
        {"zero_optimization": {"stage": 3, "offload_param": {"device": "nvme"}}},
        f"{ZERO}.offload_param.nvme_path",
        "is missing",
    ),
    "old-name": (
        {"zero_optimization": {"stage": 2, "cpu_offload": True}},
        f"{ZERO}.cpu_offload",
        'write "offload_optimizer": {"device": "cpu"}',
    ),
    "two-precisions": (
        {"fp16": {"enabled": True}, "bf16": {"enabled": True}},
        "hyperparameters.ds_config.fp16",
        "remove one of them",
    ),
    "batch": (
        {"train_batch_size": 10, "train_micro_batch_size_per_gpu": 4},
        "hyperparameters.ds_config.train_batch_size",
        "got 10; the product is 4",
    ),
    "batch-0": (
        {"train_micro_batch_size_per_gpu": 0},
        "hyperparameters.ds_config.train_micro_batch_size_per_gpu",
        "a whole number of at least 1",
    ),
}


def spec_with(config: Any) -> TrainingJobSpec:
    return TrainingJobSpec.from_mapping({**JOB, "hyperparameters": {"ds_config": config}})


def findings_of(config: Any) -> list[Finding]:
    return list(deepspeed_findings(config))


@pytest.mark.parametrize("name", GOOD)
def test_published_configurations_pass_as_objects_and_as_text(name: str) -> None:
    assert findings_of(GOOD[name]) == []
    assert findings_of(json.dumps(GOOD[name])) == []


@pytest.mark.parametrize("name", BAD)
def test_a_wrong_configuration_is_told_by_its_key(name: str) -> None:
    config, where, said = BAD[name]

    found = findings_of(config)

    assert [each.where for each in found] == [where]
    assert said in str(found[0])


def test_the_name_of_a_file_is_the_scripts_affair() -> None:
    assert findings_of("ds_config.json") == []


def test_a_training_job_with_a_wrong_configuration_is_refused() -> None:
    with pytest.raises(SpecError, match=r"hyperparameters\.ds_config\.zero_optimization\.stage: "):
        spec_with({"zero_optimization": {"stage": 4}})

    assert spec_with(GOOD["hugging-face"]).hyperparameters


def test_all_faults_are_told_at_once() -> None:
    found = findings_of({"zero_optimization": {"stage": 5, "stge": 1}, "bf_16": {}})

    assert len(found) == 3
