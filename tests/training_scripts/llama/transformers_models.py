"""The small Llama models in transformers: run by an image that has it.

`python transformers_models.py write <folder>` saves each model, in one file and in several, and `logits.json`.
`python transformers_models.py read <folder>` loads each folder of a model below it, and writes their `logits.json`.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

sys.path.insert(0, str(Path(__file__).parent))
from llama_cases import CASES, POSITIONS, TOKENS, weight_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@torch.no_grad()
def logits_of(model: PreTrainedModel) -> list[list[float]]:
    """Return the logits of the compared positions."""
    return model.eval()(TOKENS).logits[0, list(POSITIONS)].tolist()


@torch.no_grad()
def write(folder: Path) -> dict[str, list[list[float]]]:
    """Save each model; return the logits by case."""
    logits = {}
    for name, content in CASES.items():
        model = LlamaForCausalLM(LlamaConfig(**content))
        for key, parameter in model.named_parameters():
            parameter.copy_(weight_of(key, parameter.shape))
        model.save_pretrained(folder / f"{name}-one")
        model.save_pretrained(folder / f"{name}-several", max_shard_size="20KB")
        logits[name] = logits_of(model)
    return logits


def read(folder: Path) -> dict[str, list[list[float]]]:
    """Return the logits of each model below the folder."""
    logits = {}
    for config in sorted(folder.glob("*/config.json")):
        model, info = AutoModelForCausalLM.from_pretrained(config.parent, output_loading_info=True)
        assert not any(info.values()), info
        logits[config.parent.name] = logits_of(model)
    return logits


if __name__ == "__main__":
    place = Path(sys.argv[2])
    made = {"write": write, "read": read}[sys.argv[1]](place)
    (place / "logits.json").write_text(json.dumps(made) + "\n")
