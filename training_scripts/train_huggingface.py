"""Train a small Llama by Hugging Face's Trainer on token shards: from its configuration, nothing is downloaded.

For the image `huggingface-pytorch-training`, alone or under torchrun (`torch_distributed`). Channels are those of
train_ddp.py; of its hyperparameters it knows those in `KNOWN`. Checkpoints are the Trainer's, in `<base>/checkpoints`;
one counts as whole once its list of files beside it is true, since an interruption may leave half of one in S3.
"""

from __future__ import annotations

import json
import math
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

from trainer.data.shard_index import ShardIndex
from trainer.data.token_blocks import TokenBlocks
from trainer.environment import ContainerPaths
from trainer.errors import HyperparameterError, TrainerError
from trainer.failure import report_failure

if TYPE_CHECKING:
    from collections.abc import Mapping

    from transformers import TrainerControl, TrainerState

KNOWN: dict[str, float] = {
    "num_layers": 2, "num_heads": 2, "hidden_size": 64, "sequence_length": 64, "global_batch_size": 8,
    "max_steps": 100, "learning_rate": 4e-3, "warmup_steps": 10, "weight_decay": 0.1, "seed": 0,
    "checkpoint_interval": 10, "keep_checkpoints": 2,
}  # fmt: skip
FILES = "files.json"


class Samples:
    """The blocks of a split, one by one, as the Trainer wants them; it shifts the labels itself."""

    def __init__(self, blocks: TokenBlocks) -> None:
        self._blocks = blocks

    def __len__(self) -> int:
        return len(self._blocks)

    def __getitem__(self, sample: int) -> dict[str, torch.Tensor]:
        inputs, _ = self._blocks[torch.tensor([sample])]
        return {"input_ids": inputs[0], "labels": inputs[0]}


class Reports(TrainerCallback):
    """Prints the metric lines of the other scripts, and lists the files of a checkpoint once they are written."""

    def on_log(
        self,
        args: TrainingArguments,  # noqa: ARG002  # the interface
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Print the loss of the steps since the last line."""
        if state.is_world_process_zero and "loss" in (logs or {}):
            _say(
                f"step={state.global_step} epoch={int(state.epoch or 0)} loss={logs['loss']:.6f} "
                f"learning_rate={logs['learning_rate']:.6e} max_steps={state.max_steps}"
            )

    def on_save(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,  # noqa: ARG002  # the interface
        **_: Any,
    ) -> None:
        """List the files of the checkpoint with their sizes."""
        if state.is_world_process_zero:
            folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
            sizes = {each.name: each.stat().st_size for each in folder.iterdir()}
            (folder / FILES).write_text(json.dumps(sizes), encoding="utf-8")
            _say(f"checkpoint step={state.global_step} stall_seconds=0")


def _say(line: str) -> None:
    sys.stdout.write(f"trainyard {line}\n")
    sys.stdout.flush()


def newest_checkpoint(folder: Path) -> Path | None:
    """Return the newest checkpoint whose files are all there; None where there is none."""
    found = [
        path
        for path in folder.glob("checkpoint-*")
        if path.name.split("-")[-1].isdigit() and _is_whole(path)
    ]
    return max(found, key=lambda path: int(path.name.split("-")[-1]), default=None)


def _is_whole(checkpoint: Path) -> bool:
    listed = checkpoint / FILES
    if not listed.is_file():
        return False
    try:
        sizes = json.loads(listed.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return all(
        (checkpoint / name).is_file() and (checkpoint / name).stat().st_size == size
        for name, size in sizes.items()
    )


def read_hyperparameters(text: str) -> dict[str, float]:
    """Return the hyperparameters of SM_HPS over the defaults.

    Raises:
        HyperparameterError: one is unknown or no number; all at once.
    """
    findings, values = [], dict(KNOWN)
    for name, value in json.loads(text or "{}").items():
        if name not in KNOWN:
            findings.append(f"unknown hyperparameter {name!r}; known are {', '.join(KNOWN)}")
            continue
        try:
            values[name] = type(KNOWN[name])(float(value))
        except (TypeError, ValueError):
            findings.append(f"hyperparameter {name!r}: got {value!r}, allowed is a number")
    if findings:
        raise HyperparameterError(findings)
    return values


def train(hp: Mapping[str, float], paths: ContainerPaths) -> None:
    """Train to the last step from the newest checkpoint on. Fails with TrainerError: the data cannot be used."""
    index = ShardIndex.load(paths.channels.get("index"))
    length = int(hp["sequence_length"])
    train_blocks, validation_blocks = (
        TokenBlocks.open(
            index, split, paths.channels.get(split), sequence_length=length, verify=True
        )
        for split in ("train", "validation")
    )
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    set_seed(int(hp["seed"]))  # The Trainer's own comes after the weights are drawn.
    trainer = Trainer(
        model=LlamaForCausalLM(_config(hp, vocab_size=index.vocab_size)),
        args=_arguments(hp, folder=paths.default_checkpoint_dir, world_size=world_size),
        train_dataset=Samples(train_blocks),
        eval_dataset=Samples(validation_blocks),
        callbacks=[Reports()],
    )
    checkpoint = newest_checkpoint(paths.default_checkpoint_dir)
    if checkpoint is not None and trainer.is_world_process_zero():
        step = checkpoint.name.split("-")[-1]
        _say(f"resume step={step} checkpoint={checkpoint}")
    trainer.train(resume_from_checkpoint=None if checkpoint is None else str(checkpoint))
    loss = trainer.evaluate()["eval_loss"]
    if trainer.is_world_process_zero():
        _say(f"done step={trainer.state.global_step} validation_loss={loss:.6f}")
    trainer.save_model(str(paths.model_dir))


def _config(hp: Mapping[str, float], *, vocab_size: int) -> LlamaConfig:
    hidden = int(hp["hidden_size"])
    return LlamaConfig(
        vocab_size=vocab_size,
        hidden_size=hidden,
        intermediate_size=4 * hidden,
        num_hidden_layers=int(hp["num_layers"]),
        num_attention_heads=int(hp["num_heads"]),
        max_position_embeddings=int(hp["sequence_length"]),
        bos_token_id=None,
        eos_token_id=None,
    )


def _arguments(hp: Mapping[str, float], *, folder: Path, world_size: int) -> TrainingArguments:
    batch = int(hp["global_batch_size"])
    if batch % world_size:
        raise HyperparameterError(
            f"global_batch_size {batch} does not divide into {world_size} ranks; "
            f"use a multiple of {world_size}, for example {math.ceil(batch / world_size) * world_size}"
        )
    return TrainingArguments(
        output_dir=str(folder),
        use_cpu=not torch.cuda.is_available(),  # Unless told so, accelerate sees no ranks without GPUs.
        per_device_train_batch_size=batch // world_size,
        max_steps=int(hp["max_steps"]),
        learning_rate=hp["learning_rate"],
        warmup_steps=int(hp["warmup_steps"]),
        weight_decay=hp["weight_decay"],
        lr_scheduler_type="cosine",
        save_steps=int(hp["checkpoint_interval"]),
        save_total_limit=int(hp["keep_checkpoints"]),
        logging_steps=1,
        seed=int(hp["seed"]),
        report_to="none",
        disable_tqdm=True,
        ddp_find_unused_parameters=False,
        dataloader_pin_memory=False,
    )


def main() -> int:
    """Run one rank of the job; return its exit code."""
    paths = ContainerPaths.from_environment(os.environ)
    try:
        train(read_hyperparameters(os.environ.get("SM_HPS", "{}")), paths)
    except (TrainerError, RuntimeError, ValueError, OSError) as error:
        report_failure(error, paths.failure_file)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
