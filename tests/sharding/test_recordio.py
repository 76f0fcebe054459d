"""RecordIO: every record of SageMaker is one row, and a damaged file is an error.

The toolkit in AWS's containers (`sagemaker_training`) writes the files and has the classes of the records.
"""

from __future__ import annotations

import gzip
import io
import json
import struct
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, strategies as st
from sagemaker_training import recordio
from sagemaker_training.record_pb2 import Record

from tests.sharding.conftest import Store
from tests.sharding.test_mds import ONE_SPLIT, ids, named_rows
from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, ShardSettings
from trainyard.sharding.recordio_rows import record_io_blocks, records_of
from trainyard.sharding.source_files import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

MAGIC = struct.pack("<I", 0xCED7230A)
WRITTEN_BY_MXNET = bytes.fromhex(
    "0a23d7ce04000020616161610a23d7ce04000060626262620a23d7ce08000000"
    "6161610a23d7ce620a23d7ce000000200a23d7ce000000600a23d7ce00000020"
    "0a23d7ce000000400a23d7ce000000600a23d7ce02000000787900000a23d7ce"
    "04000020616161610a23d7ce04000040626262620a23d7ce0200006063630000"
)
"""File of `MXRecordIOWriterWriteRecord` in mxnet 1.9.1, with the records of `test_records_of_mxnet_are_whole`."""
JPEG = b"\xff\xd8\xff\xe0\0\x10JFIF"


def record(
    features: dict[str, Any], label: Any = None, *, kind: str = "float32_tensor", **changed: Any
) -> bytes:
    """Return a serialized record. A value is a number, a list of them, or a text."""
    built = Record(**changed)
    for name, value in features.items():
        fill(built.features[name], value, kind)
    if label is not None:
        fill(built.label["values"], label, kind)
    content: bytes = built.SerializeToString()
    return content


def fill(value: Any, content: Any, kind: str) -> None:
    if isinstance(content, str | bytes):
        value.bytes.value.append(content if isinstance(content, bytes) else content.encode())
    else:
        numbers = content if isinstance(content, list) else [content]
        getattr(value, kind).values.extend(numbers)


def framed(contents: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    for content in contents:
        recordio._write_recordio(stream, content)
    return stream.getvalue()


def write(path: Path, contents: Iterable[bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(framed(contents))
    return path


def read(path: Path, **settings: Any) -> list[dict[str, Any]]:
    """Return the records of a file as the reader gives them to that of JSON lines."""
    file = SourceFile(name=path.name, uri=str(path), size=path.stat().st_size)
    blocks = record_io_blocks(file, LocalObjects(path.parent), settings=ShardSettings(**settings))
    return [json.loads(line) for block in blocks for line in block.data.splitlines()]


@pytest.mark.parametrize("dtype", ["float32", "float64", "int64"])
@pytest.mark.parametrize("suffix", [".rec", ".recordio", ".recordio.gz"])
def test_a_matrix_of_sagemaker_keeps_every_value(
    tmp_path: Path, store: Store, dtype: str, suffix: str
) -> None:
    matrix = (np.random.default_rng(1).normal(size=(40, 3)) * 100).astype(dtype)
    labels = np.arange(40, dtype=dtype)
    stream = io.BytesIO()
    recordio._write_numpy_to_dense_tensor(stream, matrix, labels)
    content = stream.getvalue()
    path = tmp_path / f"a{suffix}"
    path.write_bytes(gzip.compress(content) if suffix.endswith(".gz") else content)
    result = store.shard(path, num_shards=1, **ONE_SPLIT)
    names = ["values.0", "values.1", "values.2", "label"]
    rows = np.hstack([matrix, labels[:, None]]).tolist()
    wanted = [dict(zip(names, row, strict=True)) for row in rows]
    assert [{name: row[name] for name in names} for row in named_rows(store, result)] == wanted


NUMBERS = {
    "float32_tensor": st.floats(width=32, allow_nan=False),
    "float64_tensor": st.floats(allow_nan=False),
    "int32_tensor": st.integers(-(2**31), 2**31 - 1),
}
TEXTS = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize("kind", NUMBERS)
@given(data=st.data())
def test_features_and_labels_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, kind: str, data: st.DataObject
) -> None:
    values = st.one_of(NUMBERS[kind], TEXTS)
    names = st.text(max_size=5).filter(lambda name: name != "label")
    features = data.draw(st.lists(st.dictionaries(names, values), max_size=5))
    label = data.draw(NUMBERS[kind])
    records = [record(each, label, kind=kind, uid="a", metadata="b") for each in features]
    path = write(tmp_path_factory.mktemp("in") / "a.rec", records)
    assert read(path) == [{**each, "label": label} for each in features]


@pytest.mark.parametrize("length", [1, 2, 50])
def test_whole_numbers_are_token_ids(tmp_path: Path, store: Store, length: int) -> None:
    rows = [list(range(at, at + length)) for at in range(30)]
    records = [record({"x": row, "y": 1}, kind="int32_tensor") for row in rows]
    path = write(tmp_path / "a.rec", records)
    result = store.shard(path, num_shards=1, text_column="x", vocab_size=100, **ONE_SPLIT)
    assert ids(store, result) == rows


def test_parts_together_hold_every_record(tmp_path: Path) -> None:
    store = Store(tmp_path / "parts")
    for number in range(6):
        rows = [record({"x": f"text {at}"}) for at in range(number * 50, number * 50 + 50)]
        write(tmp_path / "in" / f"{number}.rec", rows)
    result = shard_in_parts(store, tmp_path / "in", num_parts=3, text_column="x")
    assert sorted(store.texts(result)) == sorted(f"text {at}".encode() for at in range(300))


def split_at_magic(content: bytes) -> bytes:
    """Return a record as dmlc-core writes it: the magic at multiples of four bytes separates its parts."""
    parts, start = [], 0
    for at in range(0, len(content) - 3, 4):
        if content[at : at + 4] == MAGIC:
            parts.append(content[start:at])
            start = at + 4
    parts.append(content[start:])
    flags = [1, *[2] * (len(parts) - 2), 3] if len(parts) > 1 else [0]
    return b"".join(
        MAGIC + struct.pack("<I", flag << 29 | len(part)) + part + bytes(-len(part) % 4)
        for flag, part in zip(flags, parts, strict=True)
    )


def test_a_record_with_the_magic_is_read_in_parts_and_as_a_whole(tmp_path: Path) -> None:
    number = struct.unpack("<f", MAGIC)[0]
    values = [*[1.0] * 7, number, 2.0, number, number, 3.0]
    # Names of different lengths: with one of them, the magic is at a multiple of four bytes.
    for shift in range(4):
        content = record({"x" * (shift + 1): values})
        path = tmp_path / f"{shift}.rec"
        path.write_bytes(split_at_magic(content) + framed([content]))
        first, second = read(path)
        assert first == second
        assert list(first.values()) == values
    assert any(
        MAGIC + struct.pack("<I", 3 << 29 | 4) in each.read_bytes() for each in tmp_path.iterdir()
    )


def test_records_of_mxnet_are_whole() -> None:
    contents = [content for _, content in records_of(io.BytesIO(WRITTEN_BY_MXNET))]
    assert contents == [
        b"aaaa" + MAGIC + b"bbbb",
        b"aaa" + MAGIC + b"b",
        MAGIC,
        MAGIC + MAGIC,
        b"xy",
        b"aaaa" + MAGIC + b"bbbb" + MAGIC + b"cc",
    ]


def test_every_cut_is_refused_except_between_records(tmp_path: Path) -> None:
    one, two = (
        framed([record({"x": 1})]),
        split_at_magic(b"\x1a\x10" + b"a" * 2 + MAGIC * 2 + b"a" * 6),
    )
    path = tmp_path / "a.rec"
    content = one + two
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        if size == len(one):
            assert read(path) == [{"x": 1.0}]
            continue
        start = 0 if size < len(one) else len(one)
        with pytest.raises(DataError, match=f"ends within the record at byte {start}") as caught:
            read(path)
        assert "a.rec" in str(caught.value)
    path.write_bytes(content)
    assert read(path)[0] == {"x": 1.0}


DAMAGED: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "magic": (lambda good: good + b"\n#\xd7\xcf" + good[4:], r"no record begins at byte \d+"),
    "text": (lambda _: b"some text that is long enough", "no record begins at byte 0: not a RecordIO"),
    "longer": (lambda good: good[:4] + struct.pack("<I", 5) + good[8:], "no record begins"),
    "a-middle": (lambda good: good + MAGIC + struct.pack("<I", 2 << 29), "wrong flag 2"),
    "two-starts": (lambda good: good + (MAGIC + struct.pack("<I", 1 << 29)) * 2, "wrong flag 1"),
    "flag": (lambda good: good + MAGIC + struct.pack("<I", 4 << 29), "wrong flag 4"),
    "large": (lambda good: good + MAGIC + struct.pack("<I", 2**28), "at most 67108864 are allowed"),
}  # fmt: skip


@pytest.mark.parametrize("fault", DAMAGED)
def test_a_damaged_file_is_refused(tmp_path: Path, fault: str) -> None:
    damage, problem = DAMAGED[fault]
    path = tmp_path / "a.rec"
    path.write_bytes(damage(framed([record({"x": 1})])))
    with pytest.raises(DataError, match=problem) as caught:
        read(path)
    assert "exclude it with a glob" in str(caught.value)


@pytest.mark.parametrize("num_labels", [0, 1, 5, 10])
def test_images_of_mxnet_are_refused(tmp_path: Path, store: Store, num_labels: int) -> None:
    header = struct.pack("<IfQQ", num_labels, 1.0, 7, 0) + bytes(4 * num_labels)
    path = write(tmp_path / "a.rec", [header + JPEG])
    with pytest.raises(DataError, match="images in MXNet's format") as caught:
        store.shard(path)
    assert "a.rec, record 1" in str(caught.value)


def test_a_sparse_tensor_is_refused_unless_it_is_ignored(tmp_path: Path, store: Store) -> None:
    stream = io.BytesIO()
    matrix = scipy.sparse.csr_matrix(np.diag(np.arange(4.0)))  # the first row has no values
    recordio._write_spmatrix_to_sparse_tensor(stream, matrix, np.arange(4.0))
    path = tmp_path / "a.rec"
    path.write_bytes(stream.getvalue())
    with pytest.raises(DataError, match="write it as a dense tensor") as caught:
        store.shard(path)
    assert "got: a sparse tensor: 0 values, 0 keys, shape [4]" in str(caught.value)
    assert "column 'values' in a.rec, record 1" in str(caught.value)
    result = store.shard(path, num_shards=1, ignore_columns=("values",), **ONE_SPLIT)
    assert store.table(result) == [(0.0,), (1.0,), (2.0,), (3.0,)]


def test_keys_without_a_shape_are_a_sparse_tensor(tmp_path: Path, store: Store) -> None:
    built = Record()
    built.features["x"].float32_tensor.values.extend([1.0, 2.0])
    built.features["x"].float32_tensor.keys.extend([0, 5])
    with pytest.raises(DataError, match=r"a sparse tensor: 2 values, 2 keys, shape \[\]"):
        store.shard(write(tmp_path / "a.rec", [built.SerializeToString()]))


def test_a_tensor_of_several_axes_and_binary_content_are_refused(
    tmp_path: Path, store: Store
) -> None:
    built = Record()
    built.features["x"].float32_tensor.values.extend([1.0, 2.0])
    built.features["x"].float32_tensor.shape.extend([1, 2])
    with pytest.raises(DataError, match=r"a tensor of shape \[1, 2\]"):
        store.shard(write(tmp_path / "a.rec", [built.SerializeToString()]))
    with pytest.raises(DataError, match="binary content"):
        store.shard(write(tmp_path / "b.rec", [record({"x": JPEG})]))


def test_a_dense_tensor_may_have_a_shape_and_ignored_positions(tmp_path: Path) -> None:
    built = Record()
    built.features["x"].float32_tensor.values.extend([1.0, 2.0])
    built.features["x"].float32_tensor.shape.append(2)
    path = write(tmp_path / "a.rec", [built.SerializeToString()])
    assert read(path, ignore_columns=("x.0",)) == [{"x.0": None, "x.1": 2.0}]


BAD_ROWS: dict[str, tuple[bytes, str]] = {
    "no-protobuf": (b"some text", "invalid record: field"),
    "other-message": (b"\x32\x01a", "invalid record: not a Record of SageMaker (it has a field 6)"),
    "cut-message": (record({"x": "text"})[:-1], "invalid record: a protocol buffer is cut off"),
    "not-utf-8": (record({"x": b"caf\xe9"}), "tensor 'x' is not UTF-8"),
    "twice": (record({"x": "a"}) * 2, "two values: column 'x'"),
}


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_faulty_record_is_a_bad_row_with_its_place(
    tmp_path: Path, store: Store, fault: str
) -> None:
    bad, reason = BAD_ROWS[fault]
    path = write(tmp_path / "a.rec", [*(record({"x": f"text {at}"}) for at in range(20)), bad])
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(path, text_column="x")
    assert f"a.rec:21: {reason}" in str(caught.value)
