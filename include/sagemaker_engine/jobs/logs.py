"""Logs of the instances: from their pipes, line by line, into append-only files, as printed."""

from __future__ import annotations

import json
import logging
import os
import re
import selectors
import threading
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
MAX_EVENT_BYTES = 262_118
"""CloudWatch Logs takes events of up to 256 KiB, 26 bytes of which are overhead."""

TOOLKIT_REPORTS = ("Waiting for the process to finish", "Reporting training FAILURE")
"""From these lines of AWS's toolkit on, the user's program has said its last."""

ENGINE_SAYS = "trainyard engine: "

_LINE_END = re.compile(rb"\r\n|\n|\r")


class LogFile:
    """One log stream, `<host>-<epoch>.jsonl`: one JSON object a line, flushed as it comes."""

    def __init__(
        self, folder: Path, host: str, *, epoch: int, on_line: Callable[[int, str], None]
    ) -> None:
        """Open the file; `on_line` gets (epoch milliseconds, text) of every line."""
        folder.mkdir(parents=True, exist_ok=True)
        self._path = folder / f"{host}-{epoch}.jsonl"
        self._file = self._path.open("ab", buffering=0)
        self._on_line = on_line
        self._rest = b""
        self._last_ms = 0
        self._has_ended = False
        self._is_torn = False
        self._error: OSError | None = None
        self._num_lost = 0
        self.last_line = ""
        """The last words of the user's program, not of AWS's toolkit after it; no ruler lines."""

    @property
    def loss(self) -> str | None:
        """Return what could not be written and why, as one sentence; None while all could."""
        if self._error is None:
            return None
        return f"{self._num_lost} lines of {self._path} or its metrics were lost: {self._error}"

    def feed(self, data: bytes) -> None:
        """Take bytes as they were printed; a line is written once it has ended.

        A carriage return ends a line as well, so that progress bars do not grow without end. A line
        that the disk does not take is lost, see `loss`: whoever prints must never have to wait.
        """
        *lines, self._rest = _LINE_END.split(self._rest + data)
        if len(self._rest) > MAX_EVENT_BYTES:
            lines.append(self._rest)
            self._rest = b""
        self._write(lines)

    def say(self, text: str) -> None:
        """Write a line of the engine's own."""
        self._write([text.encode()])

    def close(self) -> None:
        """Write what is left without a line end, and close."""
        self._write([self._rest])
        self._rest = b""
        if self.loss is not None:
            self.say(f"trainyard engine: {self.loss}")
        self._file.close()

    def _write(self, lines: list[bytes]) -> None:
        now = self._last_ms = max(self._last_ms, int(time.time() * 1000))
        texts = [
            text
            for line in lines
            for start in range(0, len(line), MAX_EVENT_BYTES)
            if (text := line[start : start + MAX_EVENT_BYTES].decode("utf-8", "replace")).strip()
        ]
        events = [json.dumps({"t": now, "m": text}, ensure_ascii=False) + "\n" for text in texts]
        self._append("".join(events).encode("utf-8", "replace"))
        for text in texts:
            self._remember(text)
            try:
                self._on_line(now, text)
            except OSError as error:
                self._lose(error, num_lines=1)

    def _append(self, data: bytes) -> None:
        """Write the lines; the disk may take some, or half of one, which is then a line of its own.

        Readers skip the half.
        """
        rest = b"\n" + data if self._is_torn and data else data
        try:
            while rest:
                num_written = self._file.write(rest)
                self._is_torn = rest[num_written - 1 : num_written] != b"\n"
                rest = rest[num_written:]
        except OSError as error:
            self._lose(error, num_lines=rest.removeprefix(b"\n").count(b"\n"))

    def _lose(self, error: OSError, *, num_lines: int) -> None:
        if self._error is None:
            log.error("log lines of %s are lost: %s", self._path, error)
        self._error = error
        self._num_lost += num_lines

    def _remember(self, text: str) -> None:
        self._has_ended = self._has_ended or any(report in text for report in TOOLKIT_REPORTS)
        if not self._has_ended and any(each.isalnum() for each in text):
            self.last_line = text.strip()


def next_epoch(folder: Path, now: float) -> int:
    """Return the suffix of the next log streams: `now` in whole seconds, above that of all streams so far."""
    epochs = [int(each.stem.rpartition("-")[2]) for each in folder.glob("*-[0-9]*.jsonl")]
    return max([int(now), *(epoch + 1 for epoch in epochs)])


def say_in_newest(folder: Path, host: str, text: str) -> None:
    """Add a line of the engine's own to the newest log stream of a host, also after that was closed.

    A host that has not begun a stream says nothing.
    """
    streams = list(folder.glob(f"{host}-[0-9]*.jsonl"))
    if not streams:
        return
    newest = max(streams, key=lambda each: int(each.stem.rpartition("-")[2]))
    event = {"t": int(time.time() * 1000), "m": f"{ENGINE_SAYS}{text}"[:MAX_EVENT_BYTES]}
    with newest.open("ab", buffering=0) as file:
        file.write((json.dumps(event, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


class LogPump(threading.Thread):
    """Moves what the instances print into their log files until all pipes are closed."""

    def __init__(self) -> None:
        """Prepare without any pipe."""
        super().__init__(daemon=True, name="logs")
        self._selector = selectors.DefaultSelector()
        self._log_files: list[LogFile] = []

    @property
    def fault(self) -> str | None:
        """Return the FailureReason of a job whose logs are not whole; None while they are."""
        losses = [loss for each in self._log_files if (loss := each.loss) is not None]
        if not losses:
            return None
        return f"InternalServerError: {losses[0]}. Free space there and submit the job again."

    def add(self, log_file: LogFile) -> int:
        """Return a descriptor; what is written to it goes to the log file."""
        self._log_files.append(log_file)
        read_end, write_end = os.pipe()
        self._selector.register(read_end, selectors.EVENT_READ, log_file)
        return write_end

    def run(self) -> None:
        """Pump until the last writer is gone."""
        while self._selector.get_map():
            for key, _ in self._selector.select():
                data = os.read(key.fd, READ_BYTES)
                log_file: LogFile = key.data
                if data:
                    log_file.feed(data)
                else:
                    self._selector.unregister(key.fd)
                    os.close(key.fd)
                    log_file.close()
