"""AWS's own images, from the SageMaker SDK's table."""

from __future__ import annotations

from include.errors import Finding, SpecError

_MODEL_PARALLEL = "pytorch-smp"
# The SDK v3 leaves this part of the tag out for it; the versions are those of the SDK v2 (`get_training_image_uri`).
_CUDA_OF_TORCH = {"2.5": "cu124", **dict.fromkeys(("2.1", "2.2", "2.3", "2.4"), "cu121")}


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

    Imports the SageMaker SDK (about 4 s): call it inside a task only. With `has_model_parallel` it is the image of
    the model parallel library (SMP v2), which is PyTorch's with more in it.

    Raises:
        SpecError: no such framework, version or region; the message lists what the SDK knows.
    """
    from sagemaker.core import image_uris  # type: ignore[import-untyped]  # ships no types

    try:
        uri = image_uris.retrieve(
            framework=_MODEL_PARALLEL if has_model_parallel else framework,
            region=region,
            version=framework_version,
            py_version=py_version,
            instance_type=instance_type,
            image_scope=image_scope,
            container_version=_cuda(framework_version) if has_model_parallel else None,
        )
    except (ValueError, KeyError, OSError) as error:
        raise SpecError(
            [
                Finding(
                    where="framework_version",
                    what=f"the SageMaker SDK knows no such image: {error}",
                    got=f"{framework} {framework_version} {py_version} in {region}",
                    next_step="set image_uri, or a version the SDK lists",
                )
            ],
            subject="image",
        ) from error
    return str(uri)


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
