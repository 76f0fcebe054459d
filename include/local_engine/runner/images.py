"""Which interpreter stands in for a container image, and what the image runs by itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from include.local_engine.images import xgboost_metrics
from include.local_engine.images.image_file import (
    FOLDER,
    ImageFile,
    ImageFileError,
    read_image_files,
)
from include.local_engine.images.image_store import ImageStore, default_folder, environment_prefix


class UnknownImageError(Exception):
    """No local runtime stands in for the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRuntime:
    """What runs in place of an image.

    `bin_folder` holds python, torchrun, train; `prefix` is what instances see copy-on-write;
    `training_module` is AWS's framework entry, None for an image without one. `source_folder` is on the import path of
    an image whose programs are the engine's own. `image` is the engine image that has to be built first, None for
    Trainyard's own environment; `layers` are the environments whose packages it sees below its own. `family` is the
    image's repository.
    """

    bin_folder: Path
    prefix: Path
    base_prefix: Path
    training_module: str | None
    train_command: tuple[str, ...] = ("train",)
    source_folder: Path | None = None
    image: ImageFile | None = None
    layers: tuple[Path, ...] = ()
    family: str = ""

    @property
    def metric_definitions(self) -> list[dict[str, str]]:
        """Return the MetricDefinitions of a job that names none: those that the service knows of its own algorithm."""
        is_xgboost = self.image is not None and self.image.name == "xgboost"
        return xgboost_metrics.definitions() if is_xgboost else []

    @property
    def launchers(self) -> frozenset[str]:
        """Return the toolkit's flags that the image serves by what is in it."""
        return self.image.launchers if self.image is not None else frozenset()


PYTORCH_TRAINING = "sagemaker_pytorch_container.training:main"
AUTOML_FAMILY = "sagemaker-sklearn-automl"
SOURCE_FOLDER = Path(__file__).resolve().parents[3]
FAMILIES: dict[str, str | None] = {
    "pytorch": PYTORCH_TRAINING,
    "pytorch-training": PYTORCH_TRAINING,
    "pytorch-inference": PYTORCH_TRAINING,
    "huggingface-pytorch-training": PYTORCH_TRAINING,
    "smdistributed-modelparallel": PYTORCH_TRAINING,
    "sagemaker-pytorch": PYTORCH_TRAINING,
    "trainyard": PYTORCH_TRAINING,
    "sagemaker-base-python": None,
    AUTOML_FAMILY: None,
    "sagemaker-scikit-learn": None,
    "sagemaker-distribution-prod": None,
    "python": None,
}
"""Repository name of an image to the framework module of AWS's toolkit; all run in this very
environment, whatever version the tag names, unless an engine image stands in for the repository."""


ONLY_ON_AWS = frozenset(
    {
        *("blazingtext", "factorization-machines", "forecasting-deepar", "image-classification"),
        *("ipinsights", "kmeans", "knn", "lda", "linear-learner", "ntm", "object-detection"),
        *("object2vec", "pca", "randomcutforest", "semantic-segmentation", "seq2seq"),
    }
)
"""Repositories of built-in algorithms whose code AWS keeps."""


def resolve_image(
    uri: str, *, images_folder: Path | None = None, image_files: Path = FOLDER
) -> ImageRuntime:
    """Return what runs in place of the image. An engine image (`runtime.image`) may have to be built first.

    `image_files` describe the engine images, `images_folder` is where they are built; None: the user's.

    Raises:
        UnknownImageError: The image's family is none of `FAMILIES` and of the engine images.
    """
    family = image_family(uri)
    try:
        images = read_image_files(image_files)
    except ImageFileError as error:
        raise UnknownImageError(str(error)) from error
    prefix = environment_prefix()
    owner = next((each for each in images if family in each.repositories), None)
    if owner is not None and not (owner.unless and _has_package(prefix, owner.unless)):
        store = ImageStore(folder=images_folder or default_folder())
        return _of_image(owner, store, prefix, family)
    if family in ONLY_ON_AWS:
        raise UnknownImageError(
            f"the built-in algorithm {family!r} is AWS's own code, which is not published: nothing here can train it. "
            "Send the job to AWS, or train by a script: PyTorch, TensorFlow, XGBoost and Hugging Face images run here"
        )
    if family not in FAMILIES:
        known = {*FAMILIES, *(name for each in images for name in each.repositories)}
        raise UnknownImageError(
            f"no local runtime stands in for image {uri!r} (repository {family!r}). "
            f"Known repositories: {', '.join(sorted(known))}"
        )
    return ImageRuntime(
        bin_folder=prefix / "bin",
        prefix=prefix,
        base_prefix=Path(sys.base_prefix),
        training_module=FAMILIES[family],
        source_folder=SOURCE_FOLDER if family == AUTOML_FAMILY else None,
        family=family,
    )


def image_family(uri: str) -> str:
    """Return the repository's last name.

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
