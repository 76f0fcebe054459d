"""Data mixtures: laws of their order, and trainings on two sources."""

from __future__ import annotations

import json
import shutil
from fractions import Fraction
from itertools import chain

import pytest
import torch
from hypothesis import given, settings, strategies as st

from trainer.data.mixture import (
    Interleaving,
    MixedSamples,
    MixtureOrder,
    MixtureSource,
    evaluated_parts,
)
from trainer.data.sample_order import RankBatches, SampleOrder
from trainer.data.shard_index import ChannelIndex
from trainer.data.token_blocks import TokenBlocks
from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset
from trainyard.sharding.mixture import ShardedSource, write_mixture
from trainyard_watch.errors import DataError

pytestmark = pytest.mark.torch
DESTINATION = "s3://bucket/mixtures"
shares = st.lists(st.integers(1, 60), min_size=2, max_size=8).map(tuple)
sizes = st.lists(st.integers(1, 300), min_size=8, max_size=8)
seeds = st.integers(0, 2**63 - 1)
LAW = settings(deadline=None, max_examples=20)


def order_of(parts, each_size, seed):
    sources = tuple(each_size[: len(parts)])
    return MixtureOrder(sizes=sources, seed=seed, interleaving=Interleaving(parts))


@LAW
@given(parts=shares, start=st.integers(0, 10**9), length=st.integers(1, 300))
def test_each_source_has_its_share_of_any_prefix_within_one_sample(parts, start, length):
    interleaving, total = Interleaving(parts), sum(parts)
    begun, _ = interleaving.at(start - start % total, start)
    counts = [
        start // total * part + int((begun == source).sum()) for source, part in enumerate(parts)
    ]
    found = zip(*(each.tolist() for each in interleaving.at(start, start + length)), strict=True)

    for position, (source, ordinal) in enumerate(found, start + 1):
        assert ordinal == counts[source]
        counts[source] += 1
        for part, count in zip(parts, counts, strict=True):
            assert abs(count - Fraction(part, total) * position) < 1


@settings(deadline=None, max_examples=30)
@given(
    parts=st.lists(st.integers(1, 9), min_size=2, max_size=5).map(tuple),
    each_size=st.lists(st.integers(1, 30), min_size=5, max_size=5),
    seed=seeds,
    passes=st.integers(0, 2),
    data=st.data(),
)
def test_each_pass_of_a_source_has_every_sample_once(parts, each_size, seed, passes, data):
    order = order_of(parts, each_size, seed)
    source = data.draw(st.integers(0, len(parts) - 1))
    size, offset = order.sizes[source], sum(order.sizes[:source])
    last = (passes + 1) * size * sum(parts) // parts[source] + sum(parts)

    taken = order.samples(0, last)
    own = taken[(taken >= offset) & (taken < offset + size)] - offset

    one_pass = own[passes * size : (passes + 1) * size]
    assert sorted(one_pass.tolist()) == list(range(size))
    alone = SampleOrder(num_samples=size, seed=seed)
    assert own.tolist() == alone.samples(0, len(own)).tolist()


@LAW
@given(parts=shares, each_size=sizes, seed=seeds, start=st.integers(0, 10**12))
def test_a_position_has_the_same_sample_wherever_reading_starts(parts, each_size, seed, start):
    order = order_of(parts, each_size, seed)

    assert order.samples(start, start + 40).tolist() == [
        order.samples(position, position + 1).item() for position in range(start, start + 40)
    ]


@settings(deadline=None, max_examples=12)
@given(
    parts=shares,
    each_size=sizes,
    seed=seeds,
    layout=st.sampled_from([(1, 1, 12), (2, 3, 2), (3, 2, 2), (4, 3, 1), (12, 1, 1)]),
    resumed_at=st.integers(0, 40),
)
def test_ranks_together_take_the_same_samples_in_every_layout(
    parts, each_size, seed, layout, resumed_at
):
    order, (world_size, micro, accumulation) = order_of(parts, each_size, seed), layout
    ranks = [
        iter(RankBatches(
            order=order, start=12 * resumed_at, global_batch_size=12, micro_batch_size=micro,
            rank=rank, world_size=world_size,
        ))
        for rank in range(world_size)
    ]  # fmt: skip

    for step in range(resumed_at, resumed_at + 3):
        taken = [next(rank).tolist() for _ in range(accumulation) for rank in ranks]
        assert list(chain(*taken)) == order.samples(12 * step, 12 * step + 12).tolist()


def test_the_order_never_changes_between_versions():
    """A resumed run must find the order that an older trainer began with."""
    order = order_of((1, 2, 4), [2, 3, 5, *[1] * 5], 0)

    assert order.samples(0, 14).tolist() == FROZEN


def test_a_micro_batch_has_the_tokens_of_its_sources():
    few, more = (
        TokenBlocks([torch.arange(first, first + 9, dtype=torch.int16)], sequence_length=2)
        for first in (0, 100)
    )
    mixed = MixedSamples(
        [
            MixtureSource(name="b", parts=1, samples=more),
            MixtureSource(name="a", parts=3, samples=few),
        ]
    )

    inputs, targets = mixed[torch.tensor([7, 0, 4, 3])]

    assert len(mixed) == 8
    assert inputs.tolist() == [[106, 107], [0, 1], [100, 101], [6, 7]]
    assert targets.tolist() == [[107, 108], [1, 2], [101, 102], [7, 8]]
    assert mixed.describe() == "a:3:4,b:1:4"
    assert [(each.name, each.share, each.num_samples) for each in evaluated_parts(mixed, 4)] == [
        ("a", 0.75, 3),
        ("b", 0.25, 1),
    ]


@pytest.mark.parametrize("parts", [(0, 1), (-1, 3), (), (9_999, 2)], ids=str)
def test_shares_that_are_no_parts_are_refused(parts):
    with pytest.raises(ValueError, match="a mixture has 1 to 10000 parts"):
        Interleaving(parts)


def sharded(folder, objects, name, text):
    path = folder / f"{name}.txt"
    path.write_text(text)
    result = shard_dataset(
        Source(uri=str(path)),
        ShardSettings(num_shards=2, text_row_bytes=64, validation_fraction=0.2, test_fraction=0.2),
        objects,
        destination=DESTINATION,
    )
    return result.index


@pytest.fixture(scope="session")
def mixed_data(tmp_path_factory):
    """Return the channels of a mixture of digits and letters, as a job receives them by its manifests."""
    folder = tmp_path_factory.mktemp("mixture")
    objects = LocalObjects(folder / "store")
    texts = {"digits": "0123456789\n" * 500, "letters": "the quick brown fox jumps\n" * 300}
    parts = {"digits": 3, "letters": 1}
    sources = [
        ShardedSource(
            name=name,
            parts=parts[name],
            index=sharded(
                folder,
                objects,
                name,
                "".join(f"{n} {line}" for n, line in enumerate(text.splitlines(True))),
            ),
        )
        for name, text in texts.items()
    ]
    mixture = write_mixture(sources, objects, destination=DESTINATION)
    channels = folder / "channels"
    shutil.copytree(objects._path(f"{mixture.uri}/index"), channels / "index")
    for split in ("train", "validation", "test"):
        with objects.open(f"{mixture.uri}/{split}.manifest") as stream:
            first, *names = json.load(stream)
        for name in names:
            target = channels / split / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(objects._path(first["prefix"] + name), target)
    return channels


def history_of(job):
    names = ("step", "loss", "samples", "digest", "validation_loss", "validation_loss_by_source")
    return [
        {name: event.get(name) for name in names}
        for kind in ("step", "eval")
        for event in job.events(kind)
    ]


def test_training_on_a_mixture_resumes_exactly(make_job, mixed_data):
    options = {"checkpoint_interval": 2, "keep_checkpoints": 9, "max_steps": 9, "test_samples": 6}
    job = make_job(data=mixed_data)
    assert job.run(**options) == [0], job.log()
    weights, history = job.weights_sha256(), history_of(job)
    for folder in sorted((job.base_dir / "checkpoints").iterdir())[2:]:
        shutil.rmtree(folder)

    assert job.run(**options) == [0], job.log()

    assert "trainyard resume step=4 " in job.log()
    assert history_of(job) == history
    assert job.weights_sha256() == weights
    (start, *_) = [line for line in job.log_lines() if line.startswith("trainyard start")]
    described = start.rpartition("mixture=")[2]
    assert [word.split(":")[:2] for word in described.split(",")] == [
        ["digits", "3"],
        ["letters", "1"],
    ]
    assert "source digits: 75.00 % of the samples" in job.log()
    losses = json.loads((job.base_dir / "output/data/evaluation.json").read_text())["metrics"]
    by_share = 0.75 * losses["test_loss_digits"] + 0.25 * losses["test_loss_letters"]
    assert losses["test_loss"] == pytest.approx(by_share)


@pytest.mark.slow
def test_the_number_of_ranks_does_not_change_the_samples(make_job, mixed_data):
    one, two = make_job("one", data=mixed_data), make_job("two", data=mixed_data)

    assert one.run(max_steps=8) == [0], one.log()
    assert two.run(max_steps=8, world_size=2) == [0, 0], two.log()

    for each in ("samples", "digest"):
        assert [event[each] for event in one.events("step")] == [
            event[each] for event in two.events("step")
        ]
    assert one.losses() == pytest.approx(two.losses(), rel=2e-5)


def test_a_source_that_is_too_short_is_named(make_job, mixed_data):
    job = make_job(data=mixed_data)

    assert job.run(sequence_length=2000, global_batch_size=1) == [1]

    assert "source 'letters' of the mixture: the split 'validation' has" in job.failure


def test_a_script_that_knows_no_shares_refuses_a_mixture(mixed_data):
    with pytest.raises(
        DataError, match="is the index of a data mixture, which this script cannot read"
    ):
        ChannelIndex.load(mixed_data / "index")


FROZEN = [7, 3, 6, 5, 1, 2, 9, 8, 4, 8, 6, 0, 2, 9]
