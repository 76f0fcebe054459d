"""Files of the trained model: the weights, and `model.json` (config and facts about the run).

A decoder's weights are Hugging Face's files of a Llama (`trainer.llama`), a perceptron's are `model.pt`.
"""

from __future__ import annotations

import hashlib
import json
import tarfile
from typing import TYPE_CHECKING, Any

import torch

from trainer.data.table import TableLayout
from trainer.decoder_config import GPTConfig
from trainer.llama.checkpoint import LlamaCheckpoint, write_llama
from trainer.llama.safetensors import bytes_of
from trainer.models import build_empty
from trainer.tasks import LanguageTask, TableTask, Task
from trainyard_watch.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor, nn

WEIGHTS_FILE = "model.pt"
ARCHIVE = "model.tar.gz"


def write_model(
    folder: Path,
    weights: Mapping[str, Tensor],
    task: Task,
    facts: Mapping[str, Any],
    *,
    like: Mapping[str, Any] | None = None,
) -> None:
    """Write the weights and `model.json` to `folder`.

    `model.json` has the model's config, the layout of a table's columns, and `facts` about the run.
    `like` is the config.json of the model that the training began with, if there is one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(task, LanguageTask):
        special = {
            "bos_token_id": None,
            "eos_token_id": (facts.get("tokenizer") or {}).get("eos_token_id"),
        }
        write_llama(folder, weights, GPTConfig.of(task.model_config), like=like or special)
    else:
        torch.save({name: _alone(each) for name, each in weights.items()}, folder / WEIGHTS_FILE)
    layout = {"layout": task.layout.to_dict()} if isinstance(task, TableTask) else {}
    content = {"config": dict(task.model_config), **layout, **facts}
    (folder / "model.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")


def _alone(tensor: Tensor) -> Tensor:
    """Return the tensor on the CPU, copied if other elements share its storage.

    `torch.save` writes whole storages, so it would write the other elements, too.
    """
    own = tensor.detach().cpu()
    return own if own.untyped_storage().nbytes() == own.nbytes else own.clone()


def weights_sha256(weights: Mapping[str, Tensor]) -> str:
    """Return the SHA-256 (hex) of a model's state, buffers included, with entries sorted by name.

    Each entry is hashed as the line `<name> <dtype> <shape>`, for example
    `head.weight torch.float32 [257, 128]`, followed by its bytes, little-endian and row by row.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(f"{name} {tensor.dtype} {list(tensor.shape)}\n".encode())
        digest.update(bytes_of(tensor))
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
        model.load_state_dict(_read_weights(folder, content["config"]), assign=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
        message = (
            f"{folder} has no complete model of a training script ({type(error).__name__}: {error}); expected "
            "model.json and the weights of one training job: use its model.tar.gz"
        )
        raise DataError(message) from error
    config = content["config"]
    if config["kind"] == "gpt":
        return model, LanguageTask(model_config=config), content
    layout = TableLayout.from_dict(content["layout"])
    return model, TableTask(layout=layout, model_config=config), content


def _read_weights(folder: Path, config: Mapping[str, Any]) -> Mapping[str, Tensor]:
    """Return the weights, from `model.pt` (a perceptron, or a decoder of an earlier release) or from Llama's files.

    Raises:
        DataError: a file of a decoder is missing or damaged.
    """
    path = folder / WEIGHTS_FILE
    if path.is_file() or config["kind"] != "gpt":
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    return dict(LlamaCheckpoint.open(folder, ours=GPTConfig.of(config)).items())


def unpack(archive: Path, place: Path) -> None:
    """Unpack a model.tar.gz into the folder `place`.

    Raises:
        DataError: the archive is damaged, or does not fit on the disk.
    """
    try:
        with tarfile.open(archive) as tar:
            tar.extractall(place, filter="data")
    except (tarfile.TarError, OSError, EOFError) as error:
        raise DataError(
            f"{archive} cannot be unpacked ({error}); upload it again, or enlarge the disk if it is full"
        ) from error
