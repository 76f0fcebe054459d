"""How ranks join."""

from __future__ import annotations

import pytest
import torch

from trainyard_watch.distributed import joined_ranks, native_backend
from trainyard_watch.errors import HyperparameterError

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("device", "backend"),
    [("cpu", "gloo"), ("cuda:0", "cpu:gloo,cuda:nccl")],
    ids=["cpu", "cuda"],
)
def test_every_device_that_tensors_lie_on_has_a_backend(device, backend):
    assert native_backend(torch.device(device)) == backend


TOOLKIT = {"MASTER_ADDR": "algo-1", "MASTER_PORT": "7777"}
"""What AWS's toolkit sets in every job of a PyTorch image."""


@pytest.mark.parametrize("environ", [{}, TOOLKIT, {**TOOLKIT, "SM_HOSTS": '["algo-1"]'}])
def test_a_job_of_one_host_without_a_launcher_is_one_rank(environ):
    with joined_ranks(environ, timeout_s=1) as ranks:
        assert (ranks.rank, ranks.world_size) == (0, 1)


@pytest.mark.parametrize(
    "environ", [{**TOOLKIT, "SM_HOSTS": '["algo-1", "algo-2"]'}, {**TOOLKIT, "RANK": "0"}]
)
def test_hosts_that_nobody_launched_ranks_on_are_rejected(environ):
    with (
        pytest.raises(HyperparameterError, match="start the script with torchrun or mpirun"),
        joined_ranks(environ, timeout_s=1),
    ):
        pass


def test_nothing_of_the_training_outlives_its_process_group(make_job):
    """DDP's Reducer as the group's last owner would wait for gloo's threads, and they for the GIL, for ever."""
    job = make_job()
    assert job.run(main="leaving_rank", world_size=2, max_steps=2) == [0, 0], job.log()
    for rank in range(2):
        assert "MODELS THAT OUTLIVE THE TRAINING: 0" in job.log_path(rank).read_text()
