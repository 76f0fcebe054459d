"""Jobs of AWS's built-in algorithms: golden requests, and what is wrong with one before it costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.sagemaker_api.request_check import request_findings
from trainyard.sagemaker_api.training_request import render_training_job
from trainyard.sagemaker_api.tuning_request import render_tuning_job
from trainyard.specs.built_in_algorithms import ALGORITHMS, built_in_algorithm
from trainyard.specs.training_job import TrainingJobSpec
from trainyard.specs.tuning_job import TuningJobSpec

GOLDEN = Path(__file__).parent / "golden" / "built_in"
REGISTRY = "811284229777.dkr.ecr.us-east-1.amazonaws.com"
IMAGES = "application/x-image"


def data(name: str, content_type: str, **members: Any) -> dict[str, Any]:
    return {"s3_data": f"s3://bucket/{name}", "content_type": content_type, **members}


def loose_images(*names: str) -> dict[str, Any]:
    return {name: data(name, IMAGES) for name in names}


JOBS: dict[str, dict[str, Any]] = {
    "xgboost": {
        "image_uri": "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
        "instance_type": "ml.m5.2xlarge",
        "instance_count": 2,
        "hyperparameters": {"objective": "binary:logistic", "num_round": 100, "eta": 0.2},
        "inputs": {
            "train": data("train", "text/csv", distribution="ShardedByS3Key"),
            "validation": data("validation", "text/csv"),
        },
        "use_spot_instances": True,
        "max_run": 3600,
        "max_wait": 7200,
        "checkpoint_s3_uri": "s3://bucket/checkpoints",
    },
    "image-classification": {
        "image_uri": f"{REGISTRY}/image-classification:1",
        "instance_type": "ml.p3.8xlarge",
        "instance_count": 2,
        "hyperparameters": {
            "num_classes": 257, "num_training_samples": 15420, "num_layers": 50, "epochs": 10,
            "learning_rate": 0.01, "mini_batch_size": 128, "kv_store": "dist_sync",
        },
        "inputs": {name: data(name, "application/x-recordio") for name in ("train", "validation")},
    },
    "object-detection": {
        "image_uri": f"{REGISTRY}/object-detection:1",
        "instance_type": "ml.g5.12xlarge",
        "hyperparameters": {
            "num_classes": 20, "num_training_samples": 16551, "base_network": "resnet-50",
            "image_shape": 512, "mini_batch_size": 32, "overlap_threshold": 0.5,
        },
        "inputs": loose_images("train", "validation", "train_annotation", "validation_annotation"),
    },
    "semantic-segmentation": {
        "image_uri": f"{REGISTRY}/semantic-segmentation:1",
        "instance_type": "ml.p3.2xlarge",
        "hyperparameters": {
            "num_classes": 21, "num_training_samples": 1464, "backbone": "resnet-50",
            "algorithm": "deeplab", "crop_size": 240,
        },
        "inputs": loose_images("train", "validation", "train_annotation", "validation_annotation"),
    },
    "randomcutforest": {
        "image_uri": "382416733822.dkr.ecr.us-east-1.amazonaws.com/randomcutforest:1",
        "instance_type": "ml.m5.xlarge",
        "instance_count": 2,
        "hyperparameters": {"feature_dim": 1, "num_trees": 50, "num_samples_per_tree": 512},
        "inputs": {
            "train": data("train", "text/csv;label_size=0", distribution="ShardedByS3Key"),
            "test": data("test", "text/csv;label_size=1"),
        },
    },
}  # fmt: skip


def spec_of(case: str, **changes: Any) -> TrainingJobSpec:
    job = {"role": "arn:aws:iam::123456789012:role/Trainer", "output_path": "s3://bucket/output"}
    return TrainingJobSpec.from_mapping({**job, **JOBS[case], **changes})


@pytest.mark.parametrize("case", JOBS)
def test_the_request_is_the_golden_one_and_the_service_s_model_takes_it(case: str) -> None:
    request = render_training_job(spec_of(case), name=f"job-{case}", region="us-east-1")

    assert request == json.loads((GOLDEN / f"{case}.json").read_text(encoding="utf-8"))
    assert list(request_findings("CreateTrainingJob", request)) == []
    assert "sagemaker_program" not in request["HyperParameters"]


def test_every_algorithm_of_the_table_has_a_request() -> None:
    assert {each.framework for each in ALGORITHMS} == set(JOBS)


WRONG = [
    ("xgboost", {"hyperparameters": {"num_rounds": 5}}, "hyperparameters.num_round", "num_rounds"),
    ("xgboost", {"hyperparameters": {"num_round": 0}}, "hyperparameters.num_round", "at least 1"),
    ("xgboost", {"inputs": {"test": "s3://b/t"}}, "inputs.train", "is required by"),
    ("xgboost", {"inputs": {"train": data("train", "image/png")}}, "content_type", "text/csv"),
    ("image-classification", {"instance_type": "ml.m5.xlarge"}, "instance_type", "ml.p3"),
    ("image-classification", {"inputs": loose_images("train", "validation")}, "train_lst", IMAGES),
    ("object-detection", {"hyperparameters": {"num_classes": 20}}, "num_training_samples", ""),
    ("semantic-segmentation", {"instance_count": 2}, "instance_count", "more GPUs"),
    ("randomcutforest", {"instance_type": "ml.g5.xlarge"}, "instance_type", "without GPUs"),
    ("randomcutforest", {"inputs": {"train": "s3://b/t"}}, "inputs.train", "ShardedByS3Key"),
    ("randomcutforest", {"hyperparameters": {"feature_dim": 0}}, "feature_dim", "1 to 10000"),
    ("xgboost", {"distribution": {"torch_distributed": {"enabled": True}}}, "distribution", ""),
]


@pytest.mark.parametrize(
    ("case", "change", "where", "said"),
    [pytest.param(*row, id=f"{row[0]}-{n}") for n, row in enumerate(WRONG)],
)
def test_what_an_algorithm_does_not_take_is_told_before_it_costs(
    case: str, change: dict[str, Any], where: str, said: str
) -> None:
    with pytest.raises(SpecError) as caught:
        render_training_job(spec_of(case, **change), name="job", region="us-east-1")

    assert where in str(caught.value)
    assert said in str(caught.value)


def test_what_a_search_gives_each_trial_is_not_missing() -> None:
    spec = spec_of("xgboost", hyperparameters={"objective": "reg:squarederror"})

    request = render_training_job(spec, name="job", region="us-east-1", searched=("num_round",))

    assert "num_round" not in request["HyperParameters"]


def test_a_script_in_the_same_image_is_free(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()

    spec = spec_of(
        "xgboost",
        entry_point="train.py",
        source_dir=str(tmp_path),
        hyperparameters={},
        inputs={"anything": "s3://bucket/x"},
    )

    assert spec.entry_point == "train.py"


@pytest.mark.parametrize(
    ("image_uri", "framework", "title"),
    [
        pytest.param(None, "xgboost", "XGBoost", id="by-framework"),
        pytest.param("1.dkr.ecr.us-east-1.amazonaws.com/xgboost:1", "pytorch", "XGBoost", id="old"),
        pytest.param("pytorch-training:2.8.0", "xgboost", None, id="the-image-counts"),
    ],
)
def test_an_algorithm_is_known_by_its_image(
    image_uri: str | None, framework: str, title: str | None
) -> None:
    found = built_in_algorithm(image_uri=image_uri, framework=framework)

    assert (found.title if found else None) == title


def test_a_search_names_a_metric_that_the_service_itself_reads_of_its_algorithm() -> None:
    job = {"role": "arn:aws:iam::123456789012:role/Trainer", "output_path": "s3://bucket/output"}
    search = TuningJobSpec.from_mapping(
        {
            "training": {**job, **JOBS["xgboost"], "hyperparameters": {}},
            "hyperparameter_ranges": {
                "num_round": {"type": "integer", "min_value": 5, "max_value": 50}
            },
            "objective_metric_name": "validation:rmse",
            "objective_type": "Minimize",
            "max_jobs": 4,
            "max_parallel_jobs": 2,
        }
    )

    request = render_tuning_job(search, name="search", region="us-east-1")

    definition = request["TrainingJobDefinition"]
    assert "num_round" not in definition.get("StaticHyperParameters", {})
