"""Emulation of container images: the interpreter for an image URI, and the program that the image runs."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER
from sagemaker_engine.images import xgboost_metrics
from sagemaker_engine.images.aws_images import ImageName, aws_images, read_name
from sagemaker_engine.images.image_file import (
    OWN_IMAGES,
    ImageFile,
    ImageFileError,
    is_mapped,
    read_image_files,
    read_own_images,
    stand_in,
)
from sagemaker_engine.images.image_store import ImageStore, default_folder, environment_prefix

if TYPE_CHECKING:
    from collections.abc import Mapping


class UnknownImageError(Exception):
    """The image does not exist, or no local runtime emulates it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRuntime:
    """Runtime that emulates an image.

    - `bin_folder`: folder of python, torchrun and train.
    - `prefix`: environment that instances see copy-on-write.
    - `base_prefix`: folder of the base Python installation.
    - `training_module`: AWS's framework entry point; None for an image without one.
    - `source_folder`: entry of the import path, for an image whose programs belong to the engine.
    - `image`: engine image that must be built first; None for Trainyard's own environment.
    - `layers`: environments whose packages are visible, too, with lower priority than those of `prefix`.
    - `family`: the image's repository.
    """

    bin_folder: Path
    prefix: Path
    base_prefix: Path
    training_module: str | None
    source_folder: Path | None = None
    image: ImageFile | None = None
    layers: tuple[Path, ...] = ()
    family: str = ""

    @property
    def metric_definitions(self) -> list[dict[str, str]]:
        """Return the MetricDefinitions that AWS predefines for its XGBoost image; empty for other images."""
        is_xgboost = self.image is not None and self.image.name == "xgboost"
        return xgboost_metrics.definitions() if is_xgboost else []

    @property
    def launchers(self) -> frozenset[str]:
        """Return the flags (such as `sagemaker_mpi_enabled`) of the launchers in the image."""
        return self.image.launchers if self.image is not None else frozenset()


PYTORCH_TRAINING = "sagemaker_pytorch_container.training:main"
AUTOML_FAMILY = "sagemaker-sklearn-automl"
FAMILIES: dict[str, str | None] = {
    "pytorch": PYTORCH_TRAINING,
    "pytorch-training": PYTORCH_TRAINING,
    "pytorch-inference": PYTORCH_TRAINING,
    "huggingface-pytorch-training": PYTORCH_TRAINING,
    "smdistributed-modelparallel": PYTORCH_TRAINING,
    "sagemaker-pytorch": PYTORCH_TRAINING,
    "sagemaker-base-python": None,
    AUTOML_FAMILY: None,
    "sagemaker-distribution-prod": None,
}
"""Image repository -> framework module of AWS's toolkit, or None if it has none.

All versions of these images run in Trainyard's own environment, unless an engine image emulates the repository.
"""


ONLY_ON_AWS = frozenset(
    {
        *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification"),
        *("ipinsights", "kmeans", "knn", "lda", "linear-learner", "ntm", "object-detection"),
        *("object2vec", "pca", "randomcutforest", "semantic-segmentation", "seq2seq"),
    }
)
"""Repositories of built-in algorithms whose code AWS does not publish."""


def resolve_image(
    uri: str, *, images_folder: Path | None = None, image_files: Path = IMAGES_FOLDER
) -> ImageRuntime:
    """Return the runtime that emulates the image. Its engine image (`runtime.image`) may have to be built first.

    `image_files` is the folder with the files that describe the engine images. Its file `own_images.toml`,
    which may be missing, maps a team's own images to engine images, or to image repositories that the engine
    emulates. `images_folder` is the folder of built images; None for the user's default.

    Raises:
        UnknownImageError: No runtime emulates the image's repository, or the version in its tag.
    """
    images, own = _read_files(image_files)
    mapped = stand_in(uri, own)
    family = mapped or image_family(uri)
    prefix = environment_prefix()
    owner = _owner(images, uri, family, mapped)
    if owner is not None and not (owner.unless and _has_package(prefix, owner.unless)):
        store = ImageStore(folder=images_folder or default_folder())
        return _of_image(owner, store, prefix, family)
    if family in ONLY_ON_AWS:
        raise UnknownImageError(
            f"the built-in algorithm {family!r} is AWS's own code, which is not published: the engine cannot train it. "
            "Send the job to AWS, or train with a script: PyTorch, TensorFlow, XGBoost and Hugging Face images run here"
        )
    if owner is None and family not in FAMILIES:
        raise UnknownImageError(
            f"no local runtime emulates image {uri!r} (repository {family!r}). "
            f"Known repositories: {', '.join(sorted(_runnable(images)))}. {_HOW_TO_MAP}"
        )
    return ImageRuntime(
        bin_folder=prefix / "bin",
        prefix=prefix,
        base_prefix=Path(sys.base_prefix),
        training_module=FAMILIES[family] if owner is None else owner.training_module,
        source_folder=IMAGES_FOLDER / "automl" / "packages" if family == AUTOML_FAMILY else None,
        family=family,
    )


def _owner(images: list[ImageFile], uri: str, family: str, mapped: str | None) -> ImageFile | None:
    """Return the engine image that emulates `uri`; None if its repository has no engine image.

    `family` is the repository. `mapped` is the engine image or repository to which
    `own_images.toml` maps the image, or None.

    Raises:
        UnknownImageError: The repository has engine images, but all of them are for other tags.
    """
    if mapped is not None:
        named = next((each for each in images if each.name == mapped), None)
        if named is not None:
            return named
    name = read_name(uri)
    tag = name.tag if name is not None else None
    candidates = [each for each in images if family in each.repositories]
    found = next((each for each in candidates if each.has_tag(tag)), None)
    if candidates and found is None:
        known = ", ".join(each for image in candidates for each in image.tags)
        raise UnknownImageError(
            f"no engine image emulates {family}:{tag or 'latest'}, and the packages of this tag cannot be installed on "
            f"Python {sys.version_info.major}.{sys.version_info.minor}. Tags with an engine image: {known}. Use one "
            f"of these, or add an entry to {OWN_IMAGES} that maps the image to an engine image with the packages that "
            "you need (docs/engine_images.md)"
        )
    return found


def missing_torchvision(runtime: ImageRuntime, reason: str) -> str | None:
    """Return advice for a PyTorch job that failed because torchvision is missing or broken, otherwise None.

    `reason` is the job's FailureReason.
    """
    is_plain = runtime.image is None and runtime.training_module == PYTORCH_TRAINING
    if not (is_plain and any(each in reason for each in _WITHOUT_TORCHVISION)):
        return None
    return (
        "AWS's PyTorch images have torchvision; this engine's environment has none that works with its torch. Build "
        "the engine image with it (python -m sagemaker_engine.images torchvision) and map this job's image to it in "
        f'{OWN_IMAGES}: "*/{runtime.family}:*" = "torchvision" (docs/engine_images.md, torchvision)'
    )


_WITHOUT_TORCHVISION = ("No module named 'torchvision'", "operator torchvision::nms does not exist")


def check_exists(uri: str, *, image_files: Path = IMAGES_FOLDER) -> None:
    """Check that an image exists.

    An image exists in three cases: AWS publishes it, `own_images.toml` maps it, or the header of an engine
    image's `requirements.txt` lists its repository.

    Raises:
        UnknownImageError: The image does not exist.
    """
    images, own = _read_files(image_files)
    if stand_in(uri, own) is not None:
        return
    name = read_name(uri)
    if name is None:
        raise UnknownImageError(
            "it is not an image URI; write registry/repository[:tag] or registry/repository@sha256:digest"
        )
    known = aws_images()
    problem = known.problem(name) if known.is_aws(name) else _problem_of_own(name, images)
    if problem is not None:
        raise UnknownImageError(problem)


def has_repository(uri: str, *, image_files: Path = IMAGES_FOLDER) -> bool:
    """Return whether the repository of an image URI without tag exists, by the rules of `check_exists`."""
    try:
        images, own = _read_files(image_files)
    except UnknownImageError:
        return False
    name = read_name(uri)
    if name is None:
        return False
    if is_mapped(uri, own):
        return True
    known = aws_images()
    is_aws = known.is_aws(name)
    problem = known.repository_problem(name) if is_aws else _problem_of_own(name, images)
    return problem is None


def _problem_of_own(name: ImageName, images: list[ImageFile]) -> str | None:
    """Return the reason to reject an image outside AWS's registries.

    Return None if the repository of `name` is listed in the description of an engine image.
    """
    if name.account is None:
        return (
            "it is in no Elastic Container Registry, and using non-ECR images without Vpc repository access mode is "
            f"not supported. {_HOW_TO_MAP}"
        )
    described = {each for image in images for each in image.repositories}
    if name.family in described - set(aws_images().repositories):
        return None
    return f"registry {name.registry} has no repository {name.repository!r}. {_HOW_TO_MAP}"


_HOW_TO_MAP = f"Map an image of your own in {OWN_IMAGES} (docs/engine_images.md)"


def _read_files(image_files: Path) -> tuple[list[ImageFile], Mapping[str, str]]:
    try:
        images = read_image_files(image_files)
        return images, read_own_images(image_files, allowed=_runnable(images))
    except ImageFileError as error:
        raise UnknownImageError(str(error)) from error


def _runnable(images: list[ImageFile]) -> set[str]:
    """Return the names that are allowed as targets in `own_images.toml`, which maps a team's own images.

    A target is a repository that the engine emulates, or an engine image.
    """
    repositories = {name for each in images if not each.tags for name in each.repositories}
    return {*FAMILIES, *(each.name for each in images), *repositories}


def image_family(uri: str) -> str:
    """Return the last component of the repository name.

    It is `pytorch-training` for
    `763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312`.
    """
    name = uri.rpartition("/")[2]
    return name.partition("@")[0].partition(":")[0]


def _of_image(image: ImageFile, store: ImageStore, environment: Path, family: str) -> ImageRuntime:
    place = store.place(image)
    return ImageRuntime(
        bin_folder=place / "bin",
        prefix=place,
        base_prefix=Path(sys.base_prefix),
        training_module=image.training_module,
        source_folder=image.source,
        image=image,
        layers=(environment,) if image.is_layered else (),
        family=family,
    )


def _has_package(prefix: Path, package: str) -> bool:
    return any(prefix.glob(f"lib/python3*/site-packages/{package}"))
