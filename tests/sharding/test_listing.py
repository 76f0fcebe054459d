"""Files of a source that are data, and those that are not."""

from __future__ import annotations

import json
import os
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, Source
from trainyard.sharding.listing import list_files
from trainyard.sharding.uploads import UNDER_WAY

if TYPE_CHECKING:
    from collections.abc import Iterator

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
    _, files = list_files(Source(uri=uri + glob), LocalObjects(tmp_path))
    assert {file.uri.rpartition("table/")[2] for file in files} == set(DATA)


TREE = (
    "a.csv",
    "br[1].csv",
    "q?.csv",
    "2024/a.csv",
    "2024/2024-01/a.csv",
    "eu/2024/2024-01/a.csv",
    "eu/2024/b.csv",
    "eu/.cache/a.csv",
    "_old/a.csv",
    "_k=1/.a.csv",
    "_k=1/c.csv",
    "x[1]/a.csv",
    "\u6771\u4eac/a b.csv",
)
GLOBS = {
    "*.csv": TREE[:3],
    "?.csv": TREE[:1],
    "*/a.csv": ("2024/a.csv", "x[1]/a.csv"),
    "**/*.csv": (*TREE[:7], "_k=1/c.csv", *TREE[11:]),
    "**": (*TREE[:7], "_k=1/c.csv", *TREE[11:]),
    "**/**/*.csv": (*TREE[:7], "_k=1/c.csv", *TREE[11:]),
    "**/2024*/**/*.csv": TREE[3:7],
    "eu/**/a.csv": ("eu/2024/2024-01/a.csv",),
    "e**/*/b.csv": ("eu/2024/b.csv",),
    "[!e]*/**/a.csv": ("2024/a.csv", "2024/2024-01/a.csv", "x[1]/a.csv"),
    "_*/*.csv": ("_old/a.csv", "_k=1/c.csv"),
    "_*/.*.csv": ("_k=1/.a.csv",),
    "**/.cache/*": ("eu/.cache/a.csv",),
    "br[1].csv": ("br[1].csv",),
    "br[[]1].csv": ("br[1].csv",),
    "q[?].csv": ("q?.csv",),
    "x[1]": ("x[1]/a.csv",),
    "x[1]/*.csv": (),
    "x[[]1]/*.csv": ("x[1]/a.csv",),
}


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("glob", GLOBS)
def test_glob_lists_the_same_files_once_wherever_they_are(
    tmp_path: Path, glob: str, is_remote: bool
) -> None:
    root = write(tmp_path / "bucket" / "t", TREE)
    uri = ("s3://bucket/t" if is_remote else str(root)) + "/" + glob
    try:
        _, files = list_files(Source(uri=uri), LocalObjects(tmp_path))
        found = [file.uri.rpartition("bucket/t/")[2] for file in files]
    except DataError:
        found = []
    assert found == sorted(GLOBS[glob])


@pytest.mark.parametrize("uri", ["s3://bucket/t/no*.csv", "{root}/t/no[1].csv"])
def test_glob_without_files_is_refused_with_the_meaning_of_wildcards(
    tmp_path: Path, uri: str
) -> None:
    write(tmp_path / "bucket" / "t", TREE)
    with pytest.raises(DataError, match="the source does not exist") as caught:
        list_files(Source(uri=uri.format(root=tmp_path / "bucket")), LocalObjects(tmp_path))
    assert "[[]" in (caught.value.allowed or "")


@pytest.mark.parametrize("glob", ["", "/**/*.csv", "/**/*/*.csv"], ids=["whole", "glob", "two"])
def test_linked_folders_are_not_read_twice(
    tmp_path: Path, glob: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = write(tmp_path / "in", ("v1/a.csv",))
    (root / "again").symlink_to(root)
    _, files = list_files(Source(uri=f"{root}{glob}"), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == ["v1/a.csv"]
    assert caplog.messages == ["1 linked folder(s) of the source are not read: again"]


def test_linked_folder_that_the_glob_names_is_read(tmp_path: Path) -> None:
    write(tmp_path / "versions", ("v1/a.csv",))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "latest").symlink_to(tmp_path / "versions" / "v1")
    _, files = list_files(Source(uri=f"{tmp_path}/in/*/*.csv"), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == ["latest/a.csv"]


@pytest.mark.parametrize("glob", ["", "/*/*.csv", "/**/*.csv"], ids=["whole", "glob", "deep glob"])
def test_folder_that_may_not_be_listed_is_refused(glob: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        root = write(Path(folder), ("open/a.csv", "closed/a.csv", "lost+found/a.csv"))
        root.chmod(0o755)
        for name in ("closed", "lost+found"):
            (root / name).chmod(0)
        with as_other_user(), pytest.raises(DataError, match="a folder of the source") as caught:
            list_files(Source(uri=f"{root}{glob}"), LocalObjects(root / "store"))
        assert caught.value.where == str(root / "closed")
        with as_other_user(), pytest.raises(DataError, match="a source file cannot be read"):
            list_files(Source(uri=f"{root}/closed/in"), LocalObjects(root / "store"))
        (root / "closed").chmod(0o755)
        with as_other_user():
            _, files = list_files(Source(uri=f"{root}{glob}"), LocalObjects(root / "store"))
        assert [file.name for file in files] == ["closed/a.csv", "open/a.csv"]


@contextmanager
def as_other_user() -> Iterator[None]:
    """Run with another effective user if the test runs as root, whom no permission stops."""
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)


@pytest.mark.parametrize("glob", ["", "/*"], ids=["whole", "glob"])
def test_link_to_a_missing_file_of_the_format_is_refused(
    tmp_path: Path, glob: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = write(tmp_path / "in", ("a.csv",))
    (root / "README").symlink_to(root / "missing")
    source = Source(uri=f"{root}{glob}")
    _, files = list_files(source, LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == ["a.csv"]
    assert caplog.messages == ["1 file(s) of the source are not read as csv: README"]
    (root / "b.csv").symlink_to(root / "missing")
    with pytest.raises(DataError, match="a source file cannot be read") as caught:
        list_files(source, LocalObjects(tmp_path / "store"))
    assert caught.value.where == "b.csv"


OWN = (
    "datasets/0123456789abcdef/train/shard-00000.bin",
    "datasets/0123456789abcdef/quarantine/bad-rows.jsonl",
    f"datasets/0123456789abcdef/{UNDER_WAY}/{'0' * 64}/train/shard-00000.bin",
)


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
@pytest.mark.parametrize("glob", ["", "/**"], ids=["whole", "glob"])
def test_data_sets_of_trainyard_below_the_source_are_not_read(
    tmp_path: Path, is_remote: bool, glob: str, caplog: pytest.LogCaptureFixture
) -> None:
    root = write(tmp_path / "bucket" / "t", ("a.jsonl", "datasets/b.jsonl", *OWN))
    uri = ("s3://bucket/t" if is_remote else str(root)) + glob
    _, files = list_files(Source(uri=uri), LocalObjects(tmp_path))
    assert [file.name for file in files] == ["a.jsonl", "datasets/b.jsonl"]
    assert caplog.messages == [
        "1 data set(s) of Trainyard below the source are not read: datasets/0123456789abcdef"
    ]


@pytest.mark.parametrize("is_remote", [False, True], ids=["local", "remote"])
def test_quarantine_that_the_source_names_is_read(tmp_path: Path, is_remote: bool) -> None:
    root = write(tmp_path / "bucket" / "t", OWN)
    start = "s3://bucket/t" if is_remote else str(root)
    _, files = list_files(Source(uri=f"{start}/{OWN[1]}"), LocalObjects(tmp_path))
    assert [file.name for file in files] == ["bad-rows.jsonl"]


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


@pytest.mark.parametrize("name", ["a.parquet.gz", "a.arrow.zst"])
def test_parquet_and_arrow_files_that_are_compressed_as_a_whole_are_refused(
    tmp_path: Path, name: str
) -> None:
    root = write(tmp_path / "in", (name,))
    with pytest.raises(DataError, match=rf"1 file\(s\): {name}") as raised:
        list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert "decompress them" in str(raised.value)


def test_arrow_files_of_an_earlier_save_are_not_read(tmp_path: Path) -> None:
    names = ("data-00000-of-00001.arrow", "data-00000-of-00002.arrow", "data-00001-of-00002.arrow")
    root = write(tmp_path / "in", names)
    saved = {"_data_files": [{"filename": names[0]}]}
    (root / "state.json").write_text(json.dumps(saved))
    _, files = list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert [file.name for file in files] == [names[0]]


def test_a_state_that_is_not_of_hugging_face_names_its_file(tmp_path: Path) -> None:
    root = write(tmp_path / "in", ("data.arrow",))
    (root / "state.json").write_text('{"_data_files": ["data.arrow"]}')
    with pytest.raises(DataError, match="cannot be read") as caught:
        list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert "state.json" in str(caught.value.where)


@pytest.mark.parametrize(("indices", "is_refused"), [(["indices.arrow"], True), ([], False)])
def test_arrow_folder_of_selected_rows_is_refused(
    tmp_path: Path, indices: list[str], is_refused: bool
) -> None:
    root = write(tmp_path / "in", ("train/dataset.arrow", "train/indices.arrow"))
    saved = {
        "_data_files": [{"filename": "dataset.arrow"}],
        "_indices_data_files": [{"filename": name} for name in indices],
    }
    (root / "train/state.json").write_text(json.dumps(saved))
    if not is_refused:
        _, files = list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
        assert [file.name for file in files] == ["train/dataset.arrow"]
        return
    with pytest.raises(DataError, match="selects rows of its files") as caught:
        list_files(Source(uri=str(root)), LocalObjects(tmp_path / "store"))
    assert caught.value.where == "train/state.json"
    assert "indices.arrow" in (caught.value.got or "")
    assert "flatten_indices().save_to_disk" in (caught.value.next_step or "")


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
