"""Resource use of a job's instances per minute, as SageMaker publishes it to CloudWatch.

Names, units and the dimension `Host` = `<job>/algo-<n>` follow "Monitor Amazon SageMaker with Amazon CloudWatch" in the
SageMaker developer guide:

| Metric | Unit |
|---|---|
| CPUUtilization | percent, summed over the cores |
| GPUUtilization, GPUMemoryUtilization | percent, summed over the GPUs |
| MemoryUtilization, DiskUtilization | percent, 0 to 100 |

An instance is a share of this machine. Processor use is that of its processes, 100 % per busy core. Memory use is that
of its processes relative to this machine's memory. Disk use is its folder's size relative to VolumeSizeInGB. Its GPUs
are all GPUs of this machine.
"""

from __future__ import annotations

import csv
import json
import logging
import os
import shutil
import subprocess
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from statistics import fmean
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox.members import family, memory_bytes, read_processes

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from sagemaker_engine.sandbox.cluster import SandboxCluster

log = logging.getLogger(__name__)

FILE_NAME = "host_metrics.jsonl"
PUBLISH_S = 60.0
SAMPLE_S = 5.0
FIRST_SAMPLE_S = 1.0
_NVIDIA_SMI = (
    "--query-gpu=utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


def folder_bytes(folder: Path) -> int:
    """Return the disk space of a folder in bytes, without files that are removed during the call."""
    total = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                total += os.lstat(os.path.join(parent, name)).st_blocks * 512  # noqa: PTH118  # fast for many files
            except OSError:
                continue
    return total


def read_gpus() -> dict[str, float]:
    """Return the metrics of this machine's GPUs, summed over them; empty if it has none."""
    program = shutil.which("nvidia-smi")
    if program is None:
        return {}
    done = subprocess.run(  # noqa: S603  # the driver's own program
        [program, *_NVIDIA_SMI], capture_output=True, text=True, check=False, timeout=SAMPLE_S
    )
    return gpu_metrics(done.stdout) if done.returncode == 0 else {}


def gpu_metrics(table: str) -> dict[str, float]:
    """Return the GPU metrics from the CSV that nvidia-smi prints; empty if it has no lines.

    The CSV has one line per GPU: busy percent, used MiB, total MiB. Example: two GPUs at 90 and 50 % give
    GPUUtilization 140.
    """
    rows = [[float(each) for each in row] for row in csv.reader(table.splitlines()) if row]
    if not rows:
        return {}
    return {
        "GPUUtilization": sum(busy for busy, _, _ in rows),
        "GPUMemoryUtilization": sum(100 * used / total for _, used, total in rows),
    }


@dataclass(slots=True, kw_only=True)
class _Instance:
    """Resource use of one instance since the last publication.

    `samples` maps the name of a metric to its values.
    """

    name: str
    folder: Path
    cpu_s: float = 0.0
    sampled_at: float = field(default_factory=time.monotonic)
    samples: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class HostMetrics:
    """Samples the instances of a cluster in its own thread, from `start` to `finish`.

    A minute's value is the mean of its samples; for the disk's usage it is the value at the end of the minute.
    The last value, which `finish` publishes, covers an incomplete minute. Errors in sampling or publishing are
    logged and never end a job.
    """

    def __init__(
        self,
        cluster: SandboxCluster,
        *,
        folders: Mapping[str, Path],
        to: Path,
        volume_bytes: int,
        time_scale: float = 1.0,
        gpus: Callable[[], Mapping[str, float]] = read_gpus,
    ) -> None:
        """Prepare the thread.

        `folders` are the instances' folders on this machine, by name. Values are appended to the
        file `to`. `time_scale`, if below 1, shortens the intervals of sampling and publication.
        """
        self._cluster, self._to, self._volume_bytes = cluster, to, volume_bytes
        self._instances = [_Instance(name=name, folder=at) for name, at in folders.items()]
        self._sample_s = max(0.1, SAMPLE_S * min(1.0, time_scale))
        self._publish_s = max(0.2, PUBLISH_S * min(1.0, time_scale))
        self._gpus = gpus
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="host metrics", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def finish(self) -> None:
        """Publish the remaining samples and end the thread."""
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        published_at, pause_s = time.monotonic(), min(FIRST_SAMPLE_S, self._sample_s)
        while not self._ended.wait(pause_s):
            pause_s = self._sample_s
            self._safely(self._sample)
            if time.monotonic() - published_at >= self._publish_s:
                published_at = time.monotonic()
                self._safely(self._publish)
        self._safely(self._publish)

    def _safely(self, act: Callable[[], None]) -> None:
        try:
            act()
        except (OSError, ValueError, subprocess.SubprocessError) as error:
            log.warning("the instances' metrics are incomplete: %s", error)

    def _sample(self) -> None:
        processes, gpus, now = read_processes(), self._gpus(), time.monotonic()
        all_bytes = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        for each in self._instances:
            own = family(processes, self._cluster.first_process(each.name))
            if not own:
                continue
            cpu_s = sum(process.cpu_s for process in own)
            spent = max(0.0, cpu_s - each.cpu_s)
            each.samples["CPUUtilization"].append(100 * spent / (now - each.sampled_at))
            each.cpu_s, each.sampled_at = cpu_s, now
            used = sum(memory_bytes(process.pid) for process in own)
            each.samples["MemoryUtilization"].append(100 * used / all_bytes)
            for name, value in gpus.items():
                each.samples[name].append(value)

    def _publish(self) -> None:
        moment = round(time.time() * 1000)
        lines = [line for each in self._instances for line in self._lines(each, moment)]
        if lines:
            with self._to.open("a", encoding="utf-8") as file:
                file.write("".join(lines))

    def _lines(self, instance: _Instance, moment: int) -> Iterator[str]:
        samples, instance.samples = instance.samples, defaultdict(list)
        if not samples:
            return
        values = {name: fmean(each) for name, each in samples.items()}
        values["DiskUtilization"] = 100 * folder_bytes(instance.folder) / self._volume_bytes
        for name, value in values.items():
            sample = {
                "t": moment,
                "name": name,
                "value": round(value, 3),
                "host": instance.name,
                "unit": "Percent",
            }
            yield json.dumps(sample) + "\n"


def volume_bytes(request: Mapping[str, object]) -> int:
    """Return the volume size per instance of a Create request, in bytes; 1 GiB if it has none."""
    resources = request.get("ResourceConfig") or request.get("ProcessingResources") or {}
    cluster = resources.get("ClusterConfig", resources) if isinstance(resources, dict) else {}
    return int(cluster.get("VolumeSizeInGB") or 1) * 2**30
