"""AWS's images by name: the dated file against its source, tags, accounts, and what is no image."""

from __future__ import annotations

import json
import re

import pytest

from sagemaker_engine.images.aws_images import DATA_FILE, aws_images, read_name
from sagemaker_engine.images.aws_images_from_sdk import as_text, read_sdk

DLC = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


def problem(uri: str) -> str | None:
    name = read_name(uri)
    assert name is not None
    assert aws_images().is_aws(name)
    return aws_images().problem(name)


def test_the_file_has_every_image_of_the_installed_sdk() -> None:
    text = DATA_FILE.read_text(encoding="utf-8")
    table = {"as_of": json.loads(text)["as_of"], **read_sdk()}

    assert as_text(table) == text, "python -m sagemaker_engine.images.aws_images_from_sdk"


@pytest.mark.parametrize(
    "uri",
    [
        f"{DLC}/pytorch:2.13-cu133-amzn2023-sagemaker",
        f"{DLC}/pytorch:2.13.0-cu133-amzn2023-sagemaker-v1.2",
        f"{DLC}/pytorch-training:2.8.0-gpu-py312",
        f"{DLC}/pytorch-training:2.8-gpu-py312-cu129-ubuntu22.04-sagemaker",
        f"{DLC}/pytorch-training:2.8.0-gpu-py312-cu129-ubuntu22.04-sagemaker-v1.8-2025-11-02-10-20-30",
        f"{DLC}/pytorch-training@sha256:{'0' * 64}",
        f"{DLC}/huggingface-pytorch-training:2.9.0-transformers5.3.0-gpu-py312-cu130-ubuntu22.04",
        "727897471807.dkr.ecr.cn-north-1.amazonaws.com.cn/pytorch:2.13-cpu-amzn2023-sagemaker",
        "658645717510.dkr.ecr.us-east-1.amazonaws.com/smdistributed-modelparallel:2.4.1-gpu-py311-cu121",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1",
        "683313688378.dkr.ecr.us-east-1.amazonaws.com/sagemaker-xgboost:1.7-1-cpu-py3",
        "public.ecr.aws/deep-learning-containers/pytorch:2.12-cu130-amzn2023-sagemaker",
    ],
)
def test_an_image_that_aws_publishes_is_known(uri: str) -> None:
    assert problem(uri) is None


@pytest.mark.parametrize(
    ("uri", "said"),
    [
        (f"{DLC}/pytorch-training:2.13-cpu-py312", r"no tag .*known on .*2\.10"),
        (f"{DLC}/pytorch-training:2.8.0-gpu-py312-rocm", "no tag"),
        (f"{DLC}/pytorch-training", "no tag 'latest'"),
        (f"{DLC}/pytorch-inference:2.10.0-gpu-py313", "no tag"),
        (f"{DLC}/kmeans:1", "is 382416733822, not 763104351884"),
        (f"{DLC}/train:1", "no repository 'train'"),
        (f"{DLC.replace('us-east-1', 'us-moon-1')}/pytorch:2.13-cpu-amzn2023", "in no registry of"),
        ("public.ecr.aws/deep-learning-containers/kmeans:1", "not in AWS's public registry"),
    ],
)
def test_an_image_that_aws_does_not_publish_is_told_why(uri: str, said: str) -> None:
    found = problem(uri)

    assert found is not None
    assert re.search(said, found), found


@pytest.mark.parametrize(
    "text",
    ["", "docker.io/evil/img:latest; rm -rf /", "a b", "UPPER/case:1", "x:1:2", f"{DLC}/", "../x"],
)
def test_a_text_that_is_no_image_is_none(text: str) -> None:
    assert read_name(text) is None


@pytest.mark.parametrize(
    ("text", "registry", "repository", "tag"),
    [
        ("train", "", "train", None),
        ("team/train:1", "", "team/train", "1"),
        ("localhost:5000/train:1", "localhost:5000", "train", "1"),
        (f"{DLC}/team/train:1", DLC, "team/train", "1"),
    ],
)
def test_an_image_s_name_is_read(
    text: str, registry: str, repository: str, tag: str | None
) -> None:
    name = read_name(text)

    assert name is not None
    assert (name.registry, name.repository, name.tag) == (registry, repository, tag)
