"""The statistics that a real training writes, read as the rules read them."""

from __future__ import annotations

import copy
import json
import math
import os
import threading
from typing import TYPE_CHECKING

import pytest
import torch

from trainyard.rules.records import MarkRecord, Start, StepRecord, Validation
from trainyard.rules.statistics_file import read_statistics
from trainyard_watch.statistics.checksums import ReplicaChecksums, sum_of_bits
from trainyard_watch.statistics.choice import Cadence, Collection, choose
from trainyard_watch.statistics.emitter import Emitter
from trainyard_watch.statistics.forward_pass import ActivationWatch
from trainyard_watch.statistics.headlines import MOST_WAITING, Headlines, TensorBoardSink
from trainyard_watch.statistics.opening import close_each
from trainyard_watch.statistics.parts import FIRST_PART_S, TRIED_AGAIN_AFTER_S, PartWriter
from trainyard_watch.statistics.tensors import ModelTensors

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.rules.records import Record


def files_in(folder: Path) -> list[str]:
    """Return the names of the statistics files of a folder."""
    return sorted(path.name for path in folder.glob("*.jsonl"))


def records_of(folder: Path) -> list[Record]:
    """Return everything that was observed."""
    texts = {
        name: (folder / name).read_text().splitlines(keepends=True) for name in files_in(folder)
    }
    return read_statistics(texts)


def steps_of(records: list[Record], rank: int = 0) -> list[StepRecord]:
    """Return the steps of one rank."""
    return [each for each in records if isinstance(each, StepRecord) and each.rank == rank]


def test_two_ranks_write_each_step_and_what_happened(make_job):
    job = make_job()
    (job.base_dir / "checkpoints").mkdir()

    assert job.run(world_size=2, max_steps=20, checkpoint_interval=10) == [0, 0]

    folder = job.base_dir / "output" / "data" / "statistics"
    records = records_of(folder)
    assert files_in(folder) == [f"rank-{rank:05d}.attempt-0001.part-0001.jsonl" for rank in (0, 1)]
    starts = {each.rank: each for each in records if isinstance(each, Start)}
    assert {(each.world_size, each.attempt, each.step) for each in starts.values()} == {(2, 1, 0)}
    assert sorted(starts) == [0, 1]
    for rank in (0, 1):
        steps = steps_of(records, rank)
        assert [each.step for each in steps] == list(range(1, 21))
        for step, said in zip(steps, job.events("step"), strict=True):
            assert step.loss == pytest.approx(said["loss"], rel=1e-12)
            assert step.gradient_norm == pytest.approx(said["gradient_norm"], rel=1e-12)
            assert step.learning_rate == pytest.approx(said["learning_rate"], rel=1e-12)
    marks = [each.kind for each in records if isinstance(each, MarkRecord)]
    assert marks.count("checkpoint") == marks.count("durable") == 2
    assert marks[-1] == "done"
    assert [each.step for each in records if isinstance(each, Validation)] == [
        *list(range(3, 21, 3)),
        20,
    ]


def test_the_bad_step_is_written_before_the_run_fails(make_job):
    job = make_job()

    codes = job.run(world_size=2, learning_rate=1e30, clip_norm=0, warmup_steps=0)

    records = records_of(job.base_dir / "output" / "data" / "statistics")
    assert codes == [1, 1]
    assert "in step 2" in job.failure
    for rank in (0, 1):
        last = steps_of(records, rank)[-1]
        assert last.step == 2
        assert not (math.isfinite(last.loss) and math.isfinite(last.gradient_norm))
        assert any(each.has_nan for each in last.collection("gradients").values())


def test_steps_that_are_not_finite_can_be_skipped(make_job):
    job = make_job()

    codes = job.run(
        learning_rate=1e30, clip_norm=0, warmup_steps=0, max_steps=9, on_non_finite="skip",
        most_skipped_steps=3,
    )  # fmt: skip

    skipped = [line for line in job.log_lines() if line.startswith("trainyard skipped")]
    assert codes == [1]
    assert [line.split()[2] for line in skipped] == ["step=2", "step=3", "step=4"]
    assert "in step 5" in job.failure


def test_a_restart_is_the_next_attempt_and_leaves_the_files_of_the_first(make_job):
    job = make_job()
    (job.base_dir / "checkpoints").mkdir()
    job.run(max_steps=4, checkpoint_interval=2)
    folder = job.base_dir / "output" / "data" / "statistics"
    first = {name: (folder / name).read_bytes() for name in files_in(folder)}

    job.run(max_steps=6, checkpoint_interval=2)

    assert {name: (folder / name).read_bytes() for name in first} == first
    starts = [each for each in records_of(folder) if isinstance(each, Start)]
    assert [(each.attempt, each.step) for each in starts] == [(1, 0), (2, 4)]


def test_the_hook_configuration_says_where_and_what(make_job):
    job = make_job()
    config = job.base_dir / "input" / "config"
    config.mkdir()
    collection = {"CollectionName": "biases", "CollectionParameters": {"save_interval": "2"}}
    hook = {"LocalPath": "/opt/ml/output/tensors", "CollectionConfigurations": [collection]}
    (config / "debughookconfig.json").write_text(json.dumps(hook))

    job.run(max_steps=4)

    steps = steps_of(records_of(job.base_dir / "output" / "tensors"))
    assert [each.step for each in steps] == [1, 2, 3, 4]
    assert all(not each.tensors for each in steps)  # the decoder has no biases


@pytest.mark.parametrize(
    "parameters",
    [{"save_interval": "often"}, {"include_regex": "("}, {"save_steps": [1, 2]}],
    ids=["number", "pattern", "kind"],
)
def test_a_hook_configuration_that_is_wrong_costs_its_choice_only(make_job, parameters):
    job = make_job()
    config = job.base_dir / "input" / "config"
    config.mkdir()
    collection = {"CollectionName": "weights", "CollectionParameters": parameters}
    hook = {"LocalPath": "/opt/ml/output/tensors", "CollectionConfigurations": [collection]}
    (config / "debughookconfig.json").write_text(json.dumps(hook))

    assert job.run(max_steps=2) == [0]

    assert job.log().count("debughookconfig.json cannot be used") == 1
    first, _ = steps_of(records_of(job.base_dir / "output" / "tensors"))
    assert "gradients" in first.tensors  # the defaults


def test_a_place_that_is_none_costs_the_statistics_of_all_ranks_and_no_more(make_job):
    job = make_job()
    config = job.base_dir / "input" / "config"
    config.mkdir()
    (config / "debughookconfig.json").write_text(json.dumps({"LocalPath": ["a", "list"]}))

    assert job.run(world_size=2, max_steps=2, trace_steps="1:1") == [0, 0]

    for rank in (0, 1):
        assert job.log(rank).count("the statistics of this rank cannot be written") == 1
        assert job.log(rank).count("steps 1 to 1 have no trace") == 1


def test_off_writes_nothing_and_changes_no_bit(make_job):
    with_statistics, without = make_job("on"), make_job("off")
    with_statistics.run(world_size=2)

    without.run(world_size=2, statistics="off")

    assert not (without.base_dir / "output" / "data" / "statistics").exists()
    assert without.weights_sha256() == with_statistics.weights_sha256()


def test_a_full_disk_costs_statistics_only(tmp_path, caplog):
    (tmp_path / "file").write_text("")
    now = [0.0]
    header = {"rank": 0, "attempt": 1}
    writer = PartWriter(tmp_path / "file", header=header, clock=lambda: now[0])

    for _ in range(3):
        writer.write(b"lost\n")
    (tmp_path / "file").unlink()
    now[0] += TRIED_AGAIN_AFTER_S
    writer.write(b"kept\n")
    writer.close()

    assert caplog.text.count("statistics cannot be written") == 1
    (part,) = (tmp_path / "file").iterdir()
    assert part.name.endswith("part-0001.jsonl")  # a part that was never there is not missed
    assert part.read_text().splitlines()[1:] == ["kept"]


def test_a_part_that_cannot_be_closed_ends_nothing(tmp_path, caplog):
    writer = PartWriter(tmp_path, header={"rank": 0, "attempt": 1})
    writer.write(b"1\n")
    os.close(writer._file.fileno())

    writer.write(b"lost\n")
    writer.close()

    assert caplog.text.count("statistics cannot be written") == 1


def test_each_observer_is_closed_whatever_becomes_of_the_others(caplog):
    closed = []

    class Whole:
        def close(self):
            closed.append(self)

    class Broken:
        def close(self):
            raise OSError("no space left")

    one, another = Whole(), Whole()
    close_each(one, Broken(), another)

    assert closed == [one, another]
    assert "Broken was not closed" in caplog.text
    assert "no space left" in caplog.text


def test_a_sink_that_hangs_holds_nobody_up(caplog):
    answers, is_asked = threading.Event(), threading.Event()

    class Hanging:
        def write(self, _scalars, **_):
            is_asked.set()
            answers.wait()

        def close(self):
            pass

    headlines = Headlines({"slow": Hanging})
    headlines.on_record("step", {"step": 1, "loss": 2.0})
    assert is_asked.wait(20)
    for step in range(MOST_WAITING + 7):
        headlines.on_record("step", {"step": step, "loss": 2.0})
    headlines.close(within_s=0.1)
    answers.set()

    (told,) = [each.getMessage() for each in caplog.records]
    assert "slow took scalars too slowly and did not end within 0.1 s" in told
    assert f"the numbers of {MOST_WAITING + 7} events were dropped" in told


def test_a_slow_sink_is_given_all_that_waits(caplog):
    begins, steps = threading.Event(), []

    class Slow:
        def write(self, _scalars, *, step, **_):
            begins.wait()
            steps.append(step)

        def close(self):
            steps.append("closed")

    headlines = Headlines({"slow": Slow})
    for step in range(MOST_WAITING):
        headlines.on_record("step", {"step": step, "loss": 2.0})
    begins.set()
    headlines.close()

    assert steps == [*range(MOST_WAITING), "closed"]
    assert not caplog.records


def test_parts_are_rolled_by_age_and_never_touched_again(tmp_path):
    now = [0.0]
    writer = PartWriter(tmp_path, header={"rank": 3, "attempt": 2}, clock=lambda: now[0])

    writer.write(b"1\n")
    now[0] += FIRST_PART_S
    writer.write(b"2\n")
    writer.close()

    assert files_in(tmp_path) == [
        "rank-00003.attempt-0002.part-0001.jsonl",
        "rank-00003.attempt-0002.part-0002.jsonl",
    ]
    parts = [(tmp_path / name).read_text().splitlines() for name in files_in(tmp_path)]
    assert [json.loads(part[0])["part"] for part in parts] == [1, 2]
    assert [part[1:] for part in parts] == [["1"], ["2"]]


def test_clipping_by_the_norms_is_torchs_bit_for_bit():
    torch.manual_seed(0)
    mine = torch.nn.Sequential(torch.nn.Linear(300, 400), torch.nn.Linear(400, 7))
    theirs = copy.deepcopy(mine)
    for model in (mine, theirs):
        model(torch.arange(600.0).view(2, 300)).square().sum().backward()
    tensors = ModelTensors(mine)

    total = tensors.total(tensors.norms(tensors.gradients()[1]))
    tensors.clip(1.0, total)

    assert total == torch.nn.utils.clip_grad_norm_(theirs.parameters(), 1.0)
    for own, other in zip(mine.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(own.grad, other.grad)


def test_numbers_of_a_tensor_are_those_of_its_elements():
    layer = torch.nn.Linear(3, 2, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[0.0, 1.0, 2.0], [0.0, -3.0, 6.0]]))
    tensors = ModelTensors(layer)
    before = tensors.samples(tensors.parameters)
    l2 = tensors.norms(tensors.parameters).tolist()

    spread = tensors.spreads(tensors.parameters, [0], l2)
    with torch.no_grad():
        layer.weight[0, 0] += 3.0
        layer.weight[1, 0] -= 4.0

    assert spread["mean"] == [1.0]
    assert spread["variance"][0] == pytest.approx(50 / 6 - 1)
    assert spread["zero_fraction"][0] == pytest.approx(2 / 6)
    assert tensors.mean_abs(tensors.parameters, [0]) == [pytest.approx(19 / 6)]
    assert tensors.update_norms(before).tolist() == [5.0]


def test_numbers_of_a_large_tensor_are_close_to_those_of_its_elements():
    torch.manual_seed(1)
    layer = torch.nn.Linear(1000, 500, bias=False)
    tensors = ModelTensors(layer)
    weight = layer.weight.detach().clone()
    before = tensors.samples(tensors.parameters)
    with torch.no_grad():
        layer.weight += 0.01 * torch.randn(500, 1000)

    change = (layer.weight.detach() - weight).norm().item()
    assert tensors.update_norms(before).item() == pytest.approx(change, rel=0.02)
    assert tensors.mean_abs([weight], [0])[0] == pytest.approx(weight.abs().mean().item(), rel=0.02)


@pytest.mark.parametrize("size", [1, 7, 64])
@pytest.mark.parametrize("place", [0, -1])
def test_a_flip_of_any_bit_changes_the_checksum(size, place):
    values = torch.linspace(-1, 1, size)
    flipped = values.clone()
    flipped[place:][:1].view(torch.int32).bitwise_xor_(1)

    assert sum_of_bits(values) != sum_of_bits(flipped)
    assert sum_of_bits(values) == sum_of_bits(values.clone())


def test_dead_and_saturated_units_are_counted():
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Tanh())
    watch = ActivationWatch(model, [Collection(kind="activations", cadence=Cadence())])
    watch.attach()
    model(torch.tensor([[-1.0, 20.0, 1.0, 20.0]]).repeat(5, 1))

    seen = watch.detach()
    model(torch.ones(1, 4))

    assert seen["inactive_fraction"] == [0.25, None]
    assert seen["saturated_fraction"] == [None, 0.5]
    assert watch.detach() == {}


@pytest.mark.parametrize(
    ("parameters", "steps"),
    [
        ({"save_interval": "3"}, [3, 6, 9]),
        ({"train.save_interval": 4, "save_interval": 1}, [4, 8]),
        ({"save_interval": "2", "start_step": "4", "end_step": "8"}, [4, 6]),
        ({"save_steps": "1,5"}, [1, 5]),
    ],
)
def test_collections_say_when(parameters, steps):
    hook = {
        "CollectionConfigurations": [
            {"CollectionName": "weights", "CollectionParameters": parameters}
        ]
    }

    (collection,) = choose("on", hook, num_tensors=4).of("weights")

    assert [step for step in range(1, 10) if collection.cadence.has(step)] == steps


def test_tensorboard_and_what_is_missing_for_it(tmp_path, caplog):
    missing = Headlines({"nowhere": lambda: TensorBoardSink(tmp_path / "x" / "y" / "\0")})
    missing.on_record("step", {"step": 1, "loss": 2.0})
    missing.close()
    assert caplog.text.count("no scalars for nowhere") == 1

    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    headlines = Headlines({"TensorBoard": lambda: TensorBoardSink(tmp_path)})
    headlines.on_record("step", {"step": 10, "loss": 2.5, "learning_rate": 0.1})
    headlines.on_record("eval", {"step": 10, "validation_loss": 3.0})
    headlines.close()

    found = EventAccumulator(str(tmp_path)).Reload()
    assert sorted(found.Tags()["scalars"]) == [
        "train/learning_rate",
        "train/loss",
        "validation/loss",
    ]
    assert [(each.step, each.value) for each in found.Scalars("train/loss")] == [(10, 2.5)]


class Sparse(torch.nn.Module):
    def forward(self, hidden):
        return hidden.to_sparse()


class BrokenChecksums(ReplicaChecksums):
    def take(self, _tensors, *, step):
        raise RuntimeError(f"no checksum of step {step}")


class BrokenNorms(ModelTensors):
    def spreads(self, *_):
        raise RuntimeError("no spreads")

    def update_norms(self, _):
        raise RuntimeError("no norms of updates")


class CountedNorms(ModelTensors):
    """Tensors that count their calls, each of which is a collective if the tensors are sharded."""

    num_calls = 0

    def norms(self, tensors, order=2.0):
        self.num_calls += 1
        return super().norms(tensors, order)


def test_a_rank_with_a_fault_takes_part_in_the_collectives_until_all_ranks_know():
    model = torch.nn.Linear(2, 2)
    tensors = CountedNorms(model)
    choice = choose(json.dumps({"weights": {"save_interval": 1}}), None, num_tensors=2)
    emitter = Emitter(tensors, None, choice=choice)
    model(torch.ones(1, 2)).sum().backward()

    def calls_of_a_step():
        before = tensors.num_calls
        emitter.begin_step(1)
        emitter.measure()
        return tensors.num_calls - before

    healthy = calls_of_a_step()
    emitter.degrade(ValueError("only here"))
    unknown = calls_of_a_step()
    emitter.degrade()

    assert (healthy, unknown, calls_of_a_step()) == (2, 2, 1)


def test_a_step_without_gradients_keeps_the_statistics_of_the_others(tmp_path):
    model = torch.nn.Linear(2, 2)
    choice = choose(json.dumps({"gradients": {"save_interval": 1}}), None, num_tensors=2)
    emitter = Emitter(ModelTensors(model), None, choice=choice)
    emitter.writer = PartWriter(tmp_path, header={"rank": 0, "attempt": 1})

    for step in (1, 2):
        emitter.begin_step(step)
        if step == 2:
            model(torch.ones(1, 2)).sum().backward()
        emitter.measure()
        emitter.end_step(loss=0.5)
    emitter.close()

    assert not emitter.is_degraded
    (part,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in part.read_text().splitlines()[1:]]
    first, second = (line["tensors"]["gradients"]["l2"] for line in lines)
    assert first == [None, None]
    assert min(second) > 0


@pytest.mark.parametrize("broken", ["activations", "checksums", "gradients", "weights", "inputs"])
def test_a_fault_of_any_statistic_costs_statistics_only(tmp_path, caplog, broken):
    layers = [torch.nn.Linear(2, 2)] + [Sparse()] * (broken == "activations")
    model = torch.nn.Sequential(*layers)
    kind = BrokenNorms if broken in {"gradients", "weights"} else ModelTensors
    collections = [broken] if broken in {"gradients", "weights"} else ["activations"]
    chosen = {name: {"save_interval": 1} for name in (*collections, "checksums", "batches")}
    tensors = kind(model)
    replicas = BrokenChecksums(tensors.names, rank=0, size=1) if broken == "checksums" else None
    emitter = Emitter(
        tensors, model, choice=choose(json.dumps(chosen), None, num_tensors=2), checksums=replicas
    )
    emitter.writer = PartWriter(tmp_path, header={"rank": 0, "attempt": 1})

    for step in (1, 2, 3):
        emitter.begin_step(step)
        emitter.see_inputs(None if broken == "inputs" else (torch.ones(1, 2),))
        model(torch.ones(1, 2)).to_dense().sum().backward()
        _, norm = emitter.measure()
        emitter.before_update()
        emitter.after_update()
        emitter.end_step(loss=0.5, gradient_norm=norm)
    emitter.close()

    assert emitter.is_degraded
    assert caplog.text.count("STATISTICS REDUCED to loss, norm and times from step 1 on") == 1
    (part,) = tmp_path.iterdir()
    lines = [json.loads(line) for line in part.read_text().splitlines()[1:]]
    assert [line["step"] for line in lines if line["kind"] == "step"] == [1, 2, 3]
