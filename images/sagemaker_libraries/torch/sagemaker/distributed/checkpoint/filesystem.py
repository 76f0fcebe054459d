"""Readers and writers of checkpoint folders."""

from __future__ import annotations

from torch.distributed.checkpoint import (
    FileSystemReader as DistributedFileSystemReader,
    FileSystemWriter as DistributedFileSystemWriter,
)

__all__ = ["DistributedFileSystemReader", "DistributedFileSystemWriter"]
