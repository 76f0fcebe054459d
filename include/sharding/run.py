"""Shard one data set: read, split, write, upload, and the index last."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from include.sharding.index import INDEX_NAME, ShardIndex, dataset_uri
from include.sharding.quarantine import BadRows
from include.sharding.reading import Reading
from include.sharding.settings import BYTES_TOKENIZER, DataFormat, ShardSettings, Source
from include.sharding.shard_count import fit_num_shards
from include.sharding.source_files import SourceFile, bytes_to_read, fingerprint, list_files
from include.sharding.split_rule import SplitRule
from include.sharding.uploads import Sent, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from include.sharding.objects import Objects

log = logging.getLogger(__name__)

QUARANTINE_NAME = "quarantine/bad-rows.jsonl"
_LAYOUT_VERSION = 1
"""Raised whenever the same source and settings would give other shards than before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardingResult:
    """A complete data set and what it took.

    Attributes:
        uri: the data set's prefix; `index/index.json` and the split folders lie below it.
        uploaded, reused: objects sent now, and objects found in place from before.
        uploaded_bytes: bytes sent now.
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
    """Return the data set of a source below `destination`, sharding it unless it is there already.

    Args:
        source: what to read.
        settings: how to cut it.
        objects: the store for the shards, and for the source where that is `s3://`.
        destination: `s3://bucket/prefix`; the data set goes to `datasets/<fingerprint>/` below.
        work_dir: folder for files under way, with room for the shards not yet sent; None uses the system's.

    Raises:
        SpecError: the settings contradict each other or the source's columns.
        DataError: the source is missing, empty, unreadable, or has too many bad rows or too few rows.
    """
    fit_num_shards(settings, train_bytes=0)  # refuses an unfitting number before anything is read
    data_format, files = list_files(source, objects)
    head = _IndexHead.of(source, data_format, files, settings)
    uri = dataset_uri(destination, head.fingerprint)
    existing = frozenset(each.uri for each in objects.list(uri + "/"))
    if f"{uri}/{INDEX_NAME}" in existing:
        with objects.open(f"{uri}/{INDEX_NAME}") as stream:
            index = ShardIndex.from_json(stream.read())
        log.info("data set is already at %s, nothing to upload", uri)
        return ShardingResult(
            index=index, uri=uri, uploaded=0, reused=len(existing), uploaded_bytes=0
        )
    with _folder_under_way(work_dir) as folder:
        reading = Reading(
            data_format=data_format,
            files=files,
            objects=objects,
            settings=settings,
            folder=folder,
            bad_rows=BadRows(settings.max_bad_row_fraction),
        )
        return _shard(reading, head, uri, existing, folder)


def _shard(
    reading: Reading, head: _IndexHead, uri: str, existing: frozenset[str], folder: Path
) -> ShardingResult:
    """Shard and upload; the index goes last, when everything it names is in place."""
    with Uploads(reading.objects, uri, existing=existing) as uploads:
        splits, described = _write_splits(reading, uploads, uri, folder / "shards")
        quarantine = folder / QUARANTINE_NAME
        if has_samples := reading.bad_rows.write(quarantine):
            uploads.send(quarantine, QUARANTINE_NAME)
        uploads.wait()
        num_rows = sum(split.num_rows for split in splits.values())
        index = ShardIndex(
            fingerprint=head.fingerprint,
            source=head.source,
            settings=head.settings,
            splits=splits,
            bad_rows={
                "count": reading.bad_rows.count,
                "fraction": reading.bad_rows.check(num_rows),
                "quarantine": QUARANTINE_NAME if has_samples else None,
            },
            **described,
        )
        path = folder / "index.json"
        path.write_text(index.to_json())
        uploads.send(path, INDEX_NAME)
        sent = uploads.wait()
    return _result(index, uri, sent)


def _write_splits(
    reading: Reading, uploads: Uploads, uri: str, folder: Path
) -> tuple[dict[str, Any], dict[str, Any]]:
    # Imported here: these reach numpy and pyarrow, and a DAG file may import this module.
    from include.sharding.column_pass import write_columns
    from include.sharding.pass_context import PassContext
    from include.sharding.token_pass import write_tokens

    rule = SplitRule(
        validation_fraction=reading.settings.validation_fraction,
        test_fraction=reading.settings.test_fraction,
    )
    context = PassContext(reading=reading, rule=rule, uploads=uploads, prefix=uri, folder=folder)
    return write_tokens(context) if reading.is_text else write_columns(context)


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


@dataclass(frozen=True, slots=True, kw_only=True)
class _IndexHead:
    """What is known of the data set before a row is read."""

    fingerprint: str
    source: dict[str, Any]
    settings: dict[str, Any]

    @classmethod
    def of(
        cls,
        source: Source,
        data_format: DataFormat,
        files: list[SourceFile],
        settings: ShardSettings,
    ) -> _IndexHead:
        source_mark = fingerprint(files)
        described = _described(settings, data_format)
        text = json.dumps([source_mark, described], sort_keys=True, default=str)
        return cls(
            fingerprint=hashlib.sha256(text.encode()).hexdigest(),
            settings=described,
            source={
                "uri": source.uri,
                "files": len(files),
                "bytes": sum(bytes_to_read(file) for file in files),
                "fingerprint": source_mark,
                "format": data_format.value,
            },
        )


def _described(settings: ShardSettings, data_format: DataFormat) -> dict[str, Any]:
    """Return every setting that changes a byte of the result, as JSON-safe data."""
    tokenizer = settings.tokenizer
    if tokenizer != BYTES_TOKENIZER:
        from include.sharding.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(tokenizer).identity
    return {
        "layout_version": _LAYOUT_VERSION,
        "data_format": data_format.value,
        "num_shards": settings.num_shards,
        "num_readers": settings.num_readers,
        "instance_count": settings.instance_count,
        "validation_fraction": settings.validation_fraction,
        "test_fraction": settings.test_fraction,
        "max_bad_row_fraction": settings.max_bad_row_fraction,
        "text_column": settings.text_column,
        "target_column": settings.target_column,
        "ignore_columns": list(settings.ignore_columns),
        "category_columns": list(settings.category_columns),
        "tokenizer": tokenizer,
        "target_shard_bytes": settings.target_shard_bytes,
        "text_row_bytes": settings.text_row_bytes,
        "max_categories": settings.max_categories,
        "csv_options": dict(settings.csv_options),
    }


@contextmanager
def _folder_under_way(work_dir: Path | None) -> Iterator[Path]:
    if work_dir is not None:
        work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sharding-", dir=work_dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
