"""Serving of a trained model: AWS's image with the inference toolkit, and instance types that hold the model."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.catalog.instances import catalogue
from trainyard.errors import SpecError
from trainyard.sagemaker_api.images import image_uri
from trainyard.sagemaker_api.request_check import accepted_items

if TYPE_CHECKING:
    from collections.abc import Mapping

    from botocore.model import ServiceModel

    from trainyard.catalog.instances import InstanceType

log = logging.getLogger(__name__)

CODE: Mapping[str, str] = {
    "SAGEMAKER_PROGRAM": "inference.py",
    "SAGEMAKER_SUBMIT_DIRECTORY": "/opt/ml/model/code",
}
"""Variables with which the toolkit finds the handlers in a model.tar.gz."""
CANDIDATES = (
    *(f"ml.m5.{size}" for size in ("large", "xlarge", "2xlarge", "4xlarge", "12xlarge")),
    *(f"ml.c5.{size}" for size in ("xlarge", "2xlarge", "4xlarge")),
    *(f"ml.g4dn.{size}" for size in ("xlarge", "2xlarge")),
    *(f"ml.g5.{size}" for size in ("xlarge", "2xlarge", "4xlarge", "8xlarge")),
    *("ml.g6.xlarge", "ml.g6e.xlarge", "ml.g6e.2xlarge"),
)
"""Types that endpoints and batch transform both accept in botocore of 2026-11; older releases lack the newest."""
INSTANCE_TYPE_LISTS = ("SupportedRealtimeInferenceInstanceTypes", "SupportedTransformInstanceTypes")
"""Lists of an InferenceSpecification; both are optional in a versioned model package."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Serving:
    """Image and instance types that serve a model.

    Attributes:
        instance_types: types that SageMaker's API lists, with at least the memory of the training's type; may be empty.
        environment: variables of the container.
        content_types: content types of requests.
    """

    image_uri: str
    instance_types: tuple[str, ...]
    environment: Mapping[str, str]
    content_types: tuple[str, ...] = ("application/json",)


def serving_of(
    framework: str,
    *,
    region: str,
    trained_on: str,
    is_whole: bool = True,
    image: str | None = None,
    model: ServiceModel | None = None,
) -> Serving | None:
    """Return the image and the instance types that serve a model with `code/inference.py`.

    If AWS has no such image, log a warning and return None.

    Args:
        framework: `pytorch-inference` or `huggingface-inference`.
        region: region of the registry.
        trained_on: instance type of the training; a type with GPUs gets an image with CUDA.
        is_whole: whether one accelerator held the whole model. If not, the result has no instance types.
        image: image to use instead of AWS's.
        model: botocore's description of SageMaker's API. The result has only instance types that this
            description allows. None uses the description in the installed botocore.
    """
    try:
        image = image or image_uri(framework=framework, region=region, instance_type=trained_on)
    except SpecError as error:
        log.warning("The model is registered without a serving image: %s", error)
        return None
    types = accepted_types(_holding(trained_on), model) if is_whole else ()
    return Serving(image_uri=image, instance_types=types, environment=CODE)


def handlers(entry_point: str) -> dict[str, str]:
    """Return the variables with which the toolkit finds the handlers in `code/` of a model.tar.gz."""
    return {**CODE, "SAGEMAKER_PROGRAM": entry_point}


def _holding(trained_on: str) -> tuple[str, ...]:
    """Return the `CANDIDATES` with at least the memory of the training's type; none for an unknown type.

    The returned types have GPUs if, and only if, the training's type has GPUs.
    """
    known = catalogue().types
    own = known.get(trained_on)
    if own is None:
        return ()
    candidates = (known[name] for name in CANDIDATES if name in known)
    return tuple(
        each.name
        for each in candidates
        if bool(each.num_accelerators) == bool(own.num_accelerators)
        and _memory_gib(each) >= _memory_gib(own)
    )


def accepted_types(names: tuple[str, ...], model: ServiceModel | None = None) -> tuple[str, ...]:
    """Return those of `names` that every list in `INSTANCE_TYPE_LISTS` accepts, in the same order."""
    lists = [
        accepted_items("CreateModelPackage", "InferenceSpecification", each, model=model)
        for each in INSTANCE_TYPE_LISTS
    ]
    return tuple(each for each in names if all(each in accepted for accepted in lists))


def _memory_gib(instance: InstanceType) -> float:
    return instance.accelerator_memory_gib if instance.num_accelerators else instance.memory_gib
