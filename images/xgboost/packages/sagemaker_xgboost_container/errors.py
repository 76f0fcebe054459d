"""Errors of the algorithm for its user; the toolkit writes the sentence into /opt/ml/output/failure."""

from __future__ import annotations

from sagemaker_training.errors import ClientError


class UserError(ClientError):  # type: ignore[misc]  # its base ships no types
    """A hyperparameter, a channel or the data is not what the algorithm takes."""
