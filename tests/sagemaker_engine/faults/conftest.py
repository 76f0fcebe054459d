"""An engine for the tests of faults alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from sagemaker_engine.testing import RunningEngine

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningEngine]:
    """A running engine without any job: on the shared one, a job that still uploads could use up a fault."""
    running = RunningEngine(root=tmp_path_factory.mktemp("engine"), warm="never").start()
    yield running
    running.stop()
