"""Checkpoint folders on disks of their own, so that a fault can make them full."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sagemaker_engine.sandbox import filesystem, inside

if TYPE_CHECKING:
    from pathlib import Path

    from sagemaker_engine.sandbox.cluster import SandboxCluster


@dataclass(frozen=True, slots=True, kw_only=True)
class Volume:
    """Volume of one instance. `descriptor` is an open descriptor of its folder, valid after its mounts are gone."""

    host: str
    path: str
    descriptor: int

    @classmethod
    def take_over(cls, cluster: SandboxCluster, *, host: str, path: str, folder: Path) -> Volume:
        """Move what was restored into `folder` to the volume of an instance that waits for its start.

        From then on `folder` is a link to the volume, which only this process can follow.
        """
        seen_at = cluster.path_of(host, path)
        shutil.copytree(folder, seen_at, dirs_exist_ok=True)
        shutil.rmtree(folder)
        descriptor = os.open(seen_at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        folder.symlink_to(f"/proc/self/fd/{descriptor}")
        return cls(host=host, path=path, descriptor=descriptor)

    def fill(self, cluster: SandboxCluster) -> None:
        """Let it take nothing more: what it holds is its size.

        Fails with OSError: the kernel refuses, or the instance has ended.
        """
        inside.fill_volume(cluster.first_process(self.host), self.path)

    def free(self, cluster: SandboxCluster) -> None:
        """Give it its first size back.

        Fails with OSError: the kernel refuses, or the instance has ended.
        """
        first = cluster.first_process(self.host)
        inside.resize_volume(first, self.path, filesystem.VOLUME_BYTES)

    def close(self) -> None:
        """Let it go."""
        os.close(self.descriptor)
