"""What train_huggingface.py does beside the Trainer: which checkpoint it takes, which hyperparameters it refuses.

Only the slow tests need transformers, of the engine image. tests/sagemaker_engine/jobs/test_huggingface_jobs.py trains
in it over two hosts.
"""

from __future__ import annotations

import json
import math
import signal
from typing import TYPE_CHECKING, Any

import pytest

import train_huggingface
import train_tensorflow
from huggingface_trainer import checkpoint_files
from huggingface_trainer.divergence import divergence
from tensorflow_trainer.hyperparameters import TensorFlowHyperparameters
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.conftest import ContainerJob, RankServer
from trainer.framework_hyperparameters import HuggingFaceHyperparameters
from trainer.schedule import make_schedule
from trainyard_watch.environment import ContainerPaths
from trainyard_watch.errors import CheckpointError, DataError, HyperparameterError
from trainyard_watch.retention import LocalLayout, Retention
from trainyard_watch.stopping import StopRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import ModuleType

IDENTITY = {"model": {"num_layers": 2}, "seed": 3}


def saved(folder: Path, step: int) -> Path:
    """Return a checkpoint as the Trainer leaves it, made whole."""
    checkpoint = folder / f"checkpoint-{step}"
    checkpoint.mkdir(parents=True, exist_ok=True)
    (checkpoint / "model.safetensors").write_bytes(b"weights")
    size = checkpoint_files.complete(checkpoint, identity=IDENTITY, history=b"{}\n")
    assert size == len(b"weights") + len(b"{}\n") + len(json.dumps(IDENTITY))
    return checkpoint


def test_the_newest_checkpoint_is_taken_by_its_step(tmp_path: Path) -> None:
    saved(tmp_path, 90)
    newest = saved(tmp_path, 100)

    assert checkpoint_files.newest(tmp_path, identity=IDENTITY) == newest
    assert checkpoint_files.step_of(newest) == 100
    assert checkpoint_files.newest(tmp_path / "nowhere", identity=IDENTITY) is None


@pytest.mark.parametrize("name", ["model.safetensors", "files.json", "history.jsonl"])
def test_half_a_checkpoint_is_passed_over(tmp_path: Path, name: str) -> None:
    whole = saved(tmp_path, 5)
    content = (saved(tmp_path, 10) / name).read_bytes()
    (tmp_path / "checkpoint-10" / name).write_bytes(content[:-1])

    assert checkpoint_files.newest(tmp_path, identity=IDENTITY) == whole


def test_a_torn_checkpoint_that_is_saved_again_is_whole(tmp_path: Path) -> None:
    torn = saved(tmp_path, 20)
    (torn / "model.safetensors").unlink()
    (torn / "files.json").write_text('{"files.json": 26, "model.safetensors": 7}')
    assert checkpoint_files.newest(tmp_path, identity=IDENTITY) is None

    saved(tmp_path, 20)

    assert checkpoint_files.newest(tmp_path, identity=IDENTITY) == torn


@pytest.mark.parametrize(
    ("script", "hp"),
    [
        (train_huggingface, HuggingFaceHyperparameters()),
        (train_tensorflow, TensorFlowHyperparameters()),
    ],
    ids=["huggingface", "tensorflow"],
)
def test_initial_weights_are_refused_by_scripts_with_other_models(
    tmp_path: Path, script: ModuleType, hp: Any
) -> None:
    paths = ContainerPaths(
        base_dir=tmp_path, model_dir=tmp_path, output_data_dir=tmp_path, channels={"init": tmp_path}
    )

    with pytest.raises(DataError, match=f"which {script.__name__}.py does not read"):
        script.train(hp, paths, StopRequest(grace_s=1.0))


def test_torn_checkpoints_are_removed_and_whole_ones_stay(
    tmp_path: Path,
) -> None:
    for step in (100, 90, 20):
        saved(tmp_path, step)
    (saved(tmp_path, 123) / "model.safetensors").unlink()
    (tmp_path / "checkpoint-130").mkdir()
    (tmp_path / "checkpoint-of-the-user").mkdir()

    retention = Retention(LocalLayout(tmp_path), keep=2)
    checkpoint_files.remove_torn(tmp_path, retention)

    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "checkpoint-100",
        "checkpoint-20",
        "checkpoint-90",
        "checkpoint-of-the-user",
    ]


def test_another_runs_checkpoint_is_refused(tmp_path: Path) -> None:
    saved(tmp_path, 5)

    with pytest.raises(
        CheckpointError,
        match="checkpoint-5 belongs to another run: seed is 3 in the checkpoint and 4",
    ):
        checkpoint_files.newest(tmp_path, identity=IDENTITY | {"seed": 4})


@pytest.mark.parametrize(
    ("name", "value"),
    [("model", "mlp"), ("dropout", 0.1), ("compile", True), ("on_non_finite", "skip")],
)
def test_what_the_trainer_has_one_way_of_is_refused(name: str, value: object) -> None:
    with pytest.raises(HyperparameterError) as caught:
        HuggingFaceHyperparameters.load(json.dumps({name: value}))

    (finding,) = caught.value.findings
    assert finding.startswith(f"{name} {value!r} is not supported by train_huggingface.py")


def found(precision: str = "bf16", **logs: float) -> str | None:
    """Return what is said of the logs of the steps 11 to 20."""
    hp = HuggingFaceHyperparameters(precision=precision)
    error = divergence({"loss": 2.5, "learning_rate": 0.01} | logs, since=10, step=20, hp=hp)
    return None if error is None else str(error)


@pytest.mark.parametrize(
    ("logs", "says"),
    [
        ({"loss": math.nan}, "in steps 11 to 20 the mean loss is nan; learning rate 0.01"),
        ({"loss": math.inf, "grad_norm": 1.0}, "the mean loss is inf"),
        ({"grad_norm": math.inf}, "the loss is 2.500000 but the gradient norm is inf"),
        ({"grad_norm": math.nan}, "the gradient norm is nan"),
    ],
)
def test_a_loss_or_a_gradient_that_is_not_finite_ends_the_run(
    logs: dict[str, float], says: str
) -> None:
    assert says in str(found(**logs))


def test_a_run_that_is_well_goes_on() -> None:
    assert found() is None
    assert found(grad_norm=40.0) is None
    assert found(precision="fp16", grad_norm=math.inf) is None  # the scaler skips it


@pytest.mark.parametrize(("interval", "every"), [(0, 10), (3, 3), (-1, None)])
def test_a_framework_saves_each_tenth_step_as_told_or_at_the_end(
    interval: int, every: int | None
) -> None:
    assert HuggingFaceHyperparameters(checkpoint_interval=interval).save_every == every


@pytest.fixture(scope="module")
def server() -> Iterator[RankServer]:
    """Yield the parent of ranks that have transformers."""
    folder = need_image("huggingface")
    server = RankServer(
        python=folder / "bin" / "python", preload=("slow_writer", "huggingface_trainer.training")
    )
    yield server
    server.close()


@pytest.fixture
def job(server: RankServer, make_job: Callable[..., ContainerJob]) -> ContainerJob:
    """Return a job whose ranks have transformers."""
    made = make_job()
    made.server = server
    return made


@pytest.mark.slow
@pytest.mark.parametrize("scaling", ["linear", "sqrt"])
def test_learning_rate_is_scaled_to_the_batch(job: ContainerJob, scaling: str) -> None:
    """The reference batch is 2, and the batch 8."""
    scaled = {"reference_batch_size": 2, "learning_rate_scaling": scaling, "learning_rate": 0.001}

    assert job.run(main="train_huggingface", **scaled) == [0], job.log()

    hp = HuggingFaceHyperparameters(**scaled, global_batch_size=8, max_steps=6, warmup_steps=2)
    schedule = make_schedule(hp, max_steps=6)
    assert schedule.peak == {"linear": 0.004, "sqrt": 0.002}[scaling]
    rates = [each["learning_rate"] for each in job.events("step")]
    assert rates == pytest.approx([schedule.at(step) for step in range(6)])


@pytest.mark.slow
def test_ranks_of_a_stopped_run_end_after_the_model_is_written(job: ContainerJob) -> None:
    long = {"max_steps": 100_000, "eval_interval": 0, "world_size": 2}
    job.start(main="slow_writer", argv=["train_huggingface"], **long)
    job.wait_for_line("trainyard step=3 ")
    job.kill(1, signal.SIGTERM)

    assert job.wait() == [143, 143], job.log()

    # torchrun would kill rank 0 soon after the end of rank 1.
    assert "'model.safetensors'" in job.log(1).splitlines()[-1]
