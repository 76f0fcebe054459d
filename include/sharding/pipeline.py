"""What happens to the rows: hash, split, encode, write, balance, upload, describe."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from include.errors import DataError
from include.sharding.balance import balance, too_few_rows
from include.sharding.index import INDEX_NAME, SchemaColumn, Shard, ShardIndex, Split
from include.sharding.objects import Objects
from include.sharding.quarantine import BadRows
from include.sharding.reading import Table, is_text, open_table, text_batches
from include.sharding.run import ShardingResult
from include.sharding.settings import DataFormat, ShardSettings
from include.sharding.shard_count import fit_num_shards, held_out_shards
from include.sharding.shard_file import LocalShard
from include.sharding.source_files import SourceFile
from include.sharding.split_rule import SPLITS, SplitRule, text_hashes
from include.sharding.split_writer import ColumnSplitWriter, TokenSplitWriter
from include.sharding.statistics import ColumnMoments, TokenCounts, unigram_loss_nats
from include.sharding.table_encoder import TableEncoder
from include.sharding.table_schema import ColumnKind, WiderTypeNeededError, plan_columns
from include.sharding.tokenizer import load_tokenizer, token_dtype
from include.sharding.uploads import Sent, Uploads

log = logging.getLogger(__name__)

QUARANTINE_NAME = "quarantine/bad-rows.jsonl"
_PART_BYTES = 8 * 1024**2


@dataclass(slots=True, kw_only=True)
class Pass:
    """What one reading of the source left behind."""

    parts: dict[str, list[LocalShard]]
    described: dict[str, Any]
    bad_rows: BadRows
    row_bytes: float
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class Pipeline:
    """One sharding run."""

    data_format: DataFormat
    files: list[SourceFile]
    settings: ShardSettings
    objects: Objects
    folder: Path
    prefix: str
    existing: frozenset[str]

    def run(
        self, *, fingerprint: str, source: Mapping[str, Any], described: Mapping[str, Any]
    ) -> ShardingResult:
        """Shard, upload, and write the index last."""
        rule = SplitRule(
            validation_fraction=self.settings.validation_fraction,
            test_fraction=self.settings.test_fraction,
        )
        is_tokens = is_text(self.data_format, self.settings)
        passed = self._write_tokens(rule) if is_tokens else self._write_columns(rule)
        num_rows = sum(part.rows for parts in passed.parts.values() for part in parts)
        if num_rows + passed.bad_rows.count == 0:
            raise DataError("the source has no rows", job_name="sharding", where=str(source["uri"]))
        bad_fraction = passed.bad_rows.check(num_rows)
        with Uploads(self.objects, self.prefix, existing=self.existing) as uploads:
            splits, sent = self._balanced(passed, rule, uploads)
            quarantine = self.folder / QUARANTINE_NAME
            if has_samples := passed.bad_rows.write(quarantine):
                sent.append(uploads.send(quarantine, QUARANTINE_NAME))
            done = [future.result() for future in sent]
        index = ShardIndex(
            fingerprint=fingerprint,
            source=source,
            settings=described,
            splits=splits,
            bad_rows={
                "count": passed.bad_rows.count,
                "fraction": bad_fraction,
                "quarantine": QUARANTINE_NAME if has_samples else None,
            },
            **passed.described,
        )
        done.append(self._put_index(index))
        return ShardingResult(
            index=index,
            uri=self.prefix,
            uploaded=sum(each.uploaded for each in done),
            reused=sum(not each.uploaded for each in done),
            uploaded_bytes=sum(each.size for each in done if each.uploaded),
        )

    def _write_tokens(self, rule: SplitRule) -> Pass:
        bad_rows = BadRows(self.settings.max_bad_row_fraction)
        tokenizer = load_tokenizer(self.settings.tokenizer)
        dtype = token_dtype(tokenizer.vocab_size)
        parts: dict[str, list[LocalShard]] = {split: [] for split in SPLITS}
        counts = {split: TokenCounts(tokenizer.vocab_size) for split in SPLITS}
        weight = _PART_BYTES // np.dtype(dtype).itemsize
        writers = {
            split: TokenSplitWriter(
                split,
                self.folder / "parts" / split,
                dtype=dtype,
                next_weight=lambda number, written: weight,
                finished=parts[split].append,
            )
            for split in SPLITS
        }
        batches = text_batches(self.data_format, self.files, self.objects, self.settings, bad_rows)
        for _, batch in batches:
            numbers = rule.assign(text_hashes(batch.rows))
            for number, split in enumerate(SPLITS):
                rows = [batch.rows[at] for at in np.flatnonzero(numbers == number)]
                if rows:
                    tokens, ends = tokenizer.encode(rows)
                    counts[split].add(tokens)
                    writers[split].append(tokens, ends)
        for writer in writers.values():
            writer.close()
        loss = unigram_loss_nats(counts["train"], counts["validation"])
        return Pass(
            parts=parts,
            bad_rows=bad_rows,
            row_bytes=np.dtype(dtype).itemsize,
            described={
                "kind": "tokens",
                "dtype": dtype,
                "tokenizer": {
                    "name": tokenizer.name,
                    "vocab_size": tokenizer.vocab_size,
                    "eos_token_id": tokenizer.eos_token_id,
                },
                "baseline": None if loss is None else {"unigram_loss_nats": loss},
            },
        )

    def _write_columns(self, rule: SplitRule) -> Pass:
        bad_rows = BadRows(self.settings.max_bad_row_fraction)
        table = open_table(self.data_format, self.files, self.objects, self.settings, bad_rows)
        while True:
            try:
                return self._read_table(table, rule, bad_rows)
            except WiderTypeNeededError as error:
                log.info("column %s needs a float type, reading again", error.column)
                table.widen(error.column)
                bad_rows.clear()

    def _read_table(self, table: Table, rule: SplitRule, bad_rows: BadRows) -> Pass:
        plans = plan_columns(table.schema, table.nullable, self.settings)
        encoder = TableEncoder(plans, max_categories=self.settings.max_categories)
        columns = [(plan.name, plan.dtype) for plan in plans]
        row_bytes = sum(np.dtype(dtype).itemsize for _, dtype in columns)
        parts: dict[str, list[LocalShard]] = {split: [] for split in SPLITS}
        moments = {
            plan.name: ColumnMoments() for plan in plans if plan.kind is not ColumnKind.CATEGORY
        }
        writers = {
            split: ColumnSplitWriter(
                split,
                self.folder / "parts" / split,
                columns=columns,
                next_weight=lambda number, written: _PART_BYTES // row_bytes,
                finished=parts[split].append,
            )
            for split in SPLITS
        }
        for _, batch in table.batches():
            arrays, hashes = encoder.encode(batch.batch)
            numbers = rule.assign(hashes)
            for number, split in enumerate(SPLITS):
                at = np.flatnonzero(numbers == number)
                chosen = [array[at] for array in arrays]
                if len(at):
                    writers[split].append(chosen)
                if split == "train":
                    for plan, values in zip(plans, chosen, strict=True):
                        if plan.name in moments:
                            moments[plan.name].add(values)
        for writer in writers.values():
            writer.close()
        schema = tuple(
            SchemaColumn(
                name=plan.name,
                dtype=plan.dtype,
                role=plan.role,
                categories=encoder.categories(plan.name),
                mean=moments[plan.name].mean if plan.name in moments else None,
                std=moments[plan.name].std if plan.name in moments else None,
            )
            for plan in plans
        )
        return Pass(
            parts=parts,
            bad_rows=bad_rows,
            row_bytes=row_bytes,
            described={"kind": "columns", "schema": schema},
        )

    def _balanced(
        self, passed: Pass, rule: SplitRule, uploads: Uploads
    ) -> tuple[dict[str, Split], list[Future[Sent]]]:
        train_bytes = int(sum(part.weight for part in passed.parts["train"]) * passed.row_bytes)
        num_train = fit_num_shards(self.settings, train_bytes=train_bytes)
        splits: dict[str, Split] = {}
        sent: list[Future[Sent]] = []
        finished: dict[str, list[tuple[LocalShard, Future[Sent]]]] = {}
        for split in SPLITS:
            num_shards = (
                num_train
                if split == "train"
                else held_out_shards(
                    num_train,
                    fraction=rule.fraction(split),
                    train_fraction=rule.fraction("train"),
                    share=self.settings.instance_count,
                )
            )
            if num_shards == 0:
                continue
            parts = passed.parts[split]
            if not parts:
                raise too_few_rows(split, 0, num_shards)
            here = finished.setdefault(split, [])

            def send(shard: LocalShard, here: list[Any] = here) -> None:
                name = f"{shard.split}/shard-{shard.number:05d}.bin"
                here.append((shard, uploads.send(shard.path, name, then_delete=True)))

            folder = self.folder / "shards" / split
            if split != "train":
                num_shards = min(num_shards, sum(part.rows for part in parts))
            balance(split, parts, folder, num_shards=num_shards, finished=send)
        for split, shards in finished.items():
            splits[split] = _split(shards)
            sent += [future for _, future in shards]
        return splits, sent

    def _put_index(self, index: ShardIndex) -> Sent:
        path = self.folder / INDEX_NAME
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(index.to_json())
        with Uploads(self.objects, self.prefix, existing=self.existing) as uploads:
            return uploads.send(path, INDEX_NAME).result()


def _split(shards: list[tuple[LocalShard, Future[Sent]]]) -> Split:
    entries, first_row, first_token = [], 0, 0
    for shard, future in shards:
        sent = future.result()
        entries.append(
            Shard(
                file=f"{shard.split}/shard-{shard.number:05d}.bin",
                rows=shard.rows,
                bytes=sent.size,
                sha256=sent.sha256,
                first_row=first_row,
                columns=shard.columns,
                num_tokens=shard.num_tokens,
                first_token=None if shard.num_tokens is None else first_token,
            )
        )
        first_row += shard.rows
        first_token += shard.num_tokens or 0
    num_tokens = None if shards[0][0].num_tokens is None else first_token
    return Split(num_rows=first_row, num_tokens=num_tokens, shards=tuple(entries))
