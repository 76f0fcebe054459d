"""Image URIs come from dated tables, which agree with the installed SageMaker SDK."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from trainyard.catalog import aws_images, aws_images_from_sdk
from trainyard.catalog.training_images import training_images
from trainyard.errors import SpecError
from trainyard.sagemaker_api.images import image_python, image_uri


def test_a_framework_version_gives_awss_image() -> None:
    uri = image_uri(
        region="us-east-1",
        instance_type="ml.m5.large",
        framework_version="2.8.0",
        py_version="py312",
    )

    assert uri == "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"


def test_an_unknown_version_lists_the_known_ones() -> None:
    with pytest.raises(
        SpecError, match=r"9\.9 is not a known pytorch version; supported: .*2\.8\.0"
    ):
        image_uri(region="us-east-1", instance_type="ml.m5.large", framework_version="9.9")


@pytest.mark.parametrize(
    ("version", "py_version", "tag"),
    [
        ("2.3.1", "py311", "2.3.1-gpu-py311-cu121"),
        ("2.4.1", "py311", "2.4.1-gpu-py311-cu121"),
        ("2.5.1", "py311", "2.5.1-gpu-py311-cu124"),
    ],
)
def test_the_model_parallel_library_has_an_image_of_its_own(
    version: str, py_version: str, tag: str
) -> None:
    uri = image_uri(
        region="us-east-1",
        instance_type="ml.p4d.24xlarge",
        framework_version=version,
        py_version=py_version,
        has_model_parallel=True,
    )

    repository = "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel"
    assert uri == f"{repository}:{tag}"


@pytest.mark.parametrize("version", [None, "1.13.1", "9.9"])
def test_a_model_parallel_version_that_nobody_wrote_down_is_refused(version: str | None) -> None:
    with pytest.raises(SpecError, match=r"not a known pytorch-smp version; supported: .*2\.5\.1"):
        image_uri(
            region="us-east-1",
            instance_type="ml.p4d.24xlarge",
            framework_version=version,
            has_model_parallel=True,
        )


@pytest.mark.parametrize("version", [None, "2.13", "2.13.0"])
@pytest.mark.parametrize(
    ("region", "instance_type", "uri"),
    [
        (
            "us-east-1",
            "ml.p4d.24xlarge",
            "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.13-cu133-amzn2023-sagemaker",
        ),
        (
            "cn-north-1",
            "ml.m5.large",
            "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch:2.13-cpu-amzn2023-sagemaker",
        ),
    ],
    ids=["gpu", "china-cpu"],
)
def test_the_default_image_is_the_catalogue_s(
    region: str, instance_type: str, uri: str, version: str | None
) -> None:
    found = image_uri(region=region, instance_type=instance_type, framework_version=version)

    assert found == uri


@pytest.mark.filterwarnings("ignore")  # the SDK's own
def test_the_sdk_agrees_with_the_catalogue_in_every_region() -> None:
    from sagemaker.core import image_uris  # type: ignore[import-untyped]  # ships no types

    version = training_images().versions["pytorch"]
    sdk = image_uris.config_for_framework("pytorch-amzn2023")["training"]["versions"]

    assert sdk[version]["registries"] == aws_images.aws_images().accounts["pytorch"]


@pytest.mark.parametrize("region", ["us-east-1", "cn-north-1", "us-gov-west-1"])
@pytest.mark.parametrize("instance_type", ["ml.p5.48xlarge", "ml.c6i.xlarge"])
@pytest.mark.filterwarnings("ignore")  # the SDK's own
def test_the_sdk_agrees_with_the_default_image(region: str, instance_type: str) -> None:
    from sagemaker.core import image_uris

    told = image_uris.retrieve(
        "pytorch-amzn2023",
        region,
        version=training_images().versions["pytorch"],
        instance_type=instance_type,
        image_scope="training",
    )

    assert image_uri(region=region, instance_type=instance_type) == told


def test_a_version_between_the_sdk_s_tables_is_found() -> None:
    uri = image_uri(region="us-east-1", instance_type="ml.p5.48xlarge", framework_version="2.12")

    assert uri.endswith("/pytorch:2.12-cu130-amzn2023-sagemaker")


def test_a_region_without_registry_names_those_that_have_one() -> None:
    with pytest.raises(SpecError, match="us-east-1"):
        image_uri(region="us-moon-1", instance_type="ml.m5.large")


def test_another_python_than_the_default_image_s_is_refused() -> None:
    with pytest.raises(SpecError, match="py312"):
        image_uri(region="us-east-1", instance_type="ml.m5.large", py_version="py311")


@pytest.mark.parametrize(
    ("version", "tag"),
    [
        (None, "2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04"),
        ("4.56.2", "2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04"),
        ("4.56", "2.8.0-transformers4.56.2-gpu-py312-cu129-ubuntu22.04"),
    ],
)
def test_hugging_face_has_an_image_on_its_newest_torch(version: str | None, tag: str) -> None:
    uri = image_uri(
        region="us-east-1",
        instance_type="ml.p4d.24xlarge",
        framework="huggingface",
        framework_version=version,
    )

    assert uri.endswith(f"/huggingface-pytorch-training:{tag}")


def test_hugging_face_on_a_cpu_says_that_there_is_no_such_image() -> None:
    with pytest.raises(SpecError, match=r"cpu is not a known processor of huggingface 5\.3\.0"):
        image_uri(region="us-east-1", instance_type="ml.m5.large", framework="huggingface")


def test_a_hugging_face_version_that_never_was_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"5\.3\.0"):
        image_uri(
            region="us-east-1",
            instance_type="ml.p4d.24xlarge",
            framework="huggingface",
            framework_version="3.1",
        )


def test_tensorflow_s_default_version_is_the_catalogue_s() -> None:
    uri = image_uri(region="us-east-1", instance_type="ml.p4d.24xlarge", framework="tensorflow")

    assert f":{training_images().versions['tensorflow']}-gpu" in uri


@pytest.mark.filterwarnings("ignore")  # the SDK's own
@pytest.mark.slow
def test_the_table_of_all_images_is_the_installed_sdks() -> None:
    told = aws_images_from_sdk.read_sdk()
    kept = json.loads(aws_images.DATA_FILE.read_text(encoding="utf-8"))

    assert {key: value for key, value in kept.items() if key != "as_of"} == told


def test_an_image_is_named_without_the_sdk() -> None:
    program = """
import sys
from trainyard.sagemaker_api.images import image_uri, rule_evaluator_image
image_uri(region="eu-west-1", instance_type="ml.g5.xlarge", framework="huggingface")
rule_evaluator_image("eu-west-1")
print([name for name in sys.modules if name.partition(".")[0] == "sagemaker"])
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    ("uri", "python"),
    [
        (image_uri(region="us-east-1", instance_type="ml.m5.large"), (3, 12)),
        ("1.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2.0-gpu-py310", (3, 10)),
        ("1.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.2-cpu-py310@sha256:0", (3, 10)),
        ("1.dkr.ecr.us-east-1.amazonaws.com/sagemaker-pytorch:1.4.0-cpu-py3", None),
        ("1.dkr.ecr.us-east-1.amazonaws.com/pytorch:2.14-cpu-amzn2023-sagemaker", None),
        ("1.dkr.ecr.us-east-1.amazonaws.com/own:1-py310", None),
        (None, None),
    ],
)
def test_python_of_an_image_is_that_of_its_tag_or_of_the_catalogue(
    uri: str | None, python: tuple[int, int] | None
) -> None:
    assert image_python(uri) == python
