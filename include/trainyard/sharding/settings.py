"""User settings of sharding: the source, and the division into shards."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.sharding.csv_options import csv_findings
from trainyard.sharding.local_files import PYTHON_STDLIB, LocalFiles

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainyard.specs.run_conf import RunConf

BYTES_TOKENIZER = "bytes"


class DataFormat(StrEnum):
    """Format of source files; `auto` derives it from their names."""

    AUTO = "auto"
    TEXT = "text"
    JSONL = "jsonl"
    CSV = "csv"
    PARQUET = "parquet"
    ARROW = "arrow"
    WEBDATASET = "webdataset"
    MDS = "mds"
    TFRECORD = "tfrecord"
    RECORDIO = "recordio"
    TOKENS = "tokens"


UNTABLED = frozenset({DataFormat.TEXT, DataFormat.TOKENS})
"""Formats without columns. Their data sets have the kind `tokens`."""

TYPED = frozenset({DataFormat.PARQUET, DataFormat.ARROW})
"""Tables whose files declare the types of their columns. The types of other tables follow from the values read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Source of the data.

    Attributes:
        uri: a file, a directory, a glob, `s3://bucket/prefix`, or `python-stdlib` (the source of the running
            interpreter's standard library).
        data_format: format of the files.
        max_source_bytes: approximate number of bytes to read, for quick runs; 0 reads everything.
        files: local files that may be read; None allows all files that the process can read.
    """

    uri: str
    data_format: DataFormat = DataFormat.AUTO
    max_source_bytes: int = 0
    files: LocalFiles | None = None

    def __post_init__(self) -> None:
        findings = []
        if not self.uri.strip():
            findings.append(
                Finding(
                    where="source",
                    what="is empty",
                    allowed=f"a path, a directory, a glob, s3://bucket/prefix or {PYTHON_STDLIB}",
                )
            )
        if self.data_format not in set(DataFormat):
            findings.append(_unknown_format(self.data_format))
        if self.max_source_bytes < 0:
            findings.append(_out_of_range("max_source_bytes", self.max_source_bytes, "0 or more"))
        if findings:
            raise SpecError(findings, subject="data source")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardSettings:
    """Settings of the shards.

    Attributes:
        num_shards: shards of the train split; 0 selects a number that fits the readers and
            `target_shard_bytes`.
        instance_count: instances of the training. `num_shards` must be a multiple of the number of readers,
            which is `instance_count` x `processes_per_instance` x `num_workers`.
        processes_per_instance: ranks per instance.
        num_workers: loader workers per rank; 0 counts as 1.
        validation_fraction: share of the rows in the validation split, selected by a hash of each row's
            content.
        test_fraction: share of the rows in the test split, selected in the same way.
        sample_fraction: share of the rows of each split that is written, for trial runs; selected by the same
            hash. 1 writes every row.
        max_bad_row_fraction: share of unreadable rows above which sharding fails.
        text_column: column of a table with text to tokenize, or with lists of token ids; None shards a table as
            typed columns.
        target_column: column with the role `target`.
        ignore_columns: columns that are omitted.
        category_columns: columns of a csv or jsonl file that are read as categories although they look like
            numbers.
        tokenizer: `bytes`, or the path or `s3://` address of a `tokenizers` JSON file. For a source of token
            ids it is the tokenizer that created them.
        vocab_size: number of ids, for a source of token ids without a tokenizer file; 0 for any other source.
        eos_token_id: id that ends a document, for a source with `vocab_size`; None if there is no such id.
        target_shard_bytes: approximate shard size for `num_shards=0`.
        text_row_bytes: smallest size in bytes of the rows of a text file. Each row ends at a line end. The last
            row of a file can be smaller.
        max_categories: largest number of distinct strings that a category column may have.
        checksums: whether digests of local source files and shards are calculated. Without them a source counts
            as unchanged if names, sizes and modification times are the same. A repeated run uploads every shard
            again, and the trainer checks sizes only. Parts of a data set always have checksums, because the
            merge needs them.
        csv_options: keyword arguments of `pandas.read_csv`, for files that are not plain csv.
    """

    num_shards: int = 0
    instance_count: int = 1
    processes_per_instance: int = 1
    num_workers: int = 1
    validation_fraction: float = 0.05
    test_fraction: float = 0.05
    sample_fraction: float = 1.0
    max_bad_row_fraction: float = 0.01
    text_column: str | None = None
    target_column: str | None = None
    ignore_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    tokenizer: str = BYTES_TOKENIZER
    vocab_size: int = 0
    eos_token_id: int | None = None
    target_shard_bytes: int = 32 * 1024**2
    text_row_bytes: int = 8 * 1024
    max_categories: int = 10_000
    checksums: bool = True
    csv_options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if findings := list(_setting_findings(self)):
            raise SpecError(findings, subject="shard settings")

    @property
    def num_readers(self) -> int:
        """Number of readers of the shards: instances x processes x loader workers."""
        return self.instance_count * self.processes_per_instance * max(1, self.num_workers)

    def num_read(self, num_sampled: int) -> int:
        """Return the number of readable rows of a source, estimated from the rows of a sample."""
        return round(num_sampled / self.sample_fraction)


def settings_of_run(conf: RunConf) -> ShardSettings:
    """Return the shard settings of a run's data.

    The settings determine the number of processes that read shards during the training. These processes are the
    loader workers of all ranks. A rank without loader workers reads its shards itself and counts as one
    process.

    Raises:
        SpecError: the conf's settings contradict each other.
    """
    return ShardSettings(
        num_shards=conf.num_shards,
        instance_count=conf.instance_count,
        processes_per_instance=conf.ranks_per_instance,
        num_workers=conf.readers_per_rank,
        validation_fraction=conf.validation_fraction,
        test_fraction=conf.test_fraction,
        sample_fraction=conf.sample_fraction,
        max_bad_row_fraction=conf.max_bad_row_fraction,
        checksums=conf.checksums,
        text_column=conf.text_column,
        target_column=conf.target_column,
        ignore_columns=conf.ignore_columns,
        category_columns=conf.category_columns,
        csv_options=conf.csv_options,
        tokenizer=conf.tokenizer,
        vocab_size=conf.vocab_size,
        eos_token_id=conf.eos_token_id,
    )


_LEAST = {
    "num_shards": 0,
    "vocab_size": 0,
    "num_workers": 0,
    "instance_count": 1,
    "processes_per_instance": 1,
    "target_shard_bytes": 1,
    "text_row_bytes": 1,
    "max_categories": 1,
}


def _setting_findings(settings: ShardSettings) -> Iterator[Finding]:
    for name, least in _LEAST.items():
        if getattr(settings, name) < least:
            yield _out_of_range(name, getattr(settings, name), f"{least} or more")
    for name in ("validation_fraction", "test_fraction", "max_bad_row_fraction"):
        if not 0 <= getattr(settings, name) <= 1:
            yield _out_of_range(name, getattr(settings, name), "0 to 1")
    if not 0 < settings.sample_fraction <= 1:
        yield _out_of_range("sample_fraction", settings.sample_fraction, "above 0, up to 1")
    yield from _vocabulary_findings(settings)
    held_out = settings.validation_fraction + settings.test_fraction
    if held_out >= 1:
        yield Finding(
            where="validation_fraction + test_fraction",
            what="leaves no rows for the train split",
            got=f"{held_out:g}",
            allowed="below 1",
        )
    try:
        json.dumps(dict(settings.csv_options), allow_nan=False)
    except (TypeError, ValueError) as error:
        yield Finding(
            where="csv_options",
            what="has a value that JSON cannot represent, but the index stores all settings as JSON",
            got=f"{type(error).__name__}: {error}",
            allowed="text, numbers, booleans, null, lists and objects of these",
        )
    yield from csv_findings(settings.csv_options)
    if settings.target_column and settings.target_column in settings.ignore_columns:
        yield Finding(
            where="target_column",
            what="is also in ignore_columns",
            got=repr(settings.target_column),
            next_step="set another target_column, or remove this column from ignore_columns",
        )


def _vocabulary_findings(settings: ShardSettings) -> Iterator[Finding]:
    end = settings.eos_token_id
    if end is not None and not 0 <= end < settings.vocab_size:
        allowed = (
            f"0 to {settings.vocab_size - 1}"
            if settings.vocab_size
            else "none unless vocab_size is set"
        )
        yield _out_of_range("eos_token_id", end, allowed)
    if settings.vocab_size and settings.tokenizer != BYTES_TOKENIZER:
        yield Finding(
            where="vocab_size",
            what="is set together with a tokenizer, which defines its own vocabulary size",
            got=f"{settings.vocab_size} with {settings.tokenizer}",
            next_step="remove one of the two",
        )


def _out_of_range(where: str, got: object, allowed: str) -> Finding:
    return Finding(where=where, what="is out of range", got=str(got), allowed=allowed)


def _unknown_format(got: str) -> Finding:
    near = near_matches(str(got), [each.value for each in DataFormat])
    return Finding(
        where="data_format",
        what="is an unknown data format",
        got=repr(str(got)),
        allowed=", ".join(DataFormat),
        next_step=did_you_mean(near[:1]),
    )
