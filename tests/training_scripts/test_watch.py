"""`trainyard_watch` in a loop of somebody's own: what is written, resumed, agreed and never broken."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

from tests.limits import EVENT_LIMIT_S
from tests.training_scripts.conftest import SCRIPTS
from trainyard.rules.records import GRADIENTS, StepRecord, Validation
from trainyard.rules.statistics_file import read_statistics
from trainyard.rules.training_log import TrainingLogReader
from trainyard.sagemaker_api.source_archive import source_archive
from trainyard_watch import setting_up, watch

pytestmark = pytest.mark.torch


@pytest.fixture
def container(tmp_path, monkeypatch):
    """The folder of a container in the place of /opt/ml."""
    for name in [each for each in os.environ if each.startswith("SM_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SAGEMAKER_BASE_DIR", str(tmp_path / "ml"))
    before = signal.getsignal(signal.SIGTERM)
    yield tmp_path / "ml"
    signal.signal(signal.SIGTERM, before)


def start(job, steps, pause=0.0, ranks=1):
    job.start(main="watched_loop", argv=[str(steps), str(pause)], world_size=ranks)


def statistics_of(container, rank=0):
    """Return the records of a rank, of all its starts."""
    folder = container / "output" / "data" / "statistics"
    files = sorted(folder.glob(f"rank-{rank:05d}.*.jsonl"))
    return list(
        read_statistics({each.name: each.read_text().splitlines(keepends=True) for each in files})
    )


def test_loop_is_written_as_the_shipped_scripts_write_theirs(make_job):
    job = make_job()
    start(job, 12)
    assert job.wait() == [0], job.log()

    reader = TrainingLogReader()
    records = [each for line in job.log().splitlines() if (each := reader.read(line))]
    assert [each.loss for each in records if isinstance(each, Validation)] == [0.25]
    steps = [each for each in records if isinstance(each, StepRecord)]
    assert (steps[0].step, steps[-1].step) == (1, 12)
    assert steps[-1].learning_rate == 0.01
    assert "trainyard done step=12 " in job.log()
    of_file = [each for each in statistics_of(job.base_dir) if isinstance(each, StepRecord)]
    assert [each.step for each in of_file] == list(range(1, 13))
    assert all(each.gradient_norm > 0 for each in of_file)
    assert len(of_file[0].collection(GRADIENTS)) == 4


TWO_LINES = """
import signal, sys, torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
from trainyard_watch import watch; optimizer.run = watch(model, optimizer, max_steps=5).start()
print("default" if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL else "changed")
for step in range(int(sys.argv[1])):
    loss = model(torch.ones(2, 4)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    optimizer.run.step(loss=loss)
if len(sys.argv) > 2:
    raise ValueError("the script's own fault")
"""


@pytest.mark.parametrize(
    ("arguments", "status", "is_done"),
    [
        pytest.param(["5"], 0, True, id="whole"),
        pytest.param(["5", "fault"], 1, False, id="fault at its end", marks=pytest.mark.slow),
    ],
)
def test_two_lines_watch_a_loop_until_the_process_ends(
    container, tmp_path, arguments, status, is_done
):
    (tmp_path / "loop.py").write_text(TWO_LINES)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "loop.py"), *arguments],
        env={**os.environ, "PYTHONPATH": str(SCRIPTS), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        check=False,
        text=True,
        timeout=EVENT_LIMIT_S,
    )

    assert done.returncode == status
    assert done.stdout.splitlines().count("default") == 1, "the script's own end on SIGTERM"
    assert ("trainyard done step=5 " in done.stdout) is is_done
    steps = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert [each.step for each in steps] == list(range(1, int(arguments[0]) + 1))
    assert all(each.gradient_norm > 0 for each in steps)


def test_killed_loop_goes_on_from_its_checkpoint_to_the_same_weights(make_job):
    job, unbroken = make_job(), make_job("unbroken")
    start(job, 40, 0.05)
    job.wait_for_line("trainyard durable step=10")
    job.kill(0, signal.SIGKILL)
    assert job.wait() == [-signal.SIGKILL]

    for each in (job, unbroken):
        start(each, 40)
        assert each.wait() == [0], each.log()

    assert re.search(r"trainyard resume step=(10|15)", job.log())
    (weights,) = re.findall(r"^weights \w+$", job.log(), re.MULTILINE)
    assert weights in unbroken.log().splitlines()


def test_sigterm_to_one_rank_stops_all_of_them_with_a_checkpoint(make_job):
    job = make_job()
    start(job, 100_000, 0.02, ranks=2)
    job.wait_for_line("trainyard step=1 ")
    job.kill(1, signal.SIGTERM)
    assert job.wait() == [143, 143], job.log()

    digests = [re.findall(r"^weights (\w+)", job.log(rank), re.MULTILINE) for rank in (0, 1)]
    assert len(digests[0]) == 1
    assert digests[0] == digests[1]
    last = re.findall(r"trainyard step=(\d+)", job.log())[-1]
    assert (
        job.base_dir / "checkpoints" / "trainyard" / f"step-{int(last):08d}" / "manifest.json"
    ).is_file()
    assert "trainyard done" not in job.log()
    # The loss of a line is the mean over the ranks, and both write it to their statistics.
    (mean,) = {float(each) for each in re.findall(r"trainyard step=1 loss=([\d.]+)", job.log())}
    own = [
        next(
            each.loss for each in statistics_of(job.base_dir, rank) if isinstance(each, StepRecord)
        )
        for rank in (0, 1)
    ]
    assert own == [pytest.approx(mean, abs=1e-6)] * 2


@pytest.mark.parametrize(("outcome", "codes"), [("whole", [143, 143]), ("fault", [70, 143])])
def test_ranks_of_a_stopped_run_end_after_the_model_is_written(make_job, outcome, codes):
    job = make_job()
    job.start(main="model_writer", argv=[outcome], world_size=2)

    assert job.wait() == codes, job.log()

    # torchrun would kill rank 0 soon after the end of rank 1.
    assert f"left: ['{outcome}.pt']" in job.log(1)


def test_an_ended_run_keeps_no_model_alive(container):
    model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, max_steps=2) as run:
        for _ in range(2):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            run.step(loss=1.0)

    left = weakref.ref(model)
    del model, optimizer
    gc.collect()
    assert left() is None
    assert run.exit_code == 0


def test_what_cannot_be_observed_never_stops_a_training(container, capsys, caplog):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer, max_steps=3) as run:
        run._emitter.measure = lambda: 1 / 0
        for _ in range(3):
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            run.step(loss=1.0)

    assert "STATISTICS REDUCED" in caplog.text
    assert "trainyard done step=3" in capsys.readouterr().out


def test_loop_without_optimizer_writes_its_steps_by_number(container, capsys):
    with watch(max_steps=30, global_batch_size=8) as run:
        run.step(loss=2.0, lr=0.5, number=10)
        run.step(loss=1.0, lr=0.25, gradient_norm=3.0, number=30)
        assert run.exit_code == 0

    text = capsys.readouterr().out
    assert "trainyard step=10 loss=2.000000 learning_rate=5.000000e-01" in text
    assert re.search(r"trainyard step=30 loss=1\.0+ .* gradient_norm=3\.0", text)
    steps = [each.step for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert steps == [10, 30]


def slow_batches(count):
    for number in range(count):
        time.sleep(0.02)
        yield number


def test_the_wait_for_data_is_a_part_of_its_step(container):
    with watch(max_steps=20) as run:
        for number in run.batches(slow_batches(10)):
            if number in {4, 9}:
                run.step(loss=2.0, number=number + 1)

    steps = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert [each.step for each in steps] == [5, 10]
    assert all(0 < each.data_wait_seconds <= each.step_seconds for each in steps)


def test_the_wait_for_validation_data_is_no_part_of_a_step(container):
    with watch(max_steps=1) as run:
        list(run.batches(slow_batches(2)))
        run.evaluated(loss=2.0)
        run.step(loss=2.0)

    [step] = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert step.data_wait_seconds == 0.0


def test_the_time_before_the_watch_is_reported(container, capsys):
    with setting_up():
        started_with = capsys.readouterr().out
    with watch(max_steps=1) as run:
        run.step(loss=1.0)

    assert re.fullmatch(r"trainyard setup seconds=\d+\.\d{3}\n", started_with)
    assert "trainyard start " in capsys.readouterr().out
    events = (container / "output" / "data" / "trainyard" / "metrics.jsonl").read_text()
    assert json.loads(events.splitlines()[0])["event"] == "start"


def test_hooks_and_handler_of_others_stay(container):
    def own(*_):
        pass

    signal.signal(signal.SIGTERM, own)
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer):
        assert signal.getsignal(signal.SIGTERM) is own
    assert not optimizer._optimizer_step_pre_hooks


def test_package_travels_with_a_script_that_imports_it(tmp_path):
    (tmp_path / "train.py").write_text("from trainyard_watch import watch\n")
    with_it = source_archive(tmp_path)
    (tmp_path / "train.py").write_text("import torch\n")
    without = source_archive(tmp_path)
    (tmp_path / "train.py").write_text("import trainyard_watch\n")
    (tmp_path / "trainyard_watch").mkdir()
    (tmp_path / "trainyard_watch" / "__init__.py").write_text("")
    own = source_archive(tmp_path)

    assert with_it.num_files > 20
    assert (without.num_files, own.num_files) == (1, 2)


def test_what_the_script_keeps_itself_stays(container):
    own = container / "checkpoints" / "step-00000500" / "model.pt"
    lines = container / "output" / "data" / "metrics.jsonl"
    for path in (own, lines):
        path.parent.mkdir(parents=True)
        path.write_text("own")

    with watch(step=500) as run:
        run.step(loss=1.0)
        run.checkpoint({"step": 501})

    assert (own.read_text(), lines.read_text()) == ("own", "own")


def test_a_step_that_the_scaler_skips_has_the_optimizers_rate(container):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    with watch(model, optimizer) as run:
        run.step(loss=1.0)  # the scaler found an overflow: the optimizer made no step
        model(torch.ones(4, 2)).sum().backward()
        optimizer.step()
        run.step(loss=1.0)
    with watch() as run:
        run.step(loss=1.0)

    steps = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert [each.learning_rate for each in steps] == [0.5, 0.5, None]
    assert [each.gradient_norm is None for each in steps] == [True, False, True]


@pytest.mark.parametrize(
    ("state", "place"),
    [
        ({"position": Path("x")}, r"state\['position'\] is a pathlib"),
        ({"metrics": [{"best": torch.nn.Linear(1, 1)}]}, r"state\['metrics'\]\[0\]\['best'\]"),
    ],
)
def test_a_state_that_no_resume_could_load_is_refused_at_once(container, state, place):
    with watch() as run, pytest.raises(TypeError, match=place):
        run.checkpoint(state)


def test_a_checkpoint_that_nobody_asked_for_is_no_silent_start_from_scratch(container):
    with watch() as run:
        run.step(loss=1.0)
        run.checkpoint({"weights": torch.ones(2)})

    with watch() as run, pytest.raises(RuntimeError, match=r"call run.resume\(\)"):
        run.step(loss=1.0)


def test_one_of_several_ranks_without_a_group_is_refused(container, monkeypatch):
    monkeypatch.setenv("OMPI_COMM_WORLD_SIZE", "4")
    with pytest.raises(RuntimeError, match="init_process_group"):
        watch()


def test_statistics_of_a_numbered_step_have_its_tensors(container):
    model = nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with watch(model, optimizer) as run:
        for number in range(1, 7):
            run.begin_step(number)
            model(torch.ones(4, 2)).sum().backward()
            optimizer.step()
            if number % 3 == 0:
                run.step(loss=1.0, number=number)

    steps = [each for each in statistics_of(container) if isinstance(each, StepRecord)]
    assert [each.step for each in steps] == [3, 6]
    assert all(each.collection(GRADIENTS) for each in steps)
