"""Shard one data set: read, split, write, upload, and the index last."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from include.sharding.index import INDEX_NAME, ShardIndex, dataset_uri
from include.sharding.objects import Objects
from include.sharding.settings import BYTES_TOKENIZER, ShardSettings, Source
from include.sharding.source_files import SourceFile, fingerprint, list_files

log = logging.getLogger(__name__)

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
        work_dir: folder for files under way, on a disk with room for the shards; None uses the system's.

    Raises:
        SpecError: the settings contradict each other or the source's columns.
        DataError: the source is missing, empty, unreadable, or has too many bad rows or too few rows.
    """
    from include.sharding.pipeline import Pipeline

    data_format, files = list_files(source, objects)
    source_mark = fingerprint(files)
    described = _described(settings, data_format.value)
    mark = _dataset_fingerprint(source_mark, described)
    uri = dataset_uri(destination, mark)
    existing = frozenset(head.uri for head in objects.list(uri + "/"))
    if f"{uri}/{INDEX_NAME}" in existing:
        with objects.open(f"{uri}/{INDEX_NAME}") as stream:
            index = ShardIndex.from_json(stream.read())
        log.info("data set is already at %s, nothing to upload", uri)
        return ShardingResult(
            index=index, uri=uri, uploaded=0, reused=len(existing), uploaded_bytes=0
        )
    with _folder_under_way(work_dir) as folder:
        pipeline = Pipeline(
            data_format=data_format,
            files=files,
            settings=settings,
            objects=objects,
            folder=folder,
            prefix=uri,
            existing=existing,
        )
        return pipeline.run(
            fingerprint=mark,
            source={
                "uri": source.uri,
                "files": len(files),
                "bytes": source_bytes(files),
                "fingerprint": source_mark,
                "format": data_format.value,
            },
            described=described,
        )


def source_bytes(files: list[SourceFile]) -> int:
    """Return the bytes that will be read, as stored."""
    return sum(min(file.size, file.max_bytes or file.size) for file in files)


def _described(settings: ShardSettings, data_format: str) -> dict[str, object]:
    """Return every setting that changes a byte of the result, as JSON-safe data."""
    tokenizer = settings.tokenizer
    if tokenizer != BYTES_TOKENIZER:
        from include.sharding.tokenizer import load_tokenizer

        tokenizer = load_tokenizer(tokenizer).identity
    return {
        "layout_version": _LAYOUT_VERSION,
        "data_format": data_format,
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


def _dataset_fingerprint(source_mark: str, described: dict[str, object]) -> str:
    text = json.dumps([source_mark, described], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def _folder_under_way(work_dir: Path | None) -> Iterator[Path]:
    if work_dir is not None:
        work_dir.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="sharding-", dir=work_dir))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
