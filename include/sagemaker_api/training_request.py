"""Renders a TrainingJobSpec as a CreateTrainingJob request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from include.specs.training_job import TrainingJobSpec


def render_training_job(
    spec: TrainingJobSpec,
    *,
    name: str,
    region: str,
    code_s3_uri: str | None = None,
    image_uri: str | None = None,
    tags: Mapping[str, str] | None = None,
    account: str | None = None,
) -> dict[str, Any]:
    """Return the CreateTrainingJob request, already checked against the service's model.

    Args:
        code_s3_uri: sourcedir.tar.gz with the entry point; needed when the spec has an entry_point and its
            source_dir is not on S3 already.
        image_uri: the image when the spec names none (see `images.image_uri`).
        tags: added to the spec's.
        account: makes a full ARN of a bare role name.

    Raises:
        SpecError: whatever the service would refuse, all at once.
    """
    raise NotImplementedError
