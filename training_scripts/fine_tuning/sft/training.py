"""Fine-tuning run of one rank: TRL's trainer with a WatchCallback, resumed from its newest complete checkpoint."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import torch
from datasets import Dataset
from transformers import PrinterCallback
from transformers.trainer_utils import set_seed
from trl import DPOConfig, SFTConfig, SFTTrainer

from sft.artifact import save_artifact
from sft.errors import FineTuningError
from sft.models import (
    ModelOrigin,
    adapter_config,
    adapter_weights,
    load_model,
    load_tokenizer,
    num_bytes,
    set_float32,
    uses_bf16,
    whole_model,
)
from sft.pairs import PAIR_COLUMNS, PairCollator, PairTrainer
from sft.rows import RowTokenizer, read_rows
from sft.sharding import gathered_weights, use_fsdp
from sft.zero import whole_weights, zero_arguments
from trainyard_watch.huggingface import StoppableEvaluation, WatchCallback, newest_checkpoint
from trainyard_watch.run import setting_up

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor, nn
    from transformers import PreTrainedTokenizerBase, Trainer

    from sft.options import Options
    from trainyard_watch.environment import ContainerPaths

log = logging.getLogger(__name__)

KEPT_CHECKPOINTS = 3
"""Kept checkpoints: three, since the Trainer deletes an old one before S3 has the new one."""
_ROWS_PER_BATCH = 1000
_SCHEMAS = {
    method: pa.schema([(name, pa.list_(pa.int32())) for name in names])
    for method, names in (("sft", ("input_ids", "labels")), ("dpo", PAIR_COLUMNS))
}


class RowTrainer(StoppableEvaluation, SFTTrainer):
    """TRL's SFT trainer; a stop request ends its evaluations early."""


def train(options: Options, paths: ContainerPaths) -> int:
    """Train from the newest checkpoint to the last step or a stop; write the model; return the exit code.

    Raises:
        FineTuningError: options, data or the base model cannot be used, or the weights became NaN.
    """
    callback = WatchCallback()
    with setting_up():
        origin = ModelOrigin.of_job(options, paths.channels)
        recomputes = torch.cuda.is_available()
        trainer = make_trainer(options, paths, origin, callback, recomputes=recomputes)
    checkpoint = newest_checkpoint(paths.default_checkpoint_dir)
    trainer.train(resume_from_checkpoint=checkpoint)
    model = trainer.accelerator.unwrap_model(trainer.model)
    if callback.run.has_time_for(num_bytes(model, options)):
        trained = _trained_weights(model, options)
        with callback.run.writing_model(paths.model_dir):
            if trainer.is_world_process_zero():
                _check_finite(trained)
                is_divided = options.strategy != "ddp" or options.adapter == "qlora"
                if options.artifact == "merged" and is_divided:
                    model = whole_model(options, origin, trained)
                save_artifact(
                    model, trainer.processing_class, options, trained, folder=paths.model_dir
                )
    return callback.exit_code


def _trained_weights(model: nn.Module, options: Options) -> Mapping[str, Tensor]:
    """Return the trained weights by name. Every rank must call it.

    With the strategies `fsdp` and `deepspeed`, only rank 0 gets the weights, and the other ranks get an empty
    mapping.
    """
    if options.strategy == "fsdp":
        return gathered_weights(model)
    if options.strategy == "deepspeed":
        return whole_weights(model)
    return {name: each for name, each in model.named_parameters() if each.requires_grad}


def _check_finite(trained: Mapping[str, Tensor]) -> None:
    """Reject a model with non-finite weights.

    Raises:
        FineTuningError: a trained weight is NaN or infinite.
    """
    spoiled = [name for name, each in trained.items() if not torch.isfinite(each).all()]
    if spoiled:
        raise FineTuningError(
            f"{len(spoiled)} of {len(trained)} trained tensors have NaN or infinite values, such as {spoiled[0]}; "
            "lower learning_rate, raise warmup_steps, or check the data for invalid rows"
        )


def make_trainer(
    options: Options,
    paths: ContainerPaths,
    origin: ModelOrigin,
    callback: WatchCallback,
    *,
    recomputes: bool = False,
) -> Trainer:
    """Return the trainer of the method, with model, data and adapter.

    If `recomputes` is true, the backward pass recomputes each layer with the same dropout, which saves memory.

    Raises:
        FineTuningError: the data or the base model cannot be used.
    """
    if "train" not in paths.channels:
        raise FineTuningError("the job has no channel train; add it with a prefix of *.jsonl files")
    set_seed(options.seed)
    tokenizer = load_tokenizer(origin)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    splits = {
        name: samples_of(options, tokenizer, paths.channels[name])
        for name in ("train", "validation")
        if name in paths.channels
    }
    kind, arguments = (
        (PairTrainer, _dpo_arguments) if options.method == "dpo" else (RowTrainer, _sft_arguments)
    )
    made = arguments(  # sets this rank's GPU
        options, paths, has_validation="validation" in splits, recomputes=recomputes
    )
    if options.strategy == "fsdp":
        use_fsdp(options, is_bf16=made.bf16)
    model = load_model(options, origin, is_quantized=options.adapter == "qlora")
    earlier = adapter_weights(model)
    trainer = kind(
        model=model,
        args=made,
        train_dataset=splits["train"],
        eval_dataset=splits.get("validation"),
        processing_class=tokenizer,
        peft_config=adapter_config(options, origin),
        callbacks=[callback],
    )
    if options.method == "dpo":
        trainer.data_collator = PairCollator(pad_token_id=tokenizer.pad_token_id)
    trainer.remove_callback(PrinterCallback)
    if options.adapter == "qlora":
        set_float32(trainer.model, earlier)
    return trainer


def _sft_arguments(options: Options, paths: ContainerPaths, **facts: bool) -> SFTConfig:
    return SFTConfig(
        **_shared_arguments(options, paths, **facts),
        packing=options.packing,
        eval_packing=False,
    )


def _dpo_arguments(options: Options, paths: ContainerPaths, **facts: bool) -> DPOConfig:
    return DPOConfig(
        **_shared_arguments(options, paths, **facts),
        beta=options.beta,
        remove_unused_columns=False,
    )


def _shared_arguments(
    options: Options, paths: ContainerPaths, *, has_validation: bool, recomputes: bool
) -> dict[str, Any]:
    has_gpu = torch.cuda.is_available()
    is_measured = has_validation and options.eval_steps > 0
    return {
        "output_dir": str(paths.default_checkpoint_dir),
        "use_cpu": not has_gpu,  # else accelerate sees no ranks without GPUs
        "bf16": uses_bf16(options),
        "gradient_checkpointing": recomputes,
        "max_length": options.max_length,
        "num_train_epochs": options.epochs,
        "max_steps": options.max_steps or -1,
        "per_device_train_batch_size": options.batch_size,
        "per_device_eval_batch_size": options.batch_size,
        "gradient_accumulation_steps": options.gradient_accumulation_steps,
        "learning_rate": options.peak_learning_rate,
        "lr_scheduler_type": options.lr_scheduler,
        "warmup_steps": options.warmup_steps,
        "weight_decay": options.weight_decay,
        "save_steps": options.save_steps,
        "save_total_limit": KEPT_CHECKPOINTS,
        "eval_strategy": "steps" if is_measured else "no",
        "eval_steps": options.eval_steps or None,
        "logging_steps": options.logging_steps,
        "logging_nan_inf_filter": False,
        "seed": options.seed,
        "ddp_find_unused_parameters": False,
        "dataloader_pin_memory": has_gpu,
        "report_to": "none",
        "disable_tqdm": True,
        **(zero_arguments(options) if options.strategy == "deepspeed" else {}),
    }


def samples_of(options: Options, tokenizer: PreTrainedTokenizerBase, folder: Path) -> Dataset:
    """Return the token ids and labels of a channel's rows, as `options.method` needs them.

    Token ids and labels are cut to `options.max_length`. A row is left out if no token to learn remains. A pair
    is left out if either answer has no token to learn.

    Raises:
        FineTuningError: a row cannot be used, or no row has a token to learn.
    """
    rows, batches, kept = RowTokenizer(tokenizer), [], []
    num_cut = num_left_out = 0
    schema = _SCHEMAS[options.method]
    for where, row in read_rows(folder):
        whole = rows.samples(row, method=options.method, where=where)
        cut = [each.cut(options.max_length) for each in whole]
        num_cut += any(len(each.input_ids) > options.max_length for each in whole)
        if not all(each.num_trained for each in cut):
            num_left_out += 1
            continue
        values = [ids for each in cut for ids in (each.input_ids, each.labels)]
        kept.append(dict(zip(schema.names, values, strict=True)))
        if len(kept) == _ROWS_PER_BATCH:
            batches.append(pa.RecordBatch.from_pylist(kept, schema=schema))
            kept = []
    batches.append(pa.RecordBatch.from_pylist(kept, schema=schema))
    made = Dataset(pa.Table.from_batches(batches))
    if num_cut or num_left_out:
        log.warning(
            "%s: %d rows are longer than max_length %d and were cut; %d rows without a token to learn were left out",
            folder,
            num_cut,
            options.max_length,
            num_left_out,
        )
    if not len(made):
        raise FineTuningError(
            f"{folder}: no row has an answer within max_length {options.max_length}; raise max_length or check the rows"
        )
    return made
