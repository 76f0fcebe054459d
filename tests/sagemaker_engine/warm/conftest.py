from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.warm.handle import WarmParent, parent_environment
from tests.limits import EVENT_LIMIT_S

if TYPE_CHECKING:
    from collections.abc import Iterator


class Warm:
    """A ready warm parent, and how to run programs with and without it."""

    def __init__(self, parent: WarmParent, root: Path) -> None:
        self.parent = parent
        self.root = root
        self.bin = root / "warm" / "bin"

    def run(
        self, *arguments: str, real: bool = False, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run python, warm or by the real interpreter, in the same environment."""
        program = sys.executable if real else str(self.bin / "python")
        environment = {**self.environment, **options.pop("env", {})}
        return subprocess.run(
            [program, *arguments],
            env=environment,
            capture_output=True,
            text=True,
            timeout=EVENT_LIMIT_S,
            check=False,
            **options,
        )

    @property
    def environment(self) -> dict[str, str]:
        """The variables of a job's programs."""
        path = f"{self.bin}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {**parent_environment(), "PATH": path, "OMP_NUM_THREADS": "1"}

    @property
    def cold_starts(self) -> list[str]:
        """Why programs ran in the real interpreter so far."""
        text = (self.root / "warm" / "parent.log").read_text()
        return [line for line in text.splitlines() if "runs cold" in line]


@pytest.fixture(scope="session")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Warm]:
    """One warm parent for all tests; starting it takes seconds."""
    root = tmp_path_factory.mktemp("warm")
    parent = WarmParent(root)
    parent.start()
    assert parent.wait_ready(EVENT_LIMIT_S), (root / "warm" / "parent.log").read_text()
    yield Warm(parent, root)
    parent.stop()
