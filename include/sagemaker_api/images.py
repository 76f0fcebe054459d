"""AWS's own images, from the SageMaker SDK's table."""

from __future__ import annotations

from include.errors import Finding, SpecError


def image_uri(
    *,
    region: str,
    instance_type: str,
    framework: str = "pytorch",
    framework_version: str | None = None,
    py_version: str | None = None,
    image_scope: str = "training",
) -> str:
    """Return the URI of AWS's image for the framework.

    Imports the SageMaker SDK (about 4 s): call it inside a task only.

    Raises:
        SpecError: no such framework, version or region; the message lists what the SDK knows.
    """
    from sagemaker.core import image_uris  # type: ignore[import-untyped]  # ships no types

    try:
        uri = image_uris.retrieve(
            framework=framework,
            region=region,
            version=framework_version,
            py_version=py_version,
            instance_type=instance_type,
            image_scope=image_scope,
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
