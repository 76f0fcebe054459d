"""Errors of the fine-tuning scripts' command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "training_scripts" / "fine_tuning"
READ = "import sys; from sft.options import Options; Options.read(sys.argv[1:])"


def test_a_wrong_optional_number_is_named_with_its_type() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ, "--learning_rate=fast"],
        cwd=FOLDER,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 2
    assert "argument --learning_rate: invalid float value: 'fast'" in done.stderr
