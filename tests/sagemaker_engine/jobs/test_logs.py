from __future__ import annotations

import json
import os
import resource
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.jobs.logs import MAX_EVENT_BYTES, LogFile, LogPump
from sagemaker_engine.logs.stream_file import TimeRange, read_forward
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("chunks", "lines"),
    [
        ([b"a\nb\n"], ["a", "b"]),
        ([b"ha", b"lf\nrest"], ["half", "rest"]),
        ([b"10%\r20%\r30%\n"], ["10%", "20%", "30%"]),
        ([b"dos\r", b"\nline\r\n"], ["dos", "line"]),
        ([b"\n \n"], []),
        ([b"bad \xff utf-8\n"], ["bad \ufffd utf-8"]),
        ([b"caf\xc3", b"\xa9\n"], ["caf\u00e9"]),
    ],
    ids=["lines", "split", "progress-bar", "dos", "blank", "not-utf-8", "split-character"],
)
def test_bytes_become_lines(tmp_path: Path, chunks: list[bytes], lines: list[str]) -> None:
    seen: list[str] = []
    log = LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda _, text: seen.append(text))

    for chunk in chunks:
        log.feed(chunk)
    log.close()

    stored = [json.loads(line) for line in (tmp_path / "algo-1-7.jsonl").read_text().splitlines()]
    assert [each["m"] for each in stored] == lines == seen
    assert [each["t"] for each in stored] == sorted(each["t"] for each in stored)


def test_a_line_is_on_disk_as_soon_as_it_is_printed(tmp_path: Path) -> None:
    log = LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda *_: None)

    log.feed(b"now\nlater")

    assert [
        json.loads(line)["m"] for line in (tmp_path / "algo-1-7.jsonl").read_text().splitlines()
    ] == ["now"]
    log.close()


def test_an_endless_line_is_cut_to_what_cloudwatch_takes(tmp_path: Path) -> None:
    log = LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda *_: None)

    log.feed(b"x" * (2 * MAX_EVENT_BYTES + 5))
    log.close()

    sizes = [
        len(json.loads(line)["m"])
        for line in (tmp_path / "algo-1-7.jsonl").read_text().splitlines()
    ]
    assert sizes == [MAX_EVENT_BYTES, MAX_EVENT_BYTES, 5]


def test_the_last_line_is_the_programs_and_not_the_toolkits(tmp_path: Path) -> None:
    log = LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda *_: None)

    log.feed(b"boom\nx sagemaker-training-toolkit INFO Waiting for the process to finish and\n")
    log.feed(b'ExecuteUserScriptError:\nCommand "python train.py"\n')
    log.close()

    assert log.last_line == "boom"


def test_a_pump_ends_with_its_last_writer(tmp_path: Path) -> None:
    pump = LogPump()
    descriptors = [
        pump.add(LogFile(tmp_path, host, epoch=7, on_line=lambda *_: None))
        for host in ("algo-1", "algo-2")
    ]
    pump.start()
    for descriptor in descriptors:
        os.write(descriptor, b"hello")
        os.close(descriptor)

    pump.join(timeout=EVENT_LIMIT_S)

    assert not pump.is_alive()
    assert json.loads((tmp_path / "algo-2-7.jsonl").read_text())["m"] == "hello"


def test_a_pump_drains_what_the_disk_does_not_take_and_tells(tmp_path: Path) -> None:
    (tmp_path / "algo-1-7.jsonl").symlink_to("/dev/full")
    pump = LogPump()
    descriptor = pump.add(LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda *_: None))

    def print_lines() -> None:
        with os.fdopen(descriptor, "wb") as pipe:
            pipe.write(b"line\n" * 100_000)

    pump.start()
    program = threading.Thread(target=print_lines, daemon=True)
    program.start()
    program.join(timeout=EVENT_LIMIT_S)
    pump.join(timeout=EVENT_LIMIT_S)

    assert not program.is_alive()
    assert pump.fault is not None
    assert pump.fault.startswith("InternalServerError: 10000")
    assert "No space left on device" in pump.fault


def test_lines_after_half_a_line_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "algo-1-7.jsonl"
    log = LogFile(tmp_path, "algo-1", epoch=7, on_line=lambda *_: None)
    log.feed(b"first\n")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 8, before[1]))
        log.feed(b"lost\nlost\n")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    log.feed(b"last\n")
    log.close()

    events = read_forward(path, offset=0, limit=9, times=TimeRange()).events
    assert [each.message for each in events][:2] == ["first", "last"]
    assert "2 lines" in events[-1].message
