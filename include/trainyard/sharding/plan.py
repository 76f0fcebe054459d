"""Plan of a data set before its rows are read: address, source, settings and fingerprint."""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError
from trainyard.sharding.index import INDEX_NAME, ShardIndex, dataset_uri, part_name
from trainyard.sharding.listing import list_files
from trainyard.sharding.settings import (
    BYTES_TOKENIZER,
    TYPED,
    UNTABLED,
    DataFormat,
    ShardSettings,
    Source,
)
from trainyard.sharding.shard_count import fit_num_shards
from trainyard.sharding.source_digest import algorithm, fingerprint
from trainyard.sharding.source_files import SourceFile, bytes_to_read

if TYPE_CHECKING:
    from trainyard.sharding.objects import Objects

log = logging.getLogger(__name__)

_LAYOUT_VERSION = 2
"""Version of the layout. It is raised if the same source and settings give other shards than before.

Version 2 includes the names of columns in the hash of a row, so most rows changed their split.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class DatasetPlan:
    """Plan of a data set for sharding by one process or several independent ones.

    Attributes:
        uri: prefix of the data set.
        fingerprint: SHA-256 over the source's content and the settings.
        source: member `source` of the index.
        described: member `settings` of the index.
        num_parts: number of parts, each sharded by one process; 1 also for a data set without parts.
        older_uri: prefix that a data set of the same source and settings has in layout version 1.
        algorithms: member `algorithms` of the index, about digests and hashes.
    """

    uri: str
    fingerprint: str
    data_format: DataFormat
    settings: ShardSettings
    source: dict[str, Any]
    described: dict[str, Any]
    num_parts: int = 1
    older_uri: str | None = None
    algorithms: dict[str, str | None] | None = None

    @property
    def is_table(self) -> bool:
        """True if the data set will have the kind `columns`."""
        return _is_table(self.data_format, self.settings)

    def to_json(self) -> str:
        """Return the plan as a JSON document for the processes that write the parts."""
        return json.dumps(asdict(self), indent=1) + "\n"

    def at(self, uri: str) -> DatasetPlan:
        """Return the same plan for another prefix, such as a container's output folder."""
        return replace(self, uri=uri)

    @classmethod
    def from_json(cls, text: str | bytes, *, uri: str | None = None) -> DatasetPlan:
        """Return the plan that a document of `to_json` describes.

        Args:
            text: the document.
            uri: the address of the document, for the error.

        Raises:
            ContractError: the document is not a plan.
        """
        try:
            data = json.loads(text)
            settings = data.pop("settings")
            for name in ("ignore_columns", "category_columns"):
                settings[name] = tuple(settings[name])
            data_format = DataFormat(data.pop("data_format"))
            return cls(settings=ShardSettings(**settings), data_format=data_format, **data)
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(
                "the document is not the plan of a data set",
                where=uri,
                got=f"{type(error).__name__}: {error}",
                next_step="plan the data set again with this release",
            ) from error


def plan_dataset(
    source: Source,
    settings: ShardSettings,
    objects: Objects,
    *,
    destination: str,
    num_parts: int | None = None,
) -> tuple[DatasetPlan, list[SourceFile]]:
    """Return the plan and the files of a source.

    `num_parts` is the number of parts; None if one process writes the whole data set without parts. If
    `settings.checksums` is true, the fingerprint needs digests of local files. Files without a cached digest
    are then read.

    Raises a `SpecError` if `num_shards` is not a multiple of the number of readers, if the source has a file
    that a run is not allowed to read, or if the tokenizer cannot be read. Raises a `DataError` if the source is
    missing, empty, unreadable or of unknown format.
    """
    fit_num_shards(settings, train_bytes=0)
    data_format, files = list_files(source, objects)
    source_mark = fingerprint(files, checksums=settings.checksums)
    described = {**_described(settings, data_format, objects), "num_parts": num_parts or 1}
    of_old = {key: value for key, value in described.items() if key != "checksums"}
    older = _mark(source_mark, {**of_old, "layout_version": 1})
    if _is_table(data_format, settings) and data_format not in TYPED:
        # Whole numbers that a job of release 0.1.0 stored as floats are not reused.
        uri = dataset_uri(destination, _mark(source_mark, described))
        if num_parts is not None or objects.head(f"{uri}/{part_name(0)}") is not None:
            described["whole_numbers"] = "kept"
    mark = _mark(source_mark, described)
    plan = DatasetPlan(
        uri=dataset_uri(destination, mark),
        older_uri=dataset_uri(destination, older),
        fingerprint=mark,
        data_format=data_format,
        settings=settings,
        described=described,
        num_parts=num_parts or 1,
        source={
            "uri": source.uri,
            "files": len(files),
            "bytes": sum(bytes_to_read(file) for file in files),
            "fingerprint": source_mark,
            "format": data_format.value,
        },
        algorithms={
            "source": _source_algorithm(files, settings),
            "shards": "sha256" if settings.checksums or (num_parts or 1) > 1 else None,
            "rows": "column-sum-splitmix64" if _is_table(data_format, settings) else "blake2b-64",
        },
    )
    return plan, files


def warn_of_older_layout(plan: DatasetPlan, objects: Objects) -> None:
    """Log a warning if the data set exists in layout version 1, which this release reads but does not write."""
    if plan.older_uri and objects.head(f"{plan.older_uri}/{INDEX_NAME}") is not None:
        log.warning(
            "An earlier release (layout 1) sharded this source to %s, with other splits. It is sharded again to %s. "
            "Resume trainings of the older data set with that data set only. Their metrics are not comparable with "
            "new ones: rows that were held out may now be trained on.",
            plan.older_uri,
            plan.uri,
        )


def _source_algorithm(files: list[SourceFile], settings: ShardSettings) -> str:
    """Return the name of the value that shows whether a source file has changed.

    It is `etag` for objects of a store. For local files, it is the name of the digest's algorithm or, without
    `settings.checksums`, `time of change`.
    """
    if any(file.etag is not None for file in files):
        return "etag"
    if not settings.checksums:
        return "time of change"
    return algorithm()


def _is_table(data_format: DataFormat, settings: ShardSettings) -> bool:
    return data_format not in UNTABLED and settings.text_column is None


def _mark(source_mark: str, described: dict[str, Any]) -> str:
    text = json.dumps([source_mark, described], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


def finished_index(plan: DatasetPlan, objects: Objects) -> ShardIndex | None:
    """Return the index of the data set if it is complete, or None."""
    uri = f"{plan.uri}/{INDEX_NAME}"
    if objects.head(uri) is None:
        return None
    with objects.open(uri) as stream:
        return ShardIndex.from_json(stream.read(), uri=uri)


def _described(
    settings: ShardSettings, data_format: DataFormat, objects: Objects
) -> dict[str, Any]:
    """Return the settings, the layout version and the source's format as JSON-safe data.

    They are part of the data set's fingerprint, because they determine the content of the data set.
    """
    described = asdict(settings)
    if settings.tokenizer != BYTES_TOKENIZER:
        from trainyard.sharding.tokenizer import load_tokenizer

        described["tokenizer"] = load_tokenizer(settings.tokenizer, objects).identity
    for name in ("ignore_columns", "category_columns"):
        described[name] = list(described[name])
    # Data sets of earlier releases keep their address.
    if not settings.vocab_size:
        del described["vocab_size"], described["eos_token_id"]
    if settings.sample_fraction == 1:
        del described["sample_fraction"]
    return {"layout_version": _LAYOUT_VERSION, "data_format": data_format.value, **described}
