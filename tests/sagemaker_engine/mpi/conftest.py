"""A runner's bench, for launches by MPI."""

from __future__ import annotations

from tests.sagemaker_engine.jobs.conftest import bench

__all__ = ["bench"]
