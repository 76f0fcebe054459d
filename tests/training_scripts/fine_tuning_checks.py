"""Checks of the fine-tuning scripts by their own modules: run by an interpreter with transformers, PEFT and TRL.

`python fine_tuning_checks.py <check> <folder> ...` prints one JSON object; make_chat_model.py wrote the folder.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from sft.errors import FineTuningError
from sft.models import ModelOrigin, load_model, load_tokenizer
from sft.options import Options
from sft.rows import IGNORED, RowTokenizer, pair_of, read_rows
from sft.training import make_trainer
from trainyard_watch.environment import ContainerPaths
from trainyard_watch.huggingface import WatchCallback

MARKED = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>\n{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CHANGING = "{% for message in messages %}{{ loop.length }}{{ message['content'] }}{% endfor %}"


def trained_texts(folder: Path) -> dict[str, Any]:
    """Return the texts of the tokens that have labels, by format, and what errors say."""
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    found: dict[str, Any] = {}
    for name in ("chat", "prompts", "texts"):
        where, row = next(read_rows(folder / name / "train"))
        tokens = RowTokenizer(tokenizer).tokens(row, where=where)
        kept = [token for token in tokens.labels if token != IGNORED]
        found[name] = {"row": row, "trained": tokenizer.decode(kept), "where": where}
    _, chat = next(read_rows(folder / "chat" / "train"))
    by_spans = RowTokenizer(tokenizer).tokens(chat, where="row")
    tokenizer.chat_template = MARKED
    found["markers_agree"] = RowTokenizer(tokenizer).tokens(chat, where="row") == by_spans
    errors = {}
    for name, template in (("changing", CHANGING), ("absent", None)):
        tokenizer.chat_template = template
        try:
            RowTokenizer(tokenizer).tokens(chat, where="train.jsonl row 1")
        except FineTuningError as error:
            errors[name] = str(error)
    return found | {"errors": errors}


ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {},
    "fsdp": {"strategy": "fsdp"},
    "qlora": {"adapter": "qlora"},
    "qlora_8bit": {"adapter": "qlora", "load_in_8bit": True},
    "fsdp_qlora": {"adapter": "qlora", "strategy": "fsdp"},
}


def frozen_base(folder: Path, kind: str, port: str) -> dict[str, Any]:
    """Return what training an adapter changed of the base model's weights, as the trainer holds them."""
    if "fsdp" in kind:
        rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
        os.environ |= rank | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    paths = _paths(folder, f"frozen-{kind}", data="chat")
    options = Options(max_steps=8, learning_rate=1e-2, **ADAPTERS[kind])
    origin = ModelOrigin.of_job(options, paths.channels)
    trainer = make_trainer(options, paths, origin, WatchCallback(statistics="off"))
    trainer.train()
    trained = {
        name.removeprefix("base_model.model.").replace(".base_layer", ""): value
        for name, value in _weights(trainer.model).items()
    }
    base = _weights(load_model(options, origin, is_quantized=options.adapter == "qlora"))
    return {
        "weights": len(base),
        "is_quantized": any("absmax" in name or "SCB" in name for name in base),
        "changed": [
            name
            for name, value in base.items()
            if ("fsdp" not in kind or name in trained) and _bytes(value) != _bytes(trained[name])
        ],
        "adapter_moved": any(
            bool(value.abs().sum()) for name, value in trained.items() if "lora_B" in name
        ),
    }


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return all tensors of a model, those of a quantization included; of a sharded one the whole weights."""
    sharded = {
        name: each.full_tensor()
        for name, each in model.named_parameters()
        if isinstance(each, DTensor)
    }
    return sharded or model.state_dict()


def _bytes(tensor: torch.Tensor) -> bytes:
    """Return the content of a tensor; NaN equals NaN in it."""
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def packed_losses(folder: Path) -> dict[str, Any]:
    """Return loss and gradients of the same rows, packed and one by one."""
    sums = {}
    for packing in (True, False):
        paths = _paths(folder, f"packed-{packing}", data="chat")
        options = Options(adapter="none", packing=packing, max_length=240, batch_size=400)
        trainer = make_trainer(
            options,
            paths,
            ModelOrigin.of_job(options, paths.channels),
            WatchCallback(statistics="off"),
        )
        (batch,) = trainer.get_train_dataloader()
        model = trainer.model.eval()
        loss = trainer.compute_loss(model, dict(batch))
        loss.backward()
        gradients = {name: each.grad for name, each in model.named_parameters()}
        sums[packing] = (loss.item(), gradients, len(trainer.train_dataset))
    (packed, packed_gradients, num_packed), (plain, plain_gradients, num_plain) = (
        sums[True],
        sums[False],
    )
    norm = sum(each.square().sum() for each in plain_gradients.values()).sqrt()
    apart = sum(
        (each - packed_gradients[name]).square().sum() for name, each in plain_gradients.items()
    ).sqrt()
    return {
        "loss_difference": abs(packed - plain),
        "gradient_difference": (apart / norm).item(),
        "sequences": [num_packed, num_plain],
    }


def merged_logits(folder: Path, kind: str) -> dict[str, Any]:
    """Return the largest difference of logits between the models of two jobs, merged and adapter."""
    jobs = {name: folder / "jobs" / f"{kind}-{name}" / "model" for name in ("merged", "adapter")}
    merged = AutoModelForCausalLM.from_pretrained(jobs["merged"]).eval()
    origin = ModelOrigin(base=str(folder / "base"), start=jobs["adapter"])
    adapted = load_model(Options(artifact="adapter"), origin, is_quantized=False).eval()
    base = AutoModelForCausalLM.from_pretrained(folder / "base").eval()
    tokenizer = load_tokenizer(origin)
    tokens = tokenizer("The red cat sees a bird. What colour has the cat?", return_tensors="pt")
    with torch.no_grad():
        logits = [each(input_ids=tokens["input_ids"]).logits for each in (merged, adapted, base)]
    return {
        "difference": (logits[0] - logits[1]).abs().max().item(),
        "learned": (logits[1] - logits[2]).abs().max().item(),
        "dtype": str(next(merged.parameters()).dtype),
    }


def _paths(folder: Path, name: str, *, data: str) -> ContainerPaths:
    place = folder / "checks" / name
    return ContainerPaths(
        base_dir=place,
        model_dir=place / "model",
        output_data_dir=place / "output" / "data",
        channels={"model": folder / "base", "train": folder / data / "train"},
    )


def row_errors(folder: Path) -> dict[str, Any]:
    """Return what errors say of rows with wrong keys or types."""
    tokenizer = RowTokenizer(AutoTokenizer.from_pretrained(folder / "base"))
    rows = {
        "mixed pair": {"prompt": "a", "chosen": "b", "rejected": [{"role": "user"}]},
        "half a pair": {"prompt": "a", "chosen": "b"},
        "mixed completion": {"prompt": "a", "completion": [{"role": "assistant"}]},
        "unknown": {"question": "a"},
    }
    errors = {}
    for name, row in rows.items():
        try:
            if "pair" in name:
                pair_of(row, where="row 1")
            else:
                tokenizer.tokens(row, where="row 1")
        except FineTuningError as error:
            errors[name] = str(error)
    return errors


CHECKS = {
    each.__name__: each
    for each in (trained_texts, row_errors, frozen_base, packed_losses, merged_logits)
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(CHECKS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])) + "\n")
