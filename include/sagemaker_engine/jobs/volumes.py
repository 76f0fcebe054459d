"""Checkpoint folders on separate disks, which a fault can fill."""

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
    """Volume of one instance.

    `descriptor` is an open file descriptor of the volume's folder. The descriptor remains valid after the
    instance's mounts are gone.
    """

    host: str
    path: str
    descriptor: int

    @classmethod
    def take_over(cls, cluster: SandboxCluster, *, host: str, path: str, folder: Path) -> Volume:
        """Move the restored files in `folder` to the volume of an instance that has not started yet.

        Afterwards `folder` is a symbolic link to the volume, which only this process can follow.
        """
        seen_at = cluster.path_of(host, path)
        shutil.copytree(folder, seen_at, dirs_exist_ok=True)
        shutil.rmtree(folder)
        descriptor = os.open(seen_at, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        folder.symlink_to(f"/proc/self/fd/{descriptor}")
        return cls(host=host, path=path, descriptor=descriptor)

    def fill(self, cluster: SandboxCluster) -> None:
        """Fill the volume by reducing its size to the size of its content.

        Raises OSError if the kernel rejects it, or if the instance has ended.
        """
        inside.fill_volume(cluster.first_process(self.host), self.path)

    def free(self, cluster: SandboxCluster) -> None:
        """Restore the volume's original size.

        Raises OSError if the kernel rejects it, or if the instance has ended.
        """
        first = cluster.first_process(self.host)
        inside.resize_volume(first, self.path, filesystem.VOLUME_BYTES)

    def close(self) -> None:
        """Close the descriptor."""
        os.close(self.descriptor)
