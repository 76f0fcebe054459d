"""Every bad combination that AWS's documents, the SDKs' sources and users' threads name has its case.

`SOURCES` has a row for each statement: what it says, where it stands, and the cases that show it. A case is a bad job
that is found and its neighbor that is not: those of `test_linter.CASES`, and `REFUSED`, which a spec itself refuses.
What a search cannot have and the service's limits have tables of their own below.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.planning.linter.test_linter import (
    BASE,
    CASES,
    GROUPS,
    MIRRORED,
    ON,
    PARAMETER_SERVER,
    REPOSITORY,
    SPOT,
    TENSORFLOW,
    E,
    W,
    findings,
    smp_v1,
    smp_v2,
)
from trainyard.errors import SpecError
from trainyard.sagemaker_api.request_check import validate_request
from trainyard.specs.tuning_job import TuningJobSpec

if TYPE_CHECKING:
    from trainyard.errors import Severity

TORCHRUN: dict[str, Any] = {"torch_distributed": ON}
SMP_ALONE = {"smdistributed": {"modelparallel": {**ON, "parameters": {}}}}
BOTH_LIBRARIES = {
    **TORCHRUN,
    "smdistributed": {"dataparallel": ON, "modelparallel": {**ON, "parameters": {}}},
}
TF_ALONE: dict[str, Any] = {
    "framework": "tensorflow",
    "image_uri": TENSORFLOW,
    "distribution": {},
    "instance_type": "ml.g5.xlarge",
}


def launched(**distribution: Any) -> dict[str, Any]:
    return {"distribution": distribution}


def without_ddp(**parameters: Any) -> dict[str, Any]:
    job = smp_v1(**parameters)
    del job["distribution"]["smdistributed"]["modelparallel"]["parameters"]["ddp"]
    return job


REFUSED: dict[str, tuple[dict[str, Any], Severity, str, dict[str, Any]]] = {
    # names that no SDK has
    **{
        f"the name {name}": (
            launched(**{name: ON}),
            E,
            "is not a strategy or setting of any SageMaker SDK",
            right,
        )
        for name, right in {
            "pytorchx": launched(**TORCHRUN),
            "smdistributed_dataparallel": launched(smdistributed={"dataparallel": ON}),
            "smdistributed_modelparallel": smp_v2(),
            "sagemaker.horovod.Horovod": launched(mpi=ON),
            "deepspeed_enabled": launched(**TORCHRUN),
            "mpi_world_size": launched(mpi={**ON, "processes_per_host": 8}),
        }.items()
    },
    "deepspeed_enabled within torch_distributed": (
        launched(torch_distributed={**ON, "deepspeed_enabled": True}),
        E,
        "is not a strategy or setting of any SageMaker SDK",
        launched(**TORCHRUN),
    ),
    "the name train_use_spot_instances": (
        {"train_use_spot_instances": True},
        E,
        "did you mean 'use_spot_instances'?",
        SPOT,
    ),
    "the name train_max_wait": ({"train_max_wait": 1}, E, "did you mean 'max_wait'?", SPOT),
    "pytorchxla": (launched(pytorchxla=ON), E, "is a strategy of the Training Compiler only", {}),
    # launchers
    "two launchers": (launched(mpi=ON, **TORCHRUN), E, "got mpi + torch_distributed", {}),
    "two libraries of smdistributed": (
        {"distribution": BOTH_LIBRARIES},
        E,
        "enables strategies that cannot be combined",
        smp_v2(),
    ),
    "smp without a launcher": ({"distribution": SMP_ALONE}, E, "has no launcher", smp_v2()),
    "torchrun of a shell script": (
        {"entry_point": "train.sh"},
        E,
        "must be a Python file for torchrun",
        {"entry_point": "train.sh", **launched(mpi=ON)},
    ),
    "a parameter server of torch": (
        launched(parameter_server=ON),
        E,
        "does not support the strategy parameter_server",
        PARAMETER_SERVER,
    ),
    "two workers' strategies of tensorflow": (
        {**MIRRORED, **launched(parameter_server=ON, multi_worker_mirrored_strategy=ON)},
        E,
        "enables strategies that cannot be combined",
        MIRRORED,
    ),
    "multi-worker mirrored in an old tensorflow": (
        {**MIRRORED, "image_uri": f"{REPOSITORY}/tensorflow-training:2.8.0-gpu-py39"},
        E,
        "has a version of tensorflow that multi_worker_mirrored_strategy does not support",
        MIRRORED,
    ),
    "mirrored as a distribution": (
        {**TF_ALONE, **launched(mirrored_strategy=ON)},
        E,
        "is one process on one instance",
        {**TF_ALONE, "instance_count": 1},
    ),
    "mirrored on several instances": (
        TF_ALONE,
        W,
        "every instance runs the same training separately",
        {**TF_ALONE, "instance_count": 1},
    ),
    # smp
    "a key of smp v1 for version 2": (
        smp_v2(microbatches=4),
        E,
        "accumulate gradients in the script",
        smp_v2(),
    ),
    "placement of smp v1 for version 2": (
        smp_v2(placement_strategy="spread"),
        E,
        "version 2 places ranks by its degrees",
        smp_v1(placement_strategy="spread"),
    ),
    "a key of smp v2 for version 1": (
        smp_v1(hybrid_shard_degree=4),
        E,
        "keep version 1 and write sharded_data_parallel_degree",
        smp_v2(hybrid_shard_degree=4),
    ),
    "a key that no smp has": (
        smp_v2(tensor_paralel_degree=2),
        E,
        "did you mean 'tensor_parallel_degree'?",
        smp_v2(tensor_parallel_degree=2),
    ),
    "context ranks beyond those that share a shard": (
        smp_v2(hybrid_shard_degree=2, context_parallel_degree=4),
        E,
        "got 4 with hybrid_shard_degree 2; allowed: at most 2",
        smp_v2(hybrid_shard_degree=4, context_parallel_degree=4),
    ),
    "shards of smp v1 that do not divide the ranks": (
        smp_v1(sharded_data_parallel_degree=3),
        E,
        "have degrees whose product does not divide the number of ranks",
        smp_v1(sharded_data_parallel_degree=4),
    ),
    "tensor parallel of smp v1 without ddp": (
        without_ddp(tensor_parallel_degree=2),
        E,
        "above 1 needs ddp",
        smp_v1(tensor_parallel_degree=2),
    ),
    "ddp and horovod": (smp_v1(horovod=True), E, "cannot be combined with horovod", smp_v1()),
    "a port of ddp without ddp": (
        without_ddp(ddp_port=1234),
        E,
        "ddp_port: needs ddp",
        smp_v1(ddp_port=1234),
    ),
    "offloading with one micro batch": (
        smp_v1(offload_activations=True),
        E,
        "raise microbatches",
        smp_v1(offload_activations=True, microbatches=4),
    ),
    "a default partition beyond the last": (
        smp_v1(auto_partition=False, default_partition=2),
        E,
        "is too large: partitions are numbered from 0",
        smp_v1(auto_partition=False, default_partition=1),
    ),
    "a pipeline that nobody knows": (
        smp_v1(pipeline="fast"),
        E,
        "interleaved, simple, _only_forward",
        smp_v1(pipeline="simple"),
    ),
    "a weight of memory beyond 1": (
        smp_v1(memory_weight=1.5),
        E,
        "at most 1",
        smp_v1(memory_weight=0.5),
    ),
    "parameters of smp beyond one hyperparameter": (
        smp_v1(partition_file="x" * 2500),
        E,
        "are too long",
        smp_v1(partition_file="x" * 100),
    ),
    # instance groups and preferences
    "groups and a type": (
        {**GROUPS, "instance_type": "ml.p4d.24xlarge"},
        E,
        "instance_type: cannot be combined with instance_groups",
        GROUPS,
    ),
    "preferences and a type": (
        {"instance_preferences": [{"instance_type": "ml.p4d.24xlarge"}]},
        E,
        "instance_type: cannot be combined with instance_preferences",
        {"instance_type": None, "instance_preferences": [{"instance_type": "ml.p4d.24xlarge"}]},
    ),
    "preferences and groups": (
        {**GROUPS, "instance_preferences": [{"instance_type": "ml.p4d.24xlarge"}]},
        E,
        "instance_groups: cannot be combined with instance_preferences",
        GROUPS,
    ),
    "a strategy of several groups that names none": (
        {**GROUPS, **launched(**TORCHRUN)},
        E,
        "is required, because the job has several instance groups and a strategy runs on only one of them",
        GROUPS,
    ),
    "a strategy on two groups": (
        {**GROUPS, **launched(**TORCHRUN, instance_groups=["cpu", "gpu"])},
        E,
        "is not a list with one group name",
        GROUPS,
    ),
    "channels of which some name groups": (
        {
            **GROUPS,
            "inputs": {
                "train": {"s3_data": "s3://bucket/train", "instance_groups": ["gpu"]},
                "extra": "s3://bucket/extra",
            },
        },
        E,
        "must name instance_groups on every channel or on none; got no instance_groups on 'extra'",
        {
            **GROUPS,
            "inputs": {"train": {"s3_data": "s3://bucket/train", "instance_groups": ["gpu"]}},
        },
    ),
    # time and network
    "a wait shorter than the run": (
        {**SPOT, "max_wait": 2000},
        E,
        "max_wait: is shorter than max_run",
        SPOT,
    ),
    "subnets without security groups": (
        {"subnets": ["subnet-0a1b2c3d"]},
        E,
        "security_group_ids: is required",
        {"subnets": ["subnet-0a1b2c3d"], "security_group_ids": ["sg-0a1b2c3d"]},
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_combination_is_refused_and_its_neighbor_is_not(case: str) -> None:
    bad, severity, says, good = REFUSED[case]

    assert [each.severity for each in findings(bad) if says in str(each)] == [severity]
    assert not [each for each in findings(good) if says in str(each)]
    assert [str(each) for each in findings(good) if each.severity is E] == []


SEARCH: dict[str, Any] = {
    "training": {
        **{name: value for name, value in BASE.items() if name != "checkpoint_s3_uri"},
        "metric_definitions": [{"name": "loss", "regex": "loss=([0-9.]+)"}],
    },
    "objective_metric_name": "loss",
    "objective_type": "Minimize",
    "hyperparameter_ranges": {"lr": {"type": "continuous", "min_value": 0.1, "max_value": 1.0}},
    "max_jobs": 2,
    "max_parallel_jobs": 1,
}
NOT_IN_A_SEARCH: dict[str, dict[str, Any]] = {
    "debugger": {"debugger_hook_config": {"S3OutputPath": "s3://bucket/debug"}},
    "rules": {"rules": [{"RuleConfigurationName": "x"}]},
    "tensorboard": {"tensorboard_output_config": {"S3OutputPath": "s3://bucket/tensorboard"}},
    "an entry point of the container": {
        "entry_point": None,
        "distribution": {},
        "container_entry_point": ["sh"],
    },
    "49 variables": {"environment": {f"V{n}": "1" for n in range(49)}},
}


@pytest.mark.parametrize("case", NOT_IN_A_SEARCH)
def test_what_a_search_cannot_have_is_refused_and_the_search_without_it_is_not(case: str) -> None:
    members = NOT_IN_A_SEARCH[case]

    with pytest.raises(SpecError, match=rf"training\.({'|'.join(members)})"):
        TuningJobSpec.from_mapping({**SEARCH, "training": {**SEARCH["training"], **members}})

    assert TuningJobSpec.from_mapping(SEARCH).max_jobs == 2


REQUEST: dict[str, Any] = {
    "TrainingJobName": "job",
    "RoleArn": BASE["role"],
    "AlgorithmSpecification": {"TrainingImage": BASE["image_uri"], "TrainingInputMode": "File"},
    "OutputDataConfig": {"S3OutputPath": "s3://bucket/output"},
    "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 1, "VolumeSizeInGB": 1},
    "StoppingCondition": {"MaxRuntimeInSeconds": 60},
}


def algorithm(**members: Any) -> dict[str, Any]:
    return {"AlgorithmSpecification": {**REQUEST["AlgorithmSpecification"], **members}}


def vpc(*, subnets: int = 1, groups: int = 1) -> dict[str, Any]:
    return {
        "VpcConfig": {
            "Subnets": [f"subnet-{n}" for n in range(subnets)],
            "SecurityGroupIds": [f"sg-{n}" for n in range(groups)],
        }
    }


def channels(count: int) -> list[dict[str, Any]]:
    source = {"S3DataSource": {"S3DataType": "S3Prefix", "S3Uri": "s3://bucket/x"}}
    return [{"ChannelName": f"c{n}", "DataSource": source} for n in range(count)]


def groups(count: int) -> dict[str, Any]:
    group = {"InstanceType": "ml.m5.large", "InstanceCount": 1}
    listed = [{"InstanceGroupName": f"g{n}", **group} for n in range(count)]
    return {"ResourceConfig": {"InstanceGroups": listed, "VolumeSizeInGB": 1}}


def rule(number: int) -> dict[str, str]:
    return {"RuleConfigurationName": f"r{number}", "RuleEvaluatorImage": "image"}


# member: what it is of, its largest number or length
LIMITS: dict[str, tuple[Any, int]] = {
    "characters of a name": (lambda n: {"TrainingJobName": "j" * n}, 63),
    "channels": (lambda n: {"InputDataConfig": channels(n)}, 20),
    "tags": (lambda n: {"Tags": [{"Key": f"k{i}", "Value": "v"} for i in range(n)]}, 50),
    "hyperparameters": (lambda n: {"HyperParameters": {f"h{i}": "1" for i in range(n)}}, 100),
    "characters of a hyperparameter": (lambda n: {"HyperParameters": {"h": "x" * n}}, 2500),
    "metrics": (
        lambda n: algorithm(MetricDefinitions=[{"Name": f"m{i}", "Regex": "x"} for i in range(n)]),
        40,
    ),
    "characters of a metric's pattern": (
        lambda n: algorithm(MetricDefinitions=[{"Name": "m", "Regex": "x" * n}]),
        500,
    ),
    "characters of an argument": (lambda n: algorithm(ContainerArguments=["x" * n]), 256),
    "subnets": (lambda n: vpc(subnets=n), 16),
    "security groups": (lambda n: vpc(groups=n), 5),
    "instance groups": (groups, 5),
    "debugger's rules": (lambda n: {"DebugRuleConfigurations": [rule(i) for i in range(n)]}, 20),
    "profiler's rules": (
        lambda n: {"ProfilerRuleConfigurations": [rule(i) for i in range(n)]},
        20,
    ),
    "retries": (lambda n: {"RetryStrategy": {"MaximumRetryAttempts": n}}, 30),
}


@pytest.mark.parametrize("limit", LIMITS)
def test_a_limit_of_the_service_is_taken_and_one_more_is_refused(limit: str) -> None:
    members, most = LIMITS[limit]

    validate_request("CreateTrainingJob", {**REQUEST, **members(most)})

    with pytest.raises(SpecError, match=r"is too (long|large)|has too many"):
        validate_request("CreateTrainingJob", {**REQUEST, **members(most + 1)})


# (statement, where it stands): the cases that show it.
SOURCES: dict[tuple[str, str], tuple[str, ...]] = {
    ("Without zero.Init ZeRO-3 needs the whole model", "DeepSpeed, Constructing Massive Models"): (
        "zero-3 of a model that no gpu holds whole",
        "a model that the host does not hold once per rank",
    ),
    ("SMDDP on P4d and P4de only", "developer guide, distributed-data-parallel-support"): (
        "smddp on p5",
        "smddp on g5",
        "smddp on trainium",
        "smddp on cpu",
        "smddp under torchrun on p5",
    ),
    ("SMDDP is no longer developed for P3", "threads deep-learning-containers#3645, #4988"): (
        "smddp on p3",
        "smddp on p3dn",
    ),
    ("AllGather on P4 only", "developer guide, distributed-data-parallel-support"): (
        "smddp under torchrun on p3dn",
    ),
    ("SMDDP ends with PyTorch 2.3 and TensorFlow 2.11", "the same page; SDK v2 fw_utils"): (
        "smddp in a newer torch",
        "smddp by the spec's version",
        "smddp in the newest repository's torch",
        "smddp by the default image's version",
        "smddp in a newer tensorflow",
        "pytorchddp in a newer torch",
    ),
    ("SMDDP is for several instances", "thread sagemaker-python-sdk#3490"): (
        "smddp on one instance",
        "smddp on one instance beside a group without a strategy",
    ),
    ("SMDDP in a VPC needs a group open to itself", "developer guide, data-parallel-faq"): (
        "smddp in a vpc",
    ),
    ("one smdistributed library, one launcher", "SDK v2 fw_utils.validate_smdistributed"): (
        "two libraries of smdistributed",
        "two launchers",
    ),
    ("Trainium under torchrun only", "SDK v2 fw_utils"): ("smddp on trainium", "mpi on trainium"),
    ("torchrun from PyTorch 1.13", "SDK v2 fw_utils; Trainium from 1.11"): (
        "torchrun in an old torch",
        "torchrun in an older torch",
        "torchrun of a shell script",
    ),
    ("SMP v2: its images, torchrun, its keys", "developer guide, model-parallel v2 reference"): (
        "smp v2 in torch's own image",
        "smp v2 in a newer torch",
        "smp v2 in an image of one's own",
        "smp without a launcher",
        "a key that no smp has",
        "degrees of smp v2 that do not fit",
        "context ranks beyond those that share a shard",
        "more ranks than gpus for smp v1",
    ),
    ("offloading works on checkpointed activations", "the guide's core features, v2"): (
        "offloading of what is not checkpointed",
        "offloading, and nothing said of checkpointing",
    ),
    ("SMP v1 is archived; its keys, its instances", "SDK v2 smd_model_parallel_general.rst"): (
        "smp v1 at all",
        "smp v1 on p5",
        "smp v1 in a newer torch",
        "a key of smp v2 for version 1",
        "degrees of smp v1 that do not fit",
        "shards of smp v1 that do not divide the ranks",
        "tensor parallel of smp v1 without ddp",
        "ddp and horovod",
        "a port of ddp without ddp",
        "offloading with one micro batch",
        "a default partition beyond the last",
        "a pipeline that nobody knows",
        "a weight of memory beyond 1",
        "parameters of smp beyond one hyperparameter",
    ),
    ("circulating: SMP v1's keys for version 2", "articles; guide, model-parallel v2"): (
        "a key of smp v1 for version 2",
        "placement of smp v1 for version 2",
    ),
    ("circulating: names of strategies", "articles; SDK v2 and v3"): (
        "the name pytorchx",
        "the name smdistributed_dataparallel",
        "the name smdistributed_modelparallel",
        "the name sagemaker.horovod.Horovod",
        "the name deepspeed_enabled",
        "deepspeed_enabled within torch_distributed",
        "the name mpi_world_size",
    ),
    ("circulating: SDK v1's names of spot", "articles; SDK v1 migration guide"): (
        "the name train_use_spot_instances",
        "the name train_max_wait",
    ),
    ("ranks and accelerators", "NCCL user guide; catalogue"): (
        "more ranks than gpus",
        "more ranks than gpus under mpirun",
        "idle gpus",
    ),
    ("a rank per logical NeuronCore", "sagemaker-training 5.1.4, environment.py"): (
        "more ranks than neuron cores",
        "idle neuron cores",
    ),
    ("a parameter server is legacy, and TensorFlow's", "SDK v2 using_tf.rst, fw_utils"): (
        "a parameter server",
        "a parameter server on several gpus",
        "a parameter server of torch",
        "two workers' strategies of tensorflow",
    ),
    ("MultiWorkerMirrored from TensorFlow 2.9", "SDK v2 estimator"): (
        "multi-worker mirrored in an old tensorflow",
    ),
    ("MirroredStrategy is for one instance", "TensorFlow's guide to distributed training"): (
        "mirrored as a distribution",
        "mirrored on several instances",
    ),
    ("several instances or GPUs take a strategy", "sagemaker-training 5.1.4, runner.py"): (
        "several instances and no strategy",
        "several gpus and no strategy",
    ),
    ("one larger instance before several", "developer guide, distributed-training-options"): (
        "several small instances for one larger",
    ),
    ("several instances need EFA", "EC2 user guide, efa"): (
        "several instances without efa",
        "several instances of the strategy's group without efa",
    ),
    ("p2 and p3 are retired", "EC2, DescribeInstanceTypes"): ("a retired type",),
    ("MXNet is retired", "attic.apache.org/projects/mxnet.html"): ("mxnet",),
    ("spot: wait, checkpoints, exclusions", "developer guide, model-managed-spot-training"): (
        "spot without checkpoints",
        "long spot without checkpoints",
        "spot without a wait",
        "a wait shorter than the run",
        "spot with preferences",
    ),
    ("built-in algorithms wait for spot an hour", "the same page"): (
        "a built-in algorithm waiting for spot",
    ),
    ("spot with instance groups is unverified", "a third party's guide"): (
        "spot with instance groups",
    ),
    ("local storage has no key of the user's", "API reference, ResourceConfig"): (
        "a volume key on local storage",
    ),
    ("warm pools: spot, groups, six hours, quota", "developer guide, train-warm-pools"): (
        "a warm pool on spot",
        "a warm pool of groups",
        "a warm pool for long",
        "a warm pool without quota",
    ),
    ("preferences exclude type and groups", "botocore, ResourceConfig"): (
        "preferences and a type",
        "preferences and groups",
    ),
    ("instance groups", "developer guide, train-heterogeneous-cluster"): (
        "groups in an old torch",
        "groups in an old tensorflow",
        "groups and a type",
        "a strategy of several groups that names none",
        "a strategy on two groups",
        "a strategy on the group without gpus",
        "channels of which some name groups",
    ),
    ("Debugger is closed to new accounts", "developer guide, notice of 2026-07-30"): (
        "debugger at all",
    ),
    ("Debugger: not with SMP, a parameter server, checkpoints", "debugger-considerations"): (
        "debugger with smp",
        "debugger with a parameter server",
        "debugger of a distributed job with checkpoints",
        "debugger of one process with checkpoints",
    ),
    ("Debugger's hook left the images", "aws/deep-learning-containers"): (
        "debugger in an image without its hook",
    ),
    ("Debugger's actions", "developer guide, debugger-built-in-actions"): (
        "debugger's actions in isolation",
        "debugger's actions on spot",
    ),
    ("framework profiling ended with PyTorch 2.0", "release note of 2023-03-16"): (
        "framework profiling",
    ),
    ("Pipe mode and what only it can", "API reference, Channel and S3DataSource"): (
        "pipe mode with several ranks",
        "the job's pipe mode with several ranks",
        "compressed files",
        "wrapped records",
        "an augmented manifest",
    ),
    ("the Training Compiler", "SDK v2 training_compiler/config.py"): (
        "the compiler with smddp",
        "the compiler with smp",
        "the compiler with groups",
        "the compiler with torchrun",
        "the compiler by itself",
        "pytorchxla",
    ),
    ("file systems are reached in a VPC", "API reference, VpcConfig"): (
        "subnets without security groups",
    ),
    ("encrypted traffic is slower", "API reference, EnableInterContainerTrafficEncryption"): (
        "encrypted traffic",
    ),
    ("an isolated container reaches no S3", "API reference, EnableNetworkIsolation"): (
        "checkpoints in isolation",
    ),
    ("isolated containers get their code by a channel", "SDK v2 estimator.py, job.py"): (
        "the code's channel in isolation",
    ),
    ("instance types", "botocore, TrainingInstanceType; catalogue"): ("a type that nobody knows",),
    ("CUDA 13 ends at Turing", "CUDA 13.0 release notes"): (
        "the default image on GPUs older than its CUDA",
    ),
}


def test_every_statement_has_its_cases_and_every_case_its_statement() -> None:
    shown = {case for cases in SOURCES.values() for case in cases}

    assert shown == {*CASES, *REFUSED}
