"""Errors of the algorithm that the user must correct; the toolkit writes them to /opt/ml/output/failure."""

from __future__ import annotations

from sagemaker_training.errors import ClientError


class UserError(ClientError):  # type: ignore[misc]  # its base ships no types
    """A hyperparameter, a channel or the data is invalid."""
