"""AWS's own training images, from the SageMaker SDK's table."""

from __future__ import annotations


def image_uri(
    *,
    region: str,
    instance_type: str,
    framework: str = "pytorch",
    framework_version: str | None = None,
    py_version: str | None = None,
    image_scope: str = "training",
) -> str:
    """Return the URI of AWS's image. Imports the SDK (about 4 s): call it inside a task only.

    Raises:
        SpecError: no such framework, version or region; the message lists the known versions.
    """
    raise NotImplementedError
