"""BatchGetImage: the engine's images have digests, which change with the content, as ECR answers them."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from sagemaker_engine.jobs.image_digest import manifest_of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.conftest import RunningEngine

DLC, XGBOOST = "763104351884", "683313688378"
PYTORCH, TAG = "pytorch", "2.13-cpu-amzn2023-sagemaker"
OTHER_TAG = "2.13-cu133-amzn2023-sagemaker"
ABSENT = f"sha256:{'0' * 64}"


def ask(
    engine: RunningEngine, *image_ids: dict[str, str], repository: str = PYTORCH, **more: Any
) -> dict[str, Any]:
    """Return the registry's answer about images of AWS's PyTorch repository, or of another one."""
    call = {"registryId": DLC, "repositoryName": repository, "imageIds": list(image_ids), **more}
    answer: dict[str, Any] = engine.client("ecr").batch_get_image(**call)
    return answer


def digest(uri: str, **more: Any) -> str:
    return hashlib.sha256(manifest_of(uri, **more).encode()).hexdigest()


@pytest.mark.engine
def test_a_tag_has_the_digest_of_its_manifest_and_is_found_by_it(engine: RunningEngine) -> None:
    (image,) = ask(engine, {"imageTag": TAG})["images"]

    digest = image["imageId"]["imageDigest"]
    assert digest == f"sha256:{hashlib.sha256(image['imageManifest'].encode()).hexdigest()}"
    assert (image["registryId"], image["repositoryName"]) == (DLC, PYTORCH)
    assert image["imageId"]["imageTag"] == TAG
    (same,) = ask(engine, {"imageDigest": digest})["images"]
    assert same["imageId"] == image["imageId"]
    (other,) = ask(engine, {"imageTag": OTHER_TAG})["images"]
    assert other["imageId"]["imageDigest"] != digest


@pytest.mark.engine
def test_what_a_repository_lacks_is_among_the_failures(engine: RunningEngine) -> None:
    found = ask(engine, {"imageTag": TAG})["images"][0]["imageId"]["imageDigest"]
    answer = ask(
        engine,
        {"imageTag": "no-such-tag"},
        {"imageDigest": ABSENT},
        {},
        {"imageDigest": "no digest"},
        {"imageTag": OTHER_TAG, "imageDigest": found},
        {"imageTag": TAG, "imageDigest": found},
    )

    assert [each["failureCode"] for each in answer["failures"]] == [
        *("ImageNotFound", "ImageNotFound", "MissingDigestAndTag"),
        *("InvalidImageDigest", "ImageTagDoesNotMatchDigest"),
    ]
    assert answer["failures"][0]["imageId"] == {"imageTag": "no-such-tag"}
    assert len(answer["images"]) == 1


@pytest.mark.engine
@pytest.mark.parametrize(
    ("registry", "repository"),
    [(DLC, "no-such-repository"), (DLC, "sagemaker-xgboost"), ("111122223333", PYTORCH)],
    ids=["unknown name", "another account's", "another account"],
)
def test_a_repository_that_a_registry_lacks_is_an_error(
    engine: RunningEngine, registry: str, repository: str
) -> None:
    with pytest.raises(ClientError) as caught:
        ask(engine, {"imageTag": TAG}, repository=repository, registryId=registry)

    error = caught.value.response["Error"]
    assert error["Code"] == "RepositoryNotFoundException"
    assert f"'{repository}' does not exist in the registry with id '{registry}'" in error["Message"]


@pytest.mark.engine
def test_other_calls_of_the_registry_are_rejected_by_name(engine: RunningEngine) -> None:
    with pytest.raises(ClientError, match="CreateRepository"):
        engine.client("ecr").create_repository(repositoryName="mine")
    assert ask(engine, {"imageTag": "1.7-1"}, repository="sagemaker-xgboost", registryId=XGBOOST)[
        "images"
    ]


@pytest.mark.engine
def test_a_model_package_with_another_digest_than_its_images_is_rejected(
    engine: RunningEngine, sagemaker: Any
) -> None:
    image = f"{DLC}.dkr.ecr.us-east-1.amazonaws.com/{PYTORCH}:{TAG}"
    right = ask(engine, {"imageTag": TAG})["images"][0]["imageId"]["imageDigest"]

    def register(digest: str) -> str:
        content = ["application/json"]
        made = sagemaker.create_model_package(
            ModelPackageName=f"package-{digest[-8:]}",
            InferenceSpecification={
                "Containers": [{"Image": image, "ImageDigest": digest}],
                "SupportedContentTypes": content,
                "SupportedResponseMIMETypes": content,
                "SupportedRealtimeInferenceInstanceTypes": ["ml.m5.large"],
                "SupportedTransformInstanceTypes": ["ml.m5.large"],
            },
        )
        return str(made["ModelPackageArn"])

    assert register(right)
    with pytest.raises(ClientError, match="ImageDigest"):
        register(ABSENT)


def test_a_digest_changes_with_the_pins_and_the_programs_of_the_image(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (folder / "packages").mkdir(parents=True)
    pins, program = folder / "requirements.txt", folder / "packages" / "train.py"
    header = "#: repositories = mine\n#: source = packages\n"
    pins.write_text(f"{header}numpy==2.0.0\n")
    program.write_text("print(1)\n")
    uri = "111122223333.dkr.ecr.us-east-1.amazonaws.com/mine:1"

    first = digest(uri, image_files=tmp_path)
    assert digest(uri, image_files=tmp_path) == first
    pins.write_text(f"{header}numpy==2.0.1\n")
    second = digest(uri, image_files=tmp_path)
    program.write_text("print(2)\n")
    third = digest(uri, image_files=tmp_path)

    assert len({first, second, third}) == 3


def test_a_digest_does_not_depend_on_the_place_of_the_files(tmp_path: Path) -> None:
    uri = "111122223333.dkr.ecr.us-east-1.amazonaws.com/mine:1"
    found = set()
    for name in ("here", "there"):
        folder = tmp_path / name / "mine"
        folder.mkdir(parents=True)
        text = "#: repositories = mine\n#: build-environment = PIP={folder}/x\nnumpy==2.0.0\n"
        (folder / "requirements.txt").write_text(text)
        (folder / "x").write_text("content")
        found.add(digest(uri, image_files=tmp_path / name))

    assert len(found) == 1
    assert json.loads(manifest_of(uri, image_files=tmp_path / "here"))["schemaVersion"] == 2
