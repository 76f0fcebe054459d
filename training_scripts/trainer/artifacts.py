"""Files of the trained model: `model.pt` (weights) and `model.json` (configuration and facts)."""

from __future__ import annotations

import ctypes
import hashlib
import json
from typing import TYPE_CHECKING, Any

import torch

from trainer.data.table import TableLayout
from trainer.models import build_empty
from trainer.tasks import LanguageTask, TableTask, Task
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor, nn


def write_model(
    folder: Path, weights: Mapping[str, Tensor], task: Task, facts: Mapping[str, Any]
) -> None:
    """Write `model.pt` and `model.json` to `folder`; `model.json` has the model's config and `facts`."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({name: _alone(each) for name, each in weights.items()}, folder / "model.pt")
    layout = {"layout": task.layout.to_dict()} if isinstance(task, TableTask) else {}
    content = {"config": dict(task.model_config), **layout, **facts}
    (folder / "model.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _alone(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU in a storage without other elements, because `torch.save` writes whole storages."""
    own = tensor.detach().cpu()
    return own if own.untyped_storage().nbytes() == own.nbytes else own.clone()


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 (hex) of a model's state, buffers included, with entries sorted by name.

    Each entry is hashed as the line `<name> <dtype> <shape>`, for example
    `head.weight torch.float32 [257, 128]`, followed by its bytes, little-endian and row by row.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        values = tensor.detach().cpu().contiguous()
        digest.update(f"{name} {values.dtype} {list(values.shape)}\n".encode())
        digest.update((ctypes.c_char * values.nbytes).from_address(values.data_ptr()))
    return digest.hexdigest()


def read_model(folder: Path) -> tuple[nn.Module, Task, dict[str, Any]]:
    """Return the model, its task and the content of `model.json`.

    The weights are memory-mapped, so the ranks of one host share the file's pages.

    Raises:
        DataError: a file is missing or not readable, or the weights do not match the config.
    """
    try:
        content = json.loads((folder / "model.json").read_bytes())
        model = build_empty(content["config"])
        weights = torch.load(folder / "model.pt", map_location="cpu", weights_only=True, mmap=True)
        model.load_state_dict(weights, assign=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        message = (
            f"{folder} has no model of train_ddp.py ({type(error).__name__}: {error}); expected "
            "model.json and model.pt from one training job"
        )
        raise DataError(message) from error
    config = content["config"]
    if config["kind"] == "gpt":
        return model, LanguageTask(model_config=config), content
    layout = TableLayout.from_dict(content["layout"])
    return model, TableTask(layout=layout, model_config=config), content
