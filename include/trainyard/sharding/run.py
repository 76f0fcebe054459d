"""Sharding of one data set by one process: read, split, write and upload, with the index last."""

from __future__ import annotations

import fcntl
import logging
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.sharding.index import INDEX_NAME, ShardIndex
from trainyard.sharding.plan import DatasetPlan, finished_index, plan_dataset, warn_of_older_layout
from trainyard.sharding.quarantine import BadRows
from trainyard.sharding.reading import Reading
from trainyard.sharding.source_files import check_unchanged
from trainyard.sharding.uploads import Sent, Uploads, delete_drafts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.sharding.index import Split
    from trainyard.sharding.objects import Objects
    from trainyard.sharding.settings import ShardSettings, Source
    from trainyard.sharding.source_files import SourceFile

log = logging.getLogger(__name__)

_PREFIX, _LOCK = "sharding-", "in-use"
QUARANTINE_NAME = "quarantine/bad-rows.jsonl"


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingResult:
    """Complete data set, with the number of uploaded objects.

    Attributes:
        uri: prefix of the data set, with `index/index.json` and the folders of the splits.
        uploaded: number of objects uploaded by this run.
        reused: number of objects that existed before.
        uploaded_bytes: bytes uploaded by this run.
    """

    index: ShardIndex
    uri: str
    uploaded: int
    reused: int
    uploaded_bytes: int


def shard_dataset(
    source: Source,
    settings: ShardSettings,
    objects: Objects,
    *,
    destination: str,
    work_dir: Path | None = None,
) -> ShardingResult:
    """Shard a source into a data set below `destination`, or return the data set if it is already complete.

    Other runs may shard the same source with the same settings at the same time: all return the same data set.

    Raises a `SpecError` if settings contradict each other or the source's columns. Raises a `DataError` if the source
    is missing, empty or unreadable, or has too many bad rows or too few rows.

    Args:
        source: source of the data.
        settings: settings of the shards.
        objects: store of the shards, and of a source at `s3://`.
        destination: `s3://bucket/prefix`; the data set is stored at `datasets/<fingerprint>/` below it.
        work_dir: folder for temporary files, with room for the shards that are not uploaded yet; None uses the
            system's temporary folder.
    """  # noqa: DOC501 - a file that another process deleted
    plan, files = plan_dataset(source, settings, objects, destination=destination)
    result = _reused(plan, objects)
    if result is None:
        warn_of_older_layout(plan, objects)
        with folder_under_way(work_dir) as folder:
            try:
                result = _shard(plan, files, objects, folder)
            except FileNotFoundError:
                # Another run may have completed the data set, and deleted the drafts of both runs.
                result = _reused(plan, objects)
                if result is None:
                    raise
    delete_drafts(objects, plan.uri)
    return result


def _reused(plan: DatasetPlan, objects: Objects) -> ShardingResult | None:
    """Return the data set if an earlier run has completed it; None otherwise."""
    index = finished_index(plan, objects)
    if index is None:
        return None
    log.info("data set is already at %s, nothing to upload", plan.uri)
    reused = sum(len(split.shards) for split in index.splits.values()) + 1
    return ShardingResult(index=index, uri=plan.uri, uploaded=0, reused=reused, uploaded_bytes=0)


def _shard(
    plan: DatasetPlan, files: list[SourceFile], objects: Objects, folder: Path
) -> ShardingResult:
    """Shard the files, upload the data set and return it; the index is uploaded after all objects that it names."""
    from trainyard.sharding.passes import write_splits

    reading = Reading(
        data_format=plan.data_format,
        files=files,
        objects=objects,
        settings=plan.settings,
        folder=folder,
        bad_rows=BadRows(plan.settings.max_bad_row_fraction),
    )
    existing = frozenset(each.uri for each in objects.list(plan.uri + "/"))
    with Uploads(
        objects, plan.uri, existing=existing, checksums=plan.settings.checksums
    ) as uploads:
        written = write_splits(reading, uploads, folder / "shards")
        check_unchanged(files)
        index = upload_index(
            plan,
            uploads,
            folder,
            splits=written.splits,
            described=written.described,
            bad_rows=reading.bad_rows,
        )
        return _result(index, plan.uri, uploads.wait())


def upload_index(
    plan: DatasetPlan,
    uploads: Uploads,
    folder: Path,
    *,
    splits: Mapping[str, Split],
    described: Mapping[str, Any],
    bad_rows: BadRows,
) -> ShardIndex:
    """Wait until all shards are stored, then queue the upload of the index; return the index.

    The samples of the bad rows are uploaded first.

    Args:
        plan: plan of the data set.
        uploads: uploader of the shards.
        folder: folder for temporary files.
        splits: the splits with their shards.
        described: fields of the index that describe the content.
        bad_rows: bad rows of the source.

    Raises:
        DataError: there are too many bad rows.
    """
    if has_samples := bad_rows.write(folder / "bad-rows.jsonl"):
        uploads.send(folder / "bad-rows.jsonl", QUARANTINE_NAME)
    uploads.wait()
    num_read = plan.settings.num_read(sum(split.num_rows for split in splits.values()))
    index = ShardIndex(
        fingerprint=plan.fingerprint,
        source=plan.source,
        settings=plan.described,
        algorithms=plan.algorithms,
        splits=splits,
        bad_rows={
            "count": bad_rows.count,
            "fraction": bad_rows.check(num_read),
            "quarantine": QUARANTINE_NAME if has_samples else None,
        },
        **described,
    )
    (folder / "index.json").write_text(index.to_json())
    uploads.send(folder / "index.json", INDEX_NAME)
    return index


def _result(index: ShardIndex, uri: str, sent: list[Sent]) -> ShardingResult:
    result = ShardingResult(
        index=index,
        uri=uri,
        uploaded=sum(each.uploaded for each in sent),
        reused=sum(not each.uploaded for each in sent),
        uploaded_bytes=sum(each.size for each in sent if each.uploaded),
    )
    log.info(
        "sharded %s rows to %s: %s objects uploaded, %s already there",
        index.num_rows,
        uri,
        result.uploaded,
        result.reused,
    )
    return result


@contextmanager
def folder_under_way(work_dir: Path | None) -> Iterator[Path]:
    """Yield a new temporary folder and delete it on exit. First delete the folders that killed processes left.

    The owning process locks a file in its folder. The lock is released when the process ends, even if it is killed.
    """
    parent = Path(tempfile.gettempdir()) if work_dir is None else work_dir
    parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(parent)
    folder = Path(tempfile.mkdtemp(prefix=_PREFIX, dir=parent))
    # Locked before it gets the name that other processes search for, so that they do not delete a new folder.
    with tempfile.NamedTemporaryFile(dir=folder, delete=False) as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        Path(lock.name).rename(folder / _LOCK)
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def _remove_abandoned(parent: Path) -> None:
    for path in parent.glob(f"{_PREFIX}*/{_LOCK}"):
        try:
            with path.open("rb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                log.info("removing %s, which a killed process left", path.parent)
                shutil.rmtree(path.parent, ignore_errors=True)
        except OSError:  # in use, gone meanwhile, or another user's
            continue
