"""Paths inside a job's container that a request names."""

from __future__ import annotations

from posixpath import normpath


def is_folder_path(path: str) -> bool:
    """Return whether a path can be a folder of its own in a container: absolute, not the root, without NUL."""
    return path.startswith("/") and normpath(path).strip("/") != "" and "\0" not in path
