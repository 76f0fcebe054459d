"""Outside clients, unmodified, against the engine: the examples of docs/clients.md run as they stand."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.clients.conftest import EXAMPLES

if TYPE_CHECKING:
    from pathlib import Path

    from tests.clients.conftest import Outside

pytestmark = [pytest.mark.slow, pytest.mark.engine]

MODEL = r"s3://\S+/model.tar.gz"


def trained(text: str) -> dict[str, Any]:
    """Return what the training script told at its end, in one line of one rank."""
    (line,) = {found[1] for found in re.finditer(r"trained (\{.*?\}\})", text)}
    return dict(json.loads(line))


def line(printed: str, pattern: str) -> re.Match[str]:
    """Return the match of a whole line."""
    found = re.search(rf"^{pattern}$", printed, re.MULTILINE)
    assert found, printed[-3000:]
    return found


def test_sdk_v3_trains_under_torchrun_on_two_instances(outside: Outside, sdk_v3: Path) -> None:
    printed = outside.run(sdk_v3, EXAMPLES / "sdk_v3_torchrun.py")

    job = line(printed, rf"(sdk-v3-torchrun-\d+) Completed {MODEL}")[1]
    assert trained(outside.log(job)) == {
        "ranks": 4,
        "sum_of_ranks": 6.0,
        "channels": {"train": ["train.py"]},
    }


def test_sdk_v3_trains_under_mpirun(outside: Outside, sdk_v3: Path) -> None:
    printed = outside.run(sdk_v3, EXAMPLES / "sdk_v3_mpi.py")

    job = line(printed, rf"(sdk-v3-mpi-\d+) Completed {MODEL}")[1]
    assert trained(outside.log(job)) == {"ranks": 2, "sum_of_ranks": 1.0, "channels": {}}


def test_sdk_v3_tunes(outside: Outside, sdk_v3: Path) -> None:
    printed = outside.run(sdk_v3, EXAMPLES / "sdk_v3_tuner.py")

    assert outside.is_best_of_four(line(printed, r"best (\S+)")[1])


def test_sdk_v2_estimator_trains_under_torchrun_and_shows_log_and_metrics(
    outside: Outside, sdk_v2: Path
) -> None:
    printed = outside.run(sdk_v2, EXAMPLES / "sdk_v2_pytorch.py")

    assert trained(printed) == {
        "ranks": 2,
        "sum_of_ranks": 1.0,
        "channels": {"train": ["train.py"]},
    }
    line(printed, r"Training seconds: \d+")
    line(printed, rf"sdk-v2-pytorch-\S+ {MODEL}")
    line(printed, r"0 +\S+ +loss +0\.8611")


def test_sdk_v2_has_a_rule_watch_its_job(outside: Outside, sdk_v2: Path) -> None:
    printed = outside.run(sdk_v2, EXAMPLES / "sdk_v2_rules.py")

    line(printed, "LossNotDecreasing Error")


def test_sdk_v2_tunes(outside: Outside, sdk_v2: Path) -> None:
    printed = outside.run(sdk_v2, EXAMPLES / "sdk_v2_tuner.py")

    assert outside.is_best_of_four(line(printed, r"best (\S+)")[1])
    assert len(re.findall(r"^\d +sdk-v2-\S+ +[\d.]+ +[\d.]+$", printed, re.MULTILINE)) == 4


def test_sdk_v2_has_autopilot_find_a_model(outside: Outside, sdk_v2: Path) -> None:
    printed = outside.run(sdk_v2, EXAMPLES / "sdk_v2_automl.py")

    assert float(line(printed, r"\S*best \S+ Accuracy ([\d.]+)")[1]) > 0.9


def test_aws_cli_creates_waits_describes_reads_the_log_stops_and_lists(
    outside: Outside, aws_cli: Path
) -> None:
    printed = outside.run("sh", EXAMPLES / "aws_cli.sh", path=aws_cli)

    assert trained(printed)["channels"] == {"train": ["train.py"]}
    line(printed, rf"Completed\t{MODEL}")
    line(printed, r"aws-cli-\d+\tCompleted")
    line(printed, r"aws-cli-\d+-stopped\tStopped")
