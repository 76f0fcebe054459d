"""WebDataset archives: every sample is one row, and a faulty archive is an error."""

from __future__ import annotations

import gzip
import io
import json
import subprocess
import tarfile
import tempfile
import tracemalloc
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from tests.sharding.conftest import Store
from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, ShardSettings, sample_lines, webdataset_rows
from trainyard.sharding.source_files import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

NUM_SAMPLES = 60
COLORS = ("red", "green", "blue")
Members = list[tuple[str, bytes]]
ONE_SPLIT = {"validation_fraction": 0, "test_fraction": 0}


def labeled(number: int) -> Members:
    """Return the members of an image with a class, a text and a record."""
    record = {"width": 640 + number, "ratio": number / 8, "licence": COLORS[number % 3]}
    return [
        (f"data/{number:06d}.jpg", bytes([0xFF, 0xD8, number])),
        (f"data/{number:06d}.cls", str(number % 5).encode()),
        (f"data/{number:06d}.Caption.TXT", f"café {number % 7}".encode()),
        (f"data/{number:06d}.json", json.dumps(record).encode()),
    ]


def row(number: int) -> tuple[Any, ...]:
    return (
        number % 5,
        f"café {number % 7}",
        640 + number,
        number / 8,
        COLORS[number % 3],
    )


def pack(path: Path, members: Iterable[tuple[str, bytes]], **options: Any) -> Path:
    with tarfile.open(path, "w", **options) as archive:
        for name, content in members:
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


def texts(count: int, start: int = 0) -> Members:
    return [(f"{number}.txt", b"text %d" % number) for number in range(start, start + count)]


def samples(count: int = NUM_SAMPLES) -> Members:
    return [member for number in range(count) for member in labeled(number)]


@pytest.mark.parametrize(
    "archive_format", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT], ids=["pax", "gnu"]
)
@pytest.mark.parametrize("name", ["rows.tar", "rows.tar.gz", "rows.tgz"])
def test_every_sample_is_one_row(
    tmp_path: Path, store: Store, name: str, archive_format: int
) -> None:
    long = "a folder whose name is not ASCII, é, and longer than a header has room for " * 3
    members = [(f"{long}/{member}", content) for member, content in samples()]
    path = pack(tmp_path / name, members, format=archive_format)
    if name != "rows.tar":
        path.write_bytes(gzip.compress(path.read_bytes()))

    result = store.shard(path, ignore_columns=("jpg",))

    names = [column.name for column in store.index(result).schema or ()]
    assert names == ["cls", "caption.txt", "json.width", "json.ratio", "json.licence"]
    assert sorted(store.table(result)) == sorted(map(row, range(NUM_SAMPLES)))


def test_an_archive_of_the_tar_program_is_read(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "files"
    for name, content in samples():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    (folder / "README").write_text("not a member of a sample")
    (folder / ".hidden.txt").write_text("neither")
    command = ["tar", "--sort=name", "-cf", str(tmp_path / "rows.tar"), "-C", str(folder), "."]
    subprocess.run(command, check=True)

    result = store.shard(tmp_path / "rows.tar", ignore_columns=("jpg",), target_column="cls")

    found = [dict(zip(sorted(NAMES), each, strict=True)) for each in by_name(store, result)]
    assert sorted(tuple(each[name] for name in NAMES) for each in found) == sorted(
        map(row, range(NUM_SAMPLES))
    )


NAMES = ("cls", "caption.txt", "json.width", "json.ratio", "json.licence")


def by_name(store: Store, result: Any) -> list[tuple[Any, ...]]:
    """Return the rows with their columns in alphabetical order."""
    names = [column.name for column in store.index(result).schema or ()]
    order = sorted(range(len(names)), key=names.__getitem__)
    return [tuple(each[at] for at in order) for each in store.table(result)]


def test_a_sample_is_in_the_split_of_the_same_json_line(tmp_path: Path, store: Store) -> None:
    lines = [json.dumps(dict(zip(NAMES, row(number), strict=True))) for number in range(200)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    pack(tmp_path / "rows.tar", samples(200))
    archived = store.shard(tmp_path / "rows.tar", ignore_columns=("jpg",))
    plain = store.shard(tmp_path / "rows.jsonl")
    for split in ("train", "validation", "test"):
        assert store.table(archived, split) == store.table(plain, split)
        assert store.table(archived, split)


def test_a_remote_text_column_is_tokenized(tmp_path: Path, store: Store) -> None:
    pack(tmp_path / "rows.tar", samples())
    store.put_file(tmp_path / "rows.tar", "s3://data/in/rows.tar", sha256="")
    for column, found in (
        ("caption.txt", [f"café {number % 7}".encode() for number in range(NUM_SAMPLES)]),
        ("json.licence", [COLORS[number % 3].encode() for number in range(NUM_SAMPLES)]),
        ("cls", [b"%d" % (number % 5) for number in range(NUM_SAMPLES)]),
    ):
        result = store.shard("s3://data/in/", text_column=column, **ONE_SPLIT)
        assert sorted(store.texts(result)) == sorted(found)


def test_values_are_exact(tmp_path: Path, store: Store) -> None:
    members = [
        ("a.id", b" 9007199254740993\n"),
        ("a.json", b'\xef\xbb\xbf{"score": 0.1, "late": 1}'),
        ("b.id", b"-7"),
        ("b.json", b'{"score": null}'),
        ("c.id", b"+3"),
        ("c.json", b'{"score": 1e300}'),
    ]
    pack(tmp_path / "rows.tar", members)
    result = store.shard(tmp_path / "rows.tar", **ONE_SPLIT)
    assert store.table(result) == [(9007199254740993, 0.1, 1), (-7, None, None), (3, 1e300, None)]


def test_labels_in_words_are_categories(tmp_path: Path, store: Store) -> None:
    members = [(f"{number}.cls", COLORS[number % 3].encode()) for number in range(30)]
    members += [(f"{number + 30}.label", b"01") for number in range(10)]
    pack(tmp_path / "rows.tar", members)
    result = store.shard(tmp_path / "rows.tar", category_columns=("label",), **ONE_SPLIT)
    assert sorted(each[0] or "" for each in store.table(result)) == sorted(
        [COLORS[number % 3] for number in range(30)] + [""] * 10
    )
    assert {each[1] for each in store.table(result)} == {None, "01"}


def test_a_column_of_later_samples_is_a_column(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sample_lines, "BLOCK_BYTES", 200)
    members = [(f"{number:03d}.cls", b"%d" % number) for number in range(100)]
    pack(tmp_path / "rows.tar", [*members, ("late.cls", b"100"), ("late.txt", b"only here")])
    result = store.shard(tmp_path / "rows.tar")
    late = [(number, None) for number in range(100)] + [(100, "only here")]
    assert sorted(store.table(result), key=lambda each: each[0]) == late


def test_parts_together_hold_every_sample(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "rows"
    folder.mkdir()
    for number in range(6):
        pack(folder / f"shard-{number:06d}.tar", texts(50, 50 * number))
    whole = store.shard(folder, text_column="txt", num_shards=6)
    rows = sorted(store.texts(whole))
    assert rows == sorted(b"text %d" % number for number in range(300))
    other = Store(tmp_path / "parts")
    parts = shard_in_parts(other, folder, num_parts=3, text_column="txt")
    for split in ("train", "validation", "test"):
        assert sorted(other.texts(parts, split)) == sorted(store.texts(whole, split))


def test_a_cap_reads_the_samples_that_begin_below_it(tmp_path: Path) -> None:
    path = pack(tmp_path / "rows.tar", texts(100))
    file = SourceFile(name="rows.tar", uri=str(path), size=path.stat().st_size, max_bytes=10_240)
    wanted = ShardSettings(text_column="txt")
    blocks = list(webdataset_rows.sample_blocks(file, LocalObjects(tmp_path), settings=wanted))
    assert b"".join(block.data for block in blocks).count(b"\n") == 10


def test_files_that_are_not_read_end_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first block, from which types are derived, would need a pass over all images."""
    monkeypatch.setattr(sample_lines, "SOURCE_BYTES_AT_ONCE", 100_000)
    members = [(f"{number}.jpg", bytes(50_000)) for number in range(20)]
    path = pack(tmp_path / "rows.tar", members)
    file = SourceFile(name="rows.tar", uri=str(path), size=path.stat().st_size)
    wanted = ShardSettings(ignore_columns=("jpg",))
    blocks = list(webdataset_rows.sample_blocks(file, LocalObjects(tmp_path), settings=wanted))
    assert [block.first_line for block in blocks] == [1, *range(4, 21, 2)]


def test_the_memory_of_many_samples_is_bounded(tmp_path: Path) -> None:
    path = pack(tmp_path / "rows.tar", texts(3_000))
    file = SourceFile(name="rows.tar", uri=str(path), size=path.stat().st_size)
    wanted = ShardSettings(text_column="txt")
    tracemalloc.start()
    for _ in webdataset_rows.sample_blocks(file, LocalObjects(tmp_path), settings=wanted):
        pass
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < path.stat().st_size / 4


FAULTS: dict[str, tuple[Members, str]] = {
    "text": ([("x.txt", b"caf\xe9")], "member 'x.txt' is not UTF-8"),
    "json": ([("x.json", b'{"a": ')], "invalid value in member 'x.json'"),
    "repeated-key": (
        [("x.json", b'{"a": 1, "a": 2}')],
        "repeated key: 'a', member 'x.json'",
    ),
    "beyond-float64": ([("x.json", b'{"a": 1e999}')], "invalid value in member 'x.json'"),
    "surrogate": (
        [("x.json", b'{"a": "\\ud800"}')],
        "not UTF-8: half a surrogate pair in sample 'x'",
    ),
    "twice": (
        [("x.txt", b"one"), ("x.TXT", b"one")],
        "two values: column 'txt', member 'x.TXT'",
    ),
}


def npy(array: Any) -> bytes:
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


WRONG_ARRAYS = {
    "empty": b"",
    "cut-off": npy(np.arange(9))[:-1],
    "text": npy(np.array(["a"])),
    "times": npy(np.array(["2024-01-01"], dtype="datetime64[D]")),
    "complex": npy(np.array([1j])),
    "huge": npy(np.arange(9))
    .replace(b"(9,)", b"(9999999999999,)")
    .replace(b"            \n", b"\n"),
}


@pytest.mark.parametrize("name", WRONG_ARRAYS)
def test_a_wrong_array_is_a_bad_row(tmp_path: Path, store: Store, name: str) -> None:
    members = [
        each
        for number in range(30)
        for each in ((f"{number}.npy", npy(np.arange(3))), (f"{number}.cls", b"1"))
    ]
    members += [("x.npy", WRONG_ARRAYS[name]), ("x.cls", b"1")]
    pack(tmp_path / "rows.tar", members)

    result = store.shard(
        tmp_path / "rows.tar",
        text_column="npy",
        vocab_size=10,
        max_bad_row_fraction=0.1,
        **ONE_SPLIT,
    )

    assert (result.index.num_rows, result.index.bad_rows["count"]) == (30, 1)


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_sample_is_a_bad_row_with_its_place(
    tmp_path: Path, store: Store, fault: str
) -> None:
    members, reason = FAULTS[fault]
    pack(tmp_path / "rows.tar", [*texts(20), *members, *texts(20, 20)])
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(tmp_path / "rows.tar", text_column="txt")
    assert f"rows.tar:21: {reason}" in str(caught.value)
    result = store.shard(
        tmp_path / "rows.tar", text_column="txt", max_bad_row_fraction=0.1, **ONE_SPLIT
    )
    assert sorted(store.texts(result)) == sorted(b"text %d" % number for number in range(40))


def test_samples_that_are_all_faulty_are_an_error_with_the_first(
    tmp_path: Path, store: Store
) -> None:
    members = [(f"{number}.json", str({"w": number}).encode()) for number in range(60)]
    pack(tmp_path / "rows.tar", members)
    with pytest.raises(DataError, match="none of the first samples can be read") as caught:
        store.shard(tmp_path / "rows.tar")
    assert "rows.tar, sample 1" in str(caught.value)
    assert "0.json" in str(caught.value)


def test_a_sample_without_the_text_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    pack(tmp_path / "rows.tar", [*texts(20), ("x.cls", b"1"), ("y.txt", b"")])
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(tmp_path / "rows.tar", text_column="txt")
    assert "rows.tar:21: no text: column 'txt' is empty" in str(caught.value)
    assert "rows.tar:22: no text" in str(caught.value)


def test_a_class_that_is_not_a_number_is_a_bad_row(tmp_path: Path, store: Store) -> None:
    members = [(f"{number}.cls", b"%d" % number) for number in range(20)]
    pack(tmp_path / "rows.tar", [*members, ("x.cls", b"dog")])
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(tmp_path / "rows.tar", target_column="cls")
    assert "rows.tar:21: wrong type: 'cls' must be a number, got 'dog'" in str(caught.value)


def test_a_column_of_images_is_refused_unless_it_is_ignored(tmp_path: Path, store: Store) -> None:
    pack(tmp_path / "rows.tar", samples())
    with pytest.raises(DataError, match="type is not supported") as caught:
        store.shard(tmp_path / "rows.tar")
    assert "column 'jpg' in rows.tar, member 'data/000000.jpg'" in str(caught.value)
    assert "ignore_columns" in str(caught.value)


def cut(path: Path, size: int) -> None:
    path.write_bytes(path.read_bytes()[:size])


def damage(path: Path, offset: int) -> None:
    content = bytearray(path.read_bytes())
    content[offset] ^= 1
    path.write_bytes(content)


def append(path: Path, members: Members) -> None:
    other = pack(path.with_name("other"), members)
    path.write_bytes(path.read_bytes() + other.read_bytes())
    other.unlink()


ARCHIVE_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut-in-a-file": (lambda path: cut(path, 20 * 1024 + 514), "unexpected end of data"),
    "cut-in-a-header": (lambda path: cut(path, 20 * 1024 + 100), "a header is damaged"),
    "cut-between-files": (lambda path: cut(path, 20 * 1024), "it has no end mark"),
    "cut-at-the-end": (lambda path: cut(path, 40 * 1024), "it has no end mark"),
    "damaged": (lambda path: damage(path, 20 * 1024 + 3), "a header is damaged"),
    "concatenated": (lambda path: append(path, texts(5, 100)), "content follows the end mark"),
    "not-an-archive": (lambda path: path.write_bytes(b"text" * 1000), "a header is damaged"),
    "no-samples": (lambda path: pack(path, [("README", b"text"), (".x.txt", b"")]), "no samples"),
    "metadata-only": (lambda path: pack(path, [("__index__/a.json", b"{}")]), "no samples"),
    "not-sorted": (
        lambda path: pack(path, [*texts(9), *((f"{at}.cls", b"1") for at in range(9))]),
        "not consecutive",
    ),
}


@pytest.mark.parametrize("fault", ARCHIVE_FAULTS)
def test_a_faulty_archive_is_refused(tmp_path: Path, store: Store, fault: str) -> None:
    change, problem = ARCHIVE_FAULTS[fault]
    path = pack(tmp_path / "rows.tar", texts(40))
    change(path)
    with pytest.raises(DataError, match=problem) as caught:
        store.shard(path, text_column="txt", max_bad_row_fraction=1.0)
    assert "rows.tar" in str(caught.value)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE], ids=["symbolic", "hard"])
def test_a_link_is_refused(tmp_path: Path, store: Store, kind: bytes) -> None:
    path = tmp_path / "rows.tar"
    with tarfile.open(path, "w") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
        link = tarfile.TarInfo("b.txt")
        link.type, link.linkname = kind, "a.txt"
        archive.addfile(link)
    with pytest.raises(DataError, match=r"b\.txt -> a\.txt"):
        store.shard(path, text_column="txt")


@given(data=st.data())
@settings(max_examples=10, deadline=None)
def test_samples_are_those_that_were_packed(data: st.DataObject) -> None:
    """Law: reading gives each packed text once, in order, whatever the blocks."""
    rows = data.draw(st.lists(st.text(st.characters(codec="utf-8")), min_size=1, max_size=20))
    block_bytes = data.draw(st.integers(1, 100))
    members = [(f"{number}.txt", text.encode()) for number, text in enumerate(rows)]
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sample_lines, "BLOCK_BYTES", block_bytes)
        path = pack(Path(folder, "rows.tar"), members)
        file = SourceFile(name="rows.tar", uri=str(path), size=path.stat().st_size)
        blocks = webdataset_rows.sample_blocks(
            file, LocalObjects(Path(folder)), settings=ShardSettings()
        )
        lines = [line for block in blocks for line in block.data.splitlines()]
    assert [json.loads(line)["txt"] for line in lines] == rows


def test_a_nested_field_is_refused_unless_it_is_ignored(tmp_path: Path, store: Store) -> None:
    members = [(f"{at}.json", json.dumps({"a": at, "exif": {"b": at}})) for at in range(20)]
    path = pack(tmp_path / "rows.tar", [(name, text.encode()) for name, text in members])
    with pytest.raises(DataError, match="type is not supported") as caught:
        store.shard(path, **ONE_SPLIT)
    assert "column 'json.exif' in rows.tar:1" in str(caught.value)
    result = store.shard(path, ignore_columns=("json.exif",), **ONE_SPLIT)
    assert sorted(store.table(result)) == [(at,) for at in range(20)]
