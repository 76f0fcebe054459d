"""AWS's own images: the catalogue's default, and the SageMaker SDK's table for all others."""

from __future__ import annotations

import re
from typing import Any

from trainyard.catalog.instances import catalogue
from trainyard.catalog.training_images import training_images
from trainyard.errors import Finding, SpecError

_HUGGING_FACE = "huggingface"
_MODEL_PARALLEL = "pytorch-smp"
# The SDK v3 leaves this part of the tag out for it; the versions are those of the SDK v2 (`get_training_image_uri`).
_CUDA_OF_TORCH = {"2.5": "cu124", **dict.fromkeys(("2.1", "2.2", "2.3", "2.4"), "cu121")}
_AMAZON_LINUX = "pytorch-amzn2023"
"""The SDK's table of PyTorch's images from 2.11 on."""


def image_uri(
    *,
    region: str,
    instance_type: str,
    framework: str = "pytorch",
    framework_version: str | None = None,
    py_version: str | None = None,
    image_scope: str = "training",
    has_model_parallel: bool = False,
) -> str:
    """Return the URI of AWS's image for the framework.

    The default of PyTorch is the catalogue's (`trainyard/catalog/training_images.json`). Every other image is looked
    up by the SageMaker SDK, which takes about 4 s to import: call it inside a task only. Hugging Face's version is that
    of transformers; its image has the newest torch that AWS offers with it. With `has_model_parallel` it is the image
    of the model parallel library (SMP v2), which is PyTorch's with more in it.

    Raises:
        SpecError: no such framework, version or region; the message lists the known ones.
    """
    pinned = training_images().pytorch
    is_default = framework == "pytorch" and pinned.has_version(framework_version)
    if is_default and not has_model_parallel and not _is_trainium(instance_type):
        return _pinned_uri(region, instance_type, py_version)
    from sagemaker.core import image_uris  # type: ignore[import-untyped]  # ships no types

    version = framework_version or training_images().version(framework)
    try:
        base = _base_of_hugging_face(image_uris, version) if framework == _HUGGING_FACE else None
        uri = image_uris.retrieve(
            framework=_MODEL_PARALLEL
            if has_model_parallel
            else _table(image_uris, framework, version),
            region=region,
            version=version,
            py_version=py_version,
            instance_type=instance_type,
            image_scope=image_scope,
            base_framework_version=base,
            container_version=_cuda(framework_version) if has_model_parallel else None,
        )
    except (ValueError, KeyError, OSError) as error:
        raise SpecError(
            [
                Finding(
                    where="framework_version",
                    what=f"the SageMaker SDK knows no such image: {error}",
                    got=f"{framework} {framework_version} {py_version} in {region} on {instance_type}",
                    next_step="set image_uri, or a version the SDK lists",
                )
            ],
            subject="image",
        ) from error
    return str(uri)


def _pinned_uri(region: str, instance_type: str, py_version: str | None) -> str:
    """Return the default image's URI.

    Raises:
        SpecError: it has another Python, or AWS has no registry of it in the region.
    """
    pinned = training_images().pytorch
    if py_version not in (None, pinned.py_version):
        wrong = Finding(
            where="py_version",
            what=f"is not the Python of AWS's PyTorch {pinned.version} image",
            got=py_version,
            allowed=pinned.py_version,
            next_step="leave it out, or set framework_version too",
        )
        raise SpecError([wrong], subject="image")
    if region not in pinned.accounts:
        wrong = Finding(
            where="region",
            what="has no registry of AWS's PyTorch images",
            got=region,
            allowed=", ".join(sorted(pinned.accounts)),
            next_step="set image_uri",
        )
        raise SpecError([wrong], subject="image")
    processor = "gpu" if _has_gpu(instance_type) else "cpu"
    return pinned.uri(region=region, processor=processor, dns_suffix=_dns_suffix(region))


def _has_gpu(instance_type: str) -> bool:
    """Return whether a type has GPUs, by the catalogue, or by its family if the catalogue lacks it."""
    known = catalogue().types.get(instance_type)
    return bool(known.num_accelerators) if known else instance_type[3:4] in {"g", "p"}


def _is_trainium(instance_type: str) -> bool:
    return instance_type.startswith("ml.trn")


def _dns_suffix(region: str) -> str:
    """Return the domain of a region's partition, `amazonaws.com.cn` in China."""
    from botocore.session import get_session  # noqa: PLC0415  # DAG files import this module

    session = get_session()
    name = session.get_partition_for_region(region)
    partitions = session.get_data("partitions")["partitions"]
    return next(str(each["outputs"]["dnsSuffix"]) for each in partitions if each["id"] == name)


def _table(image_uris: Any, framework: str, version: str | None) -> str:
    """Return the SDK's name of the table that has a framework's version."""
    if framework != "pytorch" or version is None:
        return framework
    minor = ".".join(version.split(".")[:2])
    newer = image_uris.config_for_framework(_AMAZON_LINUX)["training"]["versions"]
    return _AMAZON_LINUX if minor in newer else framework


def _base_of_hugging_face(image_uris: Any, version: str | None) -> str | None:
    """Return the newest torch that AWS offers with a version of transformers, as the SDK writes it.

    Returns None for an unknown version, which the SDK refuses with a list of the known ones.
    """
    table = image_uris.config_for_framework(_HUGGING_FACE)["training"]
    full = table["version_aliases"].get(version, version)
    bases = [each for each in table["versions"].get(full, {}) if each.startswith("pytorch")]
    return max(bases, key=_version_key, default=None)


def _version_key(base: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", base))


def rule_evaluator_image(region: str) -> str:
    """Return the image that evaluates Debugger's and Profiler's built-in rules in a region, from the SDK's table.

    Imports the SageMaker SDK (about 4 s): call it inside a task only.

    Raises:
        SpecError: AWS evaluates no rules there.
    """
    from sagemaker.core import image_uris

    try:
        return str(image_uris.retrieve(framework="debugger", region=region))
    except (ValueError, KeyError) as error:
        raise SpecError(
            [
                Finding(
                    where="debugger",
                    what="has no rule evaluator image of the service's",
                    got=region,
                    next_step='set debugger to "own"',
                )
            ],
            subject="image",
        ) from error


def _cuda(torch_version: str | None) -> str:
    """Return the CUDA part of the model parallel library's tag.

    Raises:
        KeyError: nobody wrote it down for this version.
    """
    minor = ".".join((torch_version or "").split(".")[:2])
    if minor not in _CUDA_OF_TORCH:
        raise KeyError(f"CUDA version of {_MODEL_PARALLEL} {torch_version}")
    return _CUDA_OF_TORCH[minor]
