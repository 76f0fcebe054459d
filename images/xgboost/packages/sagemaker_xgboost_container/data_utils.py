"""Readers of channels for script mode, with the interface of AWS's container."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from sagemaker_xgboost_container.data import content_type as known_type, read_matrix


def get_content_type(content_type_cfg_val: str | None) -> str:
    """Return csv, libsvm or parquet; raise UserError for another type."""
    return known_type(content_type_cfg_val)


def get_dmatrix(
    data_path: str,
    content_type: str,
    csv_weights: int = 0,
    is_pipe: bool = False,  # noqa: ARG001  # the container's interface
) -> Any | None:
    """Return an xgboost.DMatrix of a channel's folder, or None if the folder has no files.

    Raises:
        UserError: The content type is not accepted, or the data is invalid.
    """
    return read_matrix(Path(data_path), known_type(content_type), has_weights=csv_weights == 1)
