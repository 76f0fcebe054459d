"""Data that is tokenized already, and Arrow data sets, come through with every id in its row."""

from __future__ import annotations

import gzip
import io
import itertools
import json
import struct
import tarfile
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trainyard.sharding.token_rows as token_rows
from trainyard.errors import DataError, SpecError
from trainyard.sharding import ShardSettings, Source, plan_dataset, shard_dataset
from trainyard.sharding.merge import merge_parts
from trainyard.sharding.parts import files_of_part, write_part

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.sharding.conftest import Store
    from trainyard.sharding import ShardingResult

VOCABULARY, END = 1000, 999
IDS = {"vocab_size": VOCABULARY, "eos_token_id": END}
Documents = list[list[int]]


@pytest.fixture
def documents() -> Documents:
    """300 documents of 0 to 80 ids, each with its end token."""
    chosen = np.random.default_rng(0)
    return [[*chosen.integers(0, END, chosen.integers(0, 80)).tolist(), END] for _ in range(300)]


def flat(documents: Documents) -> list[int]:
    """Return the ids of all documents, one after another."""
    return [*itertools.chain.from_iterable(documents)]


def as_raw(folder: Path, documents: Documents) -> None:
    """Write one stream of uint16, as nanoGPT's prepare.py does."""
    np.array(flat(documents), np.uint16).tofile(folder / "train.bin")


def as_npy(folder: Path, documents: Documents) -> None:
    np.save(folder / "train.npy", np.array(flat(documents), np.int64))


def as_megatron(folder: Path, documents: Documents) -> None:
    """Write the pair of files that Megatron's preprocess_data.py does, type int32."""
    lengths = np.array([len(each) for each in documents], np.int32)
    ends = np.cumsum(lengths, dtype=np.int64)
    np.array(flat(documents), np.int32).tofile(folder / "train.bin")
    head = struct.pack("<9sQBQQ", b"MMIDIDX\x00\x00", 1, 4, len(lengths), len(lengths) + 1)
    pointers = (ends - lengths) * 4
    bounds = np.arange(len(lengths) + 1, dtype=np.int64)
    content = head + lengths.tobytes() + pointers.tobytes() + bounds.tobytes()
    (folder / "train.idx").write_bytes(content)


def write_bounds(folder: Path, num_sequences: int, bounds: list[int]) -> None:
    """Give the index in a folder these document bounds."""
    index = folder / "train.idx"
    header = bytearray(index.read_bytes()[: 34 + 12 * num_sequences])
    header[26:34] = struct.pack("<Q", len(bounds))
    index.write_bytes(header + np.array(bounds, np.int64).tobytes())


def as_parquet(folder: Path, documents: Documents) -> None:
    pq.write_table(pa.table({"input_ids": pa.array(documents)}), folder / "train.parquet")


def as_arrow(folder: Path, documents: Documents) -> None:
    """Write a folder as `datasets` does by save_to_disk: Arrow streams, and JSON files beside them."""
    table = pa.table({"input_ids": pa.array(documents, pa.list_(pa.int32()))})
    write_stream(folder / "data-00000-of-00002.arrow", table.slice(0, 100))
    write_stream(folder / "data-00001-of-00002.arrow", table.slice(100))
    write_stream(folder / "cache-0123456789abcdef.arrow", table)
    (folder / "state.json").write_text("{}")
    (folder / "dataset_info.json").write_text("{}")


def write_stream(path: Path, table: pa.Table) -> None:
    with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table, max_chunksize=64)


def as_jsonl(folder: Path, documents: Documents) -> None:
    lines = [json.dumps({"n": at, "input_ids": ids}) for at, ids in enumerate(documents)]
    (folder / "train.jsonl").write_text("\n".join(lines) + "\n")


def as_webdataset(folder: Path, documents: Documents, *, kind: str = "json") -> None:
    with tarfile.open(folder / "train.tar", "w") as archive:
        for at, ids in enumerate(documents):
            content = io.BytesIO()
            if kind == "npy":
                np.save(content, np.array(ids, np.uint16))
            else:
                content.write(json.dumps(ids).encode())
            info = tarfile.TarInfo(f"{at:06d}.ids.{kind}")
            info.size = content.tell()
            content.seek(0)
            archive.addfile(info, content)


FORMATS: dict[str, tuple[Callable[[Path, Documents], None], dict[str, Any]]] = {
    "raw": (as_raw, {}),
    "npy": (as_npy, {}),
    "megatron": (as_megatron, {}),
    "parquet": (as_parquet, {"text_column": "input_ids"}),
    "arrow": (as_arrow, {"text_column": "input_ids"}),
    "jsonl": (as_jsonl, {"text_column": "input_ids"}),
    "webdataset-json": (as_webdataset, {"text_column": "ids.json"}),
    "webdataset-npy": (partial(as_webdataset, kind="npy"), {"text_column": "ids.npy"}),
}


def rows(store: Store, result: ShardingResult, split: str) -> Documents:
    """Return the ids of a split's rows."""
    found = []
    for shard in store.buffers(result, split):
        bounds = itertools.pairwise([0, *shard["row_ends"].tolist()])
        found += [shard["tokens"][start:end].tolist() for start, end in bounds]
    return found


def shard(store: Store, folder: Path, documents: Documents, name: str, **more: Any) -> Any:
    """Write the documents in a format and shard them."""
    write, settings = FORMATS[name]
    folder.mkdir(exist_ok=True)
    write(folder, documents)
    return store.shard(folder, **{**IDS, **settings, **more})


@pytest.mark.parametrize("name", FORMATS)
def test_every_format_keeps_every_document_in_its_split_and_order(
    tmp_path: Path, store: Store, documents: Documents, name: str
) -> None:
    result = shard(store, tmp_path / name, documents, name)
    same = shard(store, tmp_path / "same", documents, "raw")

    index = store.index(result)
    assert index.kind == "tokens"
    assert index.dtype == "uint16"
    assert (index.tokenizer or {})["vocab_size"] == VOCABULARY
    places = {tuple(each): at for at, each in enumerate(documents)}
    for split in index.splits:
        found = rows(store, result, split)
        assert found == rows(store, same, split)
        order = [places[tuple(each)] for each in found if len(each) > 1]
        assert order == sorted(order)
    every = [each for split in index.splits for each in rows(store, result, split)]
    assert sorted(every) == sorted(documents)


def test_rows_do_not_depend_on_how_much_is_read_at_a_time(
    tmp_path: Path, store: Store, documents: Documents, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = shard(store, tmp_path / "whole", documents, "raw")
    monkeypatch.setattr(token_rows, "BLOCK_TOKENS", 7)
    pieces = shard(store, tmp_path / "pieces", documents, "npy")

    for split in ("train", "validation", "test"):
        assert rows(store, pieces, split) == rows(store, whole, split)


@pytest.mark.parametrize("block", [3, 1000])
def test_a_longer_row_is_cut_at_the_same_places(
    tmp_path: Path, store: Store, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(token_rows, "BLOCK_TOKENS", block)
    monkeypatch.setattr(token_rows, "MAX_ROW_TOKENS", 10)
    documents = [[*range(25), END], [1, END]] * 40
    everything = {"validation_fraction": 0.0, "test_fraction": 0.0}
    result = shard(store, tmp_path / "data", documents, "raw", **everything)

    cut = [[*range(10)], [*range(10, 20)], [*range(20, 25), END], [1, END]]
    assert rows(store, result, "train") == cut * 40


def test_without_an_end_token_rows_are_pieces_that_later_data_leaves_alone(
    tmp_path: Path, store: Store
) -> None:
    stream = np.random.default_rng(1).integers(0, VOCABULARY, 500_000).astype(np.uint16)
    stream[:400_000].tofile(tmp_path / "short.bin")
    stream.tofile(tmp_path / "long.bin")
    short, long = (
        store.shard(tmp_path / f"{name}.bin", vocab_size=VOCABULARY) for name in ("short", "long")
    )

    for split in ("train", "validation", "test"):
        early = [each for each in rows(store, short, split) if len(each) == 4096]
        assert rows(store, long, split)[: len(early)] == early
    total = sum(split.num_tokens or 0 for split in store.index(long).splits.values())
    assert total == 500_000


def test_an_array_of_two_axes_has_one_row_a_row(tmp_path: Path, store: Store) -> None:
    array = np.arange(4000, dtype=np.uint16).reshape(400, 10) % VOCABULARY
    np.save(tmp_path / "rows.npy", array)
    result = store.shard(tmp_path / "rows.npy", vocab_size=VOCABULARY)

    every = [each for split in store.index(result).splits for each in rows(store, result, split)]
    assert sorted(every) == sorted(array.tolist())


@pytest.mark.parametrize("compression", ["", ".gz"])
@pytest.mark.parametrize(
    ("shape", "change"),
    [((2000,), -2000), ((400, 5), -3), ((2000,), 400), ((400, 5), 10), ((2000,), -2)],
    ids=["half", "mid-id of a row", "trailing", "a row more", "an id"],
)
def test_an_npy_file_is_as_long_as_its_header_states(
    tmp_path: Path, store: Store, shape: tuple[int, ...], change: int, compression: str
) -> None:
    path = tmp_path / "train.npy"
    np.save(path, (np.arange(2000, dtype=np.uint16) % VOCABULARY).reshape(shape))
    content = path.read_bytes()
    content = content[:change] if change < 0 else content + b"\1\0" * (change // 2)
    path.unlink()
    file = tmp_path / f"train.npy{compression}"
    file.write_bytes(gzip.compress(content) if compression else content)

    with pytest.raises(DataError) as caught:
        store.shard(file, vocab_size=VOCABULARY)

    for part in (f"train.npy{compression}", f"{4000 + change:,} bytes", "4,000 bytes (2,000 ids)"):
        assert part in str(caught.value)


@pytest.mark.parametrize("compression", ["", ".gz"])
def test_a_capped_npy_file_is_read_up_to_the_cap(
    tmp_path: Path, store: Store, compression: str
) -> None:
    np.save(tmp_path / "train.npy", np.random.default_rng(2).integers(0, 999, (4000, 5), np.uint16))
    file = tmp_path / f"train.npy{compression}"
    if compression:
        file.write_bytes(gzip.compress((tmp_path / "train.npy").read_bytes(), compresslevel=0))
    source = Source(uri=str(file), max_source_bytes=20_000)
    result = shard_dataset(
        source, ShardSettings(vocab_size=VOCABULARY), store, destination="s3://bucket/trainyard"
    )

    assert result.index.num_rows == 2000


def write_pairs(folder: Path, documents: Documents) -> None:
    """Write the documents as two Megatron arrays, a and b, of 150 documents each."""
    folder.mkdir()
    for name, own in {"a": documents[:150], "b": documents[150:]}.items():
        as_megatron(folder, own)
        for suffix in ("bin", "idx"):
            (folder / f"train.{suffix}").rename(folder / f"{name}.{suffix}")


@pytest.mark.parametrize(
    ("cap", "expected"),
    [(-4, 149), (0, 150), (4, 151), (10**6, 300)],
    ids=["within the first", "the first", "into the second", "both"],
)
def test_a_cap_omits_a_megatron_index_with_its_array(
    tmp_path: Path, store: Store, documents: Documents, cap: int, expected: int
) -> None:
    folder = tmp_path / "data"
    write_pairs(folder, documents)
    source = Source(uri=str(folder), max_source_bytes=(folder / "a.bin").stat().st_size + cap)
    result = shard_dataset(source, ShardSettings(**IDS), store, destination="s3://bucket/trainyard")

    assert result.index.num_rows == expected


def test_a_capped_source_with_an_index_but_no_array_is_refused(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    folder = tmp_path / "data"
    write_pairs(folder, documents)
    (folder / "b.bin").unlink()
    source = Source(uri=str(folder), max_source_bytes=100)

    with pytest.raises(DataError, match="a Megatron index has no array file"):
        shard_dataset(source, ShardSettings(**IDS), store, destination="s3://bucket/trainyard")


def test_a_tokenizer_file_is_the_vocabulary(tmp_path: Path, store: Store) -> None:
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel

    words = {f"w{at}": at for at in range(70_000)} | {"</s>": 70_000}
    Tokenizer(WordLevel(words)).save(str(tmp_path / "tokenizer.json"))
    documents = [[at, 69_999, 70_000] for at in range(300)]
    np.array(flat(documents), np.uint32).tofile(tmp_path / "train.bin")
    result = store.shard(tmp_path / "train.bin", tokenizer=str(tmp_path / "tokenizer.json"))

    assert store.index(result).dtype == "uint32"
    every = [each for split in store.index(result).splits for each in rows(store, result, split)]
    assert sorted(every) == documents


def test_ids_outside_the_vocabulary_are_bad_rows_by_place(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    documents[4][:0] = [7, 1000]
    for name in ("npy", "megatron", "arrow"):
        with pytest.raises(DataError) as caught:
            shard(store, tmp_path / name, documents, name)
        assert ":5: outside the vocabulary: id 1000 at token 1, allowed 0 to 999" in str(
            caught.value
        )
    result = shard(store, tmp_path / "some", documents, "npy", max_bad_row_fraction=0.01)
    assert result.index.bad_rows["count"] == 1
    assert result.index.num_rows == 299


@pytest.mark.parametrize(
    "wrong", [[1, 2.5], [1, True], [1, "2"], [[1]], [2**63], 7, "text"], ids=str
)
def test_lists_of_other_values_in_json_are_bad_rows(
    tmp_path: Path, store: Store, documents: Documents, wrong: object
) -> None:
    as_jsonl(tmp_path, documents)
    with (tmp_path / "train.jsonl").open("a") as lines:
        lines.write(json.dumps({"input_ids": wrong}) + "\n")
    with pytest.raises(DataError) as caught:
        store.shard(tmp_path, text_column="input_ids", **IDS)
    assert ":301: wrong type: 'input_ids' must be a list of whole numbers" in str(caught.value)


def test_empty_lists_are_bad_rows(tmp_path: Path, store: Store, documents: Documents) -> None:
    documents[2] = []
    with pytest.raises(DataError, match=r":3: no tokens: column 'input_ids' is empty"):
        shard(store, tmp_path / "data", documents, "arrow")


def test_the_largest_ids_are_bad_rows_beside_missing_ones(tmp_path: Path, store: Store) -> None:
    lists = [[1, 2**63 + 1], [None, 5], [2**64 - 1], *([at, at // 2] for at in range(300))]
    table = pa.table({"input_ids": pa.array(lists, pa.list_(pa.uint64()))})
    pq.write_table(table, tmp_path / "train.parquet")
    with pytest.raises(DataError) as caught:
        store.shard(tmp_path, text_column="input_ids", **IDS)

    for place in (
        f":1: outside the vocabulary: id {2**63 + 1} at token 1",
        f":2: outside the vocabulary: id {2**64 - 1} at token 0",
        f":3: outside the vocabulary: id {2**64 - 1} at token 0",
    ):
        assert place in str(caught.value)


@pytest.mark.parametrize("block", [3, 7, 1 << 20])
def test_empty_documents_are_bad_rows_wherever_blocks_end(
    tmp_path: Path,
    store: Store,
    documents: Documents,
    monkeypatch: pytest.MonkeyPatch,
    block: int,
) -> None:
    monkeypatch.setattr(token_rows, "BLOCK_TOKENS", block)
    empty = (0, 4, 5, 150, len(documents) - 1)
    for at in empty:
        documents[at] = []
    documents[151][:0] = [VOCABULARY]
    result = shard(store, tmp_path / "data", documents, "megatron", max_bad_row_fraction=0.05)

    every = [each for split in store.index(result).splits for each in rows(store, result, split)]
    assert sorted(every) == sorted(each for each in documents if each and each[0] < VOCABULARY)
    assert result.index.bad_rows["count"] == len(empty) + 1


def wrong_index(folder: Path, documents: Documents) -> None:
    as_megatron(folder, documents)
    with (folder / "train.bin").open("ab") as stream:
        stream.write(b"more")


def index_alone(folder: Path, documents: Documents) -> None:
    as_megatron(folder, documents)
    (folder / "train.bin").rename(folder / "other.bin")


def wide(folder: Path, documents: Documents) -> None:
    np.array(flat(documents), np.uint32).tofile(folder / "train.bin")


def odd(folder: Path, _: Documents) -> None:
    (folder / "train.bin").write_bytes(b"\1\0\2\0\3")


def floats(folder: Path, _: Documents) -> None:
    np.save(folder / "train.npy", np.zeros(10))


def splits(folder: Path, documents: Documents) -> None:
    for name in ("train", "test"):
        (folder / name).mkdir()
        as_arrow(folder / name, documents)
    (folder / "dataset_dict.json").write_text("{}")


def broken(folder: Path, _: Documents) -> None:
    (folder / "data.arrow").write_bytes(b"no arrow at all")


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (wrong_index, "a Megatron index does not match its array"),
        (index_alone, "a Megatron index has no array file"),
        (wide, "every second id is 0"),
        (odd, "the file ends with 1 bytes of an id"),
        (floats, "a NumPy file is not an array of token ids"),
        (splits, "several splits of a Hugging Face data set"),
        (broken, "a source file cannot be read"),
    ],
)
def test_what_is_no_array_of_ids_is_refused(
    tmp_path: Path,
    store: Store,
    documents: Documents,
    write: Callable[[Path, Documents], None],
    message: str,
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder, documents)
    with pytest.raises(DataError, match=message):
        store.shard(folder, **IDS)


def test_splits_of_hugging_face_are_refused_with_an_explicit_format(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    splits(folder, documents)
    with pytest.raises(DataError, match="several splits of a Hugging Face data set") as refused:
        store.shard(folder, data_format="arrow", **IDS)
    assert refused.value.where == "source"
    assert f"such as {folder}/train;" in str(refused.value.next_step)
    with pytest.raises(DataError, match="several splits of a Hugging Face data set") as refused:
        store.shard(tmp_path / "d*" / "**" / "*", data_format="arrow", **IDS)
    assert f"such as {folder}/train;" in str(refused.value.next_step)


@pytest.mark.parametrize(
    "change",
    [
        lambda bounds: bounds[:-1],
        lambda bounds: bounds[1:],
        lambda bounds: [0, -1, *bounds[2:]],
        lambda bounds: [*bounds[:5], bounds[6], bounds[5], *bounds[7:]],
        lambda bounds: [*bounds, bounds[-1] + 1],
        lambda _: [],
    ],
    ids=["early end", "late start", "negative", "descending", "beyond", "none"],
)
def test_wrong_document_bounds_are_refused(
    tmp_path: Path,
    store: Store,
    documents: Documents,
    change: Callable[[list[int]], list[int]],
) -> None:
    as_megatron(tmp_path, documents)
    write_bounds(tmp_path, len(documents), change([*range(len(documents) + 1)]))

    with pytest.raises(DataError, match="a Megatron index does not match its array") as caught:
        store.shard(tmp_path, **IDS)

    assert "train.idx" in str(caught.value)
    assert "document bounds" in str(caught.value)


def test_documents_of_several_sequences_are_one_row_each(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    as_megatron(tmp_path, documents)
    write_bounds(tmp_path, len(documents), [*range(0, 300, 2), 300])
    result = store.shard(tmp_path, **IDS)

    assert result.index.num_rows == 150


def test_ids_without_a_vocabulary_and_text_with_one_are_refused(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    as_raw(tmp_path, documents)
    with pytest.raises(SpecError, match="is required for a source of token ids"):
        store.shard(tmp_path)
    (tmp_path / "rows.txt").write_text("text\n" * 100)
    with pytest.raises(
        SpecError, match="is allowed for a source of token ids only; this source has text"
    ):
        store.shard(tmp_path / "rows.txt", vocab_size=10)
    with pytest.raises(SpecError, match="eos_token_id"):
        ShardSettings(vocab_size=10, eos_token_id=10)


def test_parts_together_hold_every_document(
    tmp_path: Path, store: Store, documents: Documents
) -> None:
    for at in range(6):
        folder = tmp_path / "data" / str(at)
        folder.mkdir(parents=True)
        as_megatron(folder, documents[at::6])
    settings = ShardSettings(num_shards=2, **IDS)
    source = Source(uri=str(tmp_path / "data"))
    plan, files = plan_dataset(
        source, settings, store, destination="s3://bucket/trainyard", num_parts=2
    )
    for part in (0, 1):
        own = files_of_part(files, part=part, num_parts=2)
        write_part(plan, own, store, part=part)

    index = merge_parts(plan, store)

    assert index.num_rows == len(documents)
    assert sum(split.num_tokens or 0 for split in index.splits.values()) == sum(map(len, documents))


def test_a_data_set_on_disk_is_a_table(tmp_path: Path, store: Store) -> None:
    colors = ["red", "green", None]
    table = pa.table(
        {
            "number": pa.array(range(400), pa.int64()),
            "color": pa.array([colors[at % 3] for at in range(400)]),
            "label": pa.array([at % 2 for at in range(400)], pa.int64()),
        }
    )
    write_stream(tmp_path / "data-00000-of-00001.arrow", table)
    with (
        pa.OSFile(str(tmp_path / "more.arrow"), "wb") as sink,
        pa.ipc.new_file(sink, table.schema) as writer,
    ):
        writer.write_table(table)
    result = store.shard(tmp_path, target_column="label")

    rows = [*zip(*table.to_pydict().values(), strict=True)]
    assert sorted(store.table(result), key=str) == sorted(rows * 2, key=str)


def test_dictionaries_on_disk_are_columns_of_their_values(tmp_path: Path, store: Store) -> None:
    places = [at % 3 for at in range(400)]
    values = {
        "whole": pa.array([10, None, 2**60]),
        "fraction": pa.array([0.5, 1.5, 2.5]),
        "flag": pa.array([True, False, None]),
        "day": pa.array([0, 1, None], pa.date32()),
        "color": pa.array(["red", "green", None]),
    }
    columns = {
        name: pa.DictionaryArray.from_arrays(pa.array(places, pa.int8()), each)
        for name, each in values.items()
    }
    plain = {name: each.dictionary_decode() for name, each in columns.items()}
    number = {"number": pa.array(range(400))}
    (tmp_path / "dictionaries").mkdir()
    write_stream(tmp_path / "dictionaries" / "data.arrow", pa.table(number | columns))
    (tmp_path / "plain").mkdir()
    write_stream(tmp_path / "plain" / "data.arrow", pa.table(number | plain))

    found, wanted = (
        store.table(store.shard(tmp_path / each)) for each in ("dictionaries", "plain")
    )

    assert found == wanted


def test_a_text_column_on_disk_is_tokenized(tmp_path: Path, store: Store) -> None:
    texts = [f"row {at} of the text" for at in range(300)]
    write_stream(tmp_path / "data-00000-of-00001.arrow", pa.table({"text": texts}))
    result = store.shard(tmp_path, text_column="text")

    assert sorted(store.texts(result)) == sorted(text.encode() for text in texts)
