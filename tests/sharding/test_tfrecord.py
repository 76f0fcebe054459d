"""TFRecord: every example is one row, and a damaged file is an error.

TensorFlow wrote `examples.tfrecord.gz`, by `write_examples.py`. TensorBoard's writer frames the records of other files,
and protobuf serializes their examples, from the published fields.
"""

from __future__ import annotations

import gzip
import io
import json
import math
import zlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_format
from hypothesis import given, strategies as st
from tensorboard.compat.tensorflow_stub.pywrap_tensorflow import masked_crc32c as crc_of_tensorboard
from tensorboard.summary.writer.record_writer import RecordWriter

from tests.sharding.conftest import Store
from tests.sharding.test_mds import ONE_SPLIT, ids, named_rows
from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, ShardSettings
from trainyard.sharding.source_files import SourceFile
from trainyard.sharding.tfrecord_rows import crc32c, example_blocks, masked_crc32c

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

WRITTEN = Path(__file__).with_name("examples.tfrecord.gz")
NUM_WRITTEN = 40
MESSAGES = """
name: "example.proto" package: "tensorflow" syntax: "proto3"
message_type {{ name: "BytesList" field {{ name: "value" number: 1 label: LABEL_REPEATED type: TYPE_BYTES }} }}
message_type {{ name: "FloatList" field {{ name: "value" number: 1 label: LABEL_REPEATED type: TYPE_FLOAT
  options {{ packed: {packed} }} }} }}
message_type {{ name: "Int64List" field {{ name: "value" number: 1 label: LABEL_REPEATED type: TYPE_INT64
  options {{ packed: {packed} }} }} }}
message_type {{ name: "Feature" oneof_decl {{ name: "kind" }}
  field {{ name: "bytes_list" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.BytesList" oneof_index: 0 }}
  field {{ name: "float_list" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.FloatList" oneof_index: 0 }}
  field {{ name: "int64_list" number: 3 type: TYPE_MESSAGE type_name: ".tensorflow.Int64List" oneof_index: 0 }} }}
message_type {{ name: "Features"
  field {{ name: "feature" number: 1 label: LABEL_REPEATED type: TYPE_MESSAGE
    type_name: ".tensorflow.Features.FeatureEntry" }}
  nested_type {{ name: "FeatureEntry" options {{ map_entry: true }}
    field {{ name: "key" number: 1 type: TYPE_STRING }}
    field {{ name: "value" number: 2 type: TYPE_MESSAGE type_name: ".tensorflow.Feature" }} }} }}
message_type {{ name: "Example"
  field {{ name: "features" number: 1 type: TYPE_MESSAGE type_name: ".tensorflow.Features" }} }}
"""


def example_class(*, packed: bool) -> Any:
    """Return protobuf's class of `tf.train.Example`, from the fields in `tensorflow/core/example`."""
    file = text_format.Parse(
        MESSAGES.format(packed=str(packed).lower()), descriptor_pb2.FileDescriptorProto()
    )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("tensorflow.Example"))


EXAMPLE, UNPACKED = example_class(packed=True), example_class(packed=False)


def example(values: dict[str, Any], message: Any = EXAMPLE) -> bytes:
    """Return a serialized example. A value None is a feature without values."""
    built = message()
    for name, value in values.items():
        feature = built.features.feature[name]
        for each in value if isinstance(value, list) else [] if value is None else [value]:
            if isinstance(each, int):
                feature.int64_list.value.append(each)
            elif isinstance(each, float):
                feature.float_list.value.append(each)
            else:
                feature.bytes_list.value.append(each if isinstance(each, bytes) else each.encode())
    content: bytes = built.SerializeToString()
    return content


def framed(contents: Iterable[bytes]) -> bytes:
    stream = io.BytesIO()
    writer = RecordWriter(stream)
    for content in contents:
        writer.write(content)
    return stream.getvalue()


def write(path: Path, rows: Iterable[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(framed(map(example, rows)))
    return path


def read(path: Path, **settings: Any) -> list[dict[str, Any]]:
    """Return the examples of a file as the reader gives them to that of JSON lines."""
    file = SourceFile(name=path.name, uri=str(path), size=path.stat().st_size)
    blocks = example_blocks(file, LocalObjects(path.parent), settings=ShardSettings(**settings))
    return [json.loads(line) for block in blocks for line in block.data.splitlines()]


def written_row(n: int) -> dict[str, Any]:
    """Return the values of example n."""
    return {
        "id": n - 5,
        "big": 2**62 + n,
        "ratio": float(np.float32(n / 3)),
        "text": f"é{n}\n",
        "empty": n if n % 3 else None,
        "maybe": f"s{n}" if n % 4 else None,
    }


def test_examples_of_tensorflow_keep_every_value(tmp_path: Path, store: Store) -> None:
    plain = tmp_path / "in" / "rows.tfrecord-00000-of-00001"
    plain.parent.mkdir()
    plain.write_bytes(gzip.decompress(WRITTEN.read_bytes()))
    for path in (WRITTEN, plain, plain.parent):
        result = store.shard(path, num_shards=1, ignore_columns=("ids", "image"), **ONE_SPLIT)
        rows = [{name: row[name] for name in written_row(0)} for row in named_rows(store, result)]
        assert rows == [written_row(n) for n in range(NUM_WRITTEN)]


def test_lists_of_tensorflow_are_token_ids_and_bytes_are_text(store: Store) -> None:
    result = store.shard(WRITTEN, num_shards=1, text_column="ids", vocab_size=9, **ONE_SPLIT)
    assert ids(store, result) == [list(range(n % 5 + 1)) for n in range(NUM_WRITTEN)]
    result = store.shard(WRITTEN, num_shards=1, text_column="text", **ONE_SPLIT)
    assert store.texts(result) == [f"é{n}\n".encode() for n in range(NUM_WRITTEN)]


VALUES = st.one_of(
    st.none(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(width=32, allow_nan=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)


@given(
    rows=st.lists(st.dictionaries(st.text(max_size=5), VALUES), max_size=8), packed=st.booleans()
)
def test_scalars_are_read_back(
    tmp_path_factory: pytest.TempPathFactory, rows: list[dict[str, Any]], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("in") / "a.tfrecord"
    message = EXAMPLE if packed else UNPACKED
    path.write_bytes(framed(example(row, message) for row in rows))
    assert read(path) == rows


@given(ids=st.lists(st.integers(-(2**63), 2**63 - 1), max_size=50), packed=st.booleans())
def test_token_ids_are_read_back_as_lists(
    tmp_path_factory: pytest.TempPathFactory, ids: list[int], packed: bool
) -> None:
    path = tmp_path_factory.mktemp("in") / "a.tfrecord"
    path.write_bytes(framed([example({"x": ids}, EXAMPLE if packed else UNPACKED)]))
    wanted = ids or None  # `example` selects no kind for a list without values
    assert read(path, text_column="x") == [{"x": wanted}]


def test_an_example_is_in_the_split_of_the_same_json_line(tmp_path: Path, store: Store) -> None:
    rows = [{"id": at, "text": f"text {at}"} for at in range(150)]
    write(tmp_path / "in" / "a.tfrecords", rows[:70])
    write(tmp_path / "in" / "b.tfrecords", rows[70:])
    (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    found, plain = store.shard(tmp_path / "in"), store.shard(tmp_path / "rows.jsonl")
    for split in ("train", "validation", "test"):
        ours, theirs = (
            sorted(sorted(row, key=str) for row in store.table(each, split))
            for each in (found, plain)
        )
        assert ours == theirs
        assert store.table(found, split)


def test_parts_together_hold_every_example(tmp_path: Path) -> None:
    store = Store(tmp_path / "parts")
    for number in range(6):
        rows = [{"text": f"text {at}"} for at in range(number * 50, number * 50 + 50)]
        write(tmp_path / "in" / f"a.tfrecord-{number:05d}-of-00006", rows)
    result = shard_in_parts(store, tmp_path / "in", num_parts=3, text_column="text")
    assert sorted(store.texts(result)) == sorted(f"text {at}".encode() for at in range(300))


def test_a_remote_file_is_read(tmp_path: Path, store: Store) -> None:
    path = write(tmp_path / "a.tfrecord", [{"text": f"text {at}"} for at in range(50)])
    store.put_file(path, "s3://data/in/a.tfrecord", sha256="")
    result = store.shard("s3://data/in/", text_column="text")
    assert sorted(store.texts(result)) == sorted(f"text {at}".encode() for at in range(50))


def test_a_feature_that_only_the_fifth_file_has_is_null_in_the_others(
    tmp_path: Path, store: Store
) -> None:
    for number in range(4):
        write(tmp_path / "in" / f"{number}.tfrecord", [{"id": number}])
    write(tmp_path / "in" / "4.tfrecord", [{"id": 4, "late": 1.5}])
    result = store.shard(tmp_path / "in", num_shards=1, **ONE_SPLIT)
    assert [row["late"] for row in named_rows(store, result)] == [None] * 4 + [1.5]


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path, store: Store) -> None:
    numbers = [1.5, math.inf, -math.inf, math.nan]
    write(tmp_path / "a.tfrecord", [{"x": number} for number in numbers])
    result = store.shard(tmp_path / "a.tfrecord", num_shards=1, **ONE_SPLIT)
    assert store.table(result) == [(1.5,), (math.inf,), (-math.inf,), (None,)]


@pytest.mark.parametrize(
    ("content", "checksum"),
    [
        (bytes(32), 0x8A9136AA),
        (b"\xff" * 32, 0x62A8AB43),
        (bytes(range(32)), 0x46DD794E),
        (b"123456789", 0xE3069283),
        (b"", 0),
    ],
)
def test_the_checksum_is_that_of_rfc_3720(content: bytes, checksum: int) -> None:
    assert crc32c(content) == checksum


@given(
    size=st.sampled_from([0, 1, 3, 4, 8, 63, 64, 65, 1023, 1024, 1025, 1087, 1088, 3000]),
    seed=st.integers(0, 99),
)
def test_the_checksum_is_that_of_tensorboard(size: int, seed: int) -> None:
    content = np.random.default_rng(seed).bytes(size)
    assert masked_crc32c(content) == crc_of_tensorboard(content)


def test_every_damaged_byte_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": 1}, {"text": "a text"}])
    content = path.read_bytes()
    for at in range(len(content)):
        path.write_bytes(content[:at] + bytes([content[at] ^ 4]) + content[at + 1 :])
        with pytest.raises(DataError, match=r"record at byte \d+ has a wrong checksum") as caught:
            read(path)
        assert "a.tfrecord" in str(caught.value)
        assert "exclude it with a glob" in str(caught.value)


def test_every_cut_is_refused_except_between_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tfrecord", [{"x": 1}])
    first = path.stat().st_size
    content = write(path, [{"x": 1}, {"text": "a text"}]).read_bytes()
    for size in range(1, len(content)):
        path.write_bytes(content[:size])
        if size == first:
            assert read(path) == [{"x": 1}]
            continue
        start = 0 if size < first else first
        with pytest.raises(DataError, match=f"ends within the record at byte {start}"):
            read(path)


LENGTH = (64 * 1024**2 + 1).to_bytes(8, "little")
LARGE = LENGTH + crc_of_tensorboard(LENGTH).to_bytes(4, "little") + bytes(100)
OTHER_CONTENT: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "gzip": (gzip.compress, r"add \.gz to its name"),
    "zlib": (zlib.compress, "again with GZIP or without compression"),
    "text": (lambda _: b"some text that is long enough", "not a TFRecord file"),
    "large": (lambda _: LARGE, "at most 67108864 are allowed"),
}


@pytest.mark.parametrize("kind", OTHER_CONTENT)
def test_other_content_is_refused(tmp_path: Path, kind: str) -> None:
    change, problem = OTHER_CONTENT[kind]
    path = write(tmp_path / "a.tfrecord", [{"x": at} for at in range(50)])
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=problem):
        read(path)


def test_a_sequence_example_is_refused(tmp_path: Path, store: Store) -> None:
    sequence = example({"x": 1}) + b"\x12\x00"  # field 2, `feature_lists`
    (tmp_path / "a.tfrecord").write_bytes(framed([sequence]))
    with pytest.raises(DataError, match=r"a\.tfrecord, record 1") as caught:
        store.shard(tmp_path / "a.tfrecord")
    assert "tf.train.SequenceExample" in str(caught.value)


def test_a_column_of_images_is_refused_unless_it_is_ignored(store: Store) -> None:
    with pytest.raises(DataError, match="add the column to ignore_columns") as caught:
        store.shard(WRITTEN, ignore_columns=("ids",))
    assert "column 'image' in examples.tfrecord.gz, record 1" in str(caught.value)
    assert "binary content" in str(caught.value)


def test_a_list_is_refused_unless_it_is_the_text_column(store: Store) -> None:
    with pytest.raises(DataError, match=r"a list: \[0, 1\]") as caught:
        store.shard(WRITTEN, ignore_columns=("image",))
    assert "column 'ids' in examples.tfrecord.gz:2" in str(caught.value)


BAD_ROWS: dict[str, tuple[bytes, str]] = {
    "no-protobuf": (b"some text", "invalid record: field"),
    "other-message": (b"\x1a\x01a", "invalid record: not a tf.train.Example (it has a field 3)"),
    "cut-message": (example({"x": "text"})[:-1], "invalid record: a protocol buffer is cut off"),
    "not-utf-8": (example({"x": b"caf\xe9"}), "feature 'x' is not UTF-8"),
    "two-texts": (example({"x": ["a", "b"]}), "invalid value in feature 'x': 2 values"),
    "numbers": (example({"x": 1.5}), "wrong type: 'x' must be a string"),
    "twice": (example({"x": "a"}) * 2, "two values: column 'x'"),
}


@pytest.mark.parametrize("fault", BAD_ROWS)
def test_a_faulty_example_is_a_bad_row_with_its_place(
    tmp_path: Path, store: Store, fault: str
) -> None:
    bad, reason = BAD_ROWS[fault]
    path = tmp_path / "a.tfrecord"
    path.write_bytes(framed([example({"x": f"text {at}"}) for at in range(20)] + [bad]))
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(path, text_column="x")
    assert f"a.tfrecord:21: {reason}" in str(caught.value)
