"""Arguments of ModelTrainers of the SDK v3: the cases together say everything that a trainer can say."""

from __future__ import annotations

from typing import Any

IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
BUCKET = "s3://sagemaker-us-east-1-123456789012"  # the engine looks whether it is there
ROLE = "arn:aws:iam::123456789012:role/TrainyardExecutionRole"
KEY = "arn:aws:kms:us-east-1:123456789012:key/0b4a2e5c-7a1e-4f6b-9e1a-000000000000"


def arguments(case: str, source_dir: str) -> dict[str, Any]:
    """Return the arguments of the case's ModelTrainer beside session and role."""
    from sagemaker.train.configs import SourceCode

    code = SourceCode(
        source_dir=source_dir, entry_script="train.py", requirements="requirements.txt"
    )
    base = {"training_image": IMAGE, "source_code": code, "base_job_name": case.replace("_", "-")}
    return {**base, **_CASES[case]()}


def _plain() -> dict[str, Any]:
    return {
        "hyperparameters": {"epochs": 2, "lr": 0.1, "name": "abc", "flag": True, "sizes": [1, 2]}
    }


def _torchrun() -> dict[str, Any]:
    from sagemaker.train.configs import Compute
    from sagemaker.train.distributed import Torchrun

    compute = Compute(instance_type="ml.m5.large", instance_count=2)
    return {"compute": compute, "distributed": Torchrun(process_count_per_node=1)}


def _smp() -> dict[str, Any]:
    from sagemaker.train.configs import Compute
    from sagemaker.train.distributed import SMP, Torchrun

    smp = SMP(hybrid_shard_degree=8, sm_activation_offloading=True, tensor_parallel_degree=2)
    compute = Compute(instance_type="ml.p4d.24xlarge", instance_count=2)
    return {"compute": compute, "distributed": Torchrun(smp=smp)}


def _mpi() -> dict[str, Any]:
    from sagemaker.train.configs import Compute
    from sagemaker.train.distributed import MPI

    options = ["--verbose", "-x", "FOO=1"]
    compute = Compute(instance_type="ml.m5.large", instance_count=2)
    return {
        "compute": compute,
        "distributed": MPI(process_count_per_node=2, mpi_additional_options=options),
    }


def _command() -> dict[str, Any]:
    from sagemaker.train.configs import SourceCode

    return {"source_code": SourceCode(command="python -c 'print(1)'", args=["--a", 1])}


def _image_only() -> dict[str, Any]:
    from sagemaker.train.configs import CheckpointConfig, Compute, StoppingCondition

    limits = StoppingCondition(max_runtime_in_seconds=600, max_wait_time_in_seconds=1200)
    return {
        "source_code": None,
        "compute": Compute(instance_type="ml.m5.large", enable_managed_spot_training=True),
        "stopping_condition": limits,
        "checkpoint_config": CheckpointConfig(s3_uri=f"{BUCKET}/checkpoints"),
    }


def _everything() -> dict[str, Any]:
    from sagemaker.train.configs import (
        Channel,
        CheckpointConfig,
        Compute,
        DataSource,
        FileSystemDataSource,
        InputData,
        Networking,
        OutputDataConfig,
        S3DataSource,
        StoppingCondition,
        Tag,
    )

    sharded = S3DataSource(
        s3_data_type="S3Prefix",
        s3_uri=f"{BUCKET}/sharded",
        s3_data_distribution_type="ShardedByS3Key",
    )
    mounted = FileSystemDataSource(
        file_system_id="fs-12345678901",
        file_system_type="FSxLustre",
        file_system_access_mode="ro",
        directory_path="/fsx/data",
    )
    return {
        "compute": Compute(
            instance_type="ml.m5.large",
            instance_count=2,
            volume_size_in_gb=50,
            volume_kms_key_id=KEY,
            keep_alive_period_in_seconds=600,
        ),
        "networking": Networking(
            subnets=["subnet-1"],
            security_group_ids=["sg-1"],
            enable_network_isolation=True,
            enable_inter_container_traffic_encryption=True,
        ),
        "stopping_condition": StoppingCondition(
            max_runtime_in_seconds=7200, max_pending_time_in_seconds=7200
        ),
        "output_data_config": OutputDataConfig(
            s3_output_path=f"{BUCKET}/output", kms_key_id=KEY, compression_type="NONE"
        ),
        "input_data_config": [
            InputData(channel_name="plain", data_source=f"{BUCKET}/plain", content_type="text/csv"),
            InputData(channel_name="sharded", data_source=sharded),
            Channel(
                channel_name="fast",
                data_source=DataSource(s3_data_source=sharded),
                input_mode="FastFile",
            ),
            InputData(channel_name="mounted", data_source=mounted),
        ],
        "checkpoint_config": CheckpointConfig(
            s3_uri=f"{BUCKET}/checkpoints", local_path="/opt/ml/checkpoints"
        ),
        "training_input_mode": "FastFile",
        "environment": {"NCCL_DEBUG": "INFO"},
        "tags": [Tag(key="team", value="research")],
    }


def _heterogeneous() -> dict[str, Any]:
    from sagemaker.core.shapes import InstanceGroup
    from sagemaker.train.configs import Compute, InputData, S3DataSource

    def group(name: str, kind: str, count: int) -> InstanceGroup:
        return InstanceGroup(instance_group_name=name, instance_type=kind, instance_count=count)

    source = S3DataSource(
        s3_data_type="S3Prefix",
        s3_uri=f"{BUCKET}/train",
        s3_data_distribution_type="FullyReplicated",
        instance_group_names=["gpu"],
    )
    groups = [group("cpu", "ml.c5.xlarge", 1), group("gpu", "ml.g5.2xlarge", 2)]
    return {
        "compute": Compute(instance_groups=groups),
        "input_data_config": [InputData(channel_name="train", data_source=source)],
    }


_CASES = {
    "plain": _plain,
    "torchrun": _torchrun,
    "smp": _smp,
    "mpi": _mpi,
    "command": _command,
    "image_only": _image_only,
    "everything": _everything,
    "heterogeneous": _heterogeneous,
}
CASES = tuple(_CASES)


def with_builder_methods(trainer: Any) -> Any:
    """Return the trainer with everything that its `with_...` methods say."""
    from sagemaker.train.configs import (
        InfraCheckConfig,
        MetricDefinition,
        RemoteDebugConfig,
        RetryStrategy,
        SessionChainingConfig,
        TensorBoardOutputConfig,
    )

    return (
        trainer.with_tensorboard_output_config(
            TensorBoardOutputConfig(s3_output_path=f"{BUCKET}/tensorboard")
        )
        .with_retry_strategy(RetryStrategy(maximum_retry_attempts=3))
        .with_infra_check_config(InfraCheckConfig(enable_infra_check=True))
        .with_session_chaining_config(SessionChainingConfig(enable_session_tag_chaining=True))
        .with_remote_debug_config(RemoteDebugConfig(enable_remote_debug=True))
        .with_metric_definitions([MetricDefinition(name="loss", regex="loss=([0-9.]+)")])
    )
