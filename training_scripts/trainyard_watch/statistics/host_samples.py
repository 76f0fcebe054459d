"""Samples of the host and its GPUs, taken every 500 ms on a thread.

Most values of the host are read from /proc. Those of the GPUs are read by NVML if pynvml can be imported.
Without NVML, torch provides the memory values of this process's GPU only.

Source: proc(5). CPU and I/O wait are those of the whole machine, not of the container.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from types import ModuleType

log = logging.getLogger(__name__)
CLOSED_AFTER_S = 10.0
INTERVAL_S = 0.5  # SageMaker's ProfilingIntervalInMilliseconds
READS_BETWEEN_CENSUSES = 40
SECTOR_BYTES = 512
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
DISKS = ("sd", "nvme", "vd", "xvd")
MEMORY_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


@dataclass(frozen=True, slots=True, kw_only=True)
class Counters:
    """Kernel counters since boot, read at the time `at` (monotonic clock, in seconds).

    CPU times are in ticks, summed over all cores. Disk and network counters are in bytes.
    """

    at: float
    total: int
    idle: int
    io_wait: int
    disk_read: int
    disk_written: int
    network_received: int
    network_sent: int


def read_counters(proc: Path = Path("/proc")) -> Counters:
    """Return the counters now.

    Raises:
        OSError, ValueError: /proc cannot be read, or has another format than in proc(5).
    """
    ticks = [int(word) for word in _first_line(proc / "stat").split()[1:9]]
    reads, writes = _disk_sectors(proc / "diskstats")
    received, sent = _network_bytes(proc / "net" / "dev")
    return Counters(
        at=time.monotonic(),
        total=sum(ticks),
        idle=ticks[3],
        io_wait=ticks[4],
        disk_read=reads * SECTOR_BYTES,
        disk_written=writes * SECTOR_BYTES,
        network_received=received,
        network_sent=sent,
    )


def _first_line(path: Path) -> str:
    with path.open(encoding="ascii") as file:
        return file.readline()


def _disk_sectors(path: Path) -> tuple[int, int]:
    reads = writes = 0
    for words in (line.split() for line in _lines(path)):
        if words[2].startswith(DISKS) and Path("/sys/block", words[2]).exists():  # no partition
            reads, writes = reads + int(words[5]), writes + int(words[9])
    return reads, writes


def _network_bytes(path: Path) -> tuple[int, int]:
    received = sent = 0
    for name, colon, rest in (line.partition(":") for line in _lines(path)):
        if colon and name.strip() != "lo":
            words = rest.split()
            received, sent = received + int(words[0]), sent + int(words[8])
    return received, sent


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii").splitlines() if path.exists() else []


def rates(before: Counters, now: Counters) -> dict[str, float]:
    """Return the use of the host between two readings of its counters; an empty dict if no time has passed.

    CPU use and I/O wait are percentages. Disk and network traffic is in bytes per second.
    """
    seconds, ticks = now.at - before.at, now.total - before.total
    if seconds <= 0 or ticks <= 0:
        return {}
    idle = now.idle - before.idle + now.io_wait - before.io_wait
    return {
        "cpu_percent": round(max(0.0, 100 * (1 - idle / ticks)), 2),
        "io_wait_percent": round(max(0.0, 100 * (now.io_wait - before.io_wait) / ticks), 2),
        "disk_read_bytes_per_second": round((now.disk_read - before.disk_read) / seconds),
        "disk_write_bytes_per_second": round((now.disk_written - before.disk_written) / seconds),
        "network_receive_bytes_per_second": round(
            (now.network_received - before.network_received) / seconds
        ),
        "network_send_bytes_per_second": round((now.network_sent - before.network_sent) / seconds),
    }


class Family:
    """The training's processes on this host, and their forked data loaders."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids, self._workers = tuple(pids), list[int]()
        self._num_reads = 0

    def read(self) -> tuple[int, int]:
        """Return the resident bytes of all processes, and the number of data loaders."""
        if self._num_reads % READS_BETWEEN_CENSUSES == 0:
            self._workers = list(self._find_workers())
        self._num_reads += 1
        return sum(map(_resident_bytes, (*self._pids, *self._workers))), len(self._workers)

    def _find_workers(self) -> Iterator[int]:
        """Yield the child processes that have their parent's command line: its forks."""
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError, ValueError, IndexError):  # a process may have ended
                parent = int(_first_line(path).rpartition(")")[2].split()[1])
                if parent in self._pids and _command(path.parent) == _command(
                    Path(f"/proc/{parent}")
                ):
                    yield int(path.parent.name)


def _command(process: Path) -> bytes:
    return (process / "cmdline").read_bytes()


def _resident_bytes(pid: int) -> int:
    try:
        return int(_first_line(Path(f"/proc/{pid}/statm")).split()[1]) * PAGE_BYTES
    except (OSError, IndexError):  # it has ended
        return 0


def memory_limit() -> int | None:
    """Return the bytes that the container may use: the smaller of its cgroup's limit and the machine's memory."""
    machine = os.sysconf("SC_PHYS_PAGES") * PAGE_BYTES
    for name in MEMORY_LIMITS:
        with contextlib.suppress(OSError, ValueError):
            return min(machine, int(Path(name).read_text(encoding="ascii")))
    return machine


class GpuReader:
    """Reader of the utilization and memory of this host's GPUs (NVML), and of this process's allocator counters."""

    def __init__(self) -> None:
        self._nvml: ModuleType | None = None
        self._handles: list[Any] = []
        with contextlib.suppress(Exception):  # no library, no driver, no GPU: nothing to read
            import pynvml  # noqa: PLC0415 not everywhere

            pynvml.nvmlInit()
            count = pynvml.nvmlDeviceGetCount()
            self._handles = [pynvml.nvmlDeviceGetHandleByIndex(each) for each in range(count)]
            self._nvml = pynvml

    def read(self) -> list[dict[str, Any]]:
        """Return one dict per GPU of this host; the list is empty if there is no GPU.

        If NVML is not available, the list has only the GPU of this process.
        """
        if self._nvml is not None:
            return [self._by_nvml(self._nvml, handle) for handle in self._handles]
        return [self._by_torch()] if torch.cuda.is_initialized() else []

    def _by_nvml(self, nvml: ModuleType, handle: Any) -> dict[str, Any]:
        memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        return {
            "utilization_percent": float(nvml.nvmlDeviceGetUtilizationRates(handle).gpu),
            "memory_percent": round(100 * memory.used / memory.total, 2),
            "memory_bytes": int(memory.used),
            "memory_limit_bytes": int(memory.total),
            **(_allocator() if torch.cuda.is_initialized() and len(self._handles) == 1 else {}),
        }

    def _by_torch(self) -> dict[str, Any]:
        free, total = torch.cuda.mem_get_info()
        return {
            "memory_percent": round(100 * (total - free) / total, 2),
            "memory_bytes": total - free,
            "memory_limit_bytes": total,
            **_allocator(),
        }


def _allocator() -> dict[str, int]:
    counts = torch.cuda.memory_stats()
    return {
        "num_allocation_retries": counts.get("num_alloc_retries", 0),
        "num_out_of_memory": counts.get("num_ooms", 0),
    }


class HostSampler:
    """Thread that calls `take` with a sample of the host every `interval_s` seconds, until it is closed.

    Args:
        take: function that is called on the thread.
        pids: the training's processes on this host.
        disk: a path on the disk whose usage is sampled.
        interval_s: seconds between samples.
    """

    def __init__(
        self,
        take: Callable[[dict[str, Any]], None],
        *,
        pids: Sequence[int],
        disk: Path,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._take, self._family, self._disk = take, Family(pids), disk
        self._interval_s = interval_s
        self._ended = threading.Event()
        self._gpus = GpuReader()
        self._limit = memory_limit()
        self._thread = threading.Thread(target=self._run, name="host-samples", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the thread, or abandon it after 10 s if it hangs in a driver or on a disk."""
        self._ended.set()
        self._thread.join(CLOSED_AFTER_S)
        if self._thread.is_alive():
            log.warning("the thread that samples the host did not end within %g s", CLOSED_AFTER_S)

    def _run(self) -> None:
        try:
            before = read_counters()
            while not self._ended.wait(self._interval_s):
                now = read_counters()
                self._take(self._sample(before, now))
                before = now
        except Exception as error:  # noqa: BLE001 an unreadable host must not end the training
            log.warning("no more samples of the host: %s: %s", type(error).__name__, error)

    def _sample(self, before: Counters, now: Counters) -> dict[str, Any]:
        memory, num_workers = self._family.read()
        disk = shutil.disk_usage(self._disk)
        return {
            **rates(before, now),
            "memory_bytes": memory,
            "memory_limit_bytes": self._limit,
            "num_cores": os.cpu_count(),
            "num_loader_workers": num_workers,
            "disk_percent": round(100 * disk.used / disk.total, 2),
            "gpus": self._gpus.read(),
        }
