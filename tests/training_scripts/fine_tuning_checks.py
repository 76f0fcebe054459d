"""Checks of the fine-tuning scripts by their own modules: run by an interpreter with transformers, PEFT and TRL.

`python fine_tuning_checks.py <check> <folder> ...` prints one JSON object; make_chat_model.py wrote the folder.
"""

from __future__ import annotations

import copy
import json
import os
import shutil
import sys
from itertools import groupby
from pathlib import Path
from typing import Any

import torch
from make_chat_model import TEMPLATE
from tokenizers import normalizers, processors
from torch.distributed.tensor import DTensor
from transformers import AutoModelForCausalLM, AutoTokenizer

from sft.errors import FineTuningError
from sft.likelihood import HeldOut
from sft.models import ModelOrigin, load_model, load_tokenizer
from sft.options import Options
from sft.rows import IGNORED, RowTokenizer, answers_of, read_rows
from sft.training import make_trainer
from trainyard_watch.environment import ContainerPaths
from trainyard_watch.huggingface import WatchCallback

MARKED = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{% if message['role'] == 'assistant' %}{% generation %}{{ message['content'] }}<|im_end|>\n{% endgeneration %}"
    "{% else %}{{ message['content'] }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CONCATENATING = TEMPLATE.replace("message['content']", "message['content'] + ''")
CONTENT_MARKED = MARKED.replace(
    "<|im_end|>\n{% endgeneration %}", "{% endgeneration %}<|im_end|>\n"
)
WITH_TOOLS = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "{% for call in message['tool_calls'] or [] %}{{ call['function'] | tojson }}{% endfor %}<|im_end|>\n{% endfor %}"
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


def marked_answers(folder: Path) -> dict[str, list[str]]:
    """Return the texts that are learned with marks in the template, by kind of tokenizer."""
    kinds: dict[str, tuple[str, list[str], Any, Any]] = {
        "trimmed offsets": (MARKED, ["one", " two", "three"], None, True),
        "characters of many bytes": (CONTENT_MARKED, ["fine \U0001f44d", "\u597d"], None, False),
        "normalizer": (CONTENT_MARKED, ["cafe\u0301", "ok"], normalizers.NFC(), False),
        "weight": (MARKED, ["one", "two", "three"], None, False),
        "weight by rendering": (TEMPLATE, ["one", "two", "three"], None, False),
    }
    found = {}
    for kind, (template, answers, normalizer, trims) in kinds.items():
        tokenizer = AutoTokenizer.from_pretrained(folder / "base")
        tokenizer.chat_template = template
        if normalizer:
            tokenizer.backend_tokenizer.normalizer = normalizer
        tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
        messages: list[dict[str, Any]] = []
        for answer in answers:
            messages += [{"role": "user", "content": "Which?"}]
            messages += [{"role": "assistant", "content": answer}]
        if "weight" in kind:
            messages[3]["weight"] = 0
        tokens = RowTokenizer(tokenizer).tokens({"messages": messages}, where="row 1")
        runs = groupby(tokens.labels, key=lambda label: label != IGNORED)
        found[kind] = [tokenizer.decode(list(run)) for is_learned, run in runs if is_learned]
    return found


def pair_texts(folder: Path) -> dict[str, Any]:
    """Return what the trainer and the evaluation read of pairs with tool calls, and the template's own text.

    One call has its arguments as JSON text, which the template encodes; its text is that of the object.
    """

    def call(name: str, **arguments: Any) -> dict[str, Any]:
        function = {"name": name, "arguments": arguments}
        return {"role": "assistant", "content": "", "tool_calls": [{"function": function}]}

    def pair(question: str, chosen: list[Any], rejected: list[Any], tool: str) -> dict[str, Any]:
        return {
            "prompt": [{"role": "user", "content": question}],
            "chosen": chosen,
            "rejected": rejected,
            "tools": [{"type": "function", "function": {"name": tool, tool: {}}}],
        }

    answer = {"role": "assistant", "content": "Sunny."}
    told = {"role": "tool", "content": "sun", "tool_call_id": "a"}
    rows = [
        pair("Rome?", [call("weather", city="Rome"), told, answer], [answer], "weather"),
        pair(
            "Cats?", [call("search", query="cats", limit=5)], [call("weather", city="a")], "search"
        ),
    ]
    data, model = folder / "calls" / "train", folder / "with_tools"
    data.mkdir(parents=True)
    written = copy.deepcopy(rows)
    function = written[0]["chosen"][0]["tool_calls"][0]["function"]
    function["arguments"] = json.dumps(function["arguments"])
    (data / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in written))
    shutil.copytree(folder / "base", model)
    tokenizer = AutoTokenizer.from_pretrained(folder / "base")
    tokenizer.chat_template = WITH_TOOLS
    tokenizer.save_pretrained(model)
    paths = _paths(folder, "calls", data="calls", model=model)
    options = Options(method="dpo", max_steps=1, batch_size=2)
    origin = ModelOrigin.of_job(options, paths.channels)
    trainer = make_trainer(options, paths, origin, WatchCallback(statistics="off"))
    (batch,) = trainer.get_train_dataloader()
    held = HeldOut.read(data, tokenizer, method="dpo", max_length=1024)
    whole = [
        tokenizer.apply_chat_template(row["prompt"] + row[key], tools=row["tools"], tokenize=False)
        for key in ("chosen", "rejected")
        for row in rows
    ]
    return {
        "loss": trainer.compute_loss(trainer.model, dict(batch)).item(),
        "whole": sorted(whole),
        "trained": sorted(
            tokenizer.decode(ids[mask.bool()])
            for ids, mask in zip(batch["input_ids"], batch["attention_mask"], strict=True)
        ),
        "measured": sorted(tokenizer.decode(each.input_ids) for each in held.samples),
        "answers": sorted(
            tokenizer.decode(ids[mask.bool()])
            for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)
        ),
        "measured_answers": sorted(
            tokenizer.decode([label for label in each.labels if label != IGNORED])
            for each in held.samples
        ),
    }


STAGE_3 = '{"zero_optimization": {"stage": 3}}'
ADAPTERS: dict[str, dict[str, Any]] = {
    "lora": {},
    "fsdp": {"strategy": "fsdp"},
    "qlora": {"adapter": "qlora"},
    "qlora_8bit": {"adapter": "qlora", "load_in_8bit": True},
    "fsdp_qlora": {"adapter": "qlora", "strategy": "fsdp"},
    "zero_3": {"strategy": "deepspeed", "ds_config": STAGE_3},
    "zero_3_qlora": {"adapter": "qlora", "strategy": "deepspeed", "ds_config": STAGE_3},
}


def frozen_base(folder: Path, kind: str, port: str) -> dict[str, Any]:
    """Return what training an adapter changed of the base model's weights, as the trainer holds them."""
    is_sharded = "fsdp" in kind or "zero" in kind
    if is_sharded:
        _launch_alone(port)
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
            if (not is_sharded or name in trained) and _bytes(value) != _bytes(trained[name])
        ],
        "adapter_moved": any(
            bool(value.abs().sum()) for name, value in trained.items() if "lora_B" in name
        ),
    }


def dropped_losses(folder: Path, strategy: str, recomputes: str, port: str) -> dict[str, Any]:
    """Return the losses of a training with much dropout, with or without recomputed layers."""
    if strategy == "fsdp":
        _launch_alone(port)
    paths = _paths(folder, f"dropped-{strategy}-{recomputes}", data="chat")
    options = Options(max_steps=6, learning_rate=1e-2, lora_dropout=0.5, strategy=strategy)
    trainer = make_trainer(
        options,
        paths,
        ModelOrigin.of_job(options, paths.channels),
        WatchCallback(statistics="off"),
        recomputes=recomputes == "recomputed",
    )
    trainer.train()
    return {
        "recomputes": any(
            getattr(each, "gradient_checkpointing", False) for each in trainer.model.modules()
        ),
        "losses": [each["loss"] for each in trainer.state.log_history if "loss" in each],
    }


def _launch_alone(port: str) -> None:
    """Set the variables of a single rank, as torchrun does."""
    rank = {"RANK": "0", "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    os.environ |= rank | {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}


def _weights(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return all tensors of a model, those of a quantization included; of a sharded one the whole weights."""
    if any(hasattr(each, "ds_id") for each in model.parameters()):
        return _gathered(model)
    sharded = {
        name: each.full_tensor()
        for name, each in model.named_parameters()
        if isinstance(each, DTensor)
    }
    return sharded or model.state_dict()


def _gathered(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Return the whole weights that ZeRO-3 shards."""
    import deepspeed  # only some environments have it

    named = dict(model.named_parameters())
    with deepspeed.zero.GatheredParameters(list(named.values())):
        return {name: each.detach().clone() for name, each in named.items()}


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
    tokens = tokenizer("The red cat sees a bird. What color has the cat?", return_tensors="pt")
    with torch.no_grad():
        logits = [each(input_ids=tokens["input_ids"]).logits for each in (merged, adapted, base)]
    return {
        "difference": (logits[0] - logits[1]).abs().max().item(),
        "learned": (logits[1] - logits[2]).abs().max().item(),
        "dtype": str(next(merged.parameters()).dtype),
    }


def _paths(folder: Path, name: str, *, data: str, model: Path | None = None) -> ContainerPaths:
    place = folder / "checks" / name
    return ContainerPaths(
        base_dir=place,
        model_dir=place / "model",
        output_data_dir=place / "output" / "data",
        channels={"model": model or folder / "base", "train": folder / data / "train"},
    )


def row_errors(folder: Path) -> dict[str, Any]:
    """Return what errors say of rows with wrong keys or types."""
    tokenizer, concatenating = (
        RowTokenizer(AutoTokenizer.from_pretrained(folder / "base", chat_template=template))
        for template in (TEMPLATE, CONCATENATING)
    )
    rows = {
        "mixed pair": {"prompt": "a", "chosen": "b", "rejected": [{"role": "user"}]},
        "half a pair": {"prompt": "a", "chosen": "b"},
        "mixed completion": {"prompt": "a", "completion": [{"role": "assistant"}]},
        "unknown": {"question": "a"},
    }
    user, answer = ({"role": role, "content": "Hi."} for role in ("user", "assistant"))
    chats: dict[str, dict[str, Any]] = {
        "lost tools": {"messages": [user, answer], "tools": [{"function": {"name": "weather"}}]},
        "lost calls": {"messages": [user, {**answer, "tool_calls": [{"name": "weather"}]}]},
        "rejected": {"messages": [user, {"role": "assistant", "tool_calls": [{"name": "a"}]}]},
    }
    lines = {
        "surrogate": b'{"text": "x \\ud83d y"}',
        "latin": b'{"text": "\xe9"}',
        "tools text": b'{"text": "a", "tools": "{"}',
        "system": b'{"text": "a", "system": "b"}',
    }
    errors = {}
    for name, line in lines.items():
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "a.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "a"}\n' + line)
        try:
            for where, row in read_rows(folder / name):
                tokenizer.tokens(row, where=where)
        except FineTuningError as error:
            errors[name] = str(error)
    for name, row in (rows | chats).items():
        try:
            if "pair" in name:
                answers_of(row, where="row 1")
            elif name == "rejected":
                concatenating.tokens(row, where="row 1")
            else:
                tokenizer.tokens(row, where="row 1")
        except FineTuningError as error:
            errors[name] = str(error)
    return errors


CHECKS = {
    each.__name__: each
    for each in (
        trained_texts,
        marked_answers,
        pair_texts,
        row_errors,
        frozen_base,
        dropped_losses,
        packed_losses,
        merged_logits,
    )
}

if __name__ == "__main__":
    sys.stdout.write(json.dumps(CHECKS[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])) + "\n")
