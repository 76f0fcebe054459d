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
