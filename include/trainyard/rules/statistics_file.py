"""Statistics files of a training, in JSON lines: one or more per rank and attempt. Invalid lines are errors.

The first line of a file is its header. Each other line is one record, in the order of the events. Each start of the
processes writes a new file, with the next attempt number. A long attempt has several files, its parts 1, 2, 3 and so
on. Each part repeats the header; only part 1 is a start. Version 1:

    {"format": "trainyard-statistics", "version": 1, "rank": 0, "world_size": 2, "attempt": 1, "resumed_at": 0,
     "time": 1795000000.0, "host": "algo-1", "max_steps": 400, "global_batch_size": 16, "part": 1,
     "tensors": {"weights": [["0.weight", 4096, "Linear"], ...], "gradients": [...], "activations": [...]}}

`resumed_at` is the completed step that the attempt resumed from. Each tensor has its name, its number of elements and
the class of its module; the last two may be null. `host`, `max_steps`, `global_batch_size` and `part` may be missing.

The records have statistics of the weights before the step, of the gradients before clipping, and of the activations
of the step's first forward pass:

    {"kind": "step", "step": 1, "time": ..., "loss": 2.3, "learning_rate": 1e-4, "gradient_norm": 0.7,
     "units_per_second": 8192.0, "step_seconds": 0.5, "data_wait_seconds": 0.01, "forward_seconds": 0.15,
     "backward_seconds": 0.25, "optimizer_seconds": 0.02, "local_seconds": 0.16, "communication_seconds": 0.01,
     "tensors": {"gradients": {"l2": [0.5, ...], "mean_abs": [0.001, ...]},
                 "weights": {"l2": [...], "update_l2": [...]}}}
    {"kind": "validation", "step": 50, "time": ..., "loss": 2.1, "accuracy": 0.5}
    {"kind": "mark", "mark": "alive", "step": 9, "time": ...}     or checkpoint, durable, checkpoint_failed, done
    {"kind": "host", "step": 9, "time": ..., "cpu_percent": 50, "io_wait_percent": 0, "memory_bytes": ...,
     "disk_percent": 40, "disk_read_bytes_per_second": 0, "network_send_bytes_per_second": 2e6,
     "gpus": [{"utilization_percent": 90, ...}]}
    {"kind": "predictions", "step": 50, "confusion": [[90, 10], [10, 90]]}
    {"kind": "inputs", "step": 50, "num_samples": 64, "token_shares": {"pad": 0.1, "0": 0.2}, "channel_means": [0.0]}
    {"kind": "checksums", "step": 100, "group": "0", "group_size": 2, "values": {"0.weight": "9f86d081"}}
    {"kind": "trees", "step": 10, "feature_importance": {"f0": 0.5}, "largest_node_id": 31}

`trainyard.rules.records` describes the fields. A field that was not observed may be missing or null, except `kind`,
`step`, `mark`, `confusion`, `group_size` and `values`. Each value in a list under `tensors` belongs to the header's
tensor at the same index. NaN and infinities are written as the texts "nan", "inf" and "-inf", because JSON numbers are
finite.

An unknown kind, key or statistic is an error, because ignored data could hide a fault. Only a last line without a line
feed is ignored: it is still being written, or its writer was killed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from heapq import merge
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any, TypeVar

from trainyard.errors import ContractError, near_matches
from trainyard.rules.records import (
    COLLECTIONS,
    Checksums,
    GpuSample,
    HostSample,
    Inputs,
    MarkRecord,
    Predictions,
    Record,
    Start,
    StepRecord,
    Tensors,
    TensorStatistics,
    Trees,
    Validation,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

FORMAT, VERSION = "trainyard-statistics", 1
_NEEDED = ("rank", "world_size", "attempt", "resumed_at", "time", "tensors")
_HEADER = {"format", "version", "host", "max_steps", "global_batch_size", "part", *_NEEDED}
_KINDS = ("step", "validation", "mark", "host", "predictions", "inputs", "checksums", "trees")
_TEXTS = frozenset({"kind", "host", "group", "checksum", "values"})
_NOT_FINITE = frozenset({"nan", "inf", "-inf"})

_OBSERVED: tuple[type[Record | GpuSample | TensorStatistics], ...] = (
    *(StepRecord, Validation, MarkRecord, HostSample, Predictions, Inputs, Checksums, Trees),
    *(GpuSample, TensorStatistics),
)
_FIELDS: Mapping[type, frozenset[str]] = {
    cls: frozenset(each.name for each in fields(cls)) - {"rank"} for cls in _OBSERVED
}
"""Keys of the records in a line; the rank is the file's."""

Kind = TypeVar("Kind", bound=Record)


class _WrongLineError(Exception):
    """Error of a line, with the value found and the allowed values."""

    def __init__(self, what: str, *, got: object, allowed: str) -> None:
        super().__init__(what)
        self.what, self.got, self.allowed = what, got, allowed


@dataclass(frozen=True, slots=True)
class _Tensor:
    name: str
    num_elements: int | None = None
    module_class: str | None = None


class StatisticsReader:
    """Incremental reader of the lines of one file; the first must be the header.

    Args:
        where: the file's name, for errors.

    Attributes:
        part: number of the file's part, from 1; None before the header is read.
    """

    def __init__(self, where: str = "statistics") -> None:
        self._where, self._number = where, 0
        self._start: Start | None = None
        self._host = "algo-1"
        self._tensors: dict[str, list[_Tensor]] = {}
        self.part: int | None = None

    def read(self, line: str) -> Record:
        """Return the record of one line. The header's record is a `Start`, which the headers of later parts repeat.

        Raises:
            ContractError: the line is not a JSON object of this format and version.
        """
        self._number += 1
        try:
            data = _object(line)
            if self._start is None:
                self._start = self._header(data)
                return self._start
            return self._record(data, rank=self._start.rank)
        except _WrongLineError as error:
            raise self._error(error.what, got=error.got, allowed=error.allowed) from error
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            got = f"{type(error).__name__}: {error}"
            raise self._error("cannot be read", got=got, allowed="one JSON object") from error

    def _error(self, what: str, *, got: object, allowed: str) -> ContractError:
        return ContractError(
            f"a line of the training's statistics {what}",
            where=f"{self._where}, line {self._number}",
            got=got,
            allowed=allowed,
            next_step="write the format that include/trainyard/rules/statistics_file.py describes",
        )

    def _header(self, data: dict[str, Any]) -> Start:
        version = data.get("format"), data.get("version")
        if version != (FORMAT, VERSION):
            allowed = f"format {FORMAT}, version {VERSION}"
            got = f"format {version[0]}, version {version[1]}"
            raise _WrongLineError("is not a header of this version", got=got, allowed=allowed)
        _check_keys(data, _HEADER)
        missing = [key for key in _NEEDED if data.get(key) is None]
        if missing:
            what = f"is a header without {', '.join(missing)}"
            raise _WrongLineError(what, got=", ".join(data), allowed=", ".join(_NEEDED))
        _check_keys(data["tensors"], COLLECTIONS)
        self._tensors = {
            name: [_Tensor(*each) for each in listed] for name, listed in data["tensors"].items()
        }
        self._host = str(data.get("host") or self._host)
        self.part = 1 if data.get("part") is None else int(data["part"])
        return Start(
            step=int(data["resumed_at"]),
            rank=int(data["rank"]),
            time=float(data["time"]),
            attempt=int(data["attempt"]),
            world_size=int(data["world_size"]),
            max_steps=data.get("max_steps"),
            global_batch_size=data.get("global_batch_size"),
        )

    def _record(self, data: dict[str, Any], *, rank: int) -> Record:
        kind = data.pop("kind", None)
        if type(data.get("step")) is not int:
            raise _WrongLineError("has no step", got=data.get("step"), allowed="a whole number")
        match kind:
            case "step":
                return _made(StepRecord, {**data, "tensors": self._statistics(data)}, rank=rank)
            case "validation":
                return _made(Validation, data, rank=rank)
            case "mark":
                mark = data.pop("mark")
                return _made(MarkRecord, {**data, "kind": mark}, rank=rank)
            case "host":
                gpus = tuple(_gpu(each) for each in data.get("gpus") or ())
                return _made(HostSample, {"host": self._host, **data, "gpus": gpus}, rank=rank)
            case "predictions":
                confusion = tuple(tuple(map(int, row)) for row in data["confusion"])
                return _made(Predictions, {**data, "confusion": confusion}, rank=rank)
            case "inputs":
                means = tuple(
                    float(_value("channel_means", each)) for each in data.get("channel_means") or ()
                )
                return _made(Inputs, {**data, "channel_means": means}, rank=rank)
            case "checksums":
                return _made(Checksums, data, rank=rank)
            case "trees":
                return _made(Trees, data, rank=rank)
            case _:
                allowed = ", ".join(_KINDS)
                raise _WrongLineError("has an unknown kind", got=kind, allowed=allowed)

    def _statistics(self, data: Mapping[str, Any]) -> dict[str, Tensors]:
        own = data.get("tensors") or {}
        _check_keys(own, self._tensors)
        return {name: self._collection(name, columns) for name, columns in own.items()}

    def _collection(self, name: str, columns: Mapping[str, list[Any]]) -> Tensors:
        tensors = self._tensors[name]
        _check_keys(columns, _FIELDS[TensorStatistics])
        for column, values in columns.items():
            if len(values) != len(tensors):
                raise _WrongLineError(
                    f"has the wrong number of values for {name}.{column}",
                    got=len(values),
                    allowed=f"{len(tensors)}, the number of tensors that the header lists under {name}",
                )
        return {
            each.name: TensorStatistics(
                num_elements=each.num_elements,
                module_class=each.module_class,
                **{
                    column: _value(column, values[place])
                    for column, values in columns.items()
                    if values[place] is not None
                },
            )
            for place, each in enumerate(tensors)
        }


def read_statistics(
    files: Mapping[str, Iterable[str]], *, keep: Callable[[Record], Record | None] | None = None
) -> list[Record]:
    """Return the records of all ranks, ordered by attempt, then by time.

    A record without a time keeps its place after the previous record of its file.

    Args:
        files: the lines of each file by its name, with their line feeds.
        keep: function that is called with each record. It returns the record to keep, unchanged or reduced,
            or None to drop it. This limits the memory that a long run takes.

    Raises:
        ContractError: a line is invalid.
    """
    read = [_whole_file(name, lines, keep) for name, lines in sorted(files.items())]
    attempts = sorted((each for each in read if each), key=itemgetter(0))
    found: list[Record] = []
    for _, same in groupby(attempts, key=itemgetter(0)):
        timed = merge(*(records for _, records in same), key=itemgetter(0))
        found += [record for _, record in timed]
    return found


def _whole_file(
    name: str, lines: Iterable[str], keep: Callable[[Record], Record | None] | None
) -> tuple[int, list[tuple[float, Record]]] | None:
    """Return the attempt number of a file and its kept records; None if no record is kept.

    Each record is returned as (time, record). The time is the latest of the record's own time and those of all
    records before it, so the times never decrease. A record without a time has that of the record before it.
    """
    reader, attempt, now = StatisticsReader(name), 0, 0.0
    timed: list[tuple[float, Record]] = []
    for line in lines:
        if not line.endswith("\n"):
            break  # still being written
        record = reader.read(line)
        attempt = record.attempt if isinstance(record, Start) else attempt
        now = now if record.time is None else max(now, record.time)
        if isinstance(record, Start) and (reader.part or 1) > 1:
            continue
        kept = keep(record) if keep else record
        if kept is not None:
            timed.append((now, kept))
    return (attempt, timed) if timed else None


def _object(line: str) -> dict[str, Any]:
    data = json.loads(line, parse_constant=_refuse)
    if isinstance(data, dict):
        return data
    raise _WrongLineError("is not an object", got=data, allowed="a JSON object")


def _made(cls: type[Kind], data: Mapping[str, Any], *, rank: int) -> Kind:
    given = {key: value for key, value in data.items() if value is not None}
    _check_keys(given, _FIELDS[cls])
    return cls(rank=rank, **{key: _value(key, value) for key, value in given.items()})


def _gpu(data: Mapping[str, Any]) -> GpuSample:
    _check_keys(data, _FIELDS[GpuSample])
    return GpuSample(**{key: _value(key, value) for key, value in data.items()})


def _value(key: str, value: Any) -> Any:
    """Return a field's value, with the texts "nan", "inf" and "-inf" converted to floats in number fields.

    Text fields (`_TEXTS`), tuples and the value of the key `tensors` are returned unchanged.

    Raises:
        _WrongLineError: the value has a wrong type for its key.
    """
    if isinstance(value, dict) and key != "tensors":
        return {name: _value(key, each) for name, each in value.items()}
    if isinstance(value, (dict, tuple)) or value is None:
        return value
    if key in _TEXTS:
        if isinstance(value, str):
            return value
        raise _WrongLineError(f"has a value of {key} that is not text", got=value, allowed="text")
    if value in _NOT_FINITE:
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        allowed = "a number, or one of " + ", ".join(sorted(_NOT_FINITE))
        raise _WrongLineError(
            f"has a value of {key} that is not a number", got=value, allowed=allowed
        )
    return value


def _check_keys(data: Mapping[str, Any], known: Collection[str]) -> None:
    for key in data:
        if key not in known:
            allowed = sorted(known)
            near = near_matches(key, allowed)
            choices = " or ".join(near) if near else ", ".join(allowed) or "none"
            raise _WrongLineError(f"has the unknown key {key}", got=key, allowed=choices)


def _refuse(word: str) -> Iterator[None]:
    allowed = 'the text "nan", "inf" or "-inf"'
    raise _WrongLineError(
        f"has the word {word}, which is not valid JSON", got=word, allowed=allowed
    )
