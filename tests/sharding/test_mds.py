"""MDS shards: every sample is one row, and a faulty shard or data set is an error.

`loaders.tar.xz` has the folder `mds`, which MDSWriter of mosaicml-streaming 0.13.0 wrote, and `webdataset.tar` by
TarWriter of webdataset 1.0.2, with the values of `mosaicml_row` and `webdataset_row`.
"""

from __future__ import annotations

import itertools
import json
import shutil
import struct
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from tests.sharding.conftest import Store
from tests.sharding.test_parts import shard_in_parts
from trainyard.errors import DataError
from trainyard.sharding import LocalObjects, ShardSettings, sample_lines
from trainyard.sharding.mds_rows import shard_blocks
from trainyard.sharding.source_files import SourceFile

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.sharding import ShardingResult

WRITTEN = Path(__file__).with_name("loaders.tar.xz")
NUM_WRITTEN = 40
ONE_SPLIT = {"validation_fraction": 0, "test_fraction": 0}
COLUMNS = {"id": ("int", 8), "text": ("str", None), "ids": ("ndarray:uint16", None)}


def mosaicml_row(n: int) -> dict[str, Any]:
    """Return the values of sample n."""
    return {
        "i": n - 5,
        "u8": n,
        "i16": -n,
        "u64": 2**64 - 1 - n,
        "f16": n / 4,
        "f32": float(np.float32(n / 3)),
        "f64": n / 7,
        "s": f"é{n}\n",
        "j.a": n,
        "j.b": None if n % 2 else f"x{n}",
        "big": 10**15 + n,
        "sf": n / 9,
        "d": n / 8,
    }


def webdataset_row(n: int) -> dict[str, Any]:
    """Return the values of sample n."""
    return {
        "cls": n % 10,
        "txt": f"é{n}\n",
        "json.w": 7 * n,
        "json.f": n / 3,
        "json.s": None if n % 4 == 0 else f"s{n}",
    }


@pytest.fixture
def written(tmp_path: Path) -> Path:
    with tarfile.open(WRITTEN) as archive:
        archive.extractall(tmp_path / "written", filter="data")
    return tmp_path / "written"


def named_rows(store: Store, result: ShardingResult) -> list[dict[str, Any]]:
    names = [column.name for column in store.index(result).schema or ()]
    return [dict(zip(names, row, strict=True)) for row in store.table(result)]


def ids(store: Store, result: ShardingResult) -> list[list[int]]:
    return [
        shard["tokens"][start:end].tolist()
        for shard in store.buffers(result, "train")
        for start, end in itertools.pairwise([0, *shard["row_ends"].tolist()])
    ]


def test_a_data_set_of_mosaicml_keeps_every_value(written: Path, store: Store) -> None:
    left_out = ("raw", "a0", "a1", "a2")
    result = store.shard(written / "mds", num_shards=1, ignore_columns=left_out, **ONE_SPLIT)
    assert named_rows(store, result) == [mosaicml_row(n) for n in range(NUM_WRITTEN)]


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("a0", lambda n: list(range(n % 5 + 1))),
        ("a1", lambda n: list(range(n, n + 3 + n % 4))),
        ("a2", lambda n: [0, n, 2 * n, 3 * n]),
    ],
)
def test_arrays_of_mosaicml_are_token_ids(
    written: Path, store: Store, column: str, wanted: Callable[[int], list[int]]
) -> None:
    result = store.shard(
        written / "mds", num_shards=1, text_column=column, vocab_size=1000, **ONE_SPLIT
    )
    assert ids(store, result) == [wanted(n) for n in range(NUM_WRITTEN)]


def test_an_archive_of_webdataset_keeps_every_value(written: Path, store: Store) -> None:
    path, left_out = written / "webdataset.tar", ("seg.jpg", "ids.npy")
    result = store.shard(path, num_shards=1, ignore_columns=left_out, **ONE_SPLIT)
    assert named_rows(store, result) == [webdataset_row(n) for n in range(NUM_WRITTEN)]
    result = store.shard(path, num_shards=1, text_column="ids.npy", vocab_size=99, **ONE_SPLIT)
    assert ids(store, result) == [list(range(n + 1)) for n in range(NUM_WRITTEN)]


def values(number: int) -> dict[str, bytes]:
    array = np.arange(number % 3 + 1, dtype=np.uint16)
    return {
        "id": struct.pack("<q", number),
        "text": f"text {number}".encode(),
        "ids": bytes([4, len(array)]) + array.tobytes(),
    }


def write_shard(
    path: Path,
    samples: list[dict[str, bytes]],
    columns: dict[str, tuple[str, int | None]] | None = None,
    **changed: Any,
) -> Path:
    columns = columns or COLUMNS
    header = {
        "format": "mds",
        "version": 2,
        "column_names": list(columns),
        "column_encodings": [encoding for encoding, _ in columns.values()],
        "column_sizes": [size for _, size in columns.values()],
        **changed,
    }
    described = json.dumps(header).encode()
    bodies = []
    for sample in samples:
        sizes = [len(sample[name]) for name, (_, size) in columns.items() if size is None]
        bodies.append(
            struct.pack(f"<{len(sizes)}I", *sizes) + b"".join(sample[name] for name in columns)
        )
    first = 4 * (len(samples) + 2) + len(described)
    offsets = [first, *itertools.accumulate(map(len, bodies), initial=first)][1:]
    path.write_bytes(
        struct.pack(f"<{len(offsets) + 1}I", len(samples), *offsets) + described + b"".join(bodies)
    )
    return path


def write_set(folder: Path, num_shards: int = 3, per_shard: int = 50) -> Path:
    folder.mkdir(parents=True)
    shards = []
    for number in range(num_shards):
        name = f"shard.{number:05d}.mds"
        samples = [values(at) for at in range(number * per_shard, (number + 1) * per_shard)]
        write_shard(folder / name, samples)
        shards.append({"raw_data": {"basename": name}, "zip_data": None})
    (folder / "index.json").write_text(json.dumps({"shards": shards, "version": 2}))
    return folder


def test_a_sample_is_in_the_split_of_the_same_json_line(tmp_path: Path, store: Store) -> None:
    lines = [json.dumps({"id": at, "text": f"text {at}"}) for at in range(150)]
    (tmp_path / "rows.jsonl").write_text("\n".join(lines) + "\n")
    found = store.shard(write_set(tmp_path / "mds"), ignore_columns=("ids",))
    plain = store.shard(tmp_path / "rows.jsonl")
    for split in ("train", "validation", "test"):
        assert store.table(found, split) == store.table(plain, split)
        assert store.table(found, split)


def test_parts_together_hold_every_sample(tmp_path: Path) -> None:
    store = Store(tmp_path / "parts")
    source = write_set(tmp_path / "mds", num_shards=6)
    result = shard_in_parts(store, source, num_parts=3, text_column="text")
    assert sorted(store.texts(result)) == sorted(f"text {at}".encode() for at in range(300))


def test_a_remote_data_set_is_read(tmp_path: Path, store: Store) -> None:
    for path in write_set(tmp_path / "mds").iterdir():
        store.put_file(path, f"s3://data/in/{path.name}", sha256="")
    result = store.shard("s3://data/in/", text_column="text")
    assert sorted(store.texts(result)) == sorted(f"text {at}".encode() for at in range(150))


def test_numbers_that_are_not_finite_are_kept(tmp_path: Path, store: Store) -> None:
    numbers = ["1.5", "inf", "-inf", "nan", "2"]
    columns = {"a": ("str_float", None), "b": ("float32", 4)}
    samples = [{"a": text.encode(), "b": np.float32(float(text)).tobytes()} for text in numbers]
    write_shard(tmp_path / "a.mds", samples, columns)
    result = store.shard(tmp_path / "a.mds", num_shards=1, **ONE_SPLIT)
    expected = [1.5, float("inf"), float("-inf"), None, 2.0]
    assert store.table(result) == [(each, each) for each in expected]


def test_values_that_are_not_read_end_a_block(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the first block, from which types are derived, would need a pass over all images."""
    monkeypatch.setattr(sample_lines, "SOURCE_BYTES_AT_ONCE", 100_000)
    columns = {"id": ("int", 8), "image": ("jpeg", None)}
    samples = [{"id": struct.pack("<q", at), "image": bytes(50_000)} for at in range(20)]
    path = write_shard(tmp_path / "a.mds", samples, columns)
    file = SourceFile(name="a.mds", uri=str(path), size=path.stat().st_size)
    settings = ShardSettings(ignore_columns=("image",))
    blocks = list(shard_blocks(file, LocalObjects(tmp_path), settings=settings))
    assert [block.first_line for block in blocks] == [1, *range(4, 21, 2)]


BAD_VALUES: dict[str, tuple[str, bytes, str]] = {
    "text": ("str", b"caf\xe9", "column 'x' is not UTF-8"),
    "json": ("json", b'{"a": ', "invalid value in column 'x'"),
    "number": ("str_int", b"1_0", "invalid value in column 'x'"),
    "text-for-a-number": ("str_float", b'"1"', "invalid value in column 'x': not a number"),
    "beyond-float64": ("str_decimal", b"1E+999", "invalid value in column 'x'"),
    "array": ("ndarray:uint16", bytes([4, 3, 1, 0]), "invalid value in column 'x'"),
    "array-type": ("ndarray", bytes([7, 4, 1, 1]), "invalid value in column 'x': an array"),
    "empty-array": ("ndarray", b"", "invalid value in column 'x': an array"),
}


@pytest.mark.parametrize("fault", BAD_VALUES)
def test_a_faulty_value_is_a_bad_row_with_its_place(
    tmp_path: Path, store: Store, fault: str
) -> None:
    encoding, bad, reason = BAD_VALUES[fault]
    good = {"str": b"text", "json": b'{"a": 1}'}.get(encoding, b"5")
    if "ndarray" in encoding:
        good = bytes([4, 1, 1, 0]) if ":" in encoding else bytes([16, 4, 1, 1, 0])
    samples = [{"x": good} for _ in range(20)]
    path = write_shard(tmp_path / "a.mds", [*samples, {"x": bad}], {"x": (encoding, None)})
    text = {"text_column": "x", "vocab_size": 9} if "ndarray" in encoding else {}
    with pytest.raises(DataError, match="too many rows") as caught:
        store.shard(path, **text)
    assert f"a.mds:21: {reason}" in str(caught.value)


def test_a_column_of_images_is_refused_unless_it_is_ignored(written: Path, store: Store) -> None:
    with pytest.raises(DataError, match="type is not supported") as caught:
        store.shard(written / "mds", ignore_columns=("a0", "a1", "a2"))
    assert "column 'raw' in shard.00000.mds.zstd" in str(caught.value)
    assert "got: bytes" in str(caught.value)


def change(path: Path, at: int, number: int) -> None:
    content = bytearray(path.read_bytes())
    content[at : at + 4] = struct.pack("<I", number)
    path.write_bytes(content)


SHARD_FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "cut": (lambda path: path.write_bytes(path.read_bytes()[:-3]), "ends before the last sample"),
    "cut-in-the-header": (lambda path: path.write_bytes(path.read_bytes()[:30]), "ends before"),
    "longer": (lambda path: path.write_bytes(path.read_bytes() + b"1"), "content follows"),
    "offsets": (lambda path: change(path, 8, 2**31), "the offsets of the samples are wrong"),
    "offset": (lambda path: change(path, 8, struct.unpack_from("<I", path.read_bytes(), 8)[0] + 1),
               "do not match its size"),
    "version": (lambda path: write_shard(path, [values(1)], version=3), "version 3"),
    "format": (lambda path: write_shard(path, [values(1)], format="xsv"), "format 'xsv'"),
    "columns": (lambda path: write_shard(path, [values(1)], column_names=["a"]), "ValueError"),
    "no-shard": (lambda path: path.write_bytes(b"text" * 100), "1954047348 samples"),
}  # fmt: skip


@pytest.mark.parametrize("fault", SHARD_FAULTS)
def test_a_faulty_shard_is_refused(tmp_path: Path, store: Store, fault: str) -> None:
    damage, problem = SHARD_FAULTS[fault]
    path = write_shard(tmp_path / "a.mds", [values(at) for at in range(50)])
    damage(path)
    with pytest.raises(DataError, match=problem) as caught:
        store.shard(path, text_column="text", max_bad_row_fraction=1.0)
    assert "a.mds" in str(caught.value)


def test_a_missing_shard_of_the_index_is_refused(tmp_path: Path, store: Store) -> None:
    folder = write_set(tmp_path / "mds")
    (folder / "shard.00001.mds").unlink()
    with pytest.raises(DataError, match=r"no file shard\.00001\.mds"):
        store.shard(folder, text_column="text")


def test_a_shard_that_the_index_does_not_name_is_not_read(
    tmp_path: Path, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    folder = write_set(tmp_path / "mds")
    write_shard(folder / "shard.00009.mds", [values(999)])
    result = store.shard(folder, text_column="text")
    assert result.index.num_rows == 150
    assert "1 file(s) of the source are not read as mds: shard.00009.mds" in caplog.text


def test_a_decompressed_copy_of_a_shard_is_not_read_again(written: Path, store: Store) -> None:
    import pyarrow as pa

    packed = written / "mds" / "shard.00000.mds.zstd"
    with pa.CompressedInputStream(pa.OSFile(str(packed)), "zstd") as stream:
        packed.with_suffix("").write_bytes(stream.read())
    result = store.shard(written / "mds", text_column="s", **ONE_SPLIT)
    assert result.index.num_rows == NUM_WRITTEN


def test_splits_of_a_data_set_are_refused_and_merged_folders_are_read(
    tmp_path: Path, store: Store
) -> None:
    folder = tmp_path / "mds"
    names = [write_set(folder / name).name for name in ("train", "val")]
    with pytest.raises(DataError, match=r"train/index\.json, val/index\.json") as caught:
        store.shard(folder, text_column="text")
    assert f"set source to one of them, such as {folder}/train" in str(caught.value)

    shards = [
        {"raw_data": {"basename": f"{name}/shard.{at:05d}.mds"}}
        for name, at in itertools.product(names, range(3))
    ]
    (folder / "index.json").write_text(json.dumps({"shards": shards}))
    shutil.rmtree(folder / "val")
    with pytest.raises(DataError, match=r"no file val/shard\.00000\.mds"):
        store.shard(folder, text_column="text")
    (folder / "index.json").write_text(json.dumps({"shards": shards[:3]}))
    assert store.shard(folder, text_column="text").index.num_rows == 150
