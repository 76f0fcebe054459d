"""A spec's distribution goes with its entry point, framework and instance groups, or says why not."""

from __future__ import annotations

import json
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.training_request import script_mode_hyperparameters
from trainyard.specs.training_job import TrainingJobSpec

ON = {"enabled": True}
BASE: dict[str, Any] = {
    "role": "arn:aws:iam::123456789012:role/Training",
    "output_path": "s3://bucket/output",
    "image_uri": "123456789012.dkr.ecr.us-east-1.amazonaws.com/train:1",
    "entry_point": "train.py",
    "source_dir": "s3://bucket/code.tar.gz",
}
ONE_TYPE = {"instance_type": "ml.g5.12xlarge"}
GROUPS = {
    "instance_groups": [
        {"instance_group_name": "cpu", "instance_type": "ml.c5.xlarge", "instance_count": 1},
        {"instance_group_name": "gpu", "instance_type": "ml.g5.xlarge", "instance_count": 2},
    ]
}
SMP = {
    "torch_distributed": ON,
    "smdistributed": {"modelparallel": {"enabled": True, "parameters": {}}},
}


def spec(distribution: dict[str, Any], **members: Any) -> TrainingJobSpec:
    place = {} if "instance_groups" in members else ONE_TYPE
    return TrainingJobSpec.from_mapping({**BASE, **place, "distribution": distribution, **members})


REFUSED_AND_TAKEN: dict[str, tuple[dict[str, Any], str, dict[str, Any]]] = {
    "no entry point": (
        {"distribution": {"mpi": ON}, "entry_point": None, "source_dir": None},
        "distribution: needs an entry_point to start",
        {"distribution": {"mpi": ON}},
    ),
    "torchrun starts Python files": (
        {"distribution": {"torch_distributed": ON}, "entry_point": "train.sh"},
        "must be a Python file for torchrun; got train.sh",
        {"distribution": {"mpi": ON}, "entry_point": "train.sh"},
    ),
    "a strategy of another framework": (
        {"distribution": {"parameter_server": ON}},
        "framework: does not support the strategy parameter_server; got pytorch",
        {"distribution": {"parameter_server": ON}, "framework": "tensorflow"},
    ),
    "torchrun for TensorFlow": (
        {"distribution": {"torch_distributed": ON}, "framework": "tensorflow"},
        "allowed: pytorch, huggingface",
        {"distribution": {"torch_distributed": ON}, "framework": "huggingface"},
    ),
    "an old TensorFlow": (
        {
            "distribution": {"multi_worker_mirrored_strategy": ON},
            "framework": "tensorflow",
            "framework_version": "2.8.0",
        },
        "is too old for multi_worker_mirrored_strategy; got 2.8.0; allowed: 2.9 or later",
        {
            "distribution": {"multi_worker_mirrored_strategy": ON},
            "framework": "tensorflow",
            "framework_version": "2.11.0",
        },
    ),
    "a group that is not there": (
        {"distribution": {"mpi": ON, "instance_groups": ["gpus"]}, **GROUPS},
        "names a group that is not an instance group of this job; got 'gpus'; allowed: cpu, gpu",
        {"distribution": {"mpi": ON, "instance_groups": ["gpu"]}, **GROUPS},
    ),
    "groups without a job of groups": (
        {"distribution": {"mpi": ON, "instance_groups": ["gpu"]}},
        "no group, because the job has no instance_groups",
        {"distribution": {"mpi": ON}},
    ),
    "several groups and none named": (
        {"distribution": {"mpi": ON}, **GROUPS},
        "is required, because the job has several instance groups and a strategy runs on only one of them",
        {"distribution": {}, **GROUPS},
    ),
    "parameters set twice": (
        {"distribution": SMP, "hyperparameters": {"mp_parameters": {}}},
        "mp_parameters: is reserved, because the distribution sets it",
        {"distribution": {"torch_distributed": ON}, "hyperparameters": {"mp_parameters": {}}},
    ),
}


@pytest.mark.parametrize("case", REFUSED_AND_TAKEN)
def test_a_misfit_is_refused_and_its_neighbor_taken(case: str) -> None:
    wrong, says, right = REFUSED_AND_TAKEN[case]

    with pytest.raises(SpecError) as caught:
        spec(**wrong)

    assert says in str(caught.value)
    assert spec(**right).entry_point


@pytest.mark.parametrize(
    ("members", "model_dir"),
    [
        ({"distribution": {}, "framework": "pytorch"}, None),
        ({"distribution": {}, "framework": "tensorflow"}, "s3://bucket/output/job/model"),
        ({"distribution": {"mpi": ON}, "framework": "tensorflow"}, "/opt/ml/model"),
        (
            {"distribution": {}, "framework": "tensorflow", "hyperparameters": {"model_dir": "x"}},
            "x",
        ),
    ],
    ids=["pytorch", "tensorflow", "under mpi", "the user's own"],
)
def test_tensorflow_is_told_where_its_model_goes(
    members: dict[str, Any], model_dir: str | None
) -> None:
    told = script_mode_hyperparameters(
        spec(**members), name="job", region="us-east-1", code_s3_uri=None
    )

    assert told.get("model_dir") == (None if model_dir is None else json.dumps(model_dir))
