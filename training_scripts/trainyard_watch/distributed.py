"""Ranks of a job: process group, collectives, and errors that all ranks raise together.

The launcher (torchrun, or another one that sets the same variables) sets RANK, WORLD_SIZE,
LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR and MASTER_PORT. If mpirun started the ranks, `rank_variables`
returns these variables. A job on one host that was started by neither such a launcher nor mpirun has one
rank and no process group.
"""

from __future__ import annotations

import gc
import importlib
import json
import logging
import socket
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist

from trainyard_watch.environment import available_cpus, num_restarts
from trainyard_watch.errors import HyperparameterError, TrainerError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from torch.distributed import ProcessGroup

log = logging.getLogger(__name__)
SMDDP_FLAG = "sagemaker_distributed_dataparallel_enabled"
LAUNCH_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
OPEN_MPI = {
    "RANK": "OMPI_COMM_WORLD_RANK",
    "WORLD_SIZE": "OMPI_COMM_WORLD_SIZE",
    "LOCAL_RANK": "OMPI_COMM_WORLD_LOCAL_RANK",
    "LOCAL_WORLD_SIZE": "OMPI_COMM_WORLD_LOCAL_SIZE",
}
"""Open MPI's variable for each of torch's variables (mpirun(1), ENVIRONMENT VARIABLES)."""
MASTER_PORT = "7777"
"""The rendezvous port of torch's ranks in AWS's toolkit (sagemaker-pytorch-training 3.0.0)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ranks:
    """This process's rank, and collectives over all ranks. Every rank must call the collective methods."""

    rank: int = 0
    local_rank: int = 0
    world_size: int = 1
    local_world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    backend: str = "none"

    @property
    def is_main(self) -> bool:
        """Return whether this is rank 0, which prints metrics and writes files."""
        return self.rank == 0

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the element-wise sum of `values` over all ranks, in float64."""
        if self.world_size == 1:
            return [float(value) for value in values]
        total = torch.tensor(values, dtype=torch.float64, device=self.device)
        dist.all_reduce(total)
        return total.tolist()

    def gather(self, value: Any) -> list[Any]:
        """Return every rank's `value` (picklable), in rank order, on every rank."""
        if self.world_size == 1:
            return [value]
        gathered: list[Any] = [None] * self.world_size
        with self._on_device():
            dist.all_gather_object(gathered, value)
        return gathered

    def broadcast(self, value: Any) -> Any:
        """Return rank 0's `value` (picklable) on every rank."""
        if self.world_size == 1:
            return value
        box = [value]
        with self._on_device():
            dist.broadcast_object_list(box, src=0, device=self.device)
        return box[0]

    def _on_device(self) -> AbstractContextManager[object]:
        """Return a context in which this rank's GPU is the current device.

        Barriers, and collectives of objects, use the current device. If a script has not set it, all ranks of a
        host would use the first GPU.
        """
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()

    def barrier(self) -> None:
        """Wait until every rank has called this."""
        if self.world_size > 1:
            with self._on_device():
                dist.barrier()

    def wait_at_most(self, timeout_s: float, groups: Sequence[ProcessGroup | None] = ()) -> None:
        """Set a timeout of `timeout_s` seconds for later collectives in the default group and in `groups`."""
        if self.world_size > 1:
            for group in (None, *groups):
                dist.distributed_c10d._set_pg_timeout(timedelta(seconds=timeout_s), group)  # noqa: SLF001 no public one

    @contextmanager
    def all_or_none(self) -> Iterator[None]:
        """Run the body on every rank; if it raises a TrainerError on any rank, all ranks raise one.

        The error has the class of the lowest failing rank's error, and the findings of all ranks.
        """
        error: TrainerError | None = None
        try:
            yield
        except TrainerError as caught:
            error = caught
        failures = self.gather((type(error), error.findings) if error else None)
        raise_together(failures)


def raise_together(failures: Sequence[tuple[type[TrainerError], tuple[str, ...]] | None]) -> None:
    """Raise one error with the findings of all ranks, without duplicates, or return if no rank failed.

    A finding of only some ranks begins with their numbers.
    """
    failed = {rank: failure for rank, failure in enumerate(failures) if failure}
    if not failed:
        return
    kind = next(iter(failed.values()))[0]
    ranks_of: dict[str, list[int]] = {}
    for rank, (_, findings) in failed.items():
        for finding in findings:
            ranks_of.setdefault(finding, []).append(rank)
    raise kind(
        [
            finding
            if len(ranks) == len(failures)
            else f"rank {', '.join(map(str, ranks))}: {finding}"
            for finding, ranks in ranks_of.items()
        ]
    )


def rank_variables(environ: Mapping[str, str], *, host: str | None = None) -> dict[str, str]:
    """Return torch's variables for a rank that mpirun started; an empty dict without mpirun.

    SageMaker starts `pytorchddp`, SMDDP and MPI jobs with Open MPI. The toolkit of SageMaker's images sets MASTER_ADDR
    and MASTER_PORT; the MPI driver of SDK 3 does not. mpirun also passes the first instance's SM_CURRENT_HOST to all
    ranks (sagemaker-training-toolkit issue 158).

    `host` is this container's name, by default the system's host name. Variables that are set already are left out,
    except SM_CURRENT_HOST.

    Example: rank 3 of 4 on 2 hosts, `{"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "algo-1", "MASTER_PORT": "7777", "SM_CURRENT_HOST": "algo-2"}`.
    """
    if OPEN_MPI["RANK"] not in environ:
        return {}
    hosts = sorted(json.loads(environ.get("SM_HOSTS", "[]")), key=lambda name: (len(name), name))
    here = host if host is not None else socket.gethostname()
    variables = {
        **{name: environ[theirs] for name, theirs in OPEN_MPI.items() if theirs in environ},
        "MASTER_ADDR": hosts[0] if hosts else "127.0.0.1",
        "MASTER_PORT": MASTER_PORT,
    }
    fresh = {name: value for name, value in variables.items() if name not in environ}
    return fresh | ({"SM_CURRENT_HOST": here} if here in hosts else {})


@contextmanager
def joined_ranks(environ: Mapping[str, str], *, timeout_s: float) -> Iterator[Ranks]:
    """Join the process group that the launcher's variables describe, and destroy it if the body succeeds.

    The backend is SMDDP if the job enables it and the image has it, otherwise NCCL on GPUs and gloo on CPUs.
    Collectives wait at most `timeout_s` seconds. After an error the group is not destroyed, since destroying NCCL's
    group can wait for peers in a collective. In that case, end the process with `failure.end_process`.

    When the body ends, no reference to a model that uses the group may remain, for example in a caller's variable.

    Raises:
        HyperparameterError: some of the launcher's variables are missing, although RANK or WORLD_SIZE is set or the
            job has several hosts.
    """
    given = [name for name in LAUNCH_VARIABLES if name in environ]
    if environ.get("WORLD_SIZE") == "1" or _is_alone(environ):
        yield Ranks(device=_device(0))
        return
    if len(given) != len(LAUNCH_VARIABLES):
        found = f"only {', '.join(given)}" if given else "none"
        message = (
            f"the launcher set {found} of the variables {', '.join(LAUNCH_VARIABLES)}: start the script with torchrun "
            "or mpirun; on a single host without a launcher, unset all of them"
        )
        raise HyperparameterError(message)
    device = _device(int(environ.get("LOCAL_RANK", "0")))
    backend = _backend(environ, device)
    dist.init_process_group(
        backend,
        timeout=timedelta(seconds=timeout_s),
        device_id=device if "nccl" in backend else None,
        **_store_of_restart(environ, timeout_s=timeout_s),
    )
    yield Ranks(
        rank=dist.get_rank(),
        local_rank=int(environ.get("LOCAL_RANK", "0")),
        world_size=dist.get_world_size(),
        local_world_size=int(environ.get("LOCAL_WORLD_SIZE", "1")),
        device=device,
        backend=backend,
    )
    # Collect the body's reference cycles while torch still has the group. If DDP's Reducer were the group's last
    # owner, it would hold the GIL while it waits for gloo's threads, which need the GIL (pytorch/pytorch#56297).
    gc.collect()
    dist.destroy_process_group()


def _store_of_restart(environ: Mapping[str, str], *, timeout_s: float) -> dict[str, Any]:
    """Return the arguments of `init_process_group` for a restart: a separate store, the rank and the world size.

    On several hosts, torchrun uses the same store again after a restart (static rendezvous, torch 2.13). In
    that store, the first restarted rank would read the addresses of processes that have ended, and fail again.
    Without a restart the result is empty.
    """
    number = num_restarts(environ)
    if not number or environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    store = dist.TCPStore(
        environ["MASTER_ADDR"],
        int(environ["MASTER_PORT"]),
        is_master=False,
        timeout=timedelta(seconds=timeout_s),
    )
    return {
        "store": dist.PrefixStore(f"restart-{number}", store),
        "rank": int(environ["RANK"]),
        "world_size": int(environ["WORLD_SIZE"]),
    }


def _is_alone(environ: Mapping[str, str]) -> bool:
    """Return whether no launcher started ranks and the job has one host.

    RANK or WORLD_SIZE shows that a launcher started ranks. MASTER_ADDR and MASTER_PORT do not show this,
    because AWS's toolkit sets them in every job, even in one without a `distribution`.
    """
    is_launched = "RANK" in environ or "WORLD_SIZE" in environ
    return not is_launched and len(json.loads(environ.get("SM_HOSTS", "[]"))) <= 1


def native_backend(device: torch.device) -> str:
    """Return torch's own backend for a device; for GPUs NCCL, with gloo for tensors in the host's memory."""
    return "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"


def _backend(environ: Mapping[str, str], device: torch.device) -> str:
    """Return SMDDP's backend if the job enables it and the image has it, otherwise the native one of the device."""
    native = native_backend(device)
    asked = json.loads(environ.get("SM_FRAMEWORK_PARAMS") or "{}")
    if not asked.get(SMDDP_FLAG):
        return native
    try:
        importlib.import_module("smdistributed.dataparallel.torch.torch_smddp")
    except ImportError:
        log.warning("%s is on, but the image has no smdistributed: using %s", SMDDP_FLAG, native)
        return native
    return "smddp"


def _device(local_rank: int) -> torch.device:
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", local_rank)
    torch.cuda.set_device(device)
    return device


def choose_num_threads(ranks: Ranks, requested: int) -> int:
    """Return the number of CPU threads for this rank.

    It is `requested`. If that is 0, the available processors are divided equally among all ranks on the same
    machine, including ranks in other containers. Ranks are on the same machine if their kernels have the same
    boot id.
    """
    if requested:
        return requested
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    here = (
        boot_id.read_text()
        if boot_id.exists()
        else str(ranks.rank // max(1, ranks.local_world_size))
    )
    neighbors = ranks.gather(here).count(here)
    return max(1, available_cpus() // neighbors)
