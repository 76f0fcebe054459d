"""Parts of one data set that is sharded by several independent processes: plan, write each part, merge.

By default, each part shards the files whose names hash to its number. It uses its own shard numbers: of 4
parts, part 1 writes shards 1, 5, 9, and so on. It stores its shards as drafts and writes its own index,
`parts/part-00001.json`.

The merge reads the indexes of all parts, publishes the drafts and writes the index of the data set. It adds
up the statistics. If a part numbers the categories of a column in another order than the data set, the
merge rewrites the part's category codes. If a column has fractions in some parts only, the schema has
floats for it.
"""

from __future__ import annotations

import hashlib
import json
import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import ContractError, DataError, NoContentError
from trainyard.sharding.index import VERSION, ShardIndex, part_name
from trainyard.sharding.quarantine import BadRows
from trainyard.sharding.reading import Reading
from trainyard.sharding.run import folder_under_way
from trainyard.sharding.shard_set import Numbering
from trainyard.sharding.source_files import array_name, check_unchanged
from trainyard.sharding.uploads import UNDER_WAY, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trainyard.sharding.objects import Objects
    from trainyard.sharding.pass_context import Written
    from trainyard.sharding.plan import DatasetPlan
    from trainyard.sharding.source_files import SourceFile

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class PartIndex:
    """Output of one part: an index of its shards, the sums for the data set's statistics, and its columns' types."""

    part: int
    index: ShardIndex
    tallies: dict[str, Any]
    types: dict[str, str] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return the document of this part."""
        index = json.loads(self.index.to_json())
        return (
            json.dumps(
                {
                    "part": self.part,
                    "index": index,
                    "tallies": self.tallies,
                    "types": self.types,
                },
                allow_nan=False,
            )
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str | bytes, *, uri: str | None = None) -> PartIndex:
        """Return the part that a document describes.

        Args:
            text: the document.
            uri: the address of the document, for the error.

        Raises:
            ContractError: the document is not the index of a part, or is of another version.
        """
        try:
            data = json.loads(text)
            index = ShardIndex.from_json(json.dumps(data["index"]), uri=uri)
            part = cls(
                part=data["part"],
                index=index,
                tallies=data["tallies"],
                types=data["types"],
            )
        except (ValueError, KeyError, TypeError) as error:
            raise ContractError(
                "the index of a part of the data set cannot be read",
                where=uri,
                got=f"{type(error).__name__}: {error}",
                allowed=f"an index of version {VERSION}",
                next_step="shard the data set again",
            ) from error
        shards = [shard for split in index.splits.values() for shard in split.shards]
        final = [shard.file for shard in shards if not shard.file.startswith(f"{UNDER_WAY}/")]
        if final or index.version != VERSION:
            raise ContractError(
                "the index of a part was written by another release of Trainyard",
                where=uri,
                got=f"shards such as {final[0]}, and version {index.version}"
                if final
                else f"version {index.version}",
                allowed=f"shards below {UNDER_WAY}/, and version {VERSION}",
                next_step="run the sharding again, with the same release in the jobs and in Airflow",
            )
        return part


def files_of_part(files: Iterable[SourceFile], *, part: int, num_parts: int) -> list[SourceFile]:
    """Return the files of one part, selected by a hash of their names. The selection does not depend on other files.

    A Megatron index is selected by the name of its array, so both are in one part.
    """
    return [
        file
        for file in files
        if int.from_bytes(hashlib.sha256(array_name(file.name).encode()).digest()[:8]) % num_parts
        == part
    ]


def write_part(
    plan: DatasetPlan,
    files: list[SourceFile],
    objects: Objects,
    *,
    part: int,
    work_dir: Path | None = None,
) -> PartIndex:
    """Shard the files of one part, and return the index of the part.

    The shards are stored below the plan's prefix. The index is stored after all of them.

    Raises a `DataError` if a file is unreadable. The merge checks the share of bad rows and the number of rows per
    split.

    Args:
        plan: plan of the data set.
        files: files of this part; may be empty.
        objects: store of the shards.
        part: number of this part, from 0.
        work_dir: folder for temporary files; None uses the system's temporary folder.
    """
    existing = frozenset(each.uri for each in objects.list(plan.uri + "/"))
    with (
        folder_under_way(work_dir) as folder,
        Uploads(objects, plan.uri, existing=existing) as uploads,
    ):
        reading = Reading(
            data_format=plan.data_format,
            files=files,
            objects=objects,
            settings=_settings_of_part(plan),
            folder=folder,
            bad_rows=BadRows(max_fraction=1.0),
        )
        written = _write_shards(plan, reading, uploads, part=part)
        check_unchanged(files)
        quarantine = f"quarantine/part-{part:05d}.jsonl"
        if has_samples := reading.bad_rows.write(folder / "bad-rows.jsonl"):
            uploads.send(folder / "bad-rows.jsonl", quarantine)
        uploads.wait()
        bad_rows = {
            "count": reading.bad_rows.count,
            "quarantine": quarantine if has_samples else None,
        }
        done = _part_index(plan, written, part=part, bad_rows=bad_rows)
        (folder / "part.json").write_text(done.to_json())
        uploads.send(folder / "part.json", part_name(part))
        uploads.wait()
    log.info("part %s of %s: %s rows sharded", part, plan.num_parts, done.index.num_rows)
    return done


def _write_shards(
    plan: DatasetPlan, reading: Reading, uploads: Uploads, *, part: int
) -> Written | None:
    """Write the part's shards under its own numbers; return None if it has no files with content."""
    from trainyard.sharding.passes import write_splits

    if not reading.files:
        return None
    numbering = Numbering(first=part, step=plan.num_parts)
    try:
        return write_splits(reading, uploads, reading.folder / "shards", numbering=numbering)
    except NoContentError:
        return None


def _part_index(
    plan: DatasetPlan, written: Written | None, *, part: int, bad_rows: dict[str, Any]
) -> PartIndex:
    index = ShardIndex(
        fingerprint=plan.fingerprint,
        source=plan.source,
        settings=plan.described,
        splits={} if written is None else written.splits,
        bad_rows=bad_rows,
        **({"kind": "none"} if written is None else written.described),
    )
    if written is None:
        return PartIndex(part=part, index=index, tallies={})
    return PartIndex(part=part, index=index, tallies=written.tallies, types=written.types)


def read_parts(plan: DatasetPlan, objects: Objects) -> list[PartIndex]:
    """Return the index of every part.

    Raises:
        DataError: the index of a part is missing.
    """
    missing = [
        part
        for part in range(plan.num_parts)
        if objects.head(f"{plan.uri}/{part_name(part)}") is None
    ]
    if missing:
        raise DataError(
            "parts of the data set are missing",
            job_name="sharding",
            where=plan.uri,
            got=f"no index of part {', '.join(map(str, missing))}",
            allowed=f"all of the parts 0 to {plan.num_parts - 1}",
            next_step="run the missing parts again; the finished parts are kept",
        )
    parts = []
    for part in range(plan.num_parts):
        uri = f"{plan.uri}/{part_name(part)}"
        with objects.open(uri) as stream:
            parts.append(PartIndex.from_json(stream.read(), uri=uri))
    return parts


def _settings_of_part(plan: DatasetPlan) -> Any:
    """Return the settings of one part: `num_shards`, if set, is divided by the number of parts."""
    if plan.settings.num_shards == 0:
        return plan.settings
    share = max(1, plan.settings.num_shards // plan.num_parts)
    return replace(
        plan.settings,
        num_shards=share,
        instance_count=1,
        processes_per_instance=1,
        num_workers=1,
    )
