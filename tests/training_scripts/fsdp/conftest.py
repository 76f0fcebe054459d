"""Ranks whose collectives do nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import torch
import torch.distributed as dist
from torch.testing._internal.distributed.fake_pg import FakeStore

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def two_ranks() -> Iterator[None]:
    """Make this process the first of two ranks; collectives with the other one do nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    yield
    torch.compiler.reset()
    dist.destroy_process_group()
