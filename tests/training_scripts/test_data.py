"""Samples from shards: token blocks and table rows."""

from __future__ import annotations

import itertools
import json
import math

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainer.data.loader import choose_num_processes, evaluation_batches
from trainer.data.shard_columns import map_column
from trainer.data.shard_index import ChannelIndex
from trainer.data.table import MAX_INTEGER_CLASSES, read_layout
from trainer.data.table_rows import TableRows
from trainer.data.token_blocks import TokenBlocks
from trainyard.sharding.statistics import MAX_CLASSES
from trainyard_watch.distributed import Ranks
from trainyard_watch.errors import DataError

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


@settings(deadline=None)
@given(
    lengths=st.lists(st.integers(0, 30), min_size=1, max_size=6),
    sequence_length=st.integers(1, 20),
)
def test_blocks_cut_the_stream_whatever_the_shards(lengths, sequence_length):
    stream = torch.arange(sum(lengths)) % 60_000
    shards = [part.to(torch.uint16) for part in stream.split(lengths)]
    blocks = TokenBlocks(shards, sequence_length=sequence_length)

    assert len(blocks) == max(0, len(stream) - 1) // sequence_length
    if len(blocks):
        inputs, targets = blocks[torch.arange(len(blocks))]
        covered = len(blocks) * sequence_length
        assert inputs.flatten().tolist() == stream[:covered].tolist()
        assert targets.flatten().tolist() == stream[1 : covered + 1].tolist()


@pytest.mark.parametrize("dtype", [torch.uint8, torch.uint16, torch.uint32, torch.int32])
def test_large_ids_survive_every_dtype(dtype):
    highest = torch.iinfo(dtype).max
    blocks = TokenBlocks([torch.tensor([0, highest, 1]).to(dtype)], sequence_length=2)

    inputs, targets = blocks[torch.tensor([0])]

    assert inputs.tolist() == [[0, highest]]
    assert targets.tolist() == [[highest, 1]]


def test_data_set_on_disk_gives_back_its_documents(token_data):
    index = ChannelIndex.load(token_data / "index")
    split = index.split("validation")
    blocks = TokenBlocks.open(
        index, "validation", token_data / "validation", sequence_length=1, verify=True
    )

    inputs, _ = blocks[torch.arange(len(blocks))]

    assert len(blocks) == split["num_tokens"] - 1
    assert (inputs == 256).sum() == split["num_rows"] - 1
    assert bytes(inputs[:7, 0].tolist()).decode().isprintable()


def test_evaluation_takes_the_same_samples_for_any_number_of_ranks():
    samples = TokenBlocks([torch.arange(1001)], sequence_length=10)

    def seen(world_size, batch_size):
        parts = (
            evaluation_batches(samples, num_samples=30, batch_size=batch_size, rank=rank,
                               world_size=world_size, device=CPU)
            for rank in range(world_size)
        )  # fmt: skip
        return sorted(int(row[0]) for inputs, _ in itertools.chain(*parts) for row in inputs)

    assert seen(1, 8) == seen(3, 2) == seen(4, 30) == seen(50, 1)
    assert len(set(seen(1, 8))) == 30
    assert max(seen(1, 8)) > 900


SCHEMA = [
    {"name": "id", "dtype": "int64", "role": "id"},
    {"name": "age", "dtype": "float32", "role": "feature", "mean": 40.0, "std": 10.0},
    {"name": "city", "dtype": "int32", "role": "feature", "categories": ["a", "b", "c"]},
    {"name": "bought", "dtype": "int64", "role": "target"},
    {"name": "price", "dtype": "float64", "role": "feature", "mean": 2.0, "std": 0.5},
]


@pytest.fixture
def table(tmp_path, shards):
    """A data set of 10 rows in 3 shards, one of them empty."""
    splits = {}
    for split in ("train", "validation", "test"):
        entries = []
        for number, rows in enumerate([range(4), range(0), range(4, 10)]):
            columns = {
                "id": ("int64", list(rows)),
                "age": ("float32", [math.nan if row == 2 else 30.0 + row for row in rows]),
                "city": ("int32", [row % 4 - 1 for row in rows]),
                "bought": ("int64", [row % 2 * 5 for row in rows]),
                "price": ("float64", [row / 4 for row in rows]),
            }
            entry = shards.write_shard(tmp_path / split / f"shard-{number:05d}.bin", columns)
            entries.append(entry | {"rows": len(rows), "first_row": rows.start})
        splits[split] = {"num_rows": 10, "shards": entries}
    return shards.write_index(tmp_path, {"kind": "columns", "schema": SCHEMA}, splits)


def layout_of(table, target_column=None, problem="auto"):
    index = ChannelIndex.load(table / "index")
    files = sorted((table / "train").iterdir())
    return index, read_layout(index, files, target_column=target_column, problem=problem)


def test_rows_come_in_the_order_asked_for_across_shards(table):
    index, layout = layout_of(table)
    rows = TableRows.open(index, "train", table / "train", layout=layout, verify=True)

    numbers, codes, target = rows[torch.tensor([9, 2, 4, 0])]

    assert len(rows) == 10
    assert layout.numbers == ["age", "price"]
    assert numbers[:, 0].tolist() == pytest.approx([39.0, math.nan, 34.0, 30.0], nan_ok=True)
    assert numbers[:, 1].tolist() == [2.25, 0.5, 1.0, 0.0]
    assert codes.tolist() == [[0], [1], [-1], [-1]]
    assert layout.target.classes == [0, 5]
    assert target.tolist() == [1, 0, 0, 0]


def test_numbers_arrive_as_they_are(tmp_path, shards):
    values = [1.0, math.inf, -math.inf, 1e200, 1.7e9 + 1]
    columns = {"x": ("float64", values), "y": ("float64", [1.0] * 5)}
    entry = shards.write_shard(tmp_path / "train" / "shard-00000.bin", columns)
    split = {"num_rows": 5, "shards": [entry | {"rows": 5, "first_row": 0}]}
    schema = [
        {"name": "x", "dtype": "float64", "role": "feature", "mean": 2e199, "std": 4e199},
        {"name": "y", "dtype": "float64", "role": "target", "mean": 1.0, "std": None},
    ]
    shards.write_index(tmp_path, {"kind": "columns", "schema": schema}, {"train": split})
    index, layout = layout_of(tmp_path)
    rows = TableRows.open(index, "train", tmp_path / "train", layout=layout, verify=True)
    numbers, _, _ = rows[torch.arange(5)]
    assert numbers[:, 0].tolist() == values
    assert (layout.means, layout.stds) == ([2e199], [4e199])


def open_columns(tmp_path, shards, columns, **problem):
    """Write one shard of columns, of which the last is the target; return its rows."""
    entry = shards.write_shard(tmp_path / "train" / "shard-00000.bin", columns)
    num_rows = len(next(iter(columns.values()))[1])
    split = {"num_rows": num_rows, "shards": [entry | {"rows": num_rows, "first_row": 0}]}
    roles = ["feature"] * (len(columns) - 1) + ["target"]
    schema = [
        {"name": name, "dtype": dtype, "role": role}
        for (name, (dtype, _)), role in zip(columns.items(), roles, strict=True)
    ]
    shards.write_index(tmp_path, {"kind": "columns", "schema": schema}, {"train": split})
    index, layout = layout_of(tmp_path, **problem)
    return TableRows.open(index, "train", tmp_path / "train", layout=layout, verify=True), layout


@pytest.mark.parametrize("dtype", ["uint16", "uint32", "uint64"])
def test_unsigned_columns_are_numbers(tmp_path, shards, dtype):
    highest = 2 ** int(dtype[4:]) - 1
    columns = {"x": (dtype, [0, highest, 7]), "y": ("int64", [0, 1, 0])}
    rows, _ = open_columns(tmp_path, shards, columns)

    numbers, _, target = rows[torch.tensor([1, 2, 0])]

    assert numbers[:, 0].tolist() == [float(highest), 7.0, 0.0]
    assert target.tolist() == [1, 0, 0]


def test_shards_of_narrower_numbers_have_the_dtype_of_the_index(tmp_path, shards):
    labels = {"int32": [0, 7], "int64": [2**53, 2**53 + 1]}
    entries = []
    for number, (dtype, values) in enumerate(labels.items()):
        path = tmp_path / "train" / f"shard-{number:05d}.bin"
        entry = shards.write_shard(path, {"x": ("float64", [0.5, 1.5]), "y": (dtype, values)})
        entries.append(entry | {"rows": 2, "first_row": 2 * number})
    schema = [
        {"name": "x", "dtype": "float64", "role": "feature"},
        {"name": "y", "dtype": "int64", "role": "target"},
    ]
    split = {"num_rows": 4, "shards": entries}
    shards.write_index(tmp_path, {"kind": "columns", "schema": schema}, {"train": split})
    index, layout = layout_of(tmp_path, problem="classification")
    rows = TableRows.open(index, "train", tmp_path / "train", layout=layout, verify=True)

    _, _, target = rows[torch.arange(4)]

    assert target.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("dtype", "classes"),
    [
        ("int64", [-(2**63), 2**53, 2**53 + 1, 1_790_000_000_000_000_001, 2**63 - 1]),
        ("uint64", [7, 2**53 + 1, 2**63, 2**64 - 2, 2**64 - 1]),
        ("float64", [-3.0, 1e300]),
    ],
)
def test_large_labels_are_classes_of_their_own(tmp_path, shards, dtype, classes):
    columns = {"x": ("float64", [float(at) for at, _ in enumerate(classes)])}
    columns["y"] = (dtype, classes[::-1])
    rows, layout = open_columns(tmp_path, shards, columns, problem="classification")

    _, _, target = rows[torch.arange(len(classes))]

    assert layout.target.classes == [int(each) for each in classes]
    assert target.tolist() == list(range(len(classes)))[::-1]


@pytest.mark.parametrize(
    ("values", "problem", "classes"),
    [
        ([0, 5, 9], "auto", [0, 5, 9]),
        ([0.0, 5.0, 9.0], "classification", [0, 5, 9]),
        ([], "auto", None),
        (None, "auto", [0, 5]),
    ],
    ids=["all splits", "floats", "too many", "release 0.1.0"],
)
def test_classes_are_the_values_that_the_index_lists_for_all_splits(
    table, values, problem, classes
):
    path = table / "index" / "index.json"
    content = json.loads(path.read_text())
    next(each for each in content["schema"] if each["name"] == "bought")["values"] = values
    path.write_text(json.dumps(content))

    assert layout_of(table, problem=problem)[1].target.classes == classes


def test_listed_fractions_are_no_classes(table):
    path = table / "index" / "index.json"
    content = json.loads(path.read_text())
    next(each for each in content["schema"] if each["name"] == "bought")["values"] = [0, 0.5]
    path.write_text(json.dumps(content))

    with pytest.raises(DataError, match="so it cannot be a class"):
        layout_of(table, problem="classification")


def test_sharding_lists_as_many_values_as_a_target_may_have_classes():
    assert MAX_CLASSES == MAX_INTEGER_CLASSES


def test_target_column_overrides_the_index_and_numbers_are_standardised(table):
    index, layout = layout_of(table, target_column="price")
    rows = TableRows.open(index, "train", table / "train", layout=layout, verify=True)

    assert layout.target.classes is None
    assert rows[torch.tensor([4])][2].tolist() == [(1.0 - 2.0) / 0.5]


def test_a_target_far_from_zero_keeps_its_differences(tmp_path, shards):
    """float32 has multiples of 128 at seconds of this century."""
    values = [1.7e9 + each for each in (-60, 0, 0.75, 60)]
    columns = {"x": ("float64", [0.0] * 4), "y": ("float64", values)}
    entry = shards.write_shard(tmp_path / "train" / "shard-00000.bin", columns)
    split = {"num_rows": 4, "shards": [entry | {"rows": 4, "first_row": 0}]}
    schema = [
        {"name": "x", "dtype": "float64", "role": "feature", "mean": 0.0, "std": 1.0},
        {"name": "y", "dtype": "float64", "role": "target", "mean": 1.7e9, "std": 60.0},
    ]
    shards.write_index(tmp_path, {"kind": "columns", "schema": schema}, {"train": split})
    index, layout = layout_of(tmp_path)
    rows = TableRows.open(index, "train", tmp_path / "train", layout=layout, verify=True)

    target = rows[torch.arange(4)][2]

    assert target.dtype is torch.float32
    assert target.tolist() == pytest.approx([-1.0, 0.0, 0.0125, 1.0])


def test_categories_are_classes_and_a_missing_target_is_refused(table):
    index, layout = layout_of(table, target_column="city")

    with pytest.raises(DataError) as caught:
        TableRows.open(index, "train", table / "train", layout=layout, verify=True)

    assert layout.target.classes == ["a", "b", "c"]
    assert (
        "1 of 4 rows have no usable target 'city'; the first is row 0 with -1"
        in caught.value.findings[0]
    )
    assert len(caught.value.findings) == 2


@pytest.mark.parametrize(
    ("settings_", "said"),
    [
        (
            {"target_column": "sex"},
            "target_column 'sex' is not in the table; columns are id (int64)",
        ),
        ({"target_column": "city", "problem": "regression"}, "has 3 categories, not numbers"),
        ({"target_column": "price", "problem": "classification"}, "so it cannot be a class"),
    ],
)
def test_target_that_cannot_be_learned_is_refused(table, settings_, said):
    with pytest.raises(DataError) as caught:
        layout_of(table, **settings_)

    assert said in str(caught.value)


def test_column_of_missing_values_alone_is_a_category_of_the_index_too(table):
    path = table / "index" / "index.json"
    content = json.loads(path.read_text())
    content["schema"].append(
        {"name": "nothing", "dtype": "int32", "role": "feature", "categories": []}
    )
    path.write_text(json.dumps(content))

    index, layout = layout_of(table)

    assert layout.categories == ["city", "nothing"]
    assert list(index.categories) == layout.categories


def test_regression_can_be_forced_on_whole_numbers(table):
    assert layout_of(table, problem="regression")[1].target.classes is None


def test_unknown_column_lists_what_the_shard_has(table):
    shard = ChannelIndex.load(table / "index").split("train")["shards"][0]

    with pytest.raises(
        DataError,
        match=r"has no column 'salary'; it has .*; use one of them, or shard again with the column",
    ):
        map_column(table / "train" / "shard-00000.bin", shard["columns"], "salary")


def test_unknown_dtype_is_named(table):
    columns = [{"name": "salary", "dtype": "int128", "bytes": 16, "offset": 0}]

    with pytest.raises(
        DataError, match=r"column 'salary' .* unknown dtype 'int128'; allowed: uint8"
    ):
        map_column(table / "train" / "shard-00000.bin", columns, "salary")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"version": 3}, "version 3; this trainer reads format trainyard-shards"),
        ({"kind": "images"}, "kind 'images' and version 1"),
        ({"format": None}, "has format"),
    ],
)
def test_index_of_another_format_is_refused(table, change, said):
    path = table / "index" / "index.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))

    with pytest.raises(DataError) as caught:
        ChannelIndex.load(table / "index")

    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("requested", "device", "num_cpus", "local_ranks", "expected"),
    [
        (3, "cpu", 2, 1, 3),
        (0, "cuda", 96, 8, 0),
        (None, "cpu", 96, 8, 0),
        (None, "cuda", 96, 8, 2),
        (None, "cuda", 16, 8, 1),
        (None, "cuda", 4, 4, 0),
    ],
    ids=["as given", "none as given", "CPU", "p4d", "few processors", "one processor each"],
)
def test_loader_processes_follow_the_processors_of_the_instance(
    requested: int | None,
    device: str,
    num_cpus: int,
    local_ranks: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("SM_NUM_CPUS", str(num_cpus))
    ranks = Ranks(device=torch.device(device), local_world_size=local_ranks)
    assert choose_num_processes(requested, ranks) == expected
