"""What the summary says of each rank: memory, and collectives under way."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.training_scripts.conftest import ContainerJob

TINY = {"max_steps": 3, "num_layers": 1, "num_heads": 2, "hidden_size": 32, "sequence_length": 16}


def summary(job: ContainerJob) -> dict[str, Any]:
    told: dict[str, Any] = json.loads((job.base_dir / "output/data/summary.json").read_text())
    return told


def test_each_rank_tells_its_memory_and_the_share_of_collectives(
    make_job: Callable[..., ContainerJob],
) -> None:
    job = make_job()

    assert job.run(world_size=2, **TINY, profile_steps=2) == [0, 0]

    told = summary(job)
    assert len(told["peak_memory_bytes"]) == 2
    assert all(50 * 2**20 < each < 8 * 2**30 for each in told["peak_memory_bytes"])
    # float32 weights, gradients and two moments, and a step count of 4 bytes for each tensor
    for each in told["state_bytes"]:
        assert 16 * told["num_parameters"] < each < 16 * told["num_parameters"] + 4 * 100
    assert told["profiled_steps"] == [2, 3]
    assert all(0 < each <= 1 for each in told["collectives_share"])


@pytest.mark.parametrize(
    ("spans", "share"),
    [
        ([(1, 4), (3, 6)], 4),
        ([(-5, 1), (9, 20)], 1),
        ([(0, 5), (1, 2)], 5),
        ([], 0),
    ],
    ids=["overlapping", "clipped", "one in another", "none"],
)
def test_spans_that_overlap_count_once(spans: list[tuple[float, float]], share: float) -> None:
    from trainer.profiling import covered

    assert covered(spans, within=(0, 5)) == share
