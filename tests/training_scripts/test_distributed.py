"""How ranks join."""

from __future__ import annotations

import pytest
import torch

from trainer.distributed import native_backend

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("device", "backend"),
    [("cpu", "gloo"), ("cuda:0", "cpu:gloo,cuda:nccl")],
    ids=["cpu", "cuda"],
)
def test_every_device_that_tensors_lie_on_has_a_backend(device, backend):
    assert native_backend(torch.device(device)) == backend
