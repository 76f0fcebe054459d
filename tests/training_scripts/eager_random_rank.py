"""A sharded training whose compiled layers draw the random numbers of eager ones."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch._inductor.config

from train_fsdp import main as train

if TYPE_CHECKING:
    from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank; by default the compiler has random numbers of its own."""
    torch._inductor.config.fallback_random = True
    return train(argv)
