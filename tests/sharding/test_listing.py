"""Files of a source that are data, and those that are not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, Source
from trainyard.sharding.listing import list_files

if TYPE_CHECKING:
    from pathlib import Path

    from tests.sharding.conftest import Store

DATA = ("part-0.csv", "year=2026/part-1.csv", "_region=eu/part-2.csv")
NO_DATA = (
    "_temporary/0/task_1/part-0.csv",
    "_spark_metadata/0.csv",
    "_committed_17.csv",
    "year=2026/_started_17.csv",
    ".part-0.csv.crc.csv",
    ".ipynb_checkpoints/part-0.csv",
    "_SUCCESS",
)


def write(root: Path, names: tuple[str, ...]) -> Path:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("a,b\n1,2\n")
    return root


@pytest.mark.parametrize("is_remote", [False, True], ids=["folder", "prefix"])
@pytest.mark.parametrize("glob", ["", "/**/*.csv"], ids=["whole", "glob"])
def test_markers_and_unfinished_writes_are_no_data(
    tmp_path: Path, is_remote: bool, glob: str
) -> None:
    root = write(tmp_path / "bucket" / "table", (*DATA, *NO_DATA))
    uri = "s3://bucket/table" if is_remote else str(root)
    if is_remote and glob:
        glob = "/*.csv"  # matches one level, as PurePath.match does
    _, files = list_files(Source(uri=uri + glob), LocalObjects(tmp_path))
    expected = {"part-0.csv"} if glob and is_remote else set(DATA)
    assert {file.uri.rpartition("table/")[2] for file in files} == expected


def test_a_folder_that_the_source_itself_names_is_data(tmp_path: Path) -> None:
    write(tmp_path / "_raw", DATA[:1])
    for uri in (tmp_path / "_raw", tmp_path / "_raw" / "*.csv", tmp_path / "_r*" / "*.csv"):
        _, files = list_files(Source(uri=str(uri)), LocalObjects(tmp_path))
        assert len(files) == 1


def test_python_modules_that_start_with_an_underscore_are_text(tmp_path: Path) -> None:
    for name in ("__init__.py", "_private.py", "open.py"):
        (tmp_path / name).write_text("x = 1\n")
    _, files = list_files(Source(uri=str(tmp_path)), LocalObjects(tmp_path))
    assert len(files) == 3


@pytest.mark.parametrize("pattern", ["v?/*.csv", "v[12]/*.csv", "v?/part-0.csv"])
def test_wildcards_of_every_kind_may_stand_in_a_folder(
    tmp_path: Path, store: Store, pattern: str
) -> None:
    for name in ("v1/part-0.csv", "v2/part-0.csv"):
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text("a,b\n1,2\n")
    _, files = list_files(Source(uri=str(tmp_path / pattern)), store)
    assert [file.name for file in files] == ["v1/part-0.csv", "v2/part-0.csv"]


def test_files_and_linked_folders_that_are_not_read_are_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    root = write(tmp_path / "in", ("a.jsonl", "b.json", "part-1"))
    write(tmp_path / "other", ("c.jsonl",))
    (root / "linked").symlink_to(tmp_path / "other")
    _, files = list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == ["a.jsonl"]
    assert caplog.messages == [
        "1 linked folder(s) of the source are not read: linked",
        "2 file(s) of the source are not read as jsonl: b.json, part-1",
    ]


@pytest.mark.parametrize("data_format", ["auto", "csv"])
def test_data_of_an_unknown_compression_is_refused(tmp_path: Path, data_format: str) -> None:
    root = write(tmp_path / "in", ("a.csv", "b.csv.lz4", "c.csv.zip"))
    with pytest.raises(DataError, match=r"2 file\(s\): b.csv.lz4, c.csv.zip\s+allowed: .gz"):
        list_files(Source(uri=str(root), data_format=data_format), LocalObjects(tmp_path / "store"))


def test_arrow_files_of_an_earlier_save_are_not_read(tmp_path: Path) -> None:
    names = ("data-00000-of-00001.arrow", "data-00000-of-00002.arrow", "data-00001-of-00002.arrow")
    root = write(tmp_path / "in", names)
    saved = {"_data_files": [{"filename": names[0]}]}
    (root / "state.json").write_text(json.dumps(saved))
    _, files = list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == [names[0]]


LOGS = {
    "Delta Lake": ("_delta_log/00000000000000000000.json", "delta_scan"),
    "Hudi": (".hoodie/hoodie.properties", 'format("hudi")'),
    "Iceberg": ("metadata/v1.metadata.json", "iceberg_scan"),
}


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("source", ["", "/lake", "/lake/", "/lake/*/*.parquet", "/l*/*/*.parquet"])
@pytest.mark.parametrize("kind", LOGS)
def test_tables_with_a_log_of_their_files_are_refused(
    tmp_path: Path, kind: str, source: str, is_remote: bool
) -> None:
    log, remedy = LOGS[kind]
    root = write(tmp_path / "bucket", ("lake/data/a.parquet", f"lake/{log}", "other/b.parquet"))
    uri = ("s3://bucket" if is_remote else str(root)) + source
    with pytest.raises(DataError, match=f"{kind} table") as caught:
        list_files(Source(uri=uri), LocalObjects(tmp_path))
    assert (caught.value.got or "").endswith(log.partition("/")[0] + "/")
    assert remedy in (caught.value.next_step or "")


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_files_beside_a_table_with_a_log_are_read(tmp_path: Path, is_remote: bool) -> None:
    names = (f"in/lake/{log}" for log, _ in LOGS.values())
    root = write(tmp_path / "bucket", ("in/a.csv", "in/lake/data/b.csv", *names))
    uri = ("s3://bucket" if is_remote else str(root)) + "/in/*.csv"
    _, files = list_files(Source(uri=uri), LocalObjects(tmp_path))
    assert [file.name for file in files] == ["a.csv"]


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_files_of_a_table_that_the_source_names_are_read(tmp_path: Path, is_remote: bool) -> None:
    root = write(tmp_path / "bucket" / "lake", ("_delta_log/0.json", "a.parquet", "b=1/c.parquet"))
    start = "s3://bucket/lake" if is_remote else str(root)
    for name in ("a.parquet", "b=1"):
        _, files = list_files(Source(uri=f"{start}/{name}"), LocalObjects(tmp_path))
        assert len(files) == 1


def test_folder_metadata_without_data_beside_it_is_no_iceberg_table(tmp_path: Path) -> None:
    root = write(tmp_path / "in", ("a.parquet", "metadata/x.metadata.json"))
    _, files = list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == ["a.parquet"]
