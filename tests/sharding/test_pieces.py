"""The laws of the small parts."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, strategies as st

from tests.limits import EVENT_LIMIT_S
from trainyard.errors import ContractError, SpecError
from trainyard.sharding import LocalObjects, ShardIndex, ShardSettings, fit_num_shards
from trainyard.sharding.index import BufferPlace, SchemaColumn, Shard, Split
from trainyard.sharding.line_blocks import line_blocks
from trainyard.sharding.prefetch import prefetched
from trainyard.sharding.shard_count import held_out_shards
from trainyard.sharding.source_files import SourceFile
from trainyard.sharding.split_rule import SplitRule, text_hashes
from trainyard.sharding.statistics import ColumnMoments, baseline
from trainyard.sharding.uploads import MAX_WAITING, NUM_THREADS, Uploads

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMES = st.text("abc_\u00e9", min_size=1, max_size=8)
COUNTS = st.integers(0, 2**40)
PLACES = st.builds(BufferPlace, name=NAMES, dtype=NAMES, offset=COUNTS, bytes=COUNTS)
SHARDS = st.builds(
    Shard,
    file=NAMES,
    rows=COUNTS,
    bytes=COUNTS,
    sha256=st.none() | NAMES,
    first_row=COUNTS,
    columns=st.lists(PLACES, max_size=3).map(tuple),
    num_tokens=st.none() | COUNTS,
    first_token=st.none() | COUNTS,
)
SPLITS = st.builds(
    Split,
    num_rows=COUNTS,
    num_tokens=st.none() | COUNTS,
    shards=st.lists(SHARDS, max_size=3).map(tuple),
)
COLUMNS = st.builds(
    SchemaColumn,
    name=NAMES,
    dtype=NAMES,
    role=NAMES,
    categories=st.none() | st.lists(NAMES, max_size=3).map(tuple),
    mean=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    std=st.none() | st.floats(allow_nan=False, allow_infinity=False),
    num_infinite=st.none() | COUNTS,
    validity=st.none() | NAMES,
    values=st.none() | st.lists(COUNTS | st.floats(-9, 9), max_size=3).map(tuple),
)
INDEXES = st.builds(
    ShardIndex,
    kind=NAMES,
    fingerprint=NAMES,
    source=st.dictionaries(NAMES, COUNTS),
    settings=st.dictionaries(NAMES, st.lists(NAMES)),
    splits=st.dictionaries(NAMES, SPLITS, max_size=3),
    bad_rows=st.dictionaries(NAMES, COUNTS),
    schema=st.none() | st.lists(COLUMNS, max_size=3).map(tuple),
    format=st.just("trainyard-shards"),
    version=st.sampled_from([1, 2]),
)


@given(index=INDEXES)
def test_index_reads_back_what_it_renders(index: ShardIndex) -> None:
    assert ShardIndex.from_json(index.to_json()) == index


@pytest.mark.parametrize("text", ["", "{}", "[]", '{"format": "x", "version": 1}'])
def test_other_document_is_not_an_index(text: str) -> None:
    with pytest.raises(ContractError, match="index of a data set cannot be read") as raised:
        ShardIndex.from_json(text, uri="s3://bucket/index.json")
    assert raised.value.where == "s3://bucket/index.json"


@given(
    readers=st.tuples(st.integers(1, 8), st.integers(1, 8), st.integers(0, 4)),
    train_bytes=st.integers(0, 2**40),
)
def test_picked_count_fits_readers_and_target(
    readers: tuple[int, int, int], train_bytes: int
) -> None:
    settings = ShardSettings(
        instance_count=readers[0], processes_per_instance=readers[1], num_workers=readers[2]
    )
    count = fit_num_shards(settings, train_bytes=train_bytes)
    assert count % settings.num_readers == 0
    assert count >= settings.num_readers
    assert train_bytes / count <= settings.target_shard_bytes


@pytest.mark.parametrize("asked", [1, 3, 5])
def test_uneven_count_is_refused(asked: int) -> None:
    settings = ShardSettings(num_shards=asked, instance_count=2)
    with pytest.raises(SpecError, match="a multiple of 2"):
        fit_num_shards(settings, train_bytes=0)


def test_held_out_split_gets_its_proportion_of_shards() -> None:
    assert held_out_shards(64, fraction=0.05, train_fraction=0.9, share=2) == 4
    assert held_out_shards(2, fraction=0.05, train_fraction=0.9, share=2) == 2
    assert held_out_shards(64, fraction=0, train_fraction=0.9, share=2) == 0
    assert held_out_shards(64, fraction=0.9, train_fraction=0.0005, share=2) == 64


@given(validation=st.floats(0, 0.4), test=st.floats(0, 0.4))
def test_split_shares_come_out_as_asked(validation: float, test: float) -> None:
    rule = SplitRule(validation_fraction=validation, test_fraction=test)
    hashes = text_hashes([str(at).encode() for at in range(4_000)])
    shares = np.bincount(rule.assign(hashes), minlength=3) / 4_000
    assert shares[1] == pytest.approx(validation, abs=0.04)
    assert shares[2] == pytest.approx(test, abs=0.04)


@given(st.lists(st.lists(st.floats(-1e6, 1e6), max_size=20), max_size=6))
def test_moments_merge_to_those_of_all_values(batches: list[list[float]]) -> None:
    moments = ColumnMoments()
    for batch in batches:
        moments.add(np.array([*batch, np.nan]))
    values = [value for batch in batches for value in batch]
    if not values:
        assert moments.mean is None
        return
    assert moments.mean == pytest.approx(np.mean(values), abs=1e-6)
    assert moments.std == pytest.approx(np.std(values), abs=1e-4)


def test_moments_of_large_equal_numbers_merge_with_others() -> None:
    whole, part = ColumnMoments(), ColumnMoments()
    whole.add(np.arange(300.0))
    part.add(np.array([1e200, np.nan] * 150))
    whole.absorb(*part.sums)
    assert whole.mean == pytest.approx(1e200 / 3)
    assert whole.std == pytest.approx(1e200 * np.sqrt(2) / 3)


def test_unigram_loss_worked_example() -> None:
    found = baseline({"train": np.array([3, 1]), "validation": np.array([1, 1])})
    assert found == {"unigram_loss_nats": pytest.approx(0.752, abs=5e-4)}


@given(
    lines=st.lists(st.binary(max_size=40).map(lambda b: b.replace(b"\n", b"")), max_size=30),
    block_bytes=st.integers(1, 50),
    ends=st.booleans(),
)
def test_blocks_are_whole_lines_and_lose_none(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes], block_bytes: int, ends: bool
) -> None:
    path = tmp_path_factory.mktemp("lines") / "t"
    content = b"\n".join(lines) + (b"\n" if ends else b"")
    path.write_bytes(content)
    file = SourceFile(name="t", uri=str(path), size=len(content))
    blocks = list(line_blocks(file, LocalObjects(path.parent), block_bytes=block_bytes))
    assert b"".join(block.data for block in blocks) == content
    for block, following in itertools.pairwise(blocks):
        assert block.data.endswith(b"\n")
        assert following.first_line == block.first_line + block.data.count(b"\n")


def test_reading_ahead_keeps_order_and_carries_errors() -> None:
    def items() -> Iterator[int]:
        yield from range(5)
        raise OSError("gone")

    found = []
    with pytest.raises(OSError, match="gone"), prefetched(items()) as ahead:
        found.extend(ahead)
    assert found == [0, 1, 2, 3, 4]


def test_leaving_early_ends_the_reading_thread() -> None:
    with prefetched(iter(range(10**9))) as ahead:
        assert next(ahead) == 0
    assert not [each for each in threading.enumerate() if each.name == "read-ahead"]


class SlowObjects(LocalObjects):
    """A store whose puts wait until they are let through."""

    __slots__ = ("open_gate", "started")

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        object.__setattr__(self, "open_gate", threading.Event())
        object.__setattr__(self, "started", threading.Semaphore(0))

    def put_file(self, path: Path, uri: str, *, sha256: str | None) -> None:
        self.started.release()
        assert self.open_gate.wait(30)
        super().put_file(path, uri, sha256=sha256)


def test_uploads_run_beside_the_writer_and_wait_when_too_many(tmp_path: Path) -> None:
    store = SlowObjects(tmp_path / "store")
    sent = []

    def send_all() -> None:
        for at in range(MAX_WAITING + 1):
            path = tmp_path / str(at)
            path.write_text(str(at))
            sent.append(uploads.send(path, str(at)))

    with Uploads(store, "s3://bucket/x", existing=frozenset()) as uploads:
        writer = threading.Thread(target=send_all)
        writer.start()
        for _ in range(NUM_THREADS):
            assert store.started.acquire(timeout=EVENT_LIMIT_S)
        assert not any(future.done() for future in sent)  # the writer went on meanwhile
        assert writer.is_alive() or len(sent) <= MAX_WAITING
        store.open_gate.set()
        writer.join(30)
        assert len(uploads.wait()) == MAX_WAITING + 1


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, trainyard.sharding;"
        "print([name for name in ('numpy', 'pandas', 'pyarrow', 'tokenizers') if name in sys.modules])"
    )
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
