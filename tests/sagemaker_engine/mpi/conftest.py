"""The runner's yard, for launches by MPI."""

from __future__ import annotations

from tests.sagemaker_engine.jobs.conftest import yard

__all__ = ["yard"]
