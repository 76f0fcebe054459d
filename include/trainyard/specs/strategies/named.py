"""Strategies by name, each with its SDK `distribution`, so that a run's params can name a strategy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.specs.strategies.sections import (
    KEYS,
    MPI,
    MULTI_WORKER_MIRRORED,
    PARAMETER_SERVER,
    PYTORCH_DDP,
)
from trainyard.specs.strategies.torch_distributed import TORCHRUN

if TYPE_CHECKING:
    from collections.abc import Mapping

AUTO, PLAIN, TORCHRUN_NAME = "auto", "plain", "torchrun"
_ON: Mapping[str, Any] = {"enabled": True}
NAMED: Mapping[str, Mapping[str, Any]] = {
    TORCHRUN_NAME: TORCHRUN,
    "smddp": {"smdistributed": {"dataparallel": _ON}},
    "smp": {**TORCHRUN, "smdistributed": {"modelparallel": _ON}},
    "pytorchddp": {PYTORCH_DDP: _ON},
    "deepspeed": TORCHRUN,
    "mpi": {MPI: _ON},
    "horovod": {MPI: _ON},
    "parameter_server": {PARAMETER_SERVER: _ON},
    "multi_worker_mirrored": {MULTI_WORKER_MIRRORED: _ON},
    PLAIN: {},
}
"""The SDK's `distribution` of each strategy. Scripts for DeepSpeed and Horovod are started by torchrun and by MPI."""


def named_distribution(name: str, *, processes_per_host: int | None) -> dict[str, Any]:
    """Return the SDK's `distribution` of a strategy.

    Each section that has the setting `processes_per_host` gets the given value; None leaves the setting out.
    """
    ranks = {"processes_per_host": processes_per_host} if processes_per_host else {}
    return {
        section: {**settings, **(ranks if takes_ranks(section) else {})}
        for section, settings in NAMED[name].items()
    }


def takes_ranks(section: str) -> bool:
    """Return whether Trainyard supports the setting `processes_per_host` in a section of `distribution`.

    For example, `torch_distributed` and `mpi` support it, and `parameter_server` does not. The SDK supports it
    only in `mpi`.
    """
    return "processes_per_host" in KEYS.get(section, ())
