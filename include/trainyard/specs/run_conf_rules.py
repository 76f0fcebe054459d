"""Rules for a run's conf, in addition to types and names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding, not_an_s3_uri, unknown_key
from trainyard.specs.base_run_conf_rules import base_findings, choice_findings
from trainyard.specs.data_mixture import mixture_findings
from trainyard.specs.run_conf_ladder import even_rung_findings
from trainyard.specs.run_conf_tuning_rules import tuning_findings

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.run_conf import RunConf

CHOICES = {
    "data_format": (
        "auto",
        "text",
        "jsonl",
        "csv",
        "parquet",
        "arrow",
        "webdataset",
        "mds",
        "tfrecord",
        "recordio",
        "tokens",
    ),
    "model": ("gpt", "mlp"),
    "strategy": ("ddp", "fsdp"),
    "precision": ("auto", "fp32", "bf16", "fp16"),
    "evaluation_place": ("auto", "processing", "training", "none"),
}
# Hyperparameters of training_scripts/ that no field of the conf makes: only these may be added.
FURTHER_HYPERPARAMETERS = (
    "num_kv_heads",
    "feed_forward_size",
    "norm_eps",
    "rope_theta",
    "rope_scaling",
    "tied_embeddings",
    "dropout",
    "epochs",
    "reference_batch_size",
    "learning_rate_scaling",
    "weight_decay",
    "min_learning_rate_ratio",
    "clip_norm",
    "compile",
    "num_workers",
    "num_threads",
    "verify_shards",
    "distributed_timeout_s",
    "eval_batches",
    "keep_checkpoints",
    "problem",
    "log_interval",
    "profile_steps",
    "trace_steps",
    "statistics",
    "tensorboard_dir",
    "on_non_finite",
    "most_skipped_steps",
    "skip_steps",
)
# And those of train_fsdp.py, the script of the strategy fsdp.
OF_SHARDS = (
    "hybrid_shard_degree",
    "tensor_parallel_degree",
    "context_parallel_degree",
    "pipeline_parallel_degree",
    "pipeline_schedule",
    "activation_checkpointing",
    "activation_offloading",
    "cpu_offload",
)
HYBRID_DEGREE, *SPLITTING_DEGREES = OF_SHARDS[:4]
"""`SPLITTING_DEGREES` are the degrees whose ranks read the same samples."""


def conf_findings(conf: RunConf) -> Iterator[Finding]:
    """Yield every fault of the conf: choices, ranges, names, values that contradict others."""
    yield from base_findings(conf)
    yield from choice_findings(conf, CHOICES)
    yield from mixture_findings(conf, data_formats=CHOICES["data_format"])
    yield from _data(conf)
    yield from _sharding_job(conf)
    yield from _model(conf)
    yield from _batches(conf)
    yield from even_rung_findings(conf)
    yield from _lost_by_spot(conf)
    yield from _hyperparameters(conf)
    yield from tuning_findings(conf)


def _sources(conf: RunConf) -> dict[str, tuple[str, str]]:
    """Return (address, format) of each source, by its path in the conf: `source` or `data_mixture.<name>.source`."""
    if not conf.data_mixture:
        return {"source": (conf.source, conf.data_format)}
    return {
        f"data_mixture.{name}.source": (each.source, each.data_format or conf.data_format)
        for name, each in conf.data_mixture.items()
    }


def _data(conf: RunConf) -> Iterator[Finding]:
    for where, (source, _) in _sources(conf).items():
        if not source.strip():
            yield Finding(
                where=where, what="is empty", allowed="python-stdlib, a path or an s3:// URI"
            )
    if not 0 < conf.sample_fraction <= 1:
        yield Finding(
            where="sample_fraction",
            what="is not a share of the rows",
            got=f"{conf.sample_fraction:g}",
            allowed="more than 0, at most 1 (all rows)",
        )
    if not 0 <= conf.max_bad_row_fraction <= 1:
        yield _no_fraction(
            "max_bad_row_fraction", conf.max_bad_row_fraction, allowed="at least 0 and at most 1"
        )
    if conf.tokenizer != "bytes" and not conf.tokenizer.endswith(".json"):
        yield Finding(
            where="tokenizer",
            what="is not a tokenizer",
            got=repr(conf.tokenizer),
            allowed='"bytes", or the path of a tokenizer file (*.json), local or on S3',
        )
    yield from _vocabulary(conf)
    fractions = {n: getattr(conf, n) for n in ("validation_fraction", "test_fraction")}
    wrong = [name for name, value in fractions.items() if not 0 < value < 1]
    yield from (
        _no_fraction(name, fractions[name], allowed="above 0 and below 1") for name in wrong
    )
    if not wrong and sum(fractions.values()) >= 1:
        yield Finding(
            where="validation_fraction",
            what="leaves, together with test_fraction, no rows to train on",
            got=f"a sum of {sum(fractions.values()):g}",
            allowed="a sum of less than 1",
        )


def _vocabulary(conf: RunConf) -> Iterator[Finding]:
    """Yield the faults of `vocab_size` and `eos_token_id`, the settings for a source with token ids."""
    formats = {name: data_format for name, (_, data_format) in _sources(conf).items()}
    has_tokens = "tokens" in formats.values()
    if has_tokens and conf.tokenizer == "bytes" and not conf.vocab_size:
        yield Finding(
            where="vocab_size",
            what='is required for data_format "tokens"',
            next_step="set it, or set tokenizer to the tokenizer that created the token ids",
        )
    if conf.vocab_size and conf.tokenizer != "bytes":
        yield Finding(
            where="vocab_size",
            what="is set together with a tokenizer, which defines its own vocabulary size",
            got=f"{conf.vocab_size} with tokenizer {conf.tokenizer!r}",
            next_step="remove one of the two",
        )
    for where, data_format in formats.items():
        if conf.data_mixture and conf.vocab_size and data_format == "text":
            yield Finding(
                where=where,
                what="is text, but vocab_size is for token ids, so the mixture would have two vocabularies",
                got=f'data_format "text" with vocab_size {conf.vocab_size}',
                next_step="remove vocab_size, and set tokenizer to the tokenizer that created the token ids",
            )
    if conf.eos_token_id is not None and not 0 <= conf.eos_token_id < conf.vocab_size:
        yield Finding(
            where="eos_token_id",
            what="is not an id of the vocabulary",
            got=str(conf.eos_token_id),
            allowed="0 to vocab_size - 1",
        )


def _sharding_job(conf: RunConf) -> Iterator[Finding]:
    """Yield an error for each setting that a sharding job does not support."""
    if conf.shard_instance_count <= 0:
        return
    for where, (source, _) in _sources(conf).items():
        if not source.startswith("s3://"):
            yield Finding(
                where="shard_instance_count",
                what="needs an s3:// source, because the instances of a sharding job read from S3 only",
                got=f"{conf.shard_instance_count} with {where} {source!r}",
                next_step="copy the data to S3, or set shard_instance_count to 0 to shard in the Airflow worker",
            )
    if conf.num_shards % conf.shard_instance_count:
        yield Finding(
            where="num_shards",
            what="must be a multiple of shard_instance_count (each instance writes an equal number)",
            got=f"{conf.num_shards} with {conf.shard_instance_count} instances",
            next_step=f"set it to {_nearest_multiple(conf.num_shards, conf.shard_instance_count)}, "
            "or to 0 to derive it from the data",
        )


def _model(conf: RunConf) -> Iterator[Finding]:
    is_positive = conf.num_heads > 0 and conf.hidden_size > 0
    if conf.model == "gpt" and is_positive and conf.hidden_size % (2 * conf.num_heads):
        yield Finding(
            where="hidden_size",
            what="must be a multiple of 2 x num_heads (each head has the same even width)",
            got=f"{conf.hidden_size} with num_heads {conf.num_heads}",
            next_step=f"nearest: {_nearest_multiple(conf.hidden_size, 2 * conf.num_heads)}",
        )
    if conf.model == "mlp" and not conf.target_column:
        yield Finding(
            where="target_column",
            what="is required for the mlp model",
            next_step="set it to the column to predict, or set model to gpt",
        )
    if conf.model == "mlp" and conf.data_format in {"text", "tokens"}:
        yield Finding(
            where="data_format",
            what="is a format without columns, but the mlp model needs columns",
            got=conf.data_format,
            allowed="auto, csv, parquet, arrow, webdataset, mds, tfrecord, recordio or jsonl",
        )
    if conf.init_from is not None and not conf.init_from.startswith("s3://"):
        yield not_an_s3_uri("init_from", conf.init_from)
    if conf.init_from is not None and conf.model != "gpt":
        yield Finding(
            where="init_from",
            what="is allowed for the gpt model only",
            got=f"{conf.init_from} with model {conf.model}",
            next_step="set model to gpt, or leave init_from empty",
        )
    if conf.model == "gpt" and conf.target_column:
        yield Finding(
            where="target_column",
            what="is allowed for the mlp model only",
            got=repr(conf.target_column),
            next_step="set model to mlp, or use text_column for the column of text",
        )


def _batches(conf: RunConf) -> Iterator[Finding]:
    if any(not str(conf.hyperparameters.get(name, 1)).isdecimal() for name in SPLITTING_DEGREES):
        return  # reported for the hyperparameters
    at_once = conf.micro_batch_size * conf.num_readers
    if at_once > 0 and conf.global_batch_size > 0 and conf.global_batch_size % at_once:
        yield Finding(
            where="global_batch_size",
            what="must be a multiple of micro_batch_size x data-parallel ranks",
            got=f"{conf.global_batch_size} with micro_batch_size {conf.micro_batch_size} and {conf.num_readers} "
            f"data-parallel rank{'' if conf.num_readers == 1 else 's'}",
            next_step=f"nearest: {_nearest_multiple(conf.global_batch_size, at_once)}",
        )
    if conf.num_warmup_steps >= conf.max_steps > 0:
        yield Finding(
            where="warmup_steps",
            what="leaves no step at the full learning rate",
            got=f"{conf.num_warmup_steps} with max_steps {conf.max_steps}",
            allowed="less than max_steps",
            next_step="leave it empty for a tenth of max_steps",
        )
    if conf.early_stopping_patience > 0 and conf.eval_interval == 0:
        yield Finding(
            where="early_stopping_patience",
            what="needs evaluations during the training",
            got="eval_interval 0",
            next_step="set eval_interval to 1 or more",
        )


def _lost_by_spot(conf: RunConf) -> Iterator[Finding]:
    is_spot = conf.use_spot_instances or any(r.use_spot_instances for r in conf.capacity_ladder)
    if is_spot and conf.checkpoint_interval < 0:
        yield Finding(
            where="checkpoint_interval",
            what="is -1 (no periodic checkpoints), so a spot interruption may lose the whole training",
            next_step="set it to the largest number of steps that may be lost, or to 0: the script then chooses it",
        )


def _hyperparameters(conf: RunConf) -> Iterator[Finding]:
    own = set(type(conf).__dataclass_fields__)
    known = (*FURTHER_HYPERPARAMETERS, *(OF_SHARDS if conf.strategy == "fsdp" else ()))
    for name in conf.hyperparameters:
        if name in own:
            yield Finding(
                where=f"hyperparameters.{name}",
                what="has its own field in the conf",
                next_step=f"set the field {name!r} instead",
            )
        elif name not in known:
            yield unknown_key("hyperparameters", name, known)
    for name in SPLITTING_DEGREES:
        if not str(degree := conf.hyperparameters.get(name, 1)).isdecimal() or int(degree) < 1:
            yield Finding(
                where=f"hyperparameters.{name}",
                what="is not a number of ranks",
                got=str(degree),
                allowed="a whole number, 1 or more",
            )
    num_workers = str(conf.hyperparameters.get("num_workers", 0))
    if not num_workers.isdecimal():
        yield Finding(
            where="hyperparameters.num_workers",
            what="is not a number of processes",
            got=num_workers,
            allowed="a whole number, 0 or more",
        )


def _nearest_multiple(value: int, of: int) -> str:
    below = value // of * of
    return f"{below} or {below + of}" if below else str(of)


def _no_fraction(where: str, value: float, *, allowed: str) -> Finding:
    return Finding(
        where=where, what="is not a share of the rows", got=f"{value:g}", allowed=allowed
    )
