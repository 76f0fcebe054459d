"""Log streams of one engine: their names, files and times."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.logs.stream_file import complete_size, iterate
from sagemaker_engine.state.jobs import ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

GROUPS = {f"/aws/sagemaker/{kind.wire_name}s": kind for kind in ResourceKind}
"""Log group, such as /aws/sagemaker/TrainingJobs -> kind of its jobs."""
_TAIL_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamInfo:
    """A stream as DescribeLogStreams reports it. Times are epoch milliseconds, None while the stream is empty."""

    name: str
    created_at: int
    first_event_at: int | None
    last_event_at: int | None


@dataclass(frozen=True, slots=True)
class LogFolder:
    """The log streams under an engine's state folder."""

    root: Path

    def has_group(self, group: str) -> bool:
        """Return whether the group exists, which it does as soon as it has a stream."""
        return group in GROUPS and next(self._files(GROUPS[group], ""), None) is not None

    def stream_names(self, group: str, prefix: str = "") -> list[str]:
        """Return the sorted names of the group's streams that start with `prefix`."""
        names = (_stream_name(path) for path in self._files(GROUPS[group], prefix))
        return sorted(name for name in names if name.startswith(prefix))

    def path(self, group: str, stream: str) -> Path | None:
        """Return the file of a stream, or None if the stream does not exist."""
        job, _, host = stream.partition("/")
        if not job or not host or "/" in host or job in {".", ".."}:
            return None
        path = self.root / "jobs" / GROUPS[group].value / job / "logs" / f"{host}.jsonl"
        return path if path.is_file() else None

    def info(self, group: str, stream: str) -> StreamInfo:
        """Return the times of a stream.

        Raises:
            FileNotFoundError: The stream does not exist.
        """
        path = self.path(group, stream)
        if path is None:
            raise FileNotFoundError(stream)
        with path.open("rb") as file:
            first = next(iterate(file, 0), None)
            last = first
            for event in iterate(file, _tail_start(path)):
                last = event
        started = stream.rpartition("-")[2]
        created = int(started) * 1000 if started.isdigit() else int(path.stat().st_ctime * 1000)
        return StreamInfo(
            name=stream,
            created_at=created,
            first_event_at=None if first is None else first.timestamp,
            last_event_at=None if last is None else last.timestamp,
        )

    def _files(self, kind: ResourceKind, prefix: str) -> Iterator[Path]:
        folder = self.root / "jobs" / kind.value
        job, slash, _ = prefix.partition("/")
        jobs = [folder / job] if slash else folder.iterdir() if folder.is_dir() else ()
        for each in jobs:
            logs = each / "logs"
            if logs.is_dir():
                yield from (path for path in logs.iterdir() if path.suffix == ".jsonl")


def _stream_name(path: Path) -> str:
    return f"{path.parent.parent.name}/{path.stem}"


def _tail_start(path: Path) -> int:
    with path.open("rb") as file:
        end = complete_size(file)
        start = max(0, end - _TAIL_BYTES)
        file.seek(start)
        newline = file.read(end - start).find(b"\n")
        return start + newline + 1 if start else 0
