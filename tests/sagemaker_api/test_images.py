"""Image URIs come from the SageMaker SDK's own table."""

from __future__ import annotations

import pytest

from include.errors import SpecError
from include.sagemaker_api.images import image_uri


@pytest.mark.filterwarnings("ignore")  # the SDK's own
def test_a_framework_version_gives_awss_image() -> None:
    uri = image_uri(
        region="us-east-1",
        instance_type="ml.m5.large",
        framework_version="2.8.0",
        py_version="py312",
    )

    assert uri == "763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312"


@pytest.mark.filterwarnings("ignore")  # the SDK's own
def test_an_unknown_version_lists_the_known_ones() -> None:
    with pytest.raises(SpecError, match=r"Supported pytorch version.*2\.8\.0"):
        image_uri(region="us-east-1", instance_type="ml.m5.large", framework_version="9.9")


@pytest.mark.filterwarnings("ignore")  # the SDK's own
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


@pytest.mark.filterwarnings("ignore")  # the SDK's own
@pytest.mark.parametrize("version", [None, "1.13.1", "9.9"])
def test_a_model_parallel_version_that_nobody_wrote_down_is_refused(version: str | None) -> None:
    with pytest.raises(SpecError, match=f"CUDA version of pytorch-smp {version}"):
        image_uri(
            region="us-east-1",
            instance_type="ml.p4d.24xlarge",
            framework_version=version,
            has_model_parallel=True,
        )
