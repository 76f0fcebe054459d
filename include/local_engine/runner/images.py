"""Which interpreter stands in for a container image, and what the image runs by itself."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path


class UnknownImageError(Exception):
    """No local runtime stands in for the image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRuntime:
    """What runs in place of an image.

    `bin_folder` holds python, torchrun, train; `prefix` is what instances see copy-on-write;
    `training_module` is AWS's framework entry, None for an image without one. `source_folder` is on the import path of
    an image whose programs are the engine's own.
    """

    bin_folder: Path
    prefix: Path
    base_prefix: Path
    training_module: str | None
    train_command: tuple[str, ...] = ("train",)
    source_folder: Path | None = None


PYTORCH_TRAINING = "sagemaker_pytorch_container.training:main"
AUTOML_FAMILY = "sagemaker-sklearn-automl"
SOURCE_FOLDER = Path(__file__).resolve().parents[3]
FAMILIES: dict[str, str | None] = {
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
environment, whatever version the tag names."""


def resolve_image(uri: str) -> ImageRuntime:
    """Return what runs in place of the image.

    Raises:
        UnknownImageError: The image's family is none of `FAMILIES`.
    """
    family = image_family(uri)
    if family not in FAMILIES:
        raise UnknownImageError(
            f"no local runtime stands in for image {uri!r} (repository {family!r}). "
            f"Known repositories: {', '.join(sorted(FAMILIES))}"
        )
    prefix = environment_prefix()
    return ImageRuntime(
        bin_folder=prefix / "bin",
        prefix=prefix,
        base_prefix=Path(sys.base_prefix),
        training_module=FAMILIES[family],
        source_folder=SOURCE_FOLDER if family == AUTOML_FAMILY else None,
    )


def image_family(uri: str) -> str:
    """Return the repository's last name.

    It is `pytorch-training` for
    `763104351884.dkr.ecr.us-east-1.amazonaws.com/pytorch-training:2.8.0-cpu-py312`.
    """
    name = uri.rpartition("/")[2]
    return name.partition("@")[0].partition(":")[0]


def environment_prefix() -> Path:
    """Return the folder of the environment that this interpreter belongs to.

    `sys.prefix` does not say so here: a runner starts with -S, and then it names the base.
    """
    folder = Path(sys.executable).parent.parent
    return folder if (folder / "pyvenv.cfg").exists() else Path(sys.prefix)
