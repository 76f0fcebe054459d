"""What a job leaves in S3: model.tar.gz and output.tar.gz, merged from all instances."""

from __future__ import annotations

import os
import tarfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from include.local_engine.channels.locations import S3Location
    from include.local_engine.channels.patience import Patience
    from include.local_engine.s3.object_store import ObjectStore

GZIP_LEVEL = 1
"""Weights hardly compress; the service does not say its level, and 1 is several times faster."""


def merged_files(folders: Sequence[Path]) -> dict[str, Path]:
    """Return the files of several folders by relative path; of two the first folder's wins."""
    found: dict[str, Path] = {}
    for folder in folders:
        for parent, folders_inside, names in os.walk(folder):
            links = [name for name in folders_inside if Path(parent, name).is_symlink()]
            for name in (*names, *links):
                path = Path(parent, name)
                found.setdefault(str(path.relative_to(folder)), path)
    return dict(sorted(found.items()))


def upload_archive(
    folders: Sequence[Path],
    target: S3Location,
    objects: ObjectStore,
    *,
    scratch: Path,
    patience: Patience,
) -> None:
    """Store the merged folders as one tar.gz. Owners are left out, times and modes kept.

    Fails with S3Error: the bucket does not exist, or S3 does not take it before patience is over.
    """
    scratch.mkdir(parents=True, exist_ok=True)
    archive = scratch / target.key.rpartition("/")[2]
    with tarfile.open(archive, "w:gz", compresslevel=GZIP_LEVEL) as tar:
        for name, path in merged_files(folders).items():
            tar.add(path, arcname=name, recursive=False, filter=_anonymous)
    patience.ask(
        lambda: objects.put(target.bucket, target.key, archive, link=True), what=target.uri
    )
    archive.unlink()


def upload_tree(
    folders: Sequence[Path], target: S3Location, objects: ObjectStore, *, patience: Patience
) -> int:
    """Store every file of the merged folders under the target's prefix; return their number.

    Fails with S3Error: the bucket does not exist, or S3 does not take it before patience is over.
    """
    files = merged_files(folders)
    for name, path in files.items():
        if path.is_file():
            place = target.join(name)
            patience.ask(partial(objects.put, place.bucket, place.key, path), what=place.uri)
    return len(files)


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    if not (member.isreg() or member.issym() or member.islnk()):
        return None  # A socket or a FIFO is no part of a model.
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
