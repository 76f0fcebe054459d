"""Disk space of a job's instances: inputs, checkpoints and written files share VolumeSizeInGB.

Kernel quotas need privileges, so a write that does not fit is not rejected. Instead a thread polls the size of the
instance's folder on this machine, and the job ends with the error that the write would have had. That folder contains
/opt/ml, the home folder, /tmp, /var/tmp and installed packages; channels in FastFile mode do not count. Instance types
with NVMe disks have the space of those disks, which is not enforced.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

from sagemaker_engine.api.instance_storage import has_local_storage
from sagemaker_engine.jobs.host_metrics import folder_bytes, volume_bytes
from sagemaker_engine.jobs.job import JobError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from sagemaker_engine.jobs.job import HostPlan, Job

DOWNLOAD_TOO_LARGE = "ClientError: Data download failed:Insufficient disk space"
"""The service's words (github.com/aws/sagemaker-python-sdk/issues/128)."""
FIRST_LOOK_S, LOOK_S = 0.25, 2.0
WALK_SHARE = 0.05
"""Largest share of the time that is spent on measuring the folders, however many files they have."""


def volume_of(request: Mapping[str, Any], host: HostPlan) -> int | None:
    """Return the bytes of an instance's volume; None without VolumeSizeInGB, or if the type has local disks."""
    resources = request.get("ResourceConfig") or request.get("ProcessingResources") or {}
    cluster = resources.get("ClusterConfig", resources)
    if not cluster.get("VolumeSizeInGB") or has_local_storage(host.instance_type):
        return None
    return volume_bytes(request)


def check_downloads(job: Job, hosts: Sequence[HostPlan], downloaded: Mapping[str, float]) -> None:
    """Check that the downloaded files fit each instance's volume; `downloaded` has their bytes by instance name.

    Raises:
        JobError: They do not fit.
    """
    for host in hosts:
        size = volume_of(job.request, host)
        if size is not None and downloaded[host.name] > size:
            raise JobError(DOWNLOAD_TOO_LARGE)


class DiskSpace:
    """Polls the size of the folders of a job's instances, in a separate thread from `start` to `finish`.

    `fault` is the FailureReason of a job that wrote more than fits; None otherwise.
    """

    def __init__(
        self,
        folders: Mapping[str, Path],
        *,
        volumes: Mapping[str, int | None],
        streamed: Collection[Path] = (),
        time_scale: float = 1.0,
    ) -> None:
        """Prepare the thread.

        `folders` has each instance's folder and `volumes` its volume's size in bytes, both by instance name. The
        content of the folders `streamed` does not count.
        """
        self._folders = {name: at for name, at in folders.items() if volumes.get(name) is not None}
        self._volumes, self._streamed = volumes, streamed
        self._time_scale = min(1.0, time_scale)
        self.fault: str | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="disk space", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        if self._folders:
            self._thread.start()

    def finish(self) -> None:
        """Poll once more and end the thread."""
        self._ended.set()
        if self._folders:
            self._thread.join()

    def _run(self) -> None:
        pause_s = FIRST_LOOK_S
        while self.fault is None and not self._ended.wait(pause_s):
            began = time.monotonic()
            self._look()
            pause_s = max(LOOK_S * self._time_scale, (time.monotonic() - began) / WALK_SHARE)
        if self.fault is None:
            self._look()

    def _look(self) -> None:
        for name, folder in self._folders.items():
            size = self._volumes[name] or 0
            used = folder_bytes(folder) - sum(
                folder_bytes(each) for each in self._streamed if each.is_relative_to(folder)
            )
            if used > size:
                self.fault = (
                    f"AlgorithmError: OSError: [Errno 28] No space left on device: {name} holds {used / 2**30:.2f} GiB"
                    f", VolumeSizeInGB is {size // 2**30}, exit code: 1"
                )
                return
