"""Renders a ProcessingJobSpec as a CreateProcessingJob request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from include.specs.processing_job import ProcessingJobSpec


def render_processing_job(
    spec: ProcessingJobSpec,
    *,
    name: str,
    region: str,
    code_s3_uri: str | None = None,
    image_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the CreateProcessingJob request, already checked against the service's model.

    With an `entry_point`, `code_s3_uri` (sourcedir.tar.gz) becomes the input `code` at
    /opt/ml/processing/input/code and the container unpacks it and runs `command entry_point arguments`.

    Raises:
        SpecError: whatever the service would refuse, all at once.
    """
    raise NotImplementedError
