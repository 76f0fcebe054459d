from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from include.local_engine.runner.logs import MAX_EVENT_BYTES, LogFile, LogPump

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

    pump.join(timeout=5)

    assert not pump.is_alive()
    assert json.loads((tmp_path / "algo-2-7.jsonl").read_text())["m"] == "hello"
