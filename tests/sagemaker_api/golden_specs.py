"""The specs behind the golden requests: one for each corner of CreateTrainingJob."""

from __future__ import annotations

from typing import Any

ROLE = "arn:aws:iam::123456789012:role/TrainyardExecutionRole"
IMAGE = "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"
KEY = "arn:aws:kms:us-east-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"
RULES_IMAGE = "503895931360.dkr.ecr.us-east-1.amazonaws.com/sagemaker-debugger-rules:latest"
CODE = "s3://bucket/code/abc/sourcedir.tar.gz"

_BASE: dict[str, Any] = {
    "role": ROLE,
    "output_path": "s3://bucket/output",
    "image_uri": IMAGE,
    "instance_type": "ml.m5.large",
}

TRAINING: dict[str, dict[str, Any]] = {
    "minimal": _BASE,
    "torchrun": {
        **_BASE,
        "entry_point": "train_ddp.py",
        "instance_count": 2,
        "distribution": {"torch_distributed": {"enabled": True, "processes_per_host": 2}},
        "hyperparameters": {
            "model": "gpt",
            "learning_rate": 0.001,
            "compile": False,
            "layers": [1, 2],
            "note": None,
        },
        "inputs": {"train": "s3://bucket/train/", "index": "s3://bucket/index/"},
        "metric_definitions": [{"Name": "train:loss", "Regex": "loss=([0-9.]+)"}],
    },
    "spot": {
        **_BASE,
        "entry_point": "train_ddp.py",
        "use_spot_instances": True,
        "max_run": 3600,
        "max_wait": 7200,
        "checkpoint_s3_uri": "s3://bucket/checkpoints",
        "checkpoint_local_path": "/opt/ml/checkpoints",
        "max_retry_attempts": 3,
    },
    "heterogeneous": {
        "role": ROLE,
        "output_path": "s3://bucket/output",
        "image_uri": IMAGE,
        "entry_point": "train_ddp.py",
        "instance_groups": [
            {"instance_group_name": "data", "instance_type": "ml.c5.xlarge", "instance_count": 1},
            {"instance_group_name": "gpu", "instance_type": "ml.g5.xlarge", "instance_count": 2},
        ],
        "inputs": {
            "train": {"s3_data": "s3://bucket/train", "instance_groups": ["data", "gpu"]},
            "extra": {"s3_data": "s3://bucket/extra", "instance_groups": ["data"]},
        },
    },
    "vpc_kms": {
        **_BASE,
        "subnets": ["subnet-0a1b2c3d", "subnet-4e5f6a7b"],
        "security_group_ids": ["sg-0a1b2c3d"],
        "enable_network_isolation": True,
        "encrypt_inter_container_traffic": True,
        "volume_kms_key": KEY,
        "output_kms_key": KEY,
        "tags": {"team": "research", "Cost Center": "42"},
    },
    "file_systems": {
        **_BASE,
        "subnets": ["subnet-0a1b2c3d"],
        "security_group_ids": ["sg-0a1b2c3d"],
        "inputs": {
            "fast": {
                "file_system_id": "fs-0123456789abcdef0",
                "file_system_type": "FSxLustre",
                "directory_path": "/fsx/train",
            },
            "shared": {
                "file_system_id": "fs-0123456789abcdef1",
                "file_system_type": "EFS",
                "directory_path": "/",
                "file_system_access_mode": "rw",
                "content_type": "application/octet-stream",
            },
            "hub": {
                "dataset_arn": "arn:aws:sagemaker:us-east-1:aws:hub-content/Hub/DataSet/Texts/1.0.0"
            },
        },
    },
    "everything": {
        **_BASE,
        "image_uri": None,
        "algorithm_name": "arn:aws:sagemaker:us-east-1:123456789012:algorithm/mine",
        "instance_count": 4,
        "volume_size": 200,
        "keep_alive_period_in_seconds": 1800,
        "max_run": 7200,
        "max_pending_time_in_seconds": 7200,
        "training_plan": "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine",
        "instance_placement_config": {
            "EnableMultipleJobs": True,
            "PlacementSpecifications": [{"UltraServerId": "us-1", "InstanceCount": 4}],
        },
        "container_entry_point": ["/bin/sh", "-c"],
        "container_arguments": ["python train.py"],
        "training_image_config": {
            "TrainingRepositoryAccessMode": "Vpc",
            "TrainingRepositoryAuthConfig": {
                "TrainingRepositoryCredentialsProviderArn": (
                    "arn:aws:lambda:us-east-1:123456789012:function:credentials"
                )
            },
        },
        "environment": {"NCCL_DEBUG": "INFO"},
        "hyperparameters": {"depth": 3, "mode": "fast"},
        "input_mode": "FastFile",
        "inputs": {
            "train": {
                "s3_data": "s3://bucket/train.manifest",
                "s3_data_type": "AugmentedManifestFile",
                "attribute_names": ["source", "label"],
                "distribution": "ShardedByS3Key",
                "compression": "Gzip",
                "record_wrapping": "RecordIO",
                "content_type": "application/x-recordio",
                "input_mode": "Pipe",
                "shuffle_seed": 0,
            },
            "model": {
                "s3_data": "s3://bucket/model",
                "model_access_config": {"AcceptEula": True},
                "hub_access_config": {
                    "HubContentArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/H/Model/M/1"
                },
            },
        },
        "disable_output_compression": True,
        "checkpoint_s3_uri": "s3://bucket/checkpoints",
        "enable_sagemaker_metrics": True,
        "debugger_hook_config": {
            "S3OutputPath": "s3://bucket/debug",
            "HookParameters": {"save_interval": "100"},
            "CollectionConfigurations": [
                {"CollectionName": "losses", "CollectionParameters": {"save_interval": "10"}}
            ],
        },
        "rules": [
            {
                "RuleConfigurationName": "VanishingGradient",
                "RuleEvaluatorImage": RULES_IMAGE,
                "RuleParameters": {"rule_to_invoke": "VanishingGradient"},
            }
        ],
        "profiler_config": {
            "S3OutputPath": "s3://bucket/profile",
            "ProfilingIntervalInMilliseconds": 500,
        },
        "disable_profiler": False,
        "profiler_rules": [
            {"RuleConfigurationName": "LowGPUUtilization", "RuleEvaluatorImage": RULES_IMAGE}
        ],
        "tensorboard_output_config": {"S3OutputPath": "s3://bucket/tensorboard"},
        "experiment_config": {"ExperimentName": "spine", "RunName": "first"},
        "enable_remote_debug": True,
        "enable_infra_check": True,
        "enable_session_tag_chaining": True,
        "model_package_config": {
            "ModelPackageGroupArn": (
                "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/trainyard"
            )
        },
        "mlflow_config": {
            "MlflowResourceArn": (
                "arn:aws:sagemaker:us-east-1:123456789012:mlflow-tracking-server/tracking"
            ),
            "MlflowRunName": "first",
        },
        "tags": {"team": "research"},
        "raw_request_overrides": {"ResourceConfig": {"VolumeSizeInGB": 250}},
    },
    "preferences": {
        "role": ROLE,
        "output_path": "s3://bucket/output",
        "image_uri": IMAGE,
        "instance_preferences": [
            {"instance_type": "ml.p5.48xlarge", "instance_count": 1},
            {
                "instance_type": "ml.p4d.24xlarge",
                "instance_count": 2,
                "training_plan_arns": [
                    "arn:aws:sagemaker:us-east-1:123456789012:training-plan/mine"
                ],
            },
        ],
    },
    "serverless": {
        "role": ROLE,
        "output_path": "s3://bucket/output",
        "serverless_job_config": {
            "BaseModelArn": "arn:aws:sagemaker:us-east-1:aws:hub-content/Hub/Model/small/1.0.0",
            "JobType": "FineTuning",
            "CustomizationTechnique": "SFT",
        },
        "model_package_config": {
            "ModelPackageGroupArn": "arn:aws:sagemaker:us-east-1:123456789012:model-package-group/mine"
        },
    },
}

PROCESSING: dict[str, dict[str, Any]] = {
    "processing_script": {
        "role": ROLE,
        "instance_type": "ml.m5.large",
        "image_uri": IMAGE,
        "entry_point": "evaluate.py",
        "arguments": ["--batch", "8"],
        "inputs": [
            {
                "source": "s3://bucket/output/model.tar.gz",
                "destination": "/opt/ml/processing/input/model",
                "input_name": "model",
            }
        ],
        "outputs": [
            {
                "source": "/opt/ml/processing/output/evaluation",
                "destination": "s3://bucket/evaluation",
                "output_name": "evaluation",
            }
        ],
    },
    "processing_everything": {
        "role": ROLE,
        "instance_type": "ml.m5.xlarge",
        "instance_count": 3,
        "image_uri": IMAGE,
        "entrypoint": ["python3", "/code/run.py"],
        "arguments": ["--all"],
        "inputs": [
            {
                "source": "s3://bucket/data",
                "destination": "/opt/ml/processing/input/data",
                "input_name": "data",
                "s3_data_distribution_type": "ShardedByS3Key",
                "s3_compression_type": "Gzip",
                "s3_input_mode": "Pipe",
            }
        ],
        "outputs": [
            {
                "source": "/opt/ml/processing/output",
                "destination": "s3://bucket/out",
                "output_name": "out",
                "s3_upload_mode": "Continuous",
            }
        ],
        "volume_size": 100,
        "volume_kms_key": KEY,
        "output_kms_key": KEY,
        "max_run": 600,
        "environment": {"A": "b"},
        "subnets": ["subnet-0a1b2c3d"],
        "security_group_ids": ["sg-0a1b2c3d"],
        "enable_network_isolation": True,
        "encrypt_inter_container_traffic": True,
        "experiment_config": {"ExperimentName": "spine"},
        "tags": {"team": "research"},
    },
}
