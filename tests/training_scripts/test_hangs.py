"""A rank that hangs ends its peers in every phase, and the limit on silence holds from the first phase on."""

from __future__ import annotations

import signal

import pytest

pytestmark = pytest.mark.torch

PHASES = {
    "joining the group": "join",
    "the first collectives": "setup_mesh",
    "building the model": "make_model",
    "distributing the model": "parallelize",
    "a step": "accumulate_gradients",
    "validation": "evaluate",
    "writing the model": "whole_weights",
    "the test split": "measure_test_split",
}
OFTEN = {"joining the group", "validation", "writing the model"}
"""Phases of `make test`; each takes seconds of waiting."""


@pytest.mark.parametrize(
    "phase",
    [
        pytest.param(phase, id=name, marks=() if name in OFTEN else pytest.mark.slow)
        for name, phase in PHASES.items()
    ],
)
def test_a_rank_that_hangs_ends_its_peer_in_every_phase(make_job, phase):
    job = make_job()

    job.start(
        main="hanging_rank",
        world_size=2,
        environ={1: {"HANG_IN": phase}},
        distributed_timeout_s=4,
        test_samples=8,
    )

    assert job.server.wait(job.pids[0]) == 1, job.log()
    job.kill(1, signal.SIGKILL)
    job.server.wait(job.pids[1])
    job.pids.clear()
    assert "Another rank failed" in job.failure
    assert job.log_lines()[0].startswith("trainyard setup seconds="), job.log()
