"""Validation of container paths in requests."""

from __future__ import annotations

from posixpath import normpath


def is_folder_path(path: str) -> bool:
    """Return whether a path can be a folder in a container: absolute, not the root, and without NUL."""
    return path.startswith("/") and normpath(path).strip("/") != "" and "\0" not in path
