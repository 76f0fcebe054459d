"""Images and instance types that serve a trained model."""

from __future__ import annotations

from copy import deepcopy

import pytest
from botocore.loaders import Loader
from botocore.model import ServiceModel

from trainyard.catalog.aws_images import aws_images
from trainyard.catalog.instances import catalogue
from trainyard.catalog.training_images import training_images
from trainyard.sagemaker_api.serving import CANDIDATES, serving_of


@pytest.mark.parametrize("framework", ["pytorch-inference", "huggingface-inference"])
@pytest.mark.parametrize("instance_type", ["ml.m5.large", "ml.g5.2xlarge"])
def test_served_by_an_image_of_the_dated_table(framework: str, instance_type: str) -> None:
    serving = serving_of(framework, region="eu-west-1", trained_on=instance_type)

    assert serving is not None
    version = training_images().versions[framework]
    processor = "cpu" if instance_type == "ml.m5.large" else "gpu"
    assert aws_images().images[framework][version][processor]["py312"] in serving.image_uri
    assert ".dkr.ecr.eu-west-1.amazonaws.com/" in serving.image_uri


def test_instance_types_have_the_memory_of_the_trainings() -> None:
    serving = serving_of("pytorch-inference", region="us-east-1", trained_on="ml.g5.2xlarge")

    assert serving is not None
    assert "ml.g5.xlarge" in serving.instance_types
    assert "ml.g4dn.xlarge" not in serving.instance_types  # 16 GiB
    assert not any(name.startswith(("ml.m5", "ml.c5")) for name in serving.instance_types)


def test_a_model_that_no_accelerator_held_whole_has_no_instance_types() -> None:
    serving = serving_of(
        "pytorch-inference", region="us-east-1", trained_on="ml.g5.12xlarge", is_whole=False
    )

    assert serving is not None
    assert serving.instance_types == ()


def test_a_region_without_the_image_serves_nothing(caplog: pytest.LogCaptureFixture) -> None:
    served = serving_of("huggingface-inference", region="us-nowhere-1", trained_on="ml.m5.large")

    assert served is None
    assert "without a serving image" in caplog.text


def test_candidates_are_known_types() -> None:
    assert set(CANDIDATES) <= set(catalogue().types)


def test_types_that_an_older_botocore_does_not_accept_are_left_out() -> None:
    newest = Loader().load_service_model("sagemaker", "service-2")
    older = deepcopy(newest)
    accepted = older["shapes"]["TransformInstanceType"]["enum"]
    accepted[:] = [name for name in accepted if not name.startswith("ml.g6e.")]

    served = {
        name: serving_of(
            "pytorch-inference",
            region="us-east-1",
            trained_on="ml.g5.xlarge",
            model=ServiceModel(model, "sagemaker"),
        )
        for name, model in {"newest": newest, "older": older}.items()
    }

    types = {name: set(serving.instance_types) for name, serving in served.items() if serving}
    assert types["newest"] - types["older"] == {"ml.g6e.xlarge", "ml.g6e.2xlarge"}
    assert "ml.g5.xlarge" in types["older"]
