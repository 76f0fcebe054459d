"""Pipe input mode: a channel's bytes through FIFOs named `<channel>_<epoch>`, one per epoch."""

from __future__ import annotations

import gzip
import io
import json
import logging
import os
import stat
import struct
import threading
import time
import zlib
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

from sagemaker_engine.channels.listing import (
    ChannelFile,
    Host,
    channel_files,
    files_of_host,
    read_bytes,
    s3_source,
    shuffle_seed,
    shuffled,
)
from sagemaker_engine.channels.locations import InputDataError, S3Location, S3RefusedError
from sagemaker_engine.s3.errors import S3Error

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.s3.object_store import ObjectStore

log = logging.getLogger(__name__)

RECORD_MAGIC = 0xCED7230A
POLL_S = 0.02
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PipeRecord:
    """One record of a stream: an object's content, or a literal value from an augmented manifest."""

    file: ChannelFile | None = None
    literal: bytes = b""


def channel_records(
    channel: Mapping[str, Any], objects: ObjectStore, *, host: Host, hosts: Sequence[Host]
) -> list[list[PipeRecord]] | None:
    """Return the records that the instance receives, in units that a shuffle keeps together.

    A unit is one object, or the attributes of one line of an augmented manifest. The result is None if the channel is
    not for the instance's group.

    Raises InputDataError if the channel has no object, or a manifest is malformed.
    """
    if s3_source(channel)["S3DataType"] == "AugmentedManifestFile":
        lines = augmented_records(channel, objects)
        return files_of_host(lines, channel, host=host, hosts=hosts)
    share = files_of_host(channel_files(channel, objects), channel, host=host, hosts=hosts)
    return None if share is None else [[PipeRecord(file=file)] for file in share]


def augmented_records(channel: Mapping[str, Any], objects: ObjectStore) -> list[list[PipeRecord]]:
    """Return the records of each line of an augmented manifest.

    The attributes are in the order of AttributeNames. The value of an attribute whose name ends in `-ref` is an S3 URI,
    whose object is streamed. For any other attribute the value is streamed: text unchanged, other values as JSON.

    Raises:
        InputDataError: AttributeNames is missing, or a line is not a JSON object or lacks an attribute.
    """
    source = s3_source(channel)
    location = S3Location.parse(source["S3Uri"])
    names = source.get("AttributeNames") or []
    if not names:
        raise InputDataError(
            f"channel {channel['ChannelName']!r} needs AttributeNames for its augmented manifest"
        )
    lines = []
    for number, text in enumerate(read_bytes(location, objects).decode().splitlines(), start=1):
        if not text.strip():
            continue
        try:
            values = json.loads(text)
            lines.append([_attribute(values, name) for name in names])
        except (ValueError, KeyError, TypeError) as error:
            raise InputDataError(
                f"line {number} of augmented manifest {location.uri} must be a JSON object with "
                f"all of AttributeNames ({', '.join(names)}); reading the line raised {error!r}"
            ) from error
    return lines


def _attribute(values: dict[str, Any], name: str) -> PipeRecord:
    if name.endswith("-ref"):
        location = S3Location.parse(values[name])
        return PipeRecord(
            file=ChannelFile(bucket=location.bucket, key=location.key, path=location.key)
        )
    value = values[name]
    return PipeRecord(literal=(value if isinstance(value, str) else json.dumps(value)).encode())


class PipeFeeder(threading.Thread):
    """Thread that feeds one channel of one instance until `stop` is called.

    It is a daemon thread: if `stop` is never called, it ends with the process that started it.
    """

    def __init__(
        self,
        channel: Mapping[str, Any],
        units: list[list[PipeRecord]],
        folder: Path,
        objects: ObjectStore,
    ) -> None:
        """Create the FIFO of the first epoch; `folder` is the instance's /opt/ml/input/data."""
        super().__init__(daemon=True, name=f"pipe-{channel['ChannelName']}")
        self._channel = channel
        self._units = units
        folder.mkdir(parents=True, exist_ok=True)
        # A program inside can replace the folder by a link: the open descriptor still refers to the folder.
        self._folder = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        self._objects = objects
        self._stopped = threading.Event()
        self.fault: InputDataError | None = None
        """Error that ended the stream, such as an object that was deleted meanwhile; None without one."""
        self._fifo(0)

    def stop(self) -> None:
        """Request the end of the thread."""
        self._stopped.set()

    def run(self) -> None:
        """Feed one epoch after the other."""
        epoch = 0
        while not self._stopped.is_set():
            name = self._fifo(epoch)
            descriptor = self._open_for_reader(name)
            if descriptor is None:
                return
            self._fifo(epoch + 1)  # It must exist before the reader of this epoch can finish.
            self._feed(descriptor, epoch)
            with suppress(FileNotFoundError):
                os.unlink(name, dir_fd=self._folder)
            epoch += 1

    def _fifo(self, epoch: int) -> str:
        name = f"{self._channel['ChannelName']}_{epoch}"
        with suppress(FileExistsError):
            os.mkfifo(name, 0o666, dir_fd=self._folder)
        return name

    def _open_for_reader(self, name: str) -> int | None:
        """Open the FIFO once a process reads it; return its descriptor, or None if the thread was stopped.

        If another kind of file has that name, wait until a FIFO replaces it.
        """
        flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOFOLLOW
        while not self._stopped.is_set():
            try:
                descriptor = os.open(name, flags, dir_fd=self._folder)
            except OSError:  # ENXIO: no process has opened it for reading yet.
                time.sleep(POLL_S)
                continue
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.set_blocking(descriptor, True)
                return descriptor
            os.close(descriptor)
            time.sleep(POLL_S)
        return None

    def _feed(self, descriptor: int, epoch: int) -> None:
        record = None
        with os.fdopen(descriptor, "wb", buffering=CHUNK_BYTES) as pipe:
            try:
                for record in self._records(epoch):
                    self._write(record, pipe)
                pipe.flush()
            except BrokenPipeError:
                log.info("the reader closed epoch %s of %s early", epoch, self.name)
                _forget_buffer(pipe)
            except (S3Error, OSError, EOFError, zlib.error) as error:
                log.exception("%s cannot continue", self.name)
                self.fault = _fault(f"cannot read {_place(record)} in epoch {epoch}", error)
                self._stopped.wait()  # Closing the pipe would signal to the reader that the data is complete.
                _forget_buffer(pipe)

    def _records(self, epoch: int) -> Iterator[PipeRecord]:
        seed = shuffle_seed(self._channel)
        for unit in shuffled(self._units, seed=seed, epoch=epoch):
            yield from unit

    def _write(self, record: PipeRecord, pipe: IO[bytes]) -> None:
        if self._channel.get("RecordWrapperType") == "RecordIO":
            with self._source(record) as source:
                _write_record(source.read(), pipe)
            return
        with self._source(record) as source:
            while chunk := source.read(CHUNK_BYTES):
                pipe.write(chunk)

    @contextmanager
    def _source(self, record: PipeRecord) -> Iterator[IO[bytes] | gzip.GzipFile]:
        if record.file is None:
            yield io.BytesIO(record.literal)
            return
        with self._objects.open(record.file.bucket, record.file.key) as source:
            packed = self._channel.get("CompressionType") == "Gzip"
            yield gzip.GzipFile(fileobj=source) if packed else source


def _fault(what: str, error: Exception) -> InputDataError:
    if isinstance(error, S3Error):
        return S3RefusedError(what, error)
    return InputDataError(f"{what}: {error}")


def _place(record: PipeRecord | None) -> str:
    file = record.file if record is not None else None
    return f"s3://{file.bucket}/{file.key}" if file is not None else "the channel"


def _write_record(data: bytes, pipe: IO[bytes]) -> None:
    """Write one RecordIO record: magic, length, data, padding to four bytes (MXNet's format)."""
    pipe.write(struct.pack("<II", RECORD_MAGIC, len(data)))
    pipe.write(data)
    pipe.write(b"\0" * (-len(data) % 4))


def _forget_buffer(pipe: IO[bytes]) -> None:
    """Redirect the pipe to /dev/null, so that closing the pipe drops buffered data without an error."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, pipe.fileno())
    os.close(nowhere)
