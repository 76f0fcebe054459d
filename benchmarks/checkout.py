"""Import path of the benchmarks: this checkout's packages, tests and training scripts. Must be imported first.

Processes that a benchmark starts find the packages by `PYTHONPATH`.
"""

from __future__ import annotations

import os
import sys
import types
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[1]
SCRIPTS = REPOSITORY / "training_scripts"
PACKAGES = [str(REPOSITORY / each) for each in ("include", "plugins", "tools")]

sys.path[:0] = [*PACKAGES, str(SCRIPTS), str(REPOSITORY)]
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [*PACKAGES, os.environ.get("PYTHONPATH")]))
_tests = types.ModuleType("tests")  # not that of an installed package
_tests.__path__ = [str(REPOSITORY / "tests")]
sys.modules["tests"] = _tests
