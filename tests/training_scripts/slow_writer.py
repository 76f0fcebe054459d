"""A training script that writes each model a second later: `slow_writer <script> ...`; prints the model's files."""

from __future__ import annotations

import importlib
import sys
import time
from typing import Any

from transformers import PreTrainedModel

from trainyard_watch.environment import container_paths

write = PreTrainedModel.save_pretrained


def write_slowly(model: PreTrainedModel, *arguments: Any, **members: Any) -> None:
    """Wait, then write the model."""
    time.sleep(1)
    write(model, *arguments, **members)


def main(argv: list[str]) -> int:
    """Run one rank of the script."""
    PreTrainedModel.save_pretrained = write_slowly
    code = importlib.import_module(argv[0]).main(argv[1:])
    files = [each.name for each in container_paths().model_dir.glob("*")]
    sys.stdout.write(f"left: {files}\n")
    return code
