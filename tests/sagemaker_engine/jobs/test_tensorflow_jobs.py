"""TensorFlow's strategies really train, launched by AWS's own toolkit: interrupted, resumed, equal to one process."""

from __future__ import annotations

import json
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
    "TrainingImage": "763104351884.dkr.ecr.us-east-1.amazonaws.com/tensorflow-training:2.19.0-cpu-py312"
}
PROGRAM = "train_tensorflow.py"
SCRIPTS = Path(__file__).parents[3] / "training_scripts"
PARAMETERS = {
    "num_layers": "2", "num_heads": "2", "hidden_size": "32", "sequence_length": "32",
    "global_batch_size": "8", "max_steps": "30", "learning_rate": "0.003", "warmup_steps": "5",
    "log_interval": "1", "eval_interval": "0", "eval_batches": "4", "checkpoint_interval": "2",
}  # fmt: skip
LIMIT_S = 500.0
TOLERANCE = 1e-4
"""Of the validation loss in nats, against one process: floats are added in another order."""
LONG_TOLERANCE = 2e-3
"""Of the training loss over four times as many steps."""
ALONE: dict[str, tuple[dict[int, float], float]] = {}
ENTRYPOINT, ARGUMENTS = forwarding_entrypoint(PROGRAM)
HEARS = {"ContainerEntrypoint": list(ENTRYPOINT), "ContainerArguments": list(ARGUMENTS)}
SPOT_LIMITS = {"StoppingCondition": {"MaxRuntimeInSeconds": 500, "MaxWaitTimeInSeconds": 600}}
WAYS = [
    pytest.param(1, {"num_replicas": "2"}, id="mirrored"),
    pytest.param(
        2, {"sagemaker_multi_worker_mirrored_strategy_enabled": "true"}, id="multi-worker"
    ),
    pytest.param(2, {"sagemaker_parameter_server_enabled": "true"}, id="parameter-server"),
]


@pytest.fixture(scope="module", autouse=True)
def _image() -> None:
    need_image("tensorflow")


@pytest.fixture
def data(bench: JobBench, tmp_path: Path) -> JobBench:
    """A bench with a small token data set and the training scripts in its bucket."""
    words = [bytes([97 + i % 26]) * (1 + i % 3) for i in range(40)]
    generator = random.Random(7)  # noqa: S311  # data
    documents = [b" ".join(generator.choices(words, k=60)) for _ in range(60)]
    folder = write_token_dataset(
        tmp_path / "data", {"train": documents[:48], "validation": documents[48:]}
    )
    for path in folder.rglob("*"):
        if path.is_file():
            bench.objects.put(BUCKET, f"data/{path.relative_to(folder)}", path.read_bytes())
    return bench


def run(
    bench: JobBench, name: str, more: dict[str, str], *, hears: bool = False, **members: Any
) -> JobRow:
    """Train to the end; the script hears of a stop as Trainyard's own jobs do, or not at all."""
    files = {str(path.relative_to(SCRIPTS)): path.read_bytes() for path in SCRIPTS.rglob("*.py")}
    program = {**bench.put_source(files), "sagemaker_program": PROGRAM}
    parameters = {**PARAMETERS, **program, **more}
    members = {
        "HyperParameters": {
            name: value if value == "true" or value.isdigit() else json.dumps(value)
            for name, value in parameters.items()
        },
        "InputDataConfig": [
            channel(each, f"s3://{BUCKET}/data/{each}") for each in ("train", "validation", "index")
        ],
        "StoppingCondition": {"MaxRuntimeInSeconds": 600},
        **members,
    }
    bench.train(name, algorithm={**IMAGE, **(HEARS if hears else {})}, **members)
    row = bench.wait(name, limit_s=LIMIT_S)
    assert row.status == "Completed", "\n".join(
        [row.state.get("FailureReason", ""), *bench.log(name)[-40:]]
    )
    return row


def stops(log: list[str]) -> set[int]:
    """Return the steps after which a stop ended the run, by a host's log."""
    found = (re.search(r"SIGTERM: stopping after step (\d+)", line) for line in log)
    return {int(match[1]) for match in found if match}


def losses(bench: JobBench, name: str) -> dict[int, float]:
    found = (re.match(r"trainyard step=(\d+) .*\bloss=(\S+)", line) for line in bench.log(name))
    return {int(match[1]): float(match[2]) for match in found if match}


def validation_loss(bench: JobBench, name: str) -> float:
    (line,) = [line for line in bench.log(name) if line.startswith("trainyard done ")]
    return float(line.partition("validation_loss=")[2].split()[0])


def alone_once(bench: JobBench, max_steps: str = "30") -> tuple[dict[int, float], float]:
    """Return the losses of one unbroken process, trained by the first test that asks."""
    if max_steps not in ALONE:
        run(bench, "alone", {"max_steps": max_steps})
        ALONE[max_steps] = (losses(bench, "alone"), validation_loss(bench, "alone"))
    return ALONE[max_steps]


@pytest.mark.parametrize(("hosts", "more"), WAYS)
def test_a_strategy_interrupted_and_resumed_ends_where_one_process_ends(
    data: JobBench, hosts: int, more: dict[str, str]
) -> None:
    alone, alone_validated = alone_once(data)
    put_faults(data, {"what": "interrupt", "job": "job", "at": {"step": 12}})

    row = run(
        data,
        "job",
        more,
        instances=hosts,
        **SPOT | SPOT_LIMITS,
    )

    assert statuses(row).count("Interrupted") == 1
    (resumed,) = [line for line in data.log("job") if line.startswith("trainyard resume")]
    assert 2 <= int(re.search(r"step=(\d+)", resumed)[1]) < 30
    assert any("world_size=2" in line for line in data.log("job"))
    assert alone[30] < alone[1] - 0.5
    assert losses(data, "job") == pytest.approx(alone, abs=TOLERANCE)
    assert validation_loss(data, "job") == pytest.approx(alone_validated, abs=TOLERANCE)
    assert sorted(data.archive("out/job/output/model.tar.gz")) == ["model.json", "model.npz"]


@pytest.mark.parametrize(("hosts", "more"), WAYS[1:])
def test_a_notice_to_one_host_ends_all_after_the_same_step(
    data: JobBench, hosts: int, more: dict[str, str]
) -> None:
    """Only algo-2 hears of the interruption, and only the stop makes a checkpoint: the run goes on from there."""
    alone, _ = alone_once(data, "120")
    notice = {"what": "interrupt", "job": "job", "at": {"step": 5}, "hosts": ["algo-2"]}
    put_faults(data, notice | {"notice_s": 200})

    long = {"max_steps": "120", "checkpoint_interval": "-1"}
    row = run(data, "job", more | long, hears=True, instances=hosts, **SPOT | SPOT_LIMITS)

    assert statuses(row).count("Interrupted") == 1
    log = data.log("job")
    (step,) = stops(log)
    assert 5 <= step < 120
    (resumed,) = [line for line in log if line.startswith("trainyard resume")]
    assert f"step={step} " in resumed
    steps = [line.split()[1] for line in log if line.startswith("trainyard step=")]
    assert steps == [f"step={n}" for n in range(1, 121)]
    assert losses(data, "job") == pytest.approx(alone, abs=LONG_TOLERANCE)
    decides = (
        "sagemaker_multi_worker_mirrored_strategy_enabled" in more
    )  # else the coordinator alone
    assert stops(data.log("job", "algo-2")) == ({step} if decides else set())
