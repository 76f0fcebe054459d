"""A training whose rank 1 fails while rank 0 does not answer: neither a collective nor a closed connection."""

from __future__ import annotations

import os
import signal
import sys
import threading

import torch
import torch.distributed as dist

from trainer.process import run_rank
from trainer.training import Training


class FailingTraining(Training):
    """Fails at its first step on rank 1, with a collective under way on another thread."""

    def take_steps(self) -> None:
        """Stop rank 0 for good, and fail on rank 1."""
        group = dist.new_group(backend="gloo")
        dist.barrier(group=group)  # rank 0 must not stop while rank 1 connects to it
        if self.ranks.is_main:
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            threading.Thread(
                target=dist.all_reduce, args=(torch.zeros(1),), kwargs={"group": group}
            ).start()
            raise IndexError("rank 1 fails at its first step")


def main(_: list[str]) -> int:
    """Run one rank of it."""
    return run_rank(FailingTraining)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
