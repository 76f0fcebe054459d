"""Which runtime an image URI gets, and what is said of one that gets none."""

from __future__ import annotations

import pytest

from sagemaker_engine.images.aws_images import aws_images
from sagemaker_engine.images.image_file import read_image_files
from sagemaker_engine.jobs.images import UnknownImageError, image_family, resolve_image

ACCOUNT = "763104351884.dkr.ecr.us-east-1.amazonaws.com"


@pytest.mark.parametrize(
    ("repository", "name"),
    [
        pytest.param("tensorflow-training:2.19.0-cpu-py312", "tensorflow", id="tensorflow"),
        pytest.param("sagemaker-xgboost:1.7-1", "xgboost", id="xgboost"),
        pytest.param("huggingface-pytorch-training:2.1.0", "huggingface", id="huggingface"),
        pytest.param("sagemaker-scikit-learn:1.2-1", "scikit-learn-1.2-1", id="a-version"),
        pytest.param(
            "sagemaker-scikit-learn:1.4-2-py312-cpu-py3",
            "scikit-learn-1.4-2",
            id="a-tag-of-a-version",
        ),
        pytest.param("pytorch-training:2.8.0-cpu-py312", None, id="the-environment-itself"),
    ],
)
def test_an_image_s_repository_says_its_engine_image(repository: str, name: str | None) -> None:
    runtime = resolve_image(f"{ACCOUNT}/{repository}")

    assert (runtime.image.name if runtime.image else None) == name


@pytest.mark.parametrize("repository", ["object-detection:1", "randomcutforest:1", "kmeans:1"])
def test_an_algorithm_that_aws_keeps_is_refused_with_what_to_do(repository: str) -> None:
    with pytest.raises(UnknownImageError, match=r"not published.*train with a script"):
        resolve_image(f"{ACCOUNT}/{repository}")


@pytest.mark.parametrize("tag", [":1.0-1-cpu-py3", ":0.23-1-cpu-py3", ":1.2-10", ""])
def test_a_version_that_cannot_be_installed_is_refused_with_those_that_can(tag: str) -> None:
    with pytest.raises(UnknownImageError, match=r"cannot be installed.*1\.2-1, 1\.4-2, 1\.9-0"):
        resolve_image(f"{ACCOUNT}/sagemaker-scikit-learn{tag}")


@pytest.mark.parametrize("name", [each.name for each in read_image_files() if each.tags])
def test_an_image_has_the_version_of_its_tag(name: str) -> None:
    image = next(each for each in read_image_files() if each.name == name)
    known = aws_images().repositories[image.repositories[0]]

    assert all(known.has_tag(f"{tag}-cpu-py3") for tag in image.tags)
    assert {f"scikit-learn=={tag.replace('-', '.')}" for tag in image.tags} <= set(image.pins)


def test_an_unknown_repository_is_told_with_the_known_ones() -> None:
    with pytest.raises(UnknownImageError, match=r"Known repositories: .*sagemaker-xgboost"):
        resolve_image(f"{ACCOUNT}/my-own:1")


def test_the_family_is_the_repository_s_last_name() -> None:
    assert image_family(f"{ACCOUNT}/team/pytorch-training@sha256:{'0' * 64}") == "pytorch-training"
