"""Logs of the instances: lines read from pipes and appended to files."""

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
"""CloudWatch Logs accepts events of up to 256 KiB, including 26 bytes of overhead."""

TOOLKIT_REPORTS = ("Waiting for the process to finish", "Reporting training FAILURE")
"""Lines of AWS's toolkit after which the user's program prints no more."""

_ENGINE_PREFIX = "trainyard engine: "

_LINE_END = re.compile(rb"\r\n|\n|\r")


class LogFile:
    """One log stream: the file `<host>-<epoch>.jsonl`, with one JSON object per line.

    `epoch` is the suffix that `next_epoch` returned, usually the start time in epoch seconds. Writes are not
    buffered.
    """

    def __init__(
        self, folder: Path, host: str, *, epoch: int, on_line: Callable[[int, str], None]
    ) -> None:
        """Open the file; `on_line` receives (epoch milliseconds, text) of every line."""
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
        """The last line of the user's program that has a letter or digit; lines of AWS's toolkit do not count."""

    @property
    def loss(self) -> str | None:
        """Return one sentence about lines that could not be written, with the reason; None if there are none."""
        if self._error is None:
            return None
        return f"{self._num_lost} lines of the log {self._path}, or their metrics, were lost: {self._error}"

    def feed(self, data: bytes) -> None:
        """Add bytes that a program printed; a line is written once it is complete.

        A carriage return also ends a line, so that progress bars do not grow without limit. If the disk rejects a
        line, the line is dropped and counted in `loss`. The write is not repeated, because the program would then
        have to wait.
        """
        *lines, self._rest = _LINE_END.split(self._rest + data)
        if len(self._rest) > MAX_EVENT_BYTES:
            lines.append(self._rest)
            self._rest = b""
        self._write(lines)

    def add_line(self, text: str) -> None:
        """Write `text` to the stream as a line of the engine itself, with the prefix of such lines."""
        self._write([f"{_ENGINE_PREFIX}{text}".encode()])

    def close(self) -> None:
        """Write an incomplete last line, report lost lines in the log, and close the file.

        The last line is incomplete if the output does not end with a line end.
        """
        self._write([self._rest])
        self._rest = b""
        if self.loss is not None:
            self.add_line(self.loss)
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
        """Write the lines. A full disk may accept only a part of them.

        If a line is cut, the next write begins with a newline; readers skip the incomplete line.
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
    """Return the suffix of new log streams: the higher of `now` in whole seconds and the last suffix plus 1."""
    epochs = [int(each.stem.rpartition("-")[2]) for each in folder.glob("*-[0-9]*.jsonl")]
    return max([int(now), *(epoch + 1 for epoch in epochs)])


def add_line_to_newest(folder: Path, host: str, text: str) -> None:
    """Add a line of the engine to the newest log stream of a host, even if that is closed.

    If the host has no stream, nothing is written.
    """
    streams = list(folder.glob(f"{host}-[0-9]*.jsonl"))
    if not streams:
        return
    newest = max(streams, key=lambda each: int(each.stem.rpartition("-")[2]))
    event = {"t": int(time.time() * 1000), "m": f"{_ENGINE_PREFIX}{text}"[:MAX_EVENT_BYTES]}
    with newest.open("ab", buffering=0) as file:
        file.write((json.dumps(event, ensure_ascii=False) + "\n").encode("utf-8", "replace"))


class LogPump(threading.Thread):
    """Thread that copies the output of the instances into their log files, until all pipes are closed."""

    def __init__(self) -> None:
        """Prepare the thread without any pipe."""
        super().__init__(daemon=True, name="logs")
        self._selector = selectors.DefaultSelector()
        self._log_files: list[LogFile] = []

    @property
    def fault(self) -> str | None:
        """Return the FailureReason of a job whose logs are incomplete; None while they are complete."""
        losses = [loss for each in self._log_files if (loss := each.loss) is not None]
        if not losses:
            return None
        return f"InternalServerError: {losses[0]}. Free space there and submit the job again."

    def add(self, log_file: LogFile) -> int:
        """Return the write end of a new pipe; all data that is written to it is copied to the log file."""
        self._log_files.append(log_file)
        read_end, write_end = os.pipe()
        self._selector.register(read_end, selectors.EVENT_READ, log_file)
        return write_end

    def run(self) -> None:
        """Copy until the last writer has closed its pipe."""
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
