"""Conversion of tables to column shards."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from trainyard.sharding.index import SchemaColumn
from trainyard.sharding.pass_context import Written
from trainyard.sharding.prefetch import prefetched
from trainyard.sharding.settings import TYPED
from trainyard.sharding.split_rule import SPLITS
from trainyard.sharding.split_writer import ColumnSplitWriter
from trainyard.sharding.statistics import ColumnMoments, DistinctValues
from trainyard.sharding.table_encoder import TableEncoder, buffers_of
from trainyard.sharding.table_schema import (
    EXACT,
    WHOLE_DTYPES,
    ColumnKind,
    ColumnPlan,
    ReplanNeededError,
    Role,
    content_type,
    plan_columns,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt
    import pyarrow as pa

    from trainyard.sharding.pass_context import PassContext
    from trainyard.sharding.quarantine import BadRows
    from trainyard.sharding.source_files import SourceFile
    from trainyard.sharding.table_batch import Table, TableBatch

log = logging.getLogger(__name__)


def write_columns(context: PassContext) -> Written:
    """Write the column shards, and return the splits and the schema for the index.

    If a column's type turns out to be wrong while the source is read, the column is planned again, and the whole source
    is read again.

    Raises:
        SpecError: the settings name an unknown column.
        DataError: the source cannot be read, has too many bad rows or too few rows.
    """
    table = context.reading.table()
    while True:
        try:
            return _read_once(context, table)
        except ReplanNeededError as error:
            found = "has missing values" if error.kind is None else f"holds {error.kind}"
            log.info("column %s %s, reading the files again", error.column, found)
            table.replan(error.column, error.kind)
            context.start_again()


def _read_once(context: PassContext, table: Table) -> Written:
    settings = context.reading.settings
    plans = plan_columns(table.schema, table.names, table.nullable, settings)
    encoder = TableEncoder(plans, max_categories=settings.max_categories)
    columns = buffers_of(plans)
    row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
    names, validity = [name for name, _ in columns], {plan.name: plan.validity for plan in plans}
    numeric = [plan for plan in plans if plan.kind is not ColumnKind.CATEGORY]
    moments = {plan.name: ColumnMoments() for plan in numeric}
    distinct = {plan.name: DistinctValues() for plan in numeric if plan.role is Role.TARGET}
    with (
        context.shard_set(
            partial(ColumnSplitWriter, columns=columns), unit_bytes=row_bytes
        ) as shards,
        prefetched(table.batches()) as batches,
        prefetched(_split_batches(batches, plans, encoder, context)) as split_batches,
    ):
        for done, by_split in split_batches:
            shards.observe(done, {split: len(each[0]) for split, each in by_split.items()})
            for split, arrays in by_split.items():
                shards.writer(split).append(arrays)
                for name, target in distinct.items():
                    target.add(arrays[names.index(name)])
            there = dict(zip(names, by_split["train"], strict=True))
            for name, each in moments.items():
                each.add(_known(there, name, validity[name]))
        context.check_rows(sum(shards.writer(split).rows for split in SPLITS))
        splits = shards.finish()
    schema = tuple(
        _described(plan, encoder, moments.get(plan.name), distinct.get(plan.name)) for plan in plans
    )
    return Written(
        splits=splits,
        described={"kind": "columns", "schema": schema},
        tallies={name: each.sums for name, each in moments.items()},
        types=_content_types(context, plans, table.schema, encoder),
    )


def _content_types(
    context: PassContext, plans: Sequence[ColumnPlan], schema: pa.Schema, encoder: TableEncoder
) -> dict[str, str]:
    """Return the content type of each column by name: a dtype, `bool`, `category`, or a kind of time.

    If the source's files do not declare types, the content type of a column of whole numbers has the prefix
    `EXACT`. The prefix is left out if float64 cannot represent one of the numbers.
    """
    types = {plan.name: content_type(plan, schema.field(plan.name).type) for plan in plans}
    if context.reading.data_format in TYPED:
        return types
    return {
        name: f"{EXACT}{each}" if each in WHOLE_DTYPES and name not in encoder.inexact else each
        for name, each in types.items()
    }


def _split_batches(
    batches: Iterator[tuple[SourceFile, TableBatch]],
    plans: Sequence[ColumnPlan],
    encoder: TableEncoder,
    context: PassContext,
) -> Iterator[tuple[float, dict[str, list[npt.NDArray[Any]]]]]:
    """Yield the share of the source read so far, and the rows of each split as one array per column."""
    for file, batch in batches:
        rows = _with_target(batch, plans, file, context.reading.bad_rows)
        arrays, hashes = encoder.encode(rows)
        numbers = context.rule.assign(hashes)
        places = [np.flatnonzero(numbers == number) for number in range(len(SPLITS))]
        yield (
            batch.done,
            {  # "clip" since "raise" copies twice; the places are in range
                split: [array.take(at, mode="clip") for array in arrays]
                for split, at in zip(SPLITS, places, strict=True)
            },
        )


def _known(
    arrays: Mapping[str, npt.NDArray[Any]], name: str, validity: str | None
) -> npt.NDArray[Any]:
    """Return the present values of the column `name`.

    `validity` is the name of the buffer that marks the present values; None if all values are present.
    """
    values = arrays[name]
    return values if validity is None else values[arrays[validity].view(np.bool_)]


def _with_target(
    table_batch: TableBatch, plans: Sequence[ColumnPlan], file: SourceFile, bad_rows: BadRows
) -> pa.RecordBatch:
    """Return the rows with a usable target; report rows whose target is missing or infinite as bad rows.

    All rows are returned if no column is the target.
    """
    import pyarrow.compute as pc
    from pyarrow.types import is_floating

    batch = table_batch.batch
    target = next((plan.name for plan in plans if plan.role is Role.TARGET), None)
    if target is None:
        return batch
    column = batch.column(target)
    missing = unusable = pc.is_null(column, nan_is_null=True)
    if is_floating(column.type):
        unusable = pc.or_(missing, pc.fill_null(pc.is_inf(column), False))
    if not unusable.true_count:
        return batch
    for row in pc.indices_nonzero(unusable).to_pylist():
        line = table_batch.line_of(row)
        reason = f"{'missing' if missing[row].as_py() else 'infinite'} target: column {target!r}"
        content = str(batch.slice(row, 1).to_pylist()[0])
        bad_rows.add(file.name, line, reason, content)
    return batch.filter(pc.invert(unusable))


def _described(
    plan: ColumnPlan,
    encoder: TableEncoder,
    moments: ColumnMoments | None,
    distinct: DistinctValues | None,
) -> SchemaColumn:
    return SchemaColumn(
        name=plan.name,
        dtype=plan.dtype,
        role=plan.role,
        validity=plan.validity,
        categories=encoder.categories(plan.name),
        mean=None if moments is None else moments.mean,
        std=None if moments is None else moments.std,
        num_infinite=None if moments is None else moments.num_infinite,
        values=None if distinct is None else distinct.values,
    )
