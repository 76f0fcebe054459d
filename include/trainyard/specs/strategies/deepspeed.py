"""DeepSpeed's configuration, checked before anything is started.

Source: deepspeed 0.19, `runtime/config.py`, `runtime/zero/config.py`, `runtime/zero/offload_config.py`, and the page
"DeepSpeed Configuration JSON", November 2026. DeepSpeed itself ignores unknown top-level keys.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, unknown_key
from trainyard.specs.strategies.parameters import COUNT, FLAG, TEXT, Allowed

if TYPE_CHECKING:
    from collections.abc import Iterator

HYPERPARAMETER = "ds_config"
WHERE = f"hyperparameters.{HYPERPARAMETER}"
AUTO = "auto"
"""Placeholder that Hugging Face's Trainer and `train_deepspeed.py` replace."""
_NUMBER = Allowed(kind=float, least=0)
_SIZE = Allowed(kind=float, least=1)
_SECTION = Allowed(kind=dict)
_BATCH = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")

TOP: Mapping[str, Allowed] = {
    **dict.fromkeys(_BATCH, Allowed(kind=int, least=1)),
    **dict.fromkeys(("gradient_clipping", "gradient_predivide_factor"), _NUMBER),
    **dict.fromkeys(("steps_per_print", "communication_data_type", "seq_parallel_size"), TEXT),
    **dict.fromkeys(("wall_clock_breakdown", "prescale_gradients", "sparse_gradients"), FLAG),
    **dict.fromkeys(("memory_breakdown", "dump_state", "disable_allgather"), FLAG),
    **dict.fromkeys(("zero_allow_untested_optimizer", "zero_force_ds_cpu_optimizer"), FLAG),
    **dict.fromkeys(("graph_harvesting", "managed_gradient_accumulation"), FLAG),
    **dict.fromkeys(("optimizer", "scheduler", "fp16", "bf16", "amp", "torch_autocast"), _SECTION),
    **dict.fromkeys(("zero_optimization", "activation_checkpointing", "aio", "pipeline"), _SECTION),
    **dict.fromkeys(("flops_profiler", "comms_logger", "checkpoint", "data_types"), _SECTION),
    **dict.fromkeys(("tensorboard", "wandb", "comet", "csv_monitor", "monitor_config"), _SECTION),
    **dict.fromkeys(("autotuning", "elasticity", "compression_training", "nebula"), _SECTION),
    **dict.fromkeys(("data_efficiency", "curriculum_learning", "sparse_attention"), _SECTION),
    **dict.fromkeys(("compile", "tensor_parallel", "hybrid_engine", "eigenvalue"), _SECTION),
}
ZERO: Mapping[str, Allowed] = {
    "stage": Allowed(kind=int, least=0, most=3),
    **dict.fromkeys(("contiguous_gradients", "reduce_scatter", "allgather_partitions"), FLAG),
    **dict.fromkeys(("overlap_comm", "elastic_checkpoint", "load_from_fp32_weights"), FLAG),
    **dict.fromkeys(("round_robin_gradients", "ignore_unused_parameters", "legacy_stage1"), FLAG),
    **dict.fromkeys(("zero_quantized_weights", "zero_quantized_gradients"), FLAG),
    **dict.fromkeys(("use_multi_rank_bucket_allreduce", "memory_efficient_linear"), FLAG),
    **dict.fromkeys(("zero_quantized_nontrainable_weights", "override_module_apply"), FLAG),
    **dict.fromkeys(("pipeline_loading_checkpoint", "compute_grad_norm"), FLAG),
    **dict.fromkeys(("parameter_alignment", "log_trace_cache_warnings"), FLAG),
    "stage3_gather_16bit_weights_on_model_save": FLAG,
    "stage3_gather_fp16_weights_on_model_save": FLAG,
    "stage3_use_all_reduce_for_fetch_params": FLAG,
    **dict.fromkeys(("reduce_bucket_size", "allgather_bucket_size", "sub_group_size"), _SIZE),
    **dict.fromkeys(("stage3_prefetch_bucket_size", "stage3_max_reuse_distance"), _NUMBER),
    **dict.fromkeys(("stage3_param_persistence_threshold", "stage3_max_live_parameters"), _NUMBER),
    **dict.fromkeys(("stage3_model_persistence_threshold",), _NUMBER),
    **dict.fromkeys(("zero_hpz_partition_size", "mics_shard_size"), COUNT),
    "stage3_module_granularity_threshold": COUNT,
    "mics_hierarchical_params_gather": FLAG,
    **dict.fromkeys(("offload_optimizer", "offload_param", "zenflow", "leaf_module"), _SECTION),
}
OFFLOAD: Mapping[str, Allowed] = {
    "device": Allowed(kind=str, choices=("none", "cpu", "nvme")),
    "nvme_path": TEXT,
    **dict.fromkeys(("buffer_count", "buffer_size", "max_in_cpu"), _NUMBER),
    **dict.fromkeys(("pin_memory", "pipeline_read", "pipeline_write", "fast_init"), FLAG),
    "ratio": Allowed(kind=float, least=0, most=1),
}
OF_THE_TRAINER: Mapping[str, str] = {
    "train_batch_size": "set batch_size and gradient_accumulation_steps",
    "train_micro_batch_size_per_gpu": "set batch_size",
    "gradient_accumulation_steps": "set the hyperparameter gradient_accumulation_steps",
    "gradient_clipping": "remove it: the gradients are clipped to the norm 1",
    "optimizer": "remove it, and set learning_rate and weight_decay for AdamW, which is always used",
    "scheduler": "remove it; set lr_scheduler and warmup_steps",
    "fp16": "remove it; GPUs with bf16 train in bf16",
    "amp": "remove it; GPUs with bf16 train in bf16",
    "pipeline": "remove it: the models have no pipeline stages",
    "tensor_parallel": "remove it; ZeRO shards the weights with stage 3",
}
"""Keys that train_sft.py sets itself, and the next step for each."""
OF_THE_RUN = (*_BATCH, "gradient_clipping")
"""Those of them that may be `"auto"`."""
STAGES = (1, 2, 3)
OLD_NAMES: Mapping[str, str] = {
    "cpu_offload": 'write "offload_optimizer": {"device": "cpu"}',
    "cpu_offload_params": 'write "offload_param": {"device": "cpu"}',
    "cpu_offload_use_pin_memory": 'write "pin_memory" inside of offload_optimizer',
}


def deepspeed_findings(value: object) -> Iterator[Finding]:
    """Yield the faults of `value`, the hyperparameter `ds_config`.

    The value must be a mapping, the text of a JSON object, or the name of a file. Text is the name of a file if
    its first character, apart from white space, is not `{`. The file is not checked, because only the script
    can read it.
    """
    if isinstance(value, str) and not value.lstrip().startswith("{"):
        return
    config = _decoded(value)
    if not isinstance(config, Mapping):
        yield _mistyped(WHERE, value, "a JSON object")
        return
    yield from _section(WHERE, config, TOP)
    yield from _zero(config.get("zero_optimization", {}))
    yield from _batch(config)
    if _is_on(config, "fp16") and _is_on(config, "bf16"):
        yield Finding(
            where=f"{WHERE}.fp16",
            what="is enabled together with bf16, but DeepSpeed can use only one of them",
            next_step="remove one of them",
        )


def trainer_findings(value: object) -> Iterator[Finding]:
    """Yield the faults of a `ds_config` for train_sft.py.

    The value must be a mapping or its JSON text, and its ZeRO stage must be 1, 2 or 3.
    """
    config = _decoded(value)
    if not isinstance(config, Mapping):
        yield _mistyped(WHERE, value, "a JSON object")
        return
    yield from deepspeed_findings(config)
    for name, next_step in OF_THE_TRAINER.items():
        is_left = config.get(name) == AUTO and name in OF_THE_RUN
        if name in config and not is_left:
            yield Finding(
                where=f"{WHERE}.{name}",
                what="is set by the trainer",
                got=repr(config[name])[:120],
                next_step=next_step,
            )
    if stage_of(config) == 0:
        yield Finding(
            where=f"{WHERE}.zero_optimization.stage",
            what="is 0 or missing, so nothing would be sharded",
            allowed=", ".join(map(str, STAGES)),
            next_step="set the stage, or set strategy to ddp",
        )


def stage_of(value: object) -> int:
    """Return the ZeRO stage in a DeepSpeed configuration (mapping or JSON text); 0 if unset."""
    config = _decoded(value)
    section = config.get("zero_optimization") if isinstance(config, Mapping) else None
    stage = section.get("stage") if isinstance(section, Mapping) else None
    return stage if isinstance(stage, int) else 0


def _zero(zero: object) -> Iterator[Finding]:
    where = f"{WHERE}.zero_optimization"
    if not isinstance(zero, Mapping):
        return
    for name in OLD_NAMES.keys() & zero.keys():
        yield Finding(
            where=f"{where}.{name}", what="is a deprecated name", next_step=OLD_NAMES[name]
        )
    yield from _section(where, {k: v for k, v in zero.items() if k not in OLD_NAMES}, ZERO)
    stage = zero.get("stage", 0)
    for name, least in (("offload_optimizer", 1), ("offload_param", 3)):
        offload = zero.get(name)
        if not isinstance(offload, Mapping):
            continue
        yield from _section(f"{where}.{name}", offload, OFFLOAD)
        if isinstance(stage, int) and stage < least and offload.get("device") != "none":
            yield Finding(
                where=f"{where}.{name}",
                what=f"needs ZeRO stage {least}" + (" or more" if least < 3 else ""),
                got=f"stage {stage}",
                next_step=f"set stage to {least}, or remove {name}",
            )
        if offload.get("device") == "nvme" and not offload.get("nvme_path"):
            yield Finding(
                where=f"{where}.{name}.nvme_path",
                what="is missing",
                next_step="set it to a folder on the instance's NVMe volume, such as /tmp on p4d",
            )


def _batch(config: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield an error if the batch size is not a multiple of micro batch size x accumulation steps.

    No number of ranks would give such a batch size.
    """
    whole, micro, steps = (config.get(name) for name in _BATCH)
    if not all(isinstance(each, int) and each > 0 for each in (whole, micro or 1, steps or 1)):
        return
    each = (micro or 1) * (steps or 1)
    if isinstance(whole, int) and whole % each:
        yield Finding(
            where=f"{WHERE}.train_batch_size",
            what="is not a multiple of train_micro_batch_size_per_gpu x gradient_accumulation_steps",
            got=f"{whole}; the product is {each}",
            next_step=f'remove one of the three fields, or set one to "{AUTO}"',
        )


def _section(
    where: str, section: Mapping[str, Any], known: Mapping[str, Allowed]
) -> Iterator[Finding]:
    for name, value in section.items():
        if name not in known:
            yield unknown_key(where, name, list(known))
        elif value != AUTO and value is not None and not _takes(known[name], value):
            yield _mistyped(f"{where}.{name}", value, _words(known[name]))


def _takes(allowed: Allowed, value: object) -> bool:
    if allowed.kind is dict:
        return isinstance(value, Mapping)
    if allowed is TEXT:
        return isinstance(value, (str, int, float))
    return allowed.takes(value)


def _words(allowed: Allowed) -> str:
    return "a JSON object" if allowed.kind is dict else str(allowed)


def _is_on(config: Mapping[str, Any], name: str) -> bool:
    section = config.get(name)
    return isinstance(section, Mapping) and bool(section.get("enabled"))


def _decoded(value: object) -> object:
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except ValueError:
        return value


def _mistyped(where: str, got: object, allowed: str) -> Finding:
    return Finding(
        where=where, what="has the wrong type or value", got=repr(got)[:120], allowed=allowed
    )
