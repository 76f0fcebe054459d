"""Each combination that is known to be bad is found, and its neighbor that is right is not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.catalog.strategy_support import support_table
from trainyard.errors import ContractError, Severity, SpecError
from trainyard.planning.linter.linter import lint
from trainyard.specs.distribution import STRATEGIES
from trainyard.specs.training_job import TrainingJobSpec

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.errors import Finding

ON = {"enabled": True}
REPOSITORY = "763104351884.dkr.ecr.us-east-1.amazonaws.com"
TORCH = f"{REPOSITORY}/pytorch-training:2.2.0-gpu-py310"
TENSORFLOW = f"{REPOSITORY}/tensorflow-training:2.11.0-gpu-py39"
SMP_IMAGE = (
    "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.3.1-gpu-py311-cu121"
)
OWN_IMAGE = "111122223333.dkr.ecr.us-east-1.amazonaws.com/acme-pytorch:1.2"
BASE: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/Training",
    "output_path": "s3://bucket/output",
    "image_uri": TORCH,
    "entry_point": "train.py",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 2,
    "checkpoint_s3_uri": "s3://bucket/checkpoints",
    "distribution": {"torch_distributed": ON},
}
SMDDP = {"smdistributed": {"dataparallel": ON}}
SMDDP_TORCHRUN = {**SMDDP, "torch_distributed": ON}
PARAMETER_SERVER = {
    "framework": "tensorflow",
    "image_uri": TENSORFLOW,
    "distribution": {"parameter_server": ON},
}
MIRRORED = {
    "framework": "tensorflow",
    "image_uri": TENSORFLOW,
    "distribution": {"multi_worker_mirrored_strategy": ON},
}
COMPILER = {"sagemaker_training_compiler_enabled": True}
RULE: dict[str, Any] = {
    "RuleConfigurationName": "VanishingGradient",
    "RuleEvaluatorImage": "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest",
    "RuleParameters": {"rule_to_invoke": "VanishingGradient"},
}
ACTING_RULE = {**RULE, "RuleParameters": {**RULE["RuleParameters"], "action_json": "{}"}}
GROUPS = {
    "instance_type": None,
    "instance_count": None,
    "instance_groups": [
        {"instance_group_name": "cpu", "instance_type": "ml.c5.18xlarge", "instance_count": 1},
        {"instance_group_name": "gpu", "instance_type": "ml.p4d.24xlarge", "instance_count": 2},
    ],
    "distribution": {"torch_distributed": ON, "instance_groups": ["gpu"]},
}
SMDDP_ON_THE_GROUP = {"distribution": {**SMDDP, "instance_groups": ["gpu"]}}
PLAIN_GROUPS = {**GROUPS, "distribution": {}}
SPOT = {"use_spot_instances": True, "max_run": 3000, "max_wait": 3600}
BUILT_IN = {
    "entry_point": None,
    "distribution": {},
    "image_uri": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
    "checkpoint_s3_uri": None,
    "instance_type": "ml.m5.2xlarge",
    "hyperparameters": {"num_round": 10},
    "inputs": {"train": "s3://bucket/train"},
}


def smp_v1(**parameters: Any) -> dict[str, Any]:
    given = {"pipeline_parallel_degree": 2, "ddp": True, **parameters}
    return {
        "image_uri": f"{REPOSITORY}/pytorch-training:1.13.1-gpu-py39",
        "distribution": {
            "mpi": {**ON, "processes_per_host": 8},
            "smdistributed": {"modelparallel": {**ON, "parameters": given}},
        },
    }


def smp_v1_of(*, processes: int) -> dict[str, Any]:
    job = smp_v1()
    return {
        **job,
        "distribution": {**job["distribution"], "mpi": {**ON, "processes_per_host": processes}},
    }


def groups_of(instance_type: str, count: int) -> dict[str, Any]:
    """Return a job of a CPU group and a group with the strategy."""
    group = {"instance_group_name": "gpu", "instance_type": instance_type, "instance_count": count}
    return {**GROUPS, "instance_groups": [GROUPS["instance_groups"][0], group]}


def smp_v2(**parameters: Any) -> dict[str, Any]:
    return {
        "image_uri": SMP_IMAGE,
        "distribution": {
            "torch_distributed": ON,
            "smdistributed": {"modelparallel": {**ON, "parameters": parameters}},
        },
    }


def torchrun(processes: int, instance_type: str) -> dict[str, Any]:
    return {
        "instance_type": instance_type,
        "distribution": {"torch_distributed": {**ON, "processes_per_host": processes}},
    }


def decoder(*, entry_point: str, num_layers: int) -> dict[str, Any]:
    """Return a job of a shipped script; 60 layers of 4096 are 12.1e9 parameters."""
    sizes = {"num_layers": str(num_layers), "hidden_size": "4096", "num_heads": "32"}
    return {"entry_point": entry_point, "hyperparameters": sizes}


def channel(**members: Any) -> dict[str, Any]:
    return {"inputs": {"train": {"s3_data": "s3://bucket/train", **members}}}


def findings(changes: dict[str, Any]) -> tuple[Finding, ...]:
    """Return what is found, also what the spec refuses by itself before the linter sees it."""
    try:
        return lint(TrainingJobSpec.from_mapping({**BASE, **changes}))
    except SpecError as error:
        return error.findings


E, W = Severity.ERROR, Severity.WARNING
# name: (bad job, severity, what is said, the neighboring good job)
CASES: dict[str, tuple[dict[str, Any], Severity, str, dict[str, Any]]] = {
    # strategy x instance
    "smddp on p5": (
        {"distribution": SMDDP, "instance_type": "ml.p5.48xlarge"},
        E,
        "is not supported by smddp; got ml.p5.48xlarge",
        {"distribution": SMDDP, "instance_type": "ml.p4de.24xlarge"},
    ),
    "smddp under torchrun on p5": (
        {"distribution": SMDDP_TORCHRUN, "instance_type": "ml.p5.48xlarge"},
        E,
        "is not supported by smddp_torchrun",
        {"distribution": SMDDP_TORCHRUN},
    ),
    "smddp under torchrun on p3dn": (
        {"distribution": SMDDP_TORCHRUN, "instance_type": "ml.p3dn.24xlarge"},
        E,
        "is not supported by smddp_torchrun; got ml.p3dn.24xlarge",
        {"distribution": SMDDP_TORCHRUN, "instance_type": "ml.p4de.24xlarge"},
    ),
    "smddp on g5": (
        {"distribution": SMDDP, "instance_type": "ml.g5.48xlarge"},
        E,
        "is not supported by smddp",
        {"instance_type": "ml.g5.48xlarge"},
    ),
    "smddp on trainium": (
        {"distribution": SMDDP, "instance_type": "ml.trn1.32xlarge"},
        E,
        "is a trainium instance, which smddp does not run on",
        {"instance_type": "ml.trn1.32xlarge"},
    ),
    "smddp on cpu": (
        {"distribution": SMDDP, "instance_type": "ml.c5.18xlarge"},
        E,
        "is a cpu instance, which smddp does not run on",
        {"instance_type": "ml.c5.18xlarge"},
    ),
    "mpi on trainium": (
        {"distribution": {"mpi": ON}, "instance_type": "ml.trn1.32xlarge"},
        E,
        "is a trainium instance, which mpi does not run on",
        {"distribution": {"mpi": ON}},
    ),
    "smddp on p3": (
        {"distribution": SMDDP, "instance_type": "ml.p3.16xlarge"},
        W,
        "AWS removed ml.p3.16xlarge from the list of supported types",
        {"distribution": SMDDP},
    ),
    "smddp on p3dn": (
        {"distribution": SMDDP, "instance_type": "ml.p3dn.24xlarge"},
        W,
        "smddp has only AllReduce on ml.p3dn.24xlarge, and AWS no longer develops smddp for this type",
        {"distribution": SMDDP, "instance_type": "ml.p4de.24xlarge"},
    ),
    "smp v1 on p5": (
        {**smp_v1(), "instance_type": "ml.p5.48xlarge"},
        E,
        "is not supported by smp_v1",
        smp_v1(),
    ),
    # strategy x version and image
    "smddp in a newer torch": (
        {"distribution": SMDDP, "image_uri": f"{REPOSITORY}/pytorch-training:2.8.0-gpu-py312"},
        E,
        "has a version of torch that smddp does not support; got 2.8; allowed: 1.6 to 2.3",
        {"distribution": SMDDP, "image_uri": f"{REPOSITORY}/pytorch-training:2.3.0-gpu-py311"},
    ),
    "smddp in the newest repository's torch": (
        {"distribution": SMDDP, "image_uri": f"{REPOSITORY}/pytorch:2.13-cu133-amzn2023-sagemaker"},
        E,
        "has a version of torch that smddp does not support; got 2.13; allowed: 1.6 to 2.3",
        {"distribution": SMDDP, "image_uri": f"{REPOSITORY}/pytorch-training:2.3.0-gpu-py311"},
    ),
    "smddp by the default image's version": (
        {"distribution": SMDDP, "image_uri": None},
        E,
        "framework_version: has a version of torch that smddp does not support; got 2.13",
        {"distribution": SMDDP, "image_uri": None, "framework_version": "2.2.0"},
    ),
    "smddp by the spec's version": (
        {"distribution": SMDDP, "image_uri": None, "framework_version": "2.4.1"},
        E,
        "framework_version: has a version of torch that smddp does not support; got 2.4",
        {"distribution": SMDDP, "image_uri": None, "framework_version": "2.2.0"},
    ),
    "smddp in a newer tensorflow": (
        {
            "distribution": SMDDP,
            "framework": "tensorflow",
            "image_uri": f"{REPOSITORY}/tensorflow-training:2.12.0-gpu-py310",
        },
        E,
        "has a version of tensorflow that smddp does not support; got 2.12",
        {"distribution": SMDDP, "framework": "tensorflow", "image_uri": TENSORFLOW},
    ),
    "pytorchddp in a newer torch": (
        {
            "distribution": {"pytorchddp": ON},
            "image_uri": f"{REPOSITORY}/pytorch-training:2.4.0-gpu-py311",
        },
        W,
        "is started by plain mpirun: AWS's images have no smddprun after PyTorch 2.3",
        {
            "distribution": {"pytorchddp": ON},
            "image_uri": f"{REPOSITORY}/pytorch-training:2.3.0-gpu-py311",
        },
    ),
    "torchrun in an old torch": (
        {"image_uri": f"{REPOSITORY}/pytorch-training:1.12.1-gpu-py38"},
        E,
        "is started by the images of PyTorch 1.13 and later only",
        {"image_uri": f"{REPOSITORY}/pytorch-training:1.13.1-gpu-py39"},
    ),
    "torchrun in an older torch": (
        {"image_uri": f"{REPOSITORY}/pytorch-training:1.10.2-gpu-py38"},
        E,
        "has a version of torch that torch_distributed does not support",
        {
            "image_uri": f"{REPOSITORY}/pytorch-training-neuron:1.11.0-neuron-py38",
            "instance_type": "ml.trn1.32xlarge",
        },
    ),
    "smp v2 in torch's own image": (
        {**smp_v2(), "image_uri": TORCH},
        E,
        "is an AWS image without the library of smp_v2; got pytorch-training",
        smp_v2(),
    ),
    "smp v2 in a newer torch": (
        {**smp_v2(), "image_uri": None, "framework_version": "2.6.0"},
        E,
        "has a version of torch that smp_v2 does not support; got 2.6; allowed: 2.0 to 2.5",
        {**smp_v2(), "image_uri": None, "framework_version": "2.5.1"},
    ),
    "smp v2 in an image of one's own": (
        {**smp_v2(), "image_uri": OWN_IMAGE},
        W,
        "names an image that may lack the library of smp_v2; got acme-pytorch",
        {**smp_v2(), "image_uri": SMP_IMAGE.replace("2.3.1", "2.8.0")},
    ),
    "smp v1 in a newer torch": (
        {**smp_v1(), "image_uri": TORCH},
        E,
        "has a version of torch that smp_v1 does not support; got 2.2",
        smp_v1(),
    ),
    # strategy x node count and ranks
    "smddp on one instance": (
        {"distribution": SMDDP, "instance_count": 1},
        W,
        "instance_count: is 1, but SMDDP only accelerates",
        {"distribution": SMDDP, "instance_count": 2},
    ),
    "several instances and no strategy": (
        {"distribution": {}},
        W,
        "so every instance runs the same training separately",
        {"distribution": {}, "instance_count": 1},
    ),
    "several gpus and no strategy": (
        {"distribution": {}, "instance_count": 1},
        W,
        "one process uses one of the instance's accelerators",
        {"distribution": {}, "instance_count": 1, "instance_type": "ml.g5.xlarge"},
    ),
    "more ranks than gpus": (
        torchrun(16, "ml.p4d.24xlarge"),
        E,
        "is more than the instance's number of accelerators; got 16 on ml.p4d.24xlarge with 8",
        torchrun(8, "ml.p4d.24xlarge"),
    ),
    "more ranks than gpus under mpirun": (
        {"distribution": {"mpi": {**ON, "processes_per_host": 16}}},
        W,
        "is more than the instance's number of accelerators; got 16 on ml.p4d.24xlarge with 8",
        {"distribution": {"mpi": {**ON, "processes_per_host": 8}}},
    ),
    "more ranks than gpus for smp v1": (
        smp_v1_of(processes=16),
        E,
        "two ranks cannot share a GPU under NCCL",
        smp_v1_of(processes=8),
    ),
    "idle gpus": (
        torchrun(4, "ml.p4d.24xlarge"),
        W,
        "leaves accelerators idle; got 4 on ml.p4d.24xlarge with 8",
        torchrun(36, "ml.c5.18xlarge"),
    ),
    "more ranks than neuron cores": (
        torchrun(33, "ml.trn1.32xlarge"),
        E,
        "is more than the instance's number of NeuronCores; got 33 on ml.trn1.32xlarge with 32",
        torchrun(32, "ml.trn1.32xlarge"),
    ),
    "idle neuron cores": (
        torchrun(16, "ml.trn2.48xlarge"),
        W,
        "leaves NeuronCores idle; got 16 on ml.trn2.48xlarge with 64",
        torchrun(64, "ml.trn2.48xlarge"),
    ),
    "degrees of smp v2 that do not fit": (
        smp_v2(hybrid_shard_degree=8, tensor_parallel_degree=3),
        E,
        "got shard 8 x tensor 3 = 24, with 16 ranks",
        smp_v2(hybrid_shard_degree=8, tensor_parallel_degree=2),
    ),
    "degrees of smp v1 that do not fit": (
        smp_v1(tensor_parallel_degree=5),
        E,
        "got pipeline 2 x tensor 5 x shard 1 = 10, with 16 ranks",
        smp_v1(tensor_parallel_degree=4),
    ),
    "several small instances for one larger": (
        {"instance_type": "ml.g5.xlarge", "instance_count": 4},
        W,
        "is 4, but one ml.g5.12xlarge has at least as many accelerators; got 4 x 1 NVIDIA A10G",
        {"instance_type": "ml.g5.12xlarge", "instance_count": 1},
    ),
    "several instances of the strategy's group without efa": (
        groups_of("ml.g5.2xlarge", 2),
        W,
        "has no EFA, so gradients are sent between instances over TCP",
        groups_of("ml.g5.2xlarge", 1),
    ),
    "smddp on one instance beside a group without a strategy": (
        {**groups_of("ml.p4d.24xlarge", 1), **SMDDP_ON_THE_GROUP},
        W,
        "instance_count: is 1, but SMDDP only accelerates",
        {**GROUPS, **SMDDP_ON_THE_GROUP},
    ),
    "several instances without efa": (
        {"instance_type": "ml.g5.2xlarge"},
        W,
        "has no EFA, so gradients are sent between instances over TCP",
        {"instance_type": "ml.g5.2xlarge", "instance_count": 1},
    ),
    "a retired type": (
        {"instance_type": "ml.p3.16xlarge"},
        W,
        "is a retired instance type, whose capacity may end without notice",
        {"instance_type": "ml.p3dn.24xlarge"},
    ),
    # techniques of smp
    "offloading of what is not checkpointed": (
        {
            **smp_v2(sm_activation_offloading=True),
            "hyperparameters": {"activation_checkpointing": False},
        },
        E,
        "needs activation checkpointing, which the script must enable; got hyperparameters",
        {
            **smp_v2(sm_activation_offloading=True),
            "hyperparameters": {"activation_checkpointing": True},
        },
    ),
    "offloading, and nothing said of checkpointing": (
        smp_v2(sm_activation_offloading=True),
        W,
        "needs activation checkpointing, which the script must enable",
        smp_v2(sm_activation_offloading=False),
    ),
    "smp v1 at all": (smp_v1(), W, "is version 1 of the library, which AWS archived", smp_v2()),
    # parameter server
    "a parameter server": (
        PARAMETER_SERVER,
        W,
        "is legacy: asynchronous data parallel training, and no model parallelism",
        MIRRORED,
    ),
    "a parameter server on several gpus": (
        PARAMETER_SERVER,
        W,
        "the parameter server's launcher starts one worker per instance",
        {**PARAMETER_SERVER, "instance_type": "ml.g5.xlarge"},
    ),
    "mxnet": (
        {"framework": "mxnet", "distribution": {"mpi": ON}},
        W,
        "is MXNet, which has reached its end of life",
        {"distribution": {"mpi": ON}},
    ),
    # memory at the start
    "zero-3 of a model that no gpu holds whole": (
        decoder(entry_point="train_deepspeed.py", num_layers=60),
        E,
        "cannot hold the model of train_deepspeed.py; at the start, each accelerator has 40 GiB but needs 45.1 GiB",
        decoder(entry_point="train_fsdp.py", num_layers=60),
    ),
    "a model that the host does not hold once per rank": (
        {**decoder(entry_point="train_ddp.py", num_layers=60), **torchrun(16, "ml.m5.24xlarge")},
        E,
        "(the whole model on each of 16 ranks)",
        {**decoder(entry_point="train_ddp.py", num_layers=60), **torchrun(4, "ml.m5.24xlarge")},
    ),
    # spot and checkpoints
    "spot without checkpoints": (
        {**SPOT, "checkpoint_s3_uri": None},
        W,
        "an interruption loses the whole training",
        SPOT,
    ),
    "long spot without checkpoints": (
        {**SPOT, "max_run": 7200, "max_wait": 7200, "checkpoint_s3_uri": None},
        E,
        "is required for long spot jobs, because an interruption would lose the whole training",
        {**SPOT, "max_run": 7200, "max_wait": 7200},
    ),
    "a built-in algorithm waiting for spot": (
        {**BUILT_IN, **SPOT, "max_wait": 7200},
        E,
        "is above the 3600 s that AWS allows for built-in algorithms without checkpoints",
        {**BUILT_IN, **SPOT},
    ),
    "spot without a wait": (
        {**SPOT, "max_wait": None},
        E,
        "max_wait: is required for spot instances",
        SPOT,
    ),
    "spot with instance groups": (
        {**GROUPS, **SPOT},
        W,
        "is not documented as supported together with instance_groups",
        SPOT,
    ),
    "spot with preferences": (
        {
            **SPOT,
            "instance_type": None,
            "instance_preferences": [{"instance_type": "ml.p4d.24xlarge"}],
        },
        E,
        "cannot be combined with instance_preferences",
        {"instance_type": None, "instance_preferences": [{"instance_type": "ml.p4d.24xlarge"}]},
    ),
    "the default image on GPUs older than its CUDA": (
        {"image_uri": None, "instance_type": "ml.p3dn.24xlarge"},
        E,
        "instance_type: has GPUs that the image's CUDA 13 no longer supports",
        {"image_uri": None},
    ),
    # storage
    "a volume key on local storage": (
        {"volume_kms_key": "alias/ours", "instance_type": "ml.p5.48xlarge"},
        E,
        "volume_kms_key: is not supported by instance types with local storage",
        {"volume_kms_key": "alias/ours", "instance_type": "ml.c5n.18xlarge"},
    ),
    # warm pools
    "a warm pool on spot": (
        {**SPOT, "keep_alive_period_in_seconds": 600},
        E,
        "keep_alive_period_in_seconds: cannot be combined with spot instances",
        {"keep_alive_period_in_seconds": 600},
    ),
    "a warm pool of groups": (
        {**GROUPS, "keep_alive_period_in_seconds": 600},
        E,
        "keep_alive_period_in_seconds: cannot be combined with instance_groups",
        GROUPS,
    ),
    "a warm pool for long": (
        {"keep_alive_period_in_seconds": 21_601},
        E,
        "keep_alive_period_in_seconds: is out of range",
        {"keep_alive_period_in_seconds": 21_600},
    ),
    "a warm pool without quota": (
        {"keep_alive_period_in_seconds": 600},
        W,
        "has no effect while the account's warm pool quota for this type is 0",
        {},
    ),
    # Debugger
    "debugger at all": (
        {"rules": [RULE], "checkpoint_s3_uri": None},
        W,
        "is not available to accounts that did not use Debugger before 2026-07-30",
        {},
    ),
    "debugger of a distributed job with checkpoints": (
        {"rules": [RULE]},
        E,
        "cannot be combined with checkpoints of a distributed job",
        {"rules": [RULE], "checkpoint_s3_uri": None},
    ),
    "debugger of one process with checkpoints": (
        {"rules": [RULE]},
        E,
        "cannot be combined with checkpoints of a distributed job",
        {
            "rules": [RULE],
            "distribution": {},
            "instance_count": 1,
            "instance_type": "ml.g5.xlarge",
        },
    ),
    "debugger with smp": (
        {**smp_v2(), "rules": [RULE], "checkpoint_s3_uri": None},
        E,
        "cannot be combined with the model parallel library",
        {"rules": [RULE], "checkpoint_s3_uri": None},
    ),
    "debugger with a parameter server": (
        {**PARAMETER_SERVER, "rules": [RULE], "checkpoint_s3_uri": None},
        E,
        "cannot be combined with a parameter server",
        {**MIRRORED, "rules": [RULE], "checkpoint_s3_uri": None},
    ),
    "debugger in an image without its hook": (
        {"rules": [RULE], "checkpoint_s3_uri": None},
        W,
        "has no hook in the image, so no tensors will be saved",
        {
            "rules": [RULE],
            "checkpoint_s3_uri": None,
            "image_uri": f"{REPOSITORY}/pytorch-training:2.0.1-gpu-py310",
        },
    ),
    "debugger's actions in isolation": (
        {"rules": [ACTING_RULE], "enable_network_isolation": True},
        E,
        "have actions, which network isolation does not allow",
        {"rules": [RULE], "enable_network_isolation": True},
    ),
    "debugger's actions on spot": (
        {**SPOT, "rules": [ACTING_RULE]},
        W,
        "have actions, which are lost when spot capacity is interrupted",
        {"rules": [ACTING_RULE]},
    ),
    "framework profiling": (
        {"profiler_rules": [{**RULE, "RuleParameters": {"rule_to_invoke": "StepOutlier"}}]},
        E,
        "need framework profiling, which PyTorch 2.0 and later do not support",
        {"profiler_rules": [{**RULE, "RuleParameters": {"rule_to_invoke": "LowGPUUtilization"}}]},
    ),
    # input mode
    "pipe mode with several ranks": (
        channel(input_mode="Pipe"),
        W,
        "is Pipe, but several ranks of an instance would read one FIFO; got 8 ranks",
        channel(input_mode="FastFile"),
    ),
    "the job's pipe mode with several ranks": (
        {**channel(), "input_mode": "Pipe"},
        W,
        "several ranks of an instance would read one FIFO",
        {**channel(), "input_mode": "Pipe", "instance_type": "ml.g5.xlarge"},
    ),
    "compressed files": (
        channel(compression="Gzip"),
        E,
        "inputs.train.compression: applies to Pipe mode only, but this channel is in File mode",
        {**channel(compression="Gzip", input_mode="Pipe"), "instance_type": "ml.g5.xlarge"},
    ),
    "wrapped records": (
        channel(record_wrapping="RecordIO", input_mode="FastFile"),
        E,
        "inputs.train.record_wrapping: applies to Pipe mode only, but this channel is in",
        channel(record_wrapping="None"),
    ),
    "an augmented manifest": (
        channel(s3_data_type="AugmentedManifestFile", attribute_names=["a"]),
        E,
        "inputs.train.s3_data_type: applies to Pipe mode only, but this channel is in",
        channel(s3_data_type="ManifestFile"),
    ),
    # heterogeneous clusters
    "groups in an old torch": (
        {**PLAIN_GROUPS, "image_uri": f"{REPOSITORY}/pytorch-training:1.9.1-gpu-py38"},
        E,
        "is too old for instance_groups",
        {**PLAIN_GROUPS, "image_uri": f"{REPOSITORY}/pytorch-training:1.10.2-gpu-py38"},
    ),
    "groups in an old tensorflow": (
        {
            **PLAIN_GROUPS,
            "framework": "tensorflow",
            "image_uri": f"{REPOSITORY}/tensorflow-training:2.5.0-gpu-py37",
        },
        E,
        "is too old for instance_groups",
        {
            **PLAIN_GROUPS,
            "framework": "tensorflow",
            "image_uri": f"{REPOSITORY}/tensorflow-training:2.6.0-gpu-py38",
        },
    ),
    "a strategy on the group without gpus": (
        {**GROUPS, "distribution": {"torch_distributed": ON, "instance_groups": ["cpu"]}},
        W,
        "names a group without accelerators, but another group has some",
        GROUPS,
    ),
    # Training Compiler
    "the compiler with smddp": (
        {"distribution": SMDDP, "hyperparameters": COMPILER},
        E,
        "distribution: cannot be combined with the Training Compiler; remove",
        {"distribution": SMDDP},
    ),
    "the compiler with smp": (
        {**smp_v2(), "hyperparameters": COMPILER},
        E,
        "distribution: cannot be combined with the Training Compiler; remove",
        smp_v2(),
    ),
    "the compiler with groups": (
        {**GROUPS, "hyperparameters": COMPILER},
        E,
        "instance_groups: cannot be combined with the Training Compiler",
        GROUPS,
    ),
    "the compiler with torchrun": (
        {"hyperparameters": COMPILER},
        E,
        "is not supported by the Training Compiler from PyTorch 1.12 on",
        {"hyperparameters": {"sagemaker_training_compiler_enabled": False}},
    ),
    "the compiler by itself": (
        {"hyperparameters": COMPILER, "distribution": {}, "instance_count": 1},
        W,
        "needs images that AWS no longer releases",
        {"distribution": {}, "instance_count": 1},
    ),
    # network
    "smddp in a vpc": (
        {
            "distribution": SMDDP,
            "subnets": ["subnet-0a1b2c3d"],
            "security_group_ids": ["sg-0a1b2c3d"],
        },
        W,
        "must allow all traffic between the group's own members",
        {"distribution": SMDDP},
    ),
    "checkpoints in isolation": (
        {"enable_network_isolation": True, "checkpoint_s3_uri": "s3://bucket/checkpoints"},
        W,
        "prevents the script from checking which checkpoints S3 has",
        {"checkpoint_s3_uri": "s3://bucket/checkpoints"},
    ),
    "encrypted traffic": (
        {"encrypt_inter_container_traffic": True},
        W,
        "makes the traffic between ranks slower",
        {"encrypt_inter_container_traffic": True, "instance_count": 1},
    ),
    "the code's channel in isolation": (
        {"enable_network_isolation": True, "inputs": {"code": "s3://bucket/code"}},
        E,
        "inputs.code: is reserved for the code of jobs with network isolation",
        {"enable_network_isolation": True, "inputs": {"train": "s3://bucket/train"}},
    ),
    "a type that nobody knows": (
        {"instance_type": "ml.p4d.24xlrge"},
        W,
        "did you mean 'ml.p4d.24xlarge'",
        {},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_combination_is_found_and_its_neighbor_is_not(case: str) -> None:
    bad, severity, says, good = CASES[case]

    said = [each for each in findings(bad) if says in str(each)]

    assert [each.severity for each in said] == [severity]
    assert not [each for each in findings(good) if says in str(each)]


def test_every_combination_of_the_table_has_a_case() -> None:
    shown = {each.what for bad, *_ in CASES.values() for each in findings(bad)}

    assert {each.what for each in support_table().combinations} <= shown


def test_a_neighbor_that_is_right_in_everything_has_no_finding() -> None:
    assert findings({}) == ()


RIGHT_ON_AWS: dict[str, dict[str, Any]] = {
    "the tag of an image of one's own is no version of torch": {"image_uri": OWN_IMAGE},
    "a later image of smp v2": {**smp_v2(), "image_uri": SMP_IMAGE.replace("2.3.1", "2.8.0")},
    "context ranks among those that share a shard": smp_v2(
        hybrid_shard_degree=8, context_parallel_degree=8, tensor_parallel_degree=2
    ),
    "expert ranks among those that share a shard": smp_v2(
        hybrid_shard_degree=16, expert_parallel_degree=8
    ),
    "a container of one's own waits long for spot": {
        **BUILT_IN,
        **SPOT,
        "max_wait": 7200,
        "image_uri": OWN_IMAGE,
    },
    "xgboost with a script waits long for spot": {
        **BUILT_IN,
        **SPOT,
        "max_wait": 7200,
        "entry_point": "train.py",
    },
    "a pipe for each rank": {
        "inputs": {
            f"train_{rank}": {"s3_data": "s3://bucket/train", "input_mode": "Pipe"}
            for rank in range(8)
        }
    },
    "torch 1.12 on trainium": {
        "image_uri": f"{REPOSITORY}/pytorch-training-neuron:1.12.1-neuron-py38",
        "instance_type": "ml.trn1.32xlarge",
    },
    "pytorchddp in torch 1.10": {
        "image_uri": f"{REPOSITORY}/pytorch-training:1.10.2-gpu-py38",
        "distribution": {"pytorchddp": ON},
    },
}


@pytest.mark.parametrize("case", RIGHT_ON_AWS)
def test_what_runs_on_aws_is_not_refused(case: str) -> None:
    assert [str(each) for each in findings(RIGHT_ON_AWS[case]) if each.severity is E] == []


@pytest.mark.parametrize("tag", ["latest", "1", "1.7-1"])
def test_a_built_in_algorithm_is_known_by_its_image(tag: str) -> None:
    image = f"683313688378.dkr.ecr.us-east-1.amazonaws.com/xgboost:{tag}"
    job = {**BUILT_IN, **SPOT, "max_wait": 7200, "image_uri": image}

    assert [each.where for each in findings(job) if each.severity is E] == ["max_wait"]


def test_what_a_built_in_algorithm_requires_is_told() -> None:
    job = {**BUILT_IN, "hyperparameters": {}}

    assert [each.where for each in findings(job) if each.severity is E] == [
        "hyperparameters.num_round"
    ]


@pytest.mark.parametrize(
    ("degrees", "said"),
    [
        ({"tensor_parallel_degree": 4, "context_parallel_degree": 8}, "tensor 4 x context 8 = 32"),
        ({"expert_parallel_degree": 3}, "expert 3 = 3"),
    ],
    ids=["tensor and context", "expert"],
)
def test_degrees_beyond_the_ranks_are_refused(degrees: dict[str, int], said: str) -> None:
    errors = [str(each) for each in findings(smp_v2(**degrees)) if each.severity is E]

    assert len(errors) == 1
    assert f"got {said}, with 16 ranks" in errors[0]


def test_everything_is_said_at_once_errors_first() -> None:
    found = findings(
        {
            "distribution": SMDDP,
            "instance_type": "ml.p5.48xlarge",
            "instance_count": 1,
            "image_uri": f"{REPOSITORY}/pytorch-training:2.8.0-gpu-py312",
            "rules": [RULE],
            "hyperparameters": COMPILER,
            **channel(input_mode="Pipe"),
        }
    )

    severities = [each.severity for each in found]
    assert severities == [E] * 5 + [W] * 4


@pytest.mark.parametrize("case", CASES)
def test_every_finding_of_the_linter_says_why_and_what_to_do(case: str) -> None:
    try:
        found = lint(TrainingJobSpec.from_mapping({**BASE, **CASES[case][0]}))
    except SpecError:
        return
    for each in found:
        assert each.next_step
        assert each.why or "catalogue" in each.what


def test_each_rung_is_looked_at_and_named() -> None:
    ladder = [
        {"instance_type": "ml.p4d.24xlarge", "use_spot_instances": True},
        {"instance_type": "ml.p5.48xlarge", "use_spot_instances": False},
    ]
    found = findings(
        {
            "instance_type": None,
            "capacity_ladder": ladder,
            "distribution": SMDDP,
            "max_run": 3000,
            "checkpoint_s3_uri": None,
        }
    )

    assert [each.where for each in found] == [
        "instance_type (capacity_ladder[1])",
        "checkpoint_s3_uri (capacity_ladder[0])",
    ]


def test_every_strategy_is_in_the_table() -> None:
    assert set(support_table().strategies) == {each.name for each in STRATEGIES}


def test_the_table_has_its_date_and_its_source() -> None:
    assert support_table().date == "2026-11-21"
    assert "Replace this file" in support_table().source
    assert all(each.source for each in support_table().strategies.values())


@pytest.mark.parametrize(
    "condition", ["spott", "!=gpu", "strategy", "device>=2.1", "torch=2.1", "torch>2.1", "image=x"]
)
def test_a_condition_that_nobody_understands_is_refused(condition: str, tmp_path: Path) -> None:
    row = {
        "id": "x",
        "when": [condition],
        "severity": "error",
        "where": "x",
        "what": "x",
        "why": "x",
        "source": "x",
        "fix": "x",
    }
    path = tmp_path / "table.json"
    path.write_text(
        json.dumps(
            {
                "date": "2027-01-01",
                "source": "x",
                "strategies": {"mpi": {"devices": ["gpu"], "source": "x"}},
                "combinations": [row],
            }
        )
    )

    with pytest.raises(ContractError, match="the support table has an unknown condition"):
        support_table(path)


def test_a_replaced_table_decides(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    rows = {
        "date": "2027-01-01",
        "source": "x",
        "strategies": {
            "torch_distributed": {
                "devices": ["gpu"],
                "instance_types": ["ml.p5.48xlarge"],
                "source": "x",
            }
        },
        "combinations": [
            {
                "id": "x",
                "when": ["several_instances", "!spot"],
                "severity": "warning",
                "where": "here",
                "what": "is new",
                "why": "x",
                "source": "x",
                "fix": "x",
            }
        ],
    }
    path.write_text(json.dumps(rows))

    found = lint(TrainingJobSpec.from_mapping(BASE), table=support_table(path))

    assert [each.what for each in found] == ["is not supported by torch_distributed", "is new"]


def test_a_table_without_its_date_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    path.write_text("{}")

    with pytest.raises(ContractError, match="has no date, source, strategies, combinations"):
        support_table(path)
