"""DeepSpeed's configuration reaches the engine as its author wrote it, with the run's batch in it, or is refused."""

from __future__ import annotations

import json
import sys
from types import ModuleType

import pytest
import torch
import torch.distributed as dist
from sagemaker_training import mapping

from trainer.batching import plan_batches
from trainer.zero.config import ZeroHyperparameters, complete_config, read_config
from trainer.zero.training import ZeroTraining
from trainyard_watch.distributed import Ranks
from trainyard_watch.errors import HyperparameterError

WRITTEN = {"zero_optimization": {"stage": 2, "offload_optimizer": {"device": "cpu"}}}


@pytest.fixture
def plan():
    hp = ZeroHyperparameters(global_batch_size=8, micro_batch_size=1, max_steps=2)
    return plan_batches(hp, world_size=4, num_samples=100)


def as_started_by_the_toolkit(hyperparameters):
    """Return what a script is given: SM_HPS, and the same once more as options."""
    options = [str(each) for each in mapping.to_cmd_args(hyperparameters)]
    return ZeroHyperparameters.load(json.dumps(hyperparameters), options)


@pytest.mark.parametrize("value", [WRITTEN, json.dumps(WRITTEN)], ids=["object", "text"])
def test_the_configuration_survives_the_toolkits_command_line(value):
    hp = as_started_by_the_toolkit({"max_steps": 3, "ds_config": value})

    assert read_config(hp.ds_config, {}) == WRITTEN
    assert hp.max_steps == 3


def test_an_option_alone_counts():
    hp = ZeroHyperparameters.load("{}", ["--ds_config", json.dumps(WRITTEN)])

    assert read_config(hp.ds_config, {}) == WRITTEN


def test_a_channel_holds_one_file(tmp_path):
    (tmp_path / "any.json").write_text(json.dumps(WRITTEN))
    assert read_config("", {"deepspeed": tmp_path}) == WRITTEN

    with pytest.raises(HyperparameterError, match="both have a DeepSpeed config; use one of them"):
        read_config(json.dumps(WRITTEN), {"deepspeed": tmp_path})
    (tmp_path / "other.json").write_text("{}")
    said = (
        r"has any\.json, other\.json\. Give the channel a prefix with a single JSON file, "
        r"or pass .* hyperparameter ds_config"
    )
    with pytest.raises(HyperparameterError, match=said):
        read_config("", {"deepspeed": tmp_path})


def test_the_runs_batch_and_clipping_are_filled_in(plan):
    config = complete_config({**WRITTEN, "train_batch_size": "auto"}, plan, clip_norm=0.5)

    assert config["train_batch_size"] == 8
    assert config["train_micro_batch_size_per_gpu"] == 1
    assert config["gradient_accumulation_steps"] == 2
    assert config["gradient_clipping"] == 0.5
    assert config["zero_optimization"] == WRITTEN["zero_optimization"]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"train_batch_size": 16},
            "ds_config.train_batch_size is 16, but the hyperparameters require 8",
        ),
        (
            {"gradient_clipping": 2.0},
            "ds_config.gradient_clipping is 2.0, but the hyperparameters require 0.5",
        ),
        (
            {"optimizer": {"type": "Adam"}},
            "ds_config.optimizer is not supported, because the script has its own AdamW",
        ),
        ({"fp16": {"enabled": True}}, "ds_config.fp16 is not supported; set the section bf16"),
        ({"zero_optimization": {}}, "ds_config.zero_optimization.stage is 0; allowed: 1, 2, 3"),
    ],
)
def test_what_contradicts_the_run_is_refused_by_its_key(more, said, plan):
    with pytest.raises(HyperparameterError) as caught:
        complete_config({**WRITTEN, **more}, plan, clip_norm=0.5)

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"on_non_finite": "skip"}, "on_non_finite 'skip' is not possible under DeepSpeed"),
        ({"precision": "fp16"}, "precision fp16 needs a loss scaler"),
    ],
)
def test_a_hyperparameter_that_the_engine_cannot_honour_is_refused(more, said):
    with pytest.raises(HyperparameterError) as caught:
        as_started_by_the_toolkit(more)

    (finding,) = caught.value.findings
    assert finding.startswith(said)


class GroupMadeError(Exception):
    """Ends a set-up after its process group."""


@pytest.mark.parametrize(
    ("device", "backend"), [("cpu", "gloo"), ("cuda:0", "cpu:gloo,cuda:nccl")], ids=["cpu", "cuda"]
)
def test_a_single_ranks_group_has_a_backend_for_its_device(device, backend, monkeypatch):
    """DeepSpeed reduces a GPU's tensors by NCCL; its module is a stand-in, because the package is not installed."""
    made = []

    def init_process_group(backend, **_):
        made.append(backend)
        raise GroupMadeError

    deepspeed = ModuleType("deepspeed")
    deepspeed.ops = ModuleType("deepspeed.ops")
    deepspeed.ops.__compatible_ops__ = {}
    monkeypatch.setitem(sys.modules, "deepspeed", deepspeed)
    monkeypatch.setattr(dist, "init_process_group", init_process_group)
    training = ZeroTraining.__new__(ZeroTraining)
    training.ranks = Ranks(device=torch.device(device))

    with pytest.raises(GroupMadeError):
        training.parallelize()

    assert made == [backend]
