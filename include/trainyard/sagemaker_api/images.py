"""URIs of AWS's images, from the catalogue's pinned default versions and its dated table of images."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING

from trainyard.catalog.aws_images import aws_images
from trainyard.catalog.instances import catalogue
from trainyard.catalog.training_images import training_images
from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.request_parts import partition_of

if TYPE_CHECKING:
    from trainyard.catalog.strategy_support import Version

_MODEL_PARALLEL = "pytorch-smp"


def image_uri(
    *,
    region: str,
    instance_type: str,
    framework: str = "pytorch",
    framework_version: str | None = None,
    py_version: str | None = None,
    has_model_parallel: bool = False,
) -> str:
    """Return the URI of AWS's image for the framework.

    Default versions are pinned in `trainyard/catalog/training_images.json`. The images are in `aws_images.json`
    in the same folder. For Hugging Face, `framework_version` is the version of transformers. The image then has
    the newest torch that AWS offers for this version.
    `has_model_parallel` selects the image of the model parallel library (SMP v2), an extension of the PyTorch
    image.

    Raises:
        SpecError: there is no image for the framework, version or region; the message lists the known values.
    """
    images, defaults, processor = aws_images(), training_images(), _processor(instance_type)
    version = framework_version or defaults.versions.get(framework)
    is_default = framework == "pytorch" and defaults.is_default_pytorch(framework_version)
    if is_default and not has_model_parallel and processor != "trainium":
        version = defaults.versions["pytorch"]
        _check_default(region, version, py_version)
    try:
        name = images.name(
            _MODEL_PARALLEL if has_model_parallel else framework,
            version=version,
            processor=processor,
            py_version=py_version,
        )
        return images.uri(name, region=region, dns_suffix=_dns_suffix(region))
    except LookupError as error:
        unknown = Finding(
            where="framework_version",
            what=f"has no AWS image in the catalogue of {images.as_of}, because {error.args[0]}",
            got=" ".join(each for each in (framework, framework_version, py_version) if each)
            + f" in {region} on {instance_type}"
            + (", with smdistributed.modelparallel" if has_model_parallel else ""),
            next_step="set image_uri, or choose a supported value",
        )
        raise SpecError(unknown, subject="image") from error


def image_python(uri: str | None) -> Version | None:
    """Return the Python version of one of AWS's images, such as (3, 12); None for any other image, or if unknown."""
    repository, _, tag = (uri or "").rpartition("/")[2].partition(":")
    images, defaults = aws_images(), training_images()
    if repository not in images.accounts:
        return None
    of_default = images.images["pytorch"][defaults.versions["pytorch"]].values()
    is_default = any(f"{repository}:{tag}" in each.values() for each in of_default)
    found = re.search(r"\bpy(3)(\d+)\b", defaults.pytorch_python if is_default else tag)
    return (int(found[1]), int(found[2])) if found else None


def _processor(instance_type: str) -> str:
    if _is_trainium(instance_type):
        return "trainium"
    return "gpu" if _has_gpu(instance_type) else "cpu"


def _check_default(region: str, version: str, py_version: str | None) -> None:
    """Check that AWS's default PyTorch image supports the requested Python version and region.

    Raises:
        SpecError: the image has another Python version, or AWS has no registry for it in the region.
    """
    python, accounts = training_images().pytorch_python, aws_images().accounts["pytorch"]
    if py_version not in (None, python):
        wrong = Finding(
            where="py_version",
            what=f"is not the Python version of AWS's PyTorch {version} image",
            got=py_version,
            allowed=python,
            next_step="remove py_version, or also set framework_version",
        )
        raise SpecError(wrong, subject="image")
    if region not in accounts:
        wrong = Finding(
            where="region",
            what="has no registry of AWS's PyTorch images",
            got=region,
            allowed=", ".join(sorted(accounts)),
            next_step="set image_uri to an image in a registry of this region",
        )
        raise SpecError(wrong, subject="image")


def _has_gpu(instance_type: str) -> bool:
    """Return whether an instance type has GPUs, according to the catalogue.

    For a type that is not in the catalogue, its family decides.
    """
    known = catalogue().types.get(instance_type)
    return bool(known.num_accelerators) if known else instance_type[3:4] in {"g", "p"}


def _is_trainium(instance_type: str) -> bool:
    return instance_type.startswith("ml.trn")


@cache
def _dns_suffix(region: str) -> str:
    """Return the domain of a region's partition, such as `amazonaws.com.cn` in China. The result is cached.

    Raises:
        LookupError: no partition has such a region.
    """
    from botocore.exceptions import UnknownRegionError  # noqa: PLC0415  # DAG files import this module
    from botocore.loaders import Loader  # noqa: PLC0415  # likewise

    try:
        name = partition_of(region)
    except UnknownRegionError as error:
        raise LookupError(f"{region} is not a known region") from error
    partitions = Loader().load_data("partitions")["partitions"]
    return next(str(each["outputs"]["dnsSuffix"]) for each in partitions if each["id"] == name)


def rule_evaluator_image(region: str) -> str:
    """Return the image that evaluates Debugger's and Profiler's built-in rules in a region.

    Raises:
        SpecError: AWS has no such image in the region.
    """
    images = aws_images()
    try:
        name = images.name("debugger", version="latest", processor="cpu", py_version=None)
        return images.uri(name, region=region, dns_suffix=_dns_suffix(region))
    except LookupError as error:
        raise SpecError(
            Finding(
                where="debugger",
                what='is "service", but SageMaker has no rule evaluator image in this region',
                got=region,
                next_step='set debugger to "own"',
            ),
            subject="image",
        ) from error
