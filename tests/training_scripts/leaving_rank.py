"""A training whose ranks count the models that are still there when they leave the process group."""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING

import torch.distributed as dist
from torch.nn import Module

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger(__name__)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    destroy = dist.destroy_process_group

    def counting() -> None:
        models = sum(isinstance(each, Module) for each in gc.get_objects())
        log.info("MODELS THAT OUTLIVE THE TRAINING: %d", models)
        destroy()

    dist.destroy_process_group = counting
    return run_rank(Training, argv)
