"""Requests to the model in a folder, by AWS's inference contract, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

# Calls the handlers as the toolkit of the PyTorch inference images does: by the path of the module.
CLIENT = """
import importlib.util, json, sys
folder, requests = sys.argv[1], json.loads(sys.argv[2])
sys.path.insert(0, folder + "/code")
spec = importlib.util.spec_from_file_location("inference", folder + "/code/inference.py")
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
model = module.model_fn(folder)
for request in requests:
    try:
        data = module.input_fn(json.dumps(request), "application/json")
        made = module.output_fn(module.predict_fn(data, model), "application/json")
        print(made[0] if isinstance(made, tuple) else made)
    except ValueError as error:
        print(json.dumps({"error": str(error)}))
"""


def answers_of(folder: Path, *requests: Any, python: Path) -> list[dict[str, Any]]:
    """Return the answers of the handlers in `code/inference.py`, which see nothing of the repository."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-P", "-c", CLIENT, folder, json.dumps(requests)],
        env={**environment, "OMP_NUM_THREADS": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return [json.loads(line) for line in done.stdout.splitlines()]
