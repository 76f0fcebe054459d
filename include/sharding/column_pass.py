"""Tables to column shards."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import numpy as np

from include.sharding.index import SchemaColumn
from include.sharding.pass_context import Written
from include.sharding.prefetch import prefetched
from include.sharding.split_rule import SPLITS
from include.sharding.split_writer import ColumnSplitWriter, Finished, NextWeight
from include.sharding.statistics import ColumnMoments
from include.sharding.table_encoder import TableEncoder
from include.sharding.table_schema import (
    ColumnKind,
    ColumnPlan,
    Role,
    WiderTypeNeededError,
    plan_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    import numpy.typing as npt
    import pyarrow as pa

    from include.sharding.pass_context import PassContext
    from include.sharding.quarantine import BadRows
    from include.sharding.reading import Table
    from include.sharding.source_files import SourceFile
    from include.sharding.table_batch import TableBatch

log = logging.getLogger(__name__)


def write_columns(context: PassContext) -> Written:
    """Return the splits and what the index says about columns: the schema.

    A column of whole numbers that turns out to hold a missing value or a fraction far into the source is planned
    wider and everything is read again.

    Raises:
        SpecError: the settings name a column that is not there.
        DataError: the source cannot be read, has too many bad rows or too few rows.
    """
    table = context.reading.table()
    while True:
        try:
            return _read_once(context, table)
        except WiderTypeNeededError as error:
            log.info("column %s needs a float type, reading again", error.column)
            table.widen(error.column)
            context.start_again()


def _read_once(context: PassContext, table: Table) -> Written:
    settings = context.reading.settings
    # Parts must agree on types: any column of one of them may lack a value in another.
    nullable = table.schema.names if context.is_part else table.nullable
    plans = plan_columns(table.schema, table.names, nullable, settings)
    encoder = TableEncoder(plans, max_categories=settings.max_categories)
    columns = [(plan.name, plan.dtype) for plan in plans]

    def open_writer(
        split: str, folder: Path, next_weight: NextWeight, finished: Finished
    ) -> ColumnSplitWriter:
        return ColumnSplitWriter(
            split, folder, columns=columns, next_weight=next_weight, finished=finished
        )

    row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
    moments = {plan.name: ColumnMoments() for plan in plans if plan.kind is not ColumnKind.CATEGORY}
    with (
        context.shard_set(open_writer, unit_bytes=row_bytes) as shards,
        prefetched(table.batches()) as batches,
        prefetched(_split_batches(batches, plans, encoder, context)) as split_batches,
    ):
        for done, by_split in split_batches:
            shards.observe(done, {split: len(each[0]) for split, each in by_split.items()})
            for split, arrays in by_split.items():
                shards.writer(split).append(arrays)
            for plan, values in zip(plans, by_split["train"], strict=True):
                if plan.name in moments:
                    moments[plan.name].add(values)
        context.check_rows(sum(shards.writer(split).rows for split in SPLITS))
        splits = shards.finish()
    schema = tuple(_described(plan, encoder, moments.get(plan.name)) for plan in plans)
    return Written(
        splits=splits,
        described={"kind": "columns", "schema": schema},
        tallies={name: each.sums for name, each in moments.items()},
    )


def _split_batches(
    batches: Iterator[tuple[SourceFile, TableBatch]],
    plans: Sequence[ColumnPlan],
    encoder: TableEncoder,
    context: PassContext,
) -> Iterator[tuple[float, dict[str, list[npt.NDArray[Any]]]]]:
    """Yield the share of the source read so far, and the rows of each split, one array a column."""
    for file, batch in batches:
        rows = _with_target(batch.batch, plans, file, context.reading.bad_rows)
        arrays, hashes = encoder.encode(rows)
        numbers = context.rule.assign(hashes)
        places = [np.flatnonzero(numbers == number) for number in range(len(SPLITS))]
        yield (
            batch.done,
            {
                split: [array.take(at) for array in arrays]
                for split, at in zip(SPLITS, places, strict=True)
            },
        )


def _with_target(
    batch: pa.RecordBatch, plans: Sequence[ColumnPlan], file: SourceFile, bad_rows: BadRows
) -> pa.RecordBatch:
    """Return the rows whose target is not missing; the others are bad rows."""
    target = next((plan.name for plan in plans if plan.role is Role.TARGET), None)
    if target is None or not batch.column(target).null_count:
        return batch
    known = batch.column(target).is_valid()
    for row, is_known in enumerate(known.to_pylist()):
        if not is_known:
            content = str(batch.slice(row, 1).to_pylist()[0])
            bad_rows.add(file.name, row + 1, f"missing target: column {target!r}", content)
    return batch.filter(known)


def _described(
    plan: ColumnPlan, encoder: TableEncoder, moments: ColumnMoments | None
) -> SchemaColumn:
    return SchemaColumn(
        name=plan.name,
        dtype=plan.dtype,
        role=plan.role,
        categories=encoder.categories(plan.name),
        mean=None if moments is None else moments.mean,
        std=None if moments is None else moments.std,
        num_infinite=None if moments is None else moments.num_infinite,
    )
