"""Copy of a training's statistics from S3 to the worker, and to the run's report."""

from __future__ import annotations

import gzip
import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.rules.statistics_bundles import BUNDLE, files_in
from trainyard.rules.statistics_place import STATISTICS_FOLDER
from trainyard.runs.profile.traces import Trace, in_order, trace_of
from trainyard.units import format_bytes
from trainyard_airflow.hooks.dataset_objects import S3DatasetObjects
from trainyard_airflow.hooks.objects import S3Address, S3Objects
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from trainyard.sharding.objects import ObjectHead

log = logging.getLogger(__name__)

MOST_BYTES = 512 * 2**20  # of JSON lines: about a minute of reading
MOST_TRACE_BYTES = 64 * 2**20  # of one trace
MOST_TRACES_BYTES = 256 * 2**20  # of all of them


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetched:
    """Result of `fetch_statistics`.

    Attributes:
        files: JSON lines compressed by gzip, one file per file that the training wrote.
        traces: all torch.profiler traces of the training. `Trace.file` is the path of the copy, relative to
            profile.html. If a trace is too large to copy, `Trace.file` is its original S3 address.
        why_none: the reason if there are no files; empty otherwise.
    """

    files: tuple[Path, ...] = ()
    traces: tuple[Trace, ...] = ()
    why_none: str = ""


def fetch_statistics(client: Any, *, sources: Sequence[str], folder: Path, to: str) -> Fetched:
    """Copy a training's statistics to `folder`; copy them and torch.profiler traces to `<to>/statistics/`.

    The ranks' files are reassembled from the objects that the hosts uploaded. Statistics of more than 512 MiB
    are not copied at all, because a part of them would be misleading. A trace is not copied if it is larger
    than 64 MiB, or if the copied traces would then be larger than 256 MiB together.

    Args:
        client: a boto3 client of S3.
        sources: S3 prefixes of the statistics and traces, at least one.
        folder: an existing folder in the worker.
        to: the report's prefix.

    Raises:
        TrainingRunError: S3 rejected a call, or an object is not a valid bundle of statistics.
    """
    objects, stored = S3Objects(client), S3DatasetObjects(client)
    source = " and ".join(sources)
    found = [each for uri in sources for each in stored.list(uri)]
    lines = [each for each in found if each.uri.endswith(".jsonl") or BUNDLE.search(each.uri)]
    traces = in_order(_copied_traces(client, found, to))
    size = sum(each.size for each in lines)
    if not lines:
        why = (
            f"there are no statistics below {source}: the hyperparameters have statistics=off, the script does not use "
            "trainyard_watch (docs/own_scripts.md), or the training ended before its first step"
        )
        return Fetched(traces=traces, why_none=why)
    if size > MOST_BYTES:
        why = (
            f"the statistics below {source} are {format_bytes(size)}, more than the {format_bytes(MOST_BYTES)} that "
            f"the report reads; copy them to runs/<run id>/{STATISTICS_FOLDER} and use make profile"
        )
        return Fetched(traces=traces, why_none=why)
    contents: dict[str, bytearray] = {}
    for each in lines:
        content = objects.read(each.uri)
        is_bundle = BUNDLE.search(each.uri)
        pieces = files_in(content, where=each.uri) if is_bundle else ((_name(each), content),)
        for file, piece in pieces:
            contents.setdefault(file, bytearray()).extend(piece)
    files = []
    for file in sorted(contents):
        content = gzip.compress(contents.pop(file), mtime=0)
        name = f"{file}.gz"
        objects.write(f"{to}/{STATISTICS_FOLDER}/{name}", content, content_type="application/gzip")
        path = folder / name
        path.write_bytes(content)
        files.append(path)
    return Fetched(files=tuple(files), traces=traces)


def lines_of(files: Sequence[Path]) -> dict[str, Iterator[str]]:
    """Return an iterator over the lines of each file, by the file's name."""
    return {each.name: _lines(each) for each in files}


def _lines(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as file:
        yield from file


def _name(head: ObjectHead) -> str:
    return head.uri.rpartition("/")[2]


def _copied_traces(client: Any, found: Sequence[ObjectHead], to: str) -> Iterator[Trace]:
    left = MOST_TRACES_BYTES
    target = S3Address.parse(to)
    for each in found:
        place = f"{STATISTICS_FOLDER}/{_name(each)}"
        trace = trace_of(place, num_bytes=each.size)
        if trace is None:
            continue
        if each.size > min(MOST_TRACE_BYTES, left):
            log.warning(
                "Trace %s is too large to copy beside the report: %s",
                each.uri,
                format_bytes(each.size),
            )
            stays = trace_of(each.uri, num_bytes=each.size)
            yield stays or trace
            continue
        left -= each.size
        source = S3Address.parse(each.uri)
        with refusals_typed(each.uri):
            client.copy_object(
                Bucket=target.bucket,
                Key=f"{target.key}/{place}",
                CopySource={"Bucket": source.bucket, "Key": source.key},
            )
        yield trace
