"""`RunConf`: the params of one `train_end_to_end` run, checked beyond their JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
from trainyard.specs.arithmetic import AUTO, settled_compile, settled_precision
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.run_conf_rules import HYBRID_DEGREE, SPLITTING_DEGREES, conf_findings

if TYPE_CHECKING:
    from trainyard.errors import Finding


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConf(BaseRunConf):
    """Settings of one run of the shipped models, beside those of every run.

    Attributes:
        source: `python-stdlib`, a local path or an `s3://` URI.
        num_shards: 0 = chosen to fit the ranks. max_source_bytes: 0 = all.
        shard_instance_count: instances of the processing job that shards; 0 = in the worker.
        text_column: of a table: the text that is tokenised, or lists of token ids.
        tokenizer: `bytes`, or a tokenizers file. vocab_size, eos_token_id: of a source of token ids whose tokenizer is
            not at hand: how many ids there are, and the one that ends a document; 0 and None for any other source.
        ignore_columns, category_columns: of a table: left out, and read as categories.
        evaluation_place: `processing` (a job of its own), `training` (the training's last step), or `auto`: the first
            if a type of processing jobs holds the model.
        evaluation_instance_type: None = that of training if processing jobs may have it and it holds the model, else
            the cheapest that does. evaluation_max_samples: None = derived (trainyard.planning.evaluation_plan).
        checkpoint_interval: steps; 0 = chosen by the script from the measured cost of a checkpoint and
            mean_time_to_interruption_s; -1 = only at the end and when told to stop.
        deadline_h: hours that the planner lets the training take, if it is asked; None = the cheapest plan.
        warmup_steps: None = a tenth of max_steps, as `warmup_of` has it.
        precision: "auto" = bf16 if all types of the run have it in hardware, else fp32 (`training_precision`). The
            hyperparameter `compile` follows likewise (`is_compiled`).
        strategy: `ddp` (train_ddp.py: whole copies) or `fsdp` (train_fsdp.py: state and layers spread over ranks, by
            its own hyperparameters). "auto" is resolved by trainyard.planning.auto_plan, before a conf is read.
        checksums: whether sources and shards are digested, and the trainer verifies them; else sizes alone.
        on_rule_stop: what follows a stop by a rule, as trainyard.rules.rule_retry reads it; empty = nothing.
        tune: whether a search chooses hyperparameters before the training, which takes the winner's. What it varies and
            how is in the fields that begin with `tuning_`; `search_of` fills in their defaults.
        tuning_ranges: hyperparameter to range (`read_ranges`); empty = `default_ranges`.
        tuning_max_steps: of a trial; 0 = a quarter of the training. tuning_instance_count: of a trial; 0 = as training.
        tuning_max_run_s: of a trial; 0 = as training. tuning_max_time_s: of the whole search; None = no bound.
        tuning_budget_share: the most that the search may take of budget_usd and max_cost_usd.
    """

    source: str = "python-stdlib"
    data_format: str = "auto"
    text_column: str | None = None
    target_column: str | None = None
    ignore_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    tokenizer: str = "bytes"
    vocab_size: int = 0
    eos_token_id: int | None = None
    num_shards: int = 0
    validation_fraction: float = 0.05
    test_fraction: float = 0.05
    max_bad_row_fraction: float = 0.01
    checksums: bool = True
    max_source_bytes: int = 0
    shard_instance_count: int = 0
    shard_instance_type: str = "ml.m5.xlarge"
    model: str = "gpt"
    num_layers: int = 4
    num_heads: int = 4
    hidden_size: int = 128
    sequence_length: int = 256
    strategy: str = "ddp"
    evaluation_place: str = "auto"
    evaluation_max_samples: int | None = None
    mean_time_to_interruption_s: float = 3600.0
    global_batch_size: int = 16
    micro_batch_size: int = 8
    max_steps: int = 400
    learning_rate: float = 4e-3
    warmup_steps: int | None = None
    precision: str = AUTO
    seed: int = 0
    eval_interval: int = 50
    checkpoint_interval: int = 0
    early_stopping_patience: int = 0
    on_rule_stop: Mapping[str, Any] = field(default_factory=dict)
    tune: bool = False
    tuning_strategy: str = "Bayesian"
    tuning_max_jobs: int = 12
    tuning_max_parallel_jobs: int = 2
    tuning_ranges: Mapping[str, Any] = field(default_factory=dict)
    tuning_objective: str = "validation:loss"
    tuning_early_stopping: bool = False
    tuning_max_steps: int = 0
    tuning_instance_count: int = 0
    tuning_max_run_s: int = 0
    tuning_max_time_s: int | None = None
    tuning_budget_share: float = 0.5
    deadline_h: float | None = None

    def findings(self) -> Iterator[Finding]:
        """Yield every fault that the conf alone can know."""
        return conf_findings(self)

    @property
    def num_warmup_steps(self) -> int:
        """Steps of warm-up."""
        return warmup_of(self.max_steps) if self.warmup_steps is None else self.warmup_steps

    @property
    def training_precision(self) -> str:
        """Precision of the training: `fp32`, `bf16` or `fp16`."""
        return settled_precision(self.precision, self._instance_types)

    @property
    def is_compiled(self) -> bool:
        """True if the training runs through torch.compile."""
        return settled_compile(self.hyperparameters.get("compile"), self._instance_types)

    @property
    def _instance_types(self) -> tuple[str, ...]:
        return tuple(each.instance_type for each in self.rungs)

    @property
    def num_readers(self) -> int:
        """Groups of ranks that read samples of their own; ranks that split a model read the same."""
        if self.strategy == "ddp":
            return self.world_size
        degrees = (int(self.hyperparameters.get(name, 1)) for name in SPLITTING_DEGREES)
        return max(1, self.world_size // math.prod(degrees))

    @property
    def num_state_shards(self) -> int:
        """Ranks that hold one copy of the model's state together."""
        if self.strategy == "ddp":
            return 1
        tensor, _, pipeline = (int(self.hyperparameters.get(n, 1)) for n in SPLITTING_DEGREES)
        sharing = max(1, self.world_size // (tensor * pipeline))
        return tensor * pipeline * (int(self.hyperparameters.get(HYBRID_DEGREE, 0)) or sharing)

    @property
    def readers_per_rank(self) -> int:
        """Processes of one rank that share its shards: its loader workers, or the rank itself."""
        return int(self.hyperparameters.get("num_workers", 0)) or 1


def readable_conf(params: Mapping[str, Any]) -> RunConf | None:
    """Return the conf without the fields that are wrong, so that the rest can be checked too; None if that is no conf.

    What is wrong with those fields is for `RunConf.from_params` to raise.
    """
    try:
        return RunConf.from_params(params)
    except SpecError as error:
        faulty = {each.where for each in error.findings}
    further = params.get("hyperparameters")
    kept = {n: v for n, v in params.items() if n not in _tops(faulty)}
    if isinstance(further, Mapping) and "hyperparameters" not in faulty:
        kept["hyperparameters"] = {
            n: v for n, v in further.items() if f"hyperparameters.{n}" not in faulty
        }
    try:
        return RunConf.from_params(kept)
    except SpecError:
        return None


def _tops(places: Iterable[str]) -> set[str]:
    """Return the fields that the places lie in."""
    return {re.split(r"[.\[]", each)[0] for each in places}


def warmup_of(max_steps: int) -> int:
    """Return the steps of warm-up of a training that names none: a tenth, as the scripts have it. Of 400 steps 40."""
    return max_steps // 10
