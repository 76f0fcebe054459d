"""Imported first, it lets a benchmark import this checkout's tests and training scripts."""

from __future__ import annotations

import sys
import types
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(REPOSITORY / "training_scripts"), str(REPOSITORY)]
_tests = types.ModuleType("tests")  # not that of an installed package
_tests.__path__ = [str(REPOSITORY / "tests")]
sys.modules["tests"] = _tests
