"""The small Llama models in transformers, by the engine image that has it: the same files and logits in both."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import need_image
from tests.training_scripts.llama.test_checkpoint import GOLDEN, TOLERANCE, decoder_of, logits_of
from trainer.llama.checkpoint import write_llama

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = [pytest.mark.torch, pytest.mark.slow]
HERE = Path(__file__).parent


@pytest.fixture(scope="module")
def run() -> Callable[[str, Path], dict[str, list[list[float]]]]:
    """Return a function that runs transformers_models.py in the image, and returns the logits by model."""
    python = need_image("huggingface") / "bin" / "python"

    def run(action: str, folder: Path) -> dict[str, list[list[float]]]:
        done = subprocess.run(
            [python, HERE / "transformers_models.py", action, folder],
            capture_output=True,
            text=True,
            check=False,
            timeout=EVENT_LIMIT_S,
        )
        assert done.returncode == 0, done.stderr
        return json.loads((folder / "logits.json").read_text())

    return run


def close(ours: torch.Tensor, theirs: list[list[float]]) -> None:
    torch.testing.assert_close(ours, torch.tensor(theirs), atol=TOLERANCE, rtol=0)


def test_both_read_each_others_files_and_have_the_same_logits(run, cases, tmp_path):
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    theirs.mkdir()
    logits = run("write", theirs)
    for name in cases.CASES:
        for files, size in (("one", 10**9), ("several", 20_000)):
            model = decoder_of(theirs / f"{name}-{files}")
            close(logits_of(model, cases), logits[name])
            folder = ours / f"{name}-{files}"
            folder.mkdir(parents=True)
            like = cases.CASES[name]
            write_llama(folder, model.state_dict(), model.config, like=like, max_file_bytes=size)

    again = run("read", ours)

    assert again == {
        f"{name}-{files}": logits[name] for name in logits for files in ("one", "several")
    }
    for name, expected in GOLDEN.items():
        close(torch.tensor(logits[name]), expected)
