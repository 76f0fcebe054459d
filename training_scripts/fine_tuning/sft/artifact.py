"""Model artifact of a fine-tuning: safetensors, tokenizer, and a manifest with the options."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from peft import PeftModel

from sft.errors import FineTuningError
from sft.options import Options

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

MANIFEST = "fine_tuning.json"
HANDLERS = "inference.py"
_SCRIPTS = Path(__file__).parents[1]


def save_artifact(
    model: PreTrainedModel | PeftModel,
    tokenizer: PreTrainedTokenizerBase,
    options: Options,
    trained: Mapping[str, Tensor],
    *,
    folder: Path,
) -> None:
    """Write the model, the tokenizer and a manifest with the options.

    If an adapter was trained, `options.artifact` selects a merged model or the adapter's weights only. A
    whole model also gets the request handlers, as `code/inference.py`. Merging changes `model`, so this must be
    the last step.

    The weights of an adapter are taken from `trained`, because `model` may contain only shards of them.
    """
    if isinstance(model, PeftModel) and options.artifact == "merged":
        model = model.merge_and_unload()
    if isinstance(model, PeftModel):
        weights = {name: each.detach() for name, each in trained.items()}
        model.save_pretrained(folder, selected_adapters=["default"], state_dict=weights)
    else:
        model.save_pretrained(folder)
        (folder / "code").mkdir(exist_ok=True)
        shutil.copyfile(_SCRIPTS / HANDLERS, folder / "code" / HANDLERS)
    tokenizer.save_pretrained(folder)
    (folder / MANIFEST).write_text(json.dumps(asdict(options), indent=1), encoding="utf-8")


def read_options(folder: Path) -> Options:
    """Return the options that a model was fine-tuned with.

    Raises:
        FineTuningError: the folder has no manifest, or one of another version.
    """
    path = folder / MANIFEST
    if not path.is_file():
        raise FineTuningError(
            f"{folder} has no {MANIFEST}; only models of train_sft.py can be evaluated"
        )
    try:
        return Options(**json.loads(path.read_bytes()))
    except TypeError as error:
        raise FineTuningError(
            f"{path} was written by another version of train_sft.py ({error}); "
            "evaluate the model with that version, or fine-tune it again"
        ) from error
