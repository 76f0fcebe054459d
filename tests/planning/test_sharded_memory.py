"""Bytes of each rank when a decoder is spread over ranks: what is promised, and what the planner says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.torch, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
ALONE, SHARDED, SPLIT = "one rank", "FSDP 2", "TP 2"
RECOMPUTED, OFFLOADED = "FSDP 2, recomputed", "FSDP 2, recomputed, offloaded"
PLANNED = {
    *(ALONE, SHARDED, SPLIT, RECOMPUTED, OFFLOADED),
    *("FSDP 4", "HSDP 2 x 2", "FSDP 2, bf16", "FSDP 2, selective", "FSDP 2, bf16, recomputed"),
    *("TP 4", "TP 2 x FSDP 2", "TP 2, recomputed"),
    *("PP 2", "PP 2, 8 micro batches", "PP 4", "PP 2 x FSDP 2", "PP 2 x TP 2"),
}
TOLERANCE = 0.05


@pytest.fixture(scope="module")
def measured():
    """Return layout -> what the rank that holds most has, and the planner's bytes."""
    names = sorted(PLANNED)
    found = subprocess.run(
        [sys.executable, "-W", "ignore", "benchmarks/sharding_memory.py", "--json", *names],
        cwd=ROOT, env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True, capture_output=True, text=True,
    )  # fmt: skip
    rows = [json.loads(line) for line in found.stdout.splitlines()]
    return {
        row["name"]: max(row["ranks"], key=lambda each: each["most"])
        | {"predicted": row["predicted"]["total"]}
        for row in rows
    }


@pytest.mark.parametrize("part", ["parameters", "gradients", "optimizer"])
@pytest.mark.parametrize("layout", [SHARDED, SPLIT])
def test_states_are_at_one_over_the_degree(measured, layout, part):
    assert measured[layout][part] == pytest.approx(measured[ALONE][part] / 2, rel=0.005)


def test_recomputation_keeps_less_and_offloading_moves_the_rest_to_the_host(measured):
    inputs = 4 * (4 * 128 * 128) * 4  # of 4 layers: batch, time, width, bytes

    assert measured[RECOMPUTED]["activations"] < 0.15 * measured[SHARDED]["activations"]
    assert measured[OFFLOADED]["host"] == inputs
    assert measured[RECOMPUTED]["host"] == 0
    assert measured[OFFLOADED]["activations"] == measured[RECOMPUTED]["activations"] - inputs


@pytest.mark.parametrize("layout", sorted(PLANNED))
def test_the_planner_says_what_a_rank_holds(measured, layout):
    holds = measured[layout]["most"] + measured[layout]["host"]

    assert measured[layout]["predicted"] == pytest.approx(holds, rel=TOLERANCE)
