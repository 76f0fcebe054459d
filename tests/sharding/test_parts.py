"""Several processes make the same data set as one would."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers

from tests.sharding.conftest import DESTINATION, Store
from trainyard.errors import ContractError, DataError
from trainyard.sharding import DatasetPlan, ShardIndex, ShardingResult, ShardSettings, Source
from trainyard.sharding.__main__ import main
from trainyard.sharding.index import part_name
from trainyard.sharding.merge import merge_parts
from trainyard.sharding.parts import PartIndex, files_of_part, read_parts, write_part
from trainyard.sharding.plan import plan_dataset
from trainyard.sharding.row_hash import RowHasher
from trainyard.sharding.source_files import SourceFile
from trainyard.sharding.split_rule import SPLITS, SplitRule
from trainyard.sharding.uploads import UNDER_WAY

if TYPE_CHECKING:
    from pathlib import Path


def table_files(folder: Path, *, num_files: int = 6) -> Path:
    folder.mkdir()
    colors = ["red", "green", "blue", None, "gray", "pink", "black"]
    for number in range(num_files):
        at = range(number * 200, number * 200 + 200)
        own = colors[number:] + colors[:number]
        table = pa.table(
            {
                "number": pa.array([None if each == 317 else each for each in at], pa.int64()),
                "color": [own[each % 7] for each in at],
                "label": pa.array([each % 2 for each in at], pa.int8()),
            }
        )
        pq.write_table(table, folder / f"{number}.parquet")
    return folder


def sharded(store: Store, source: Path, num_parts: int, **settings: Any) -> ShardingResult:
    """Shard in one process, or in so many parts."""
    if num_parts == 0:
        return store.shard(source, **settings)
    return shard_in_parts(store, source, num_parts=num_parts, **settings)


def shard_in_parts(
    store: Store, source: Path, *, num_parts: int, **settings: Any
) -> ShardingResult:
    wanted = ShardSettings(**{"num_shards": 6, "max_bad_row_fraction": 0.0, **settings})
    plan, files = plan_dataset(
        Source(uri=str(source)), wanted, store, destination=DESTINATION, num_parts=num_parts
    )
    plan = DatasetPlan.from_json(plan.to_json())
    for part in range(num_parts):
        write_part(plan, files_of_part(files, part=part, num_parts=num_parts), store, part=part)
    index = merge_parts(plan, store)
    return ShardingResult(index=index, uri=plan.uri, uploaded=0, reused=0, uploaded_bytes=0)


@pytest.mark.parametrize("num_parts", [1, 2, 3])
def test_parts_hold_the_same_rows_in_the_same_splits(
    tmp_path: Path, store: Store, num_parts: int
) -> None:
    source = table_files(tmp_path / "in")
    whole = store.shard(source, num_shards=6, target_column="label")
    parts = shard_in_parts(store, source, num_parts=num_parts, target_column="label")
    for split in ("train", "validation", "test"):
        assert Counter(store.table(parts, split)) == Counter(store.table(whole, split))
    assert store.index(parts) == parts.index
    for ours, theirs in zip(parts.index.schema or (), whole.index.schema or (), strict=True):
        assert (ours.name, ours.role) == (theirs.name, theirs.role)
        assert set(ours.categories or ()) == set(theirs.categories or ())
        if theirs.mean is not None:
            assert ours.mean == pytest.approx(theirs.mean)
            assert ours.std == pytest.approx(theirs.std)


def files_by_part(folder: Path, columns: dict[int, dict[str, list[Any]]], suffix: str) -> Path:
    """Write one file for each part, with these columns. JSON lines have no keys for missing values."""
    folder.mkdir()
    names = [SourceFile(name=f"{at}.{suffix}", uri="", size=1) for at in range(100)]
    for part, own in columns.items():
        name = files_of_part(names, part=part, num_parts=len(columns))[0].name
        rows = [*zip(*own.values(), strict=True)]
        if suffix == "parquet":
            pq.write_table(pa.table(own), folder / name)
            continue
        if suffix == "csv":
            lines = [",".join("" if value is None else str(value) for value in row) for row in rows]
            lines.insert(0, ",".join(own))
        else:
            pairs = (zip(own, row, strict=True) for row in rows)
            lines = [
                json.dumps({name: value for name, value in each if value is not None})
                for each in pairs
            ]
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.torch
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("num_parts", [1, 3])
def test_whole_numbers_of_text_stay_whole_so_that_the_trainer_finds_classes(
    tmp_path: Path, store: Store, num_parts: int, suffix: str
) -> None:
    from trainer.data.shard_index import ChannelIndex
    from trainer.data.table import read_layout

    columns = {
        part: {
            "x": [None if at % 10 == 3 else at + part for at in range(400)],
            "label": [at % 2 for at in range(400)],
        }
        for part in range(num_parts)
    }
    source = files_by_part(tmp_path / "in", columns, suffix)
    whole = store.shard(source, num_shards=6, target_column="label")
    elsewhere = Store(tmp_path / "elsewhere")
    parts = shard_in_parts(elsewhere, source, num_parts=num_parts, target_column="label")

    dtypes = {column.name: column.dtype for column in parts.index.schema or ()}
    assert dtypes == {"x": "int64", "label": "int64"}
    for split in ("train", "validation", "test"):
        assert Counter(elsewhere.table(parts, split)) == Counter(store.table(whole, split))
    root = elsewhere._path(parts.uri)
    files = [root / shard.file for shard in parts.index.splits["train"].shards]
    trainers = ChannelIndex.load(root / "index")
    layout = read_layout(trainers, files, target_column=None, problem="auto")
    assert layout.target.classes == [0, 1]


def test_one_part_of_text_writes_the_shards_that_one_process_does(
    tmp_path: Path, store: Store
) -> None:
    columns = {0: {"x": [*range(400)], "label": [at % 2 for at in range(400)]}}
    source = files_by_part(tmp_path / "in", columns, "csv")
    whole = store.shard(source, num_shards=6, target_column="label")
    elsewhere = Store(tmp_path / "elsewhere")
    part = shard_in_parts(elsewhere, source, num_parts=1, target_column="label")

    assert part.index.schema == whole.index.schema
    assert part.index.splits == whole.index.splits, "with the shards' SHA-256"


@pytest.mark.torch
@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_fractions_of_one_part_make_the_column_one_of_floats(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    import torch

    from trainer.data.shard_index import ChannelIndex
    from trainer.data.table import read_layout
    from trainer.data.table_rows import TableRows

    label = [at % 2 for at in range(400)]
    values: dict[int, list[Any]] = {
        0: [None if at % 10 == 3 else at for at in range(400)],
        1: [None if at % 10 == 3 else at + 0.5 for at in range(400)],
        2: [2**60, *range(1000, 1399)],
    }
    columns = {part: {"x": own, "label": label} for part, own in values.items()}
    source = files_by_part(tmp_path / "in", columns, suffix)
    settings = {"target_column": "label", "validation_fraction": 0.0, "test_fraction": 0.0}
    whole = store.shard(source, num_shards=6, **settings)
    parts = shard_in_parts(store, source, num_parts=3, **settings)

    ours, theirs = ((result.index.schema or ())[0] for result in (parts, whole))
    assert (ours.dtype, ours.mean) == (theirs.dtype, pytest.approx(theirs.mean))
    assert Counter(store.table(parts)) == Counter(store.table(whole))
    root = store._path(parts.uri)
    index = ChannelIndex.load(root / "index")
    files = [root / shard.file for shard in parts.index.splits["train"].shards]
    layout = read_layout(index, files, target_column=None, problem="auto")
    rows = TableRows.open(index, "train", root / "train", layout=layout, verify=True)
    numbers, _, _ = rows[torch.arange(len(rows))]
    read = Counter(None if value != value else value for value in numbers[:, 0].tolist())
    assert read == Counter(itertools.chain.from_iterable(values.values()))


@pytest.mark.torch
@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_class_of_test_rows_alone_is_one_of_the_model(
    tmp_path: Path, store: Store, suffix: str, num_parts: int
) -> None:
    import torch

    from trainer.data.shard_index import ChannelIndex
    from trainer.data.table import read_layout
    from trainer.data.table_rows import TableRows

    rare = of_split("test", label=7)
    xs, labels = [*range(300), rare], [*(at % 2 for at in range(300)), 7]
    columns = {0: {"x": xs, "label": labels}, 1: {"x": [*range(300)], "label": [0] * 300}}
    source = files_by_part(tmp_path / "in", columns, suffix)
    result = sharded(store, source, num_parts, target_column="label")

    root = store._path(result.uri)
    index = ChannelIndex.load(root / "index")
    files = [root / shard.file for shard in result.index.splits["train"].shards]
    layout = read_layout(index, files, target_column=None, problem="auto")
    assert layout.target.classes == [0, 1, 7]
    rows = TableRows.open(index, "test", root / "test", layout=layout, verify=True)
    _, _, targets = rows[torch.arange(len(rows))]
    assert targets.max() == 2


def of_split(split: str, *, label: int) -> int:
    """Return an x for which the row of x and this label is in the split."""
    hasher = RowHasher()
    hasher.start(1000)
    hasher.add_numbers("x", np.arange(1000, 2000))
    hasher.add_numbers("label", np.full(1000, label))
    numbers = SplitRule.of(ShardSettings()).assign(hasher.finish())
    return 1000 + int(np.flatnonzero(numbers == SPLITS.index(split))[0])


@pytest.mark.parametrize("num_parts", [0, 2], ids=["one-process", "parts"])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (range(16), range(8, 32), tuple(range(32))),
        (range(16), range(8, 33), ()),
        (range(33), range(2), ()),
        ([0.5, 1], [1, 2], (0.5, 1, 2)),
        (["a", "b"], ["b", "c"], None),
    ],
    ids=["32", "33", "33 in one part", "fractions", "text"],
)
def test_values_of_the_target_are_those_of_all_rows_unless_they_are_many(
    tmp_path: Path,
    store: Store,
    num_parts: int,
    first: Any,
    second: Any,
    expected: tuple[float, ...] | None,
) -> None:
    columns = {
        part: {"x": [*range(400)], "y": [own[at % len(own)] for at in range(400)]}
        for part, own in enumerate((first, second))
    }
    source = files_by_part(tmp_path / "in", columns, "csv")
    result = sharded(store, source, num_parts, target_column="y")

    schema = store.index(result).schema or ()
    assert [column.values for column in schema] == [None, expected]


def test_column_without_values_in_any_part_is_a_category(tmp_path: Path, store: Store) -> None:
    columns = {part: {"x": [*range(400)], "nothing": [None] * 400} for part in range(2)}
    source = files_by_part(tmp_path / "in", columns, "csv")
    parts = shard_in_parts(store, source, num_parts=2)

    nothing = (parts.index.schema or ())[1]
    assert (nothing.dtype, nothing.categories) == ("int32", ())


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
def test_fractions_beside_long_whole_numbers_of_another_part_are_refused(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    values: dict[int, list[Any]] = {0: [2**53 + 1, *range(400)], 1: [0.5, *range(400)]}
    columns = {part: {"x": own, "y": own} for part, own in values.items()}
    source = files_by_part(tmp_path / "in", columns, suffix)
    with pytest.raises(DataError, match="got: float64, int64"):
        shard_in_parts(store, source, num_parts=2)


@pytest.mark.parametrize("suffix", ["csv", "jsonl"])
@pytest.mark.parametrize("late", [7, 0.5], ids=["whole", "fraction"])
def test_values_that_come_late_in_one_part_and_early_in_another_are_one_column(
    tmp_path: Path, store: Store, late: float, suffix: str
) -> None:
    columns = {
        0: {"id": [1] * 20_530, "late": [*[None] * 20_500, *[late] * 30]},
        1: {"id": [2] * 400, "late": [*range(400)]},
    }
    source = files_by_part(tmp_path / "in", columns, suffix)
    whole = store.shard(source, num_shards=6)
    parts = shard_in_parts(store, source, num_parts=2)

    dtypes = ["int64", "int64" if late == 7 else "float64"]
    for result in (parts, whole):
        assert [column.dtype for column in result.index.schema or ()] == dtypes
    assert Counter(store.table(parts)) == Counter(store.table(whole))


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_data_sets_of_text_that_release_0_1_0_wrote_in_a_job_are_not_reused(
    tmp_path: Path, store: Store, suffix: str
) -> None:
    """These have whole numbers as floats, at the address of one process if the job had one instance."""
    if suffix == "csv":
        source = files_by_part(tmp_path / "in", {0: {"x": [*range(400)]}}, suffix)
    else:
        source = table_files(tmp_path / "in")
    settings = ShardSettings(num_shards=6)

    def uri(num_parts: int | None) -> str:
        return plan_dataset(
            Source(uri=str(source)), settings, store, destination=DESTINATION, num_parts=num_parts
        )[0].uri

    of_process, of_job = uri(None), uri(1)
    (tmp_path / "part.json").write_text("{}")
    store.put_file(tmp_path / "part.json", f"{of_process}/{part_name(0)}", sha256=None)

    assert (of_process == of_job) == (suffix == "parquet")
    assert uri(None) == uri(1) == of_job


def test_merged_index_counts_rows_through(tmp_path: Path, store: Store) -> None:
    index = shard_in_parts(store, table_files(tmp_path / "in"), num_parts=3).index
    for split in index.splits.values():
        rows = [shard.rows for shard in split.shards]
        starts = [shard.first_row for shard in split.shards]
        assert starts == [0, *np.cumsum(rows)[:-1].tolist()]
        assert split.num_rows == sum(rows)
        assert len({shard.file for shard in split.shards}) == len(rows)


def test_parts_of_text_share_one_baseline(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(5):
        (folder / f"{number}.txt").write_text(f"the text of file {number}\n" * 200)
    settings = {"text_row_bytes": 50, "validation_fraction": 0.3}
    whole = store.shard(folder, num_shards=6, **settings)
    parts = shard_in_parts(store, folder, num_parts=2, **settings)
    assert Counter(store.texts(parts)) == Counter(store.texts(whole))
    assert parts.index.baseline == pytest.approx(whole.index.baseline)


def trained_tokenizer(path: Path, model: str, texts: list[str]) -> Path:
    """Train a tokenizer of the `tokenizers` package and write its file."""
    trained: Any = {
        "bpe": (models.BPE(), trainers.BpeTrainer),
        "unigram": (models.Unigram(), trainers.UnigramTrainer),
    }
    of_model, trainer = trained[model]
    tokenizer = Tokenizer(of_model)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    options = {"vocab_size": 300, "special_tokens": ["</s>"], "show_progress": False}
    tokenizer.train_from_iterator(texts, trainer(**options))
    tokenizer.save(str(path))
    return path


def token_rows(store: Store, result: ShardingResult) -> dict[str, Counter[tuple[int, ...]]]:
    """Return how often each row of tokens is in each split."""
    return {
        split: Counter(
            tuple(shard["tokens"][a:b].tolist())
            for shard in store.buffers(result, split)
            for a, b in itertools.pairwise([0, *shard["row_ends"].tolist()])
        )
        for split in store.index(result).splits
    }


@pytest.mark.parametrize("num_parts", [1, 2, 3])
@pytest.mark.parametrize("model", ["bpe", "unigram"])
def test_parts_tokenize_by_a_file_as_one_process_does(
    tmp_path: Path, store: Store, model: str, num_parts: int
) -> None:
    """One part writes the very same shards; several write the same rows of tokens to the same splits."""
    folder = tmp_path / "in"
    folder.mkdir()
    words = ("training", "trainer", "sharding", "shards", "tokens", "tokenizer", "rows")
    texts = [
        "".join(f"{words[(at * at + number) % 7]} {words[at % 7]} {at}\n" for at in range(300))
        for number in range(5)
    ]
    for number, text in enumerate(texts):
        (folder / f"{number}.txt").write_text(text)
    file = trained_tokenizer(tmp_path / "own.json", model, texts)
    settings = {"text_row_bytes": 64, "validation_fraction": 0.3, "tokenizer": str(file)}
    whole = store.shard(folder, num_shards=6, **settings)
    elsewhere = Store(tmp_path / "elsewhere")
    parts = shard_in_parts(elsewhere, folder, num_parts=num_parts, **settings)

    assert token_rows(elsewhere, parts) == token_rows(store, whole)
    assert parts.index.tokenizer == whole.index.tokenizer
    assert parts.index.baseline == pytest.approx(whole.index.baseline)
    if num_parts == 1:
        assert parts.uri == whole.uri
        assert parts.index.splits == whole.index.splits, "with the shards' SHA-256"


def test_merge_names_the_missing_part(tmp_path: Path, store: Store) -> None:
    source = table_files(tmp_path / "in")
    plan, files = plan_dataset(
        Source(uri=str(source)), ShardSettings(), store, destination=DESTINATION, num_parts=3
    )
    for part in (0, 2):
        write_part(plan, files_of_part(files, part=part, num_parts=3), store, part=part)
    with pytest.raises(DataError, match=r"no index of part 1"):
        merge_parts(plan, store)
    assert store.head(f"{plan.uri}/{part_name(1)}") is None
    assert store.head(f"{plan.uri}/index/index.json") is None


class NoIndex(Store):
    """A store that dies before it stores the index."""

    __slots__ = ()

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        if uri.endswith("index/index.json"):
            raise OSError("killed")
        super().put_file(path, uri, sha256=sha256)


def test_merge_that_was_cut_off_before_the_index_can_be_done_again(
    tmp_path: Path, store: Store
) -> None:
    plan, rows = planned_parts(tmp_path, store)
    with pytest.raises(OSError, match="killed"):
        merge_parts(plan, NoIndex(store.root))
    assert store.head(f"{plan.uri}/index/index.json") is None

    assert rows_of(store, plan, merge_parts(plan, store)) == rows


class CutOff(Store):
    """A store that dies after it has stored so many published shards, before it notes what it stored."""

    __slots__ = ("left",)

    def __init__(self, root: Path, left: int) -> None:
        super().__init__(root)
        object.__setattr__(self, "left", left)

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        super().put_file(path, uri, sha256=sha256)
        object.__setattr__(self, "left", self.left - 1)
        if self.left <= 0:
            self._note(uri).unlink()
            raise OSError("killed")


def planned_parts(tmp_path: Path, store: Store) -> tuple[DatasetPlan, Counter[tuple[Any, ...]]]:
    """Write three parts, and return the plan and the rows that one process finds."""
    source = tmp_path / "in"
    if not source.exists():
        table_files(source)
    settings = ShardSettings(num_shards=6, max_bad_row_fraction=0.0)
    rows = Counter(store.table(store.shard(source, num_shards=6)))
    plan, files = plan_dataset(
        Source(uri=str(source)), settings, store, destination=DESTINATION, num_parts=3
    )
    for part in range(3):
        write_part(plan, files_of_part(files, part=part, num_parts=3), store, part=part)
    return plan, rows


def rows_of(store: Store, plan: DatasetPlan, index: ShardIndex) -> Counter[tuple[Any, ...]]:
    result = ShardingResult(index=index, uri=plan.uri, uploaded=0, reused=0, uploaded_bytes=0)
    return Counter(store.table(result))


@pytest.mark.parametrize("left", [1, 2, 3])
def test_merge_killed_between_an_object_and_its_note_recodes_it_once(
    tmp_path: Path, store: Store, left: int
) -> None:
    plan, rows = planned_parts(tmp_path, store)
    with pytest.raises(OSError, match="killed"):
        merge_parts(plan, CutOff(store.root, left))
    assert rows_of(store, plan, merge_parts(plan, store)) == rows


def test_merge_beside_another_one_recodes_each_shard_once(tmp_path: Path, store: Store) -> None:
    plan, rows = planned_parts(tmp_path, store)
    done: list[ShardIndex] = []

    class OvertakenPart(Store):
        """A store on which another merge runs from start to end before this one reads a shard."""

        __slots__ = ()

        def open(self, uri: str, *, etag: str | None = None) -> Any:
            if "/train/" in uri and not done:
                done.append(merge_parts(plan, store))
                assert not list(store.list(f"{plan.uri}/{UNDER_WAY}/"))
            return super().open(uri, etag=etag)

    index = merge_parts(plan, OvertakenPart(store.root))
    assert done == [index]
    assert rows_of(store, plan, index) == rows


def test_parts_that_end_after_the_merge_of_another_run_change_nothing(
    tmp_path: Path, store: Store
) -> None:
    """Instances of two runs shard one source, and those of the second run end later."""
    plan, rows = planned_parts(tmp_path, store)
    index = merge_parts(plan, store)
    published = {each.uri: each.sha256 for each in store.list(f"{plan.uri}/")}

    planned_parts(tmp_path, store)

    found = {each.uri: each.sha256 for each in store.list(f"{plan.uri}/")}
    assert {uri: found[uri] for uri in published if "/parts/" not in uri} == {
        uri: sha256 for uri, sha256 in published.items() if "/parts/" not in uri
    }
    assert merge_parts(plan, store) == index
    assert rows_of(store, plan, index) == rows
    assert not list(store.list(f"{plan.uri}/{UNDER_WAY}/"))


def test_parts_of_an_earlier_release_are_refused_by_name(tmp_path: Path, store: Store) -> None:
    plan, _ = planned_parts(tmp_path, store)
    path = store._path(f"{plan.uri}/{part_name(0)}")
    document = json.loads(path.read_text())
    for shard in document["index"]["splits"]["train"]["shards"]:
        shard["file"] = shard["file"].split("/", 2)[2]
    path.unlink()
    path.write_text(json.dumps(document))

    with pytest.raises(ContractError, match="another release") as caught:
        merge_parts(plan, store)
    assert "got: shards such as train/shard-00000.bin, and version 2" in str(caught.value)


def test_merge_without_a_draft_says_what_to_do(tmp_path: Path, store: Store) -> None:
    plan, _ = planned_parts(tmp_path, store)
    draft = next(each.uri for each in store.list(f"{plan.uri}/{UNDER_WAY}/"))
    store.delete([draft])

    with pytest.raises(DataError, match="an object that one of them wrote is missing"):
        merge_parts(plan, store)


def test_merge_refuses_a_shard_that_no_part_wrote(tmp_path: Path, store: Store) -> None:
    plan, _ = planned_parts(tmp_path, store)
    name = next(
        shard.file
        for part in read_parts(plan, store)
        if part.part
        for shard in part.index.splits["train"].shards
    )
    path = store._path(f"{plan.uri}/{name}")
    content = bytearray(path.read_bytes())
    path.unlink()
    content[0] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match="a shard has changed since it was written"):
        merge_parts(plan, store)


def test_merge_judges_bad_rows_of_all_parts(tmp_path: Path, store: Store) -> None:
    folder = tmp_path / "in"
    folder.mkdir()
    for number in range(4):
        (folder / f"{number}.csv").write_text("a,b\n" + "1,2\n3,4\n5,6,7\n" * 20)
    with pytest.raises(DataError, match="80 x wrong number of fields"):
        shard_in_parts(store, folder, num_parts=2, validation_fraction=0, test_fraction=0)
    tolerant = {"validation_fraction": 0, "test_fraction": 0, "max_bad_row_fraction": 0.5}
    result = shard_in_parts(store, folder, num_parts=2, **tolerant)
    assert result.index.bad_rows["count"] == 80
    with store.open(f"{result.uri}/quarantine/bad-rows.jsonl") as stream:
        assert len(stream.read().splitlines()) == 80


def test_every_file_belongs_to_one_part(tmp_path: Path, store: Store) -> None:
    source = table_files(tmp_path / "in")
    _, files = plan_dataset(
        Source(uri=str(source)), ShardSettings(), store, destination=DESTINATION
    )
    taken = [
        file.name for part in range(4) for file in files_of_part(files, part=part, num_parts=4)
    ]
    assert sorted(taken) == sorted(file.name for file in files)


def test_plan_survives_its_document(tmp_path: Path, store: Store) -> None:
    settings = ShardSettings(ignore_columns=("a",), csv_options={"sep": ";"})
    plan, _ = plan_dataset(
        Source(uri=str(table_files(tmp_path / "in"))), settings, store, destination=DESTINATION
    )
    assert DatasetPlan.from_json(plan.to_json()) == plan
    for document in (DatasetPlan, PartIndex):
        with pytest.raises(ContractError) as raised:
            document.from_json("{}", uri="s3://bucket/document.json")
        assert raised.value.where == "s3://bucket/document.json"


def test_command_line_shards_as_containers_would(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, output = table_files(tmp_path / "in"), tmp_path / "out"
    (tmp_path / "settings.json").write_text(json.dumps({"num_shards": 4}))
    plan = str(output / "plan.json")
    where = ["--source", str(source), "--output", str(output)]
    assert (
        main(["plan", *where, "--parts", "2", "--settings", str(tmp_path / "settings.json")]) == 0
    )
    config = tmp_path / "resourceconfig.json"
    monkeypatch.setattr("trainyard.sharding.__main__.RESOURCE_CONFIG", config)
    for host in ("algo-1", "algo-2"):
        config.write_text(json.dumps({"current_host": host, "hosts": ["algo-1", "algo-2"]}))
        assert main(["part", *where, "--plan", plan]) == 0
    assert main(["merge", "--output", str(output), "--plan", plan]) == 0
    index = ShardIndex.from_json((output / "index" / "index.json").read_text())
    assert index.num_rows == 1_200
    assert all(
        (output / shard.file).stat().st_size == shard.bytes
        for shard in index.splits["train"].shards
    )


def test_command_line_says_what_is_wrong(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--source", str(tmp_path / "missing.csv"), "--output", str(tmp_path / "out")]
    assert main(["shard", *where]) == 1
    assert "the source does not exist" in capsys.readouterr().err
