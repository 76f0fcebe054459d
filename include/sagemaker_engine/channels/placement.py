"""Placement of objects as files in an instance's folder: as links if nothing can change them, otherwise as copies."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from sagemaker_engine.channels.locations import S3RefusedError
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from sagemaker_engine.channels.listing import ChannelFile
    from sagemaker_engine.s3.object_store import ObjectStore


def place_files(
    files: Iterable[ChannelFile], folder: Path, objects: ObjectStore, *, link: bool
) -> int:
    """Place the files under `folder` and return their total size in bytes.

    `link=True` creates hard links. The caller guarantees that jobs see the folder only as the lower layer of an
    overlay, so that a script that writes to an input changes its own copy.

    Raises InputDataError if an object was deleted meanwhile.
    """
    folder.mkdir(parents=True, exist_ok=True)
    made: set[Path] = set()
    num_bytes = 0
    for file in files:
        target = folder / file.path
        if target.parent not in made:
            target.parent.mkdir(parents=True, exist_ok=True)
            made.add(target.parent)
        num_bytes += place_file(file, target, objects, link=link)
    return num_bytes


def place_file(file: ChannelFile, target: Path, objects: ObjectStore, *, link: bool) -> int:
    """Place one complete file at `target` and return its size in bytes; `link` as in `place_files`.

    Raises:
        S3RefusedError: The object was deleted meanwhile, or S3 rejects the request.
    """
    try:
        if link:
            return objects.link_to(file.bucket, file.key, target).size
        with objects.open(file.bucket, file.key) as source, target.open("wb") as copy:
            shutil.copyfileobj(source, copy, 1 << 20)
            return copy.tell()
    except S3Error as error:
        raise S3RefusedError(f"cannot read s3://{file.bucket}/{file.key}", error) from error
