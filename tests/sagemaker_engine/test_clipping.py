"""`torch.sagemaker` in each layout of the ranks: gradients clip as in one process, no optimizer is saved wrongly."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.images.sagemaker_libraries import PACKAGES

if TYPE_CHECKING:
    from collections.abc import Mapping

pytestmark = pytest.mark.torch
MAX_NORM = 0.25
LAYOUTS = [
    "script's hybrid",
    "script's hybrid, flat",
    "script's hybrid, hosts of 1",
    "script's hybrid, hosts of 2",
    "script's hybrid, one host",
    "script's no shard",
    "script's full, flat, third norm",
    "degree 2",
    "split",
    "split, flat",
    "split, flat, largest",
    "split, FSDP2",
    "degree 2, FSDP2, largest",
    "DDP",
    "DTensor",
]


@pytest.fixture(scope="module")
def told() -> Mapping[str, Mapping[str, Any]]:
    """Return layout -> what each of four ranks tells, and the norm of torch."""
    done = subprocess.run(
        [
            *(sys.executable, "-W", "ignore", str(Path(__file__).with_name("clipping_ranks.py"))),
            *(str(PACKAGES / "torch"), *LAYOUTS),
        ],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    return {row["layout"]: row for row in rows}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_rank_gets_the_norm_of_one_process_and_clips_to_it(
    told: Mapping[str, Mapping[str, Any]], layout: str
) -> None:
    expected, ranks = told[layout]["expected"], told[layout]["ranks"]

    assert expected > 2 * MAX_NORM, "else nothing is clipped"
    norms = [rank["norms"] for rank in ranks]
    assert norms == [pytest.approx([expected, MAX_NORM], rel=2e-6)] * 4


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_optimizer_of_split_layers_is_refused_where_torch_would_lose_it(
    told: Mapping[str, Mapping[str, Any]], layout: str
) -> None:
    refusals = {rank["refusal"] for rank in told[layout]["ranks"]}

    if not layout.startswith("split") or "FSDP2" in layout:
        assert refusals == {""}
    else:
        assert ["2, because torch would restore" in each for each in refusals] == [True]
