"""Hugging Face's Trainer in its engine image: over two hosts by torchrun, interrupted, resumed to the same loss."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.sagemaker_engine.images.built import need_image
from tests.sagemaker_engine.jobs.conftest import (
    BUCKET,
    SPOT,
    JobBench,
    channel,
    put_faults,
    statuses,
)
from tests.training_scripts.shard_writer import write_token_dataset
from trainyard.sagemaker_api.training_request import forwarding_entrypoint

if TYPE_CHECKING:
    from tests.sagemaker_engine.jobs.conftest import JobRow

pytestmark = [pytest.mark.engine, pytest.mark.slow]

IMAGE = {
    "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/"
    "huggingface-pytorch-training:2.1.0-transformers4.36.0-gpu-py310-cu121-ubuntu20.04"
}
PROGRAM = "train_huggingface.py"
ENTRYPOINT, ARGUMENTS = forwarding_entrypoint(PROGRAM)
HEARS = {"ContainerEntrypoint": list(ENTRYPOINT), "ContainerArguments": list(ARGUMENTS)}
SPOT_LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 500, "MaxWaitTimeInSeconds": 600}}
SCRIPTS = Path(__file__).parents[3] / "training_scripts"
PARAMETERS = {
    "num_layers": "2", "num_heads": "2", "hidden_size": "64", "sequence_length": "32",
    "global_batch_size": "8", "max_steps": "30", "learning_rate": "0.003", "log_interval": "1",
    "eval_interval": "0", "checkpoint_interval": "5", "sagemaker_torch_distributed_enabled": "true",
    "sagemaker_program": PROGRAM,
}  # fmt: skip
LIMIT_S = 500.0
TOLERANCE = 1e-4
"""Of the loss in nats: two ranks of four samples against one of eight; floats are added in another order."""
LONG_TOLERANCE = 2e-3
"""Of the loss over four times as many steps."""


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    need_image("huggingface")


@pytest.fixture
def data(bench: JobBench, tmp_path: Path) -> JobBench:
    """A bench with a small token data set in its bucket."""
    generator = random.Random(7)  # noqa: S311  # data
    words = [bytes([97 + i % 26]) * (1 + i % 3) for i in range(40)]
    documents = [b" ".join(generator.choices(words, k=60)) for _ in range(60)]
    folder = write_token_dataset(
        tmp_path / "data", {"train": documents[:48], "validation": documents[48:]}
    )
    for path in folder.rglob("*"):
        if path.is_file():
            bench.objects.put(BUCKET, f"data/{path.relative_to(folder)}", path.read_bytes())
    return bench


def run(
    bench: JobBench,
    name: str,
    more: dict[str, str] | None = None,
    *,
    hears: bool = False,
    ends: str = "Completed",
    **members: Any,
) -> JobRow:
    """Train until the job ends as it should; the script hears of a stop as Trainyard's own jobs do, or not at all."""
    files = {str(path.relative_to(SCRIPTS)): path.read_bytes() for path in SCRIPTS.rglob("*.py")}
    names = ("train", "validation", "index")
    members = {
        "HyperParameters": {**bench.put_source(files), **PARAMETERS, **(more or {})},
        "InputDataConfig": [channel(each, f"s3://{BUCKET}/data/{each}") for each in names],
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }
    bench.train(name, algorithm={**IMAGE, **(HEARS if hears else {})}, **members)
    row = bench.wait(name, limit_s=LIMIT_S)
    said = [row.state.get("FailureReason", ""), *bench.log(name)[-40:]]
    assert row.status == ends, "\n".join(said)
    return row


def stops(log: list[str]) -> set[int]:
    """Return the steps after which a stop ended the run, by a host's log."""
    found = (re.search(r"SIGTERM: stopping after step (\d+)", line) for line in log)
    return {int(match[1]) for match in found if match}


def losses(bench: JobBench, name: str) -> dict[int, float]:
    found = (re.match(r"trainyard step=(\d+) .*\bloss=(\S+)", line) for line in bench.log(name))
    return {int(match[1]): float(match[2]) for match in found if match}


def test_the_trainer_resumes_over_two_hosts_and_ends_where_one_process_ends(data: JobBench) -> None:
    run(data, "alone")
    put_faults(data, {"what": "interrupt", "job": "job", "at": {"step": 14}})

    row = run(data, "job", instances=2, **SPOT | SPOT_LIMITS)

    assert statuses(row).count("Interrupted") == 1
    (resumed,) = [line for line in data.log("job") if line.startswith("trainyard resume")]
    assert re.search(r"step=(5|10|15) ", resumed)
    alone = losses(data, "alone")
    assert alone[30] < alone[1] - 0.5
    assert losses(data, "job") == pytest.approx(alone, abs=TOLERANCE)
    assert "model.safetensors" in data.archive("out/job/output/model.tar.gz")


def test_a_notice_to_one_host_ends_all_ranks_after_the_same_step(data: JobBench) -> None:
    """Only algo-2 hears of the interruption, and only the stop makes a checkpoint: the run goes on from there."""
    long = {"max_steps": "120", "checkpoint_interval": "-1"}
    run(data, "alone", long)
    notice = {"what": "interrupt", "job": "job", "at": {"step": 5}, "hosts": ["algo-2"]}
    put_faults(data, notice | {"notice_s": 200})

    row = run(data, "job", long, hears=True, instances=2, **SPOT | SPOT_LIMITS)

    assert statuses(row).count("Interrupted") == 1
    log = data.log("job")
    (step,) = stops(log)
    assert 5 <= step < 120
    assert stops(data.log("job", "algo-2")) == {step}
    (resumed,) = [line for line in log if line.startswith("trainyard resume")]
    assert f"step={step} " in resumed
    steps = [line.split()[1] for line in log if line.startswith("trainyard step=")]
    assert steps == [f"step={n}" for n in range(1, 121)]
    assert losses(data, "job") == pytest.approx(losses(data, "alone"), abs=LONG_TOLERANCE)


def test_a_run_that_diverges_fails_on_all_hosts_and_saves_no_nan(data: JobBench) -> None:
    """Its weights overflow in the first step; only the line before the checkpoint of step 3 tells."""
    wild = {"learning_rate": "1e30", "log_interval": "1000", "checkpoint_interval": "3"}

    row = run(data, "job", wild, ends="Failed", instances=2, **SPOT | SPOT_LIMITS)

    assert "Training diverged: in steps 2 to 3 the mean loss is nan" in row.state["FailureReason"]
    assert "loss=nan" in next(each for each in data.log("job") if "trainyard step=3 " in each)
    assert [key for key in data.keys("checkpoints") if "checkpoint-" in key] == []
    assert "model.safetensors" not in data.archive("out/job/output/model.tar.gz")
