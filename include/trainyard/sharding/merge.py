"""Merge of the parts of a data set into one complete data set.

Each part was written by a process of its own (see `parts`).
"""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.errors import DataError
from trainyard.sharding.balance import too_few_rows
from trainyard.sharding.index import SchemaColumn, Shard, ShardIndex, Split
from trainyard.sharding.parts import PartIndex, read_parts
from trainyard.sharding.plan import finished_index, warn_of_older_layout
from trainyard.sharding.quarantine import BadRows
from trainyard.sharding.run import folder_under_way, upload_index
from trainyard.sharding.split_rule import SPLITS, SplitRule
from trainyard.sharding.statistics import MAX_CLASSES, ColumnMoments, baseline
from trainyard.sharding.table_schema import EXACT, merged_dtype
from trainyard.sharding.uploads import Sent, Uploads, delete_drafts, digest_file, final_name

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.plan import DatasetPlan

_PIECE_CODES = 1024**2

Codes = np.ndarray[Any, np.dtype[np.int32]]
"""Table from old category codes to new ones; the last entry is for -1, the missing value."""


def merge_parts(plan: DatasetPlan, objects: Objects, *, work_dir: Path | None = None) -> ShardIndex:
    """Publish the shards of all parts and their common index, and return the index.

    If another merge has already completed the data set, only return its index.

    Raises:
        DataError: a part is missing, parts disagree on the columns, there are too many bad rows, or a split is empty.
    """
    index = finished_index(plan, objects)
    if index is None:
        try:
            index = _merged(plan, objects, work_dir)
        except FileNotFoundError as error:
            # Another merge may have completed the data set, and deleted the drafts of the parts.
            index = finished_index(plan, objects)
            if index is None:
                raise DataError(
                    "the parts cannot be merged, because an object that one of them wrote is missing",
                    job_name="sharding",
                    where=str(error.filename or error),
                    next_step="shard the data set again; a lifecycle rule or a person probably deleted the object",
                ) from error
    delete_drafts(objects, plan.uri)
    return index


def _merged(plan: DatasetPlan, objects: Objects, work_dir: Path | None) -> ShardIndex:
    warn_of_older_layout(plan, objects)
    parts = read_parts(plan, objects)
    filled = [part for part in parts if part.index.splits]
    bad_rows = _all_bad_rows(plan, parts, objects)
    bad_rows.check(plan.settings.num_read(sum(part.index.num_rows for part in parts)))
    _check_splits(plan, filled)
    with (
        folder_under_way(work_dir) as folder,
        Uploads(objects, plan.uri, existing=_stored(plan, objects)) as uploads,
    ):
        if filled[0].index.kind == "columns":
            splits, described = _merged_columns(plan, filled, uploads, folder)
        else:
            splits, described = _merged_tokens(plan, filled, uploads, folder)
        index = upload_index(
            plan, uploads, folder, splits=splits, described=described, bad_rows=bad_rows
        )
        uploads.wait()
    return index


def _stored(plan: DatasetPlan, objects: Objects) -> frozenset[str]:
    """Return the URIs of the shards that an earlier merge published."""
    prefixes = (f"{plan.uri}/{split}/" for split in SPLITS)
    return frozenset(each.uri for prefix in prefixes for each in objects.list(prefix))


def _all_bad_rows(plan: DatasetPlan, parts: list[PartIndex], objects: Objects) -> BadRows:
    """Return the bad rows of all parts together: their count, and the samples that were kept."""
    bad_rows = BadRows(plan.settings.max_bad_row_fraction)
    for part in parts:
        if name := part.index.bad_rows["quarantine"]:
            with objects.open(f"{plan.uri}/{name}") as stream:
                bad_rows.restore(stream.read().splitlines())
    bad_rows.count = sum(part.index.bad_rows["count"] for part in parts)
    return bad_rows


def _check_splits(plan: DatasetPlan, parts: list[PartIndex]) -> None:
    rule = SplitRule.of(plan.settings)
    for split in SPLITS:
        if rule.fraction(split) and not any(split in part.index.splits for part in parts):
            raise too_few_rows(split, 0, 1)


def _merged_tokens(
    plan: DatasetPlan, parts: list[PartIndex], uploads: Uploads, folder: Path
) -> tuple[dict[str, Split], dict[str, Any]]:
    first = parts[0].index
    counts = {
        split: np.array([part.tallies[split] for part in parts], np.int64).sum(axis=0)
        for split in ("train", "validation")
    }
    splits = [_published(part, {}, plan, uploads, folder) for part in parts]
    return _joined_splits(splits), {
        "kind": first.kind,
        "dtype": first.dtype,
        "tokenizer": first.tokenizer,
        "baseline": baseline(counts),
    }


def _merged_columns(
    plan: DatasetPlan, parts: list[PartIndex], uploads: Uploads, folder: Path
) -> tuple[dict[str, Split], dict[str, Any]]:
    schema = _merged_schema(parts)
    categories = _merged_categories(parts)
    recoded = []
    for part in parts:
        splits = _published(part, _code_tables(part, categories), plan, uploads, folder)
        recoded.append(_without_valueless(splits, part, schema))
    described = tuple(_merged_column(column, parts, categories) for column in schema)
    return _joined_splits(recoded), {"kind": "columns", "schema": described}


def _without_valueless(
    splits: Mapping[str, Split], part: PartIndex, schema: list[SchemaColumn]
) -> dict[str, Split]:
    """Return a part's splits without the buffers of numeric columns that have no values in this part.

    The merged `schema` determines if a column is numeric. A part without any value for a column stores the
    column as categories, so its buffers do not match the merged schema.
    """
    numbers = {column.name for column in schema if column.categories is None}
    gone = {each.name for each in part.index.schema or () if each.categories == ()} & numbers
    return {
        name: replace(
            split,
            shards=tuple(
                replace(
                    shard,
                    columns=tuple(place for place in shard.columns if place.name not in gone),
                )
                for shard in split.shards
            ),
        )
        for name, split in splits.items()
    }


def _merged_schema(parts: list[PartIndex]) -> list[SchemaColumn]:
    """Return the columns of all parts; a column without values in a part is compatible with any type.

    Numbers of different types get the type that holds all of them. Each shard keeps its own type (see `BufferPlace`).

    Raises:
        DataError: the columns of the parts differ.
    """
    schemas = [{each.name: each for each in part.index.schema or ()} for part in parts]
    merged = []
    for name in dict.fromkeys(itertools.chain.from_iterable(schemas)):
        columns = [schema[name] for schema in schemas if name in schema]
        known = [column for column in columns if column.categories != ()] or columns
        different = sorted(
            {
                part.types[name]
                for part, schema in zip(parts, schemas, strict=True)
                if name in schema and schema[name].categories != ()
            }
        )
        dtype = merged_dtype(different)
        if len(columns) < len(parts) or (len(different) > 1 and dtype is None):
            absent = [] if len(columns) == len(parts) else ["missing in some parts"]
            raise DataError(
                "a column differs between the parts of the data set",
                job_name="sharding",
                where=f"column {name!r}",
                got=", ".join([*(each.removeprefix(EXACT) for each in different), *absent]),
                next_step="give all files the same schema, for example by converting them to Parquet; or, if the "
                "column has codes such as 00417, add it to category_columns; or shard on one instance",
            )
        merged.append(replace(known[0], dtype=dtype or known[0].dtype))
    return merged


def _merged_categories(parts: list[PartIndex]) -> dict[str, dict[str, int]]:
    """Return the code of each category, by column and category.

    The first part's codes are kept; the categories that other parts add follow.
    """
    merged: dict[str, dict[str, int]] = {}
    for column in itertools.chain.from_iterable(part.index.schema or () for part in parts):
        codes = merged.setdefault(column.name, {})
        for value in column.categories or ():
            codes.setdefault(value, len(codes))
    return merged


def _code_tables(part: PartIndex, merged: dict[str, dict[str, int]]) -> dict[str, Codes]:
    """Return the tables of changed category codes by column: arrays of the new codes, indexed by the old code.

    Columns of the part whose codes do not change are left out. `merged` is the result of `_merged_categories`.
    """
    tables = {}
    for column in part.index.schema or ():
        new = [merged[column.name][value] for value in column.categories or ()]
        if new != list(range(len(new))):
            tables[column.name] = np.array([*new, -1], dtype=np.int32)
    return tables


def _published(
    part: PartIndex,
    codes: Mapping[str, Codes],
    plan: DatasetPlan,
    uploads: Uploads,
    folder: Path,
) -> dict[str, Split]:
    """Store the draft shards of a part under their final names; return its splits with these names.

    `codes` maps a column to the table of new category codes, indexed by the old code. Each shard is
    rewritten with the new codes. If `codes` is empty, the shards are stored unchanged.
    """

    def publish(shard: Shard) -> Shard:
        if codes:
            return _recoded(shard, codes, plan, uploads, folder)
        draft = Sent(name=shard.file, sha256=shard.sha256, size=shard.bytes, uploaded=True)
        uploads.publish(draft)
        return replace(shard, file=final_name(shard.file))

    return {
        name: replace(split, shards=tuple(publish(shard) for shard in split.shards))
        for name, split in part.index.splits.items()
    }


def _recoded(
    shard: Shard,
    codes: Mapping[str, Codes],
    plan: DatasetPlan,
    uploads: Uploads,
    folder: Path,
) -> Shard:
    """Rewrite the category codes of a draft shard, store it under its final name, and return it.

    Raises:
        DataError: the draft is damaged.
    """
    name = final_name(shard.file)
    path = folder / name
    uploads.fetch(shard.file, path)
    found, _ = digest_file(path)
    if found != shard.sha256:
        raise DataError(
            "a shard has changed since it was written",
            job_name="sharding",
            where=f"{plan.uri}/{shard.file}",
            got=f"SHA-256 {found}",
            allowed=f"SHA-256 {shard.sha256}",
            next_step="delete the object, and run again the part of the sharding that wrote it",
        )
    _recode(path, shard, codes)
    sent = uploads.send(path, name, then_delete=True).result()
    return replace(shard, file=name, sha256=sent.sha256)


def _recode(path: Path, shard: Shard, codes: Mapping[str, Codes]) -> None:
    """In the shard file at `path`, replace the part's category codes with the codes of the whole data set.

    `codes` maps a column's name to the table of new codes, indexed by the old code. Columns without a table
    keep their codes.
    """
    for place in shard.columns:
        if place.name in codes and place.bytes:
            column = np.memmap(
                path, dtype=np.int32, mode="r+", offset=place.offset, shape=(place.bytes // 4,)
            )
            for start in range(0, len(column), _PIECE_CODES):
                piece = column[start : start + _PIECE_CODES]
                piece[:] = codes[place.name].take(piece, mode="wrap")
            column.flush()


def _merged_column(
    column: SchemaColumn, parts: list[PartIndex], categories: dict[str, dict[str, int]]
) -> SchemaColumn:
    if column.categories is not None:
        return replace(column, categories=tuple(categories[column.name]))
    moments = ColumnMoments()
    for part in parts:
        if column.name in part.tallies:
            moments.absorb(*part.tallies[column.name])
    found = [each for part in parts for each in part.index.schema or () if each.name == column.name]
    return replace(
        column,
        mean=moments.mean,
        std=moments.std,
        num_infinite=moments.num_infinite,
        validity=next(filter(None, (each.validity for each in found)), None),
        values=_merged_values([each.values for each in found]),
    )


def _merged_values(found: list[tuple[int | float, ...] | None]) -> tuple[int | float, ...] | None:
    """Return the distinct values of a target column in all parts, as in `SchemaColumn.values`.

    Empty if there are too many values; None if they are unknown for a part.

    Args:
        found: the distinct values in each part.
    """
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return None
    values = sorted(set().union(*known))
    return tuple(values) if all(known) and len(values) <= MAX_CLASSES else ()


def _joined_splits(parts: Sequence[Mapping[str, Split]]) -> dict[str, Split]:
    """Return the splits of all parts, joined: the shards of each split are sorted by number.

    Each shard's `first_row` and `first_token` are set to its position in the joined split.
    """
    joined = {}
    for split in SPLITS:
        shards = sorted(
            (shard for part in parts if split in part for shard in part[split].shards),
            key=lambda shard: shard.file,
        )
        if shards:
            joined[split] = Split.of(shards)
    return joined
