"""`RunConf`: the params of one `train_end_to_end` run, checked beyond their JSON schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping  # read_spec evaluates the annotations
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

from trainyard.errors import SpecError
from trainyard.specs.arithmetic import AUTO, settled_compile, settled_precision
from trainyard.specs.base_run_conf import BaseRunConf
from trainyard.specs.data_mixture import MixedSource  # noqa: TC001  # read_spec evaluates the annotations
from trainyard.specs.reading import FromMapping
from trainyard.specs.run_conf_rules import HYBRID_DEGREE, SPLITTING_DEGREES, conf_findings

if TYPE_CHECKING:
    from trainyard.errors import Finding

_HYPERPARAMETER = "hyperparameter"


def _hyperparameter(default: Any) -> Any:
    """Declare a field that the training receives as a hyperparameter of the same name.

    In a run of `compare_strategies`, the field applies to every training that is compared.
    """
    return field(default=default, metadata={_HYPERPARAMETER: True})


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConf(BaseRunConf, FromMapping):
    """Settings of one run of the shipped models, in addition to those of every run.

    Attributes:
        source: `python-stdlib`, a local path or an `s3://` URI.
        data_mixture: sources by name, with their weights, in place of `source`; empty = `source` alone.
        num_shards: number of shards; 0 = derived from the size of the data and the number of ranks.
        sample_fraction: share of each split's rows that is sharded, selected by a hash; 1 = all.
        max_source_bytes: largest number of bytes to read from the source; 0 = all.
        shard_instance_count: instances of the sharding job; 0 = sharding in the Airflow worker.
        text_column: column of a table with the text to tokenize, or with lists of token ids.
        tokenizer: `bytes`, or a file of the library tokenizers (`tokenizer.json`).
        vocab_size, eos_token_id: number of token ids, and the id that ends a document. Set them only
            if the source has token ids and `tokenizer` is `bytes`. Otherwise leave them at 0 and None.
        ignore_columns, category_columns: columns of a table to leave out, and to read as categories.
        csv_options: keyword arguments of `pandas.read_csv`, for files that are not plain csv
            (trainyard.sharding.csv_options).
        init_from: S3 address of the weights that the training begins with: the prefix of a Llama's config.json
            and safetensors, the model.tar.gz of an earlier run, or the prefix of such a file; None = random
            weights.
        evaluation_place: `processing` (a processing job), `training` (the training's last step), or `auto`:
            `processing` if an instance type for processing jobs has memory for the model, otherwise `training`.
            Preflight sets `none` in a DAG whose author replaced the evaluation or left it out.
        evaluation_instance_type: None = the training's type if processing jobs may use it and the model fits,
            otherwise the cheapest type that fits.
        evaluation_max_samples: None = derived (trainyard.planning.evaluation_plan).
        checkpoint_interval: in steps; 0 = chosen by the script from the measured cost of a checkpoint and
            mean_time_to_interruption_s; -1 = only at the end and before a stop.
        deadline_h: the planner's limit for the training in hours; None = the cheapest plan.
        warmup_steps: None = a tenth of max_steps (`warmup_of`).
        precision: "auto" = bf16 if all types of the run have it in hardware, otherwise fp32
            (`training_precision`). The default of the hyperparameter `compile` follows the same rule
            (`is_compiled`).
        strategy: `ddp` (train_ddp.py: replicas) or `fsdp` (train_fsdp.py: sharded state; hyperparameters such
            as `tensor_parallel_degree` also split the layers). trainyard.planning.auto_plan resolves "auto"
            before a conf is read.
        checksums: whether sources and shards have checksums, which the trainer verifies; if not, only sizes are
            compared.
        on_rule_stop: retries after a stop by a rule, read by trainyard.rules.rule_retry; empty = none.
        tune: whether a search chooses hyperparameters for the training. The fields that begin with `tuning_`
            describe the search; `search_of` fills in their defaults.
        tuning_ranges: ranges by hyperparameter (`read_ranges`); empty = `default_ranges`.
        tuning_max_steps: steps of a trial; 0 = a quarter of the training's.
        tuning_instance_count, tuning_max_run_s: instances and time limit of a trial; 0 = the training's.
        tuning_max_time_s: time limit of the whole search; None = no limit.
        tuning_budget_share: largest share of budget_usd and max_cost_usd for the search.
    """

    source: str = "python-stdlib"
    data_mixture: Mapping[str, MixedSource] = field(default_factory=dict)
    data_format: str = "auto"
    text_column: str | None = None
    target_column: str | None = None
    ignore_columns: tuple[str, ...] = ()
    category_columns: tuple[str, ...] = ()
    csv_options: Mapping[str, Any] = field(default_factory=dict)
    tokenizer: str = "bytes"
    vocab_size: int = 0
    eos_token_id: int | None = None
    num_shards: int = 0
    validation_fraction: float = 0.05
    test_fraction: float = 0.05
    sample_fraction: float = 1.0
    max_bad_row_fraction: float = 0.01
    checksums: bool = True
    max_source_bytes: int = 0
    shard_instance_count: int = 0
    shard_instance_type: str = "ml.m5.xlarge"
    model: str = _hyperparameter("gpt")
    num_layers: int = _hyperparameter(4)
    num_heads: int = _hyperparameter(4)
    hidden_size: int = _hyperparameter(128)
    sequence_length: int = _hyperparameter(256)
    init_from: str | None = None
    strategy: str = "ddp"
    evaluation_place: str = "auto"
    evaluation_max_samples: int | None = None
    mean_time_to_interruption_s: float = _hyperparameter(3600.0)
    global_batch_size: int = _hyperparameter(16)
    micro_batch_size: int = _hyperparameter(8)
    max_steps: int = _hyperparameter(400)
    learning_rate: float = _hyperparameter(4e-3)
    warmup_steps: int | None = None
    precision: str = _hyperparameter(AUTO)
    seed: int = _hyperparameter(0)
    eval_interval: int = _hyperparameter(50)
    checkpoint_interval: int = _hyperparameter(0)
    early_stopping_patience: int = _hyperparameter(0)
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
        """Yield every fault of the conf that can be found without other data."""
        return conf_findings(self)

    @property
    def by_source(self) -> dict[str, RunConf]:
        """The conf for each source of the mixture by name; without a mixture, the conf itself under an empty name."""
        if not self.data_mixture:
            return {"": self}
        return {
            name: replace(
                self,
                data_mixture={},
                source=each.source,
                data_format=each.data_format or self.data_format,
                text_column=each.text_column or self.text_column,
                csv_options=self.csv_options if each.csv_options is None else each.csv_options,
            )
            for name, each in sorted(self.data_mixture.items())
        }

    @property
    def num_warmup_steps(self) -> int:
        """Number of warm-up steps: `warmup_steps`, or a tenth of `max_steps`."""
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
        """Data-parallel degree: the number of parts into which each global batch is split.

        Ranks that split one model between them read the same part.
        """
        return self.num_readers_of(self.world_size)

    def num_readers_of(self, ranks: int) -> int:
        """Return the data-parallel degree of a training on this many ranks."""
        if self.strategy == "ddp":
            return ranks
        degrees = (int(self.hyperparameters.get(name, 1)) for name in SPLITTING_DEGREES)
        return max(1, ranks // math.prod(degrees))

    @property
    def num_state_shards(self) -> int:
        """Number of ranks that share one copy of the model's state."""
        if self.strategy == "ddp":
            return 1
        tensor, _, pipeline = (int(self.hyperparameters.get(n, 1)) for n in SPLITTING_DEGREES)
        sharing = max(1, self.world_size // (tensor * pipeline))
        return tensor * pipeline * (int(self.hyperparameters.get(HYBRID_DEGREE, 0)) or sharing)

    @property
    def readers_per_rank(self) -> int:
        """Number of processes that share a rank's shards: its loader workers, or 1 for the rank itself."""
        return int(self.hyperparameters.get("num_workers", 0)) or 1


HYPERPARAMETERS = tuple(each.name for each in fields(RunConf) if _HYPERPARAMETER in each.metadata)
"""Fields that are hyperparameters of the training."""


def readable_conf(params: Mapping[str, Any]) -> RunConf | None:
    """Return the conf without its wrong fields, to check the rest; None if the rest is not valid.

    `RunConf.from_mapping` reports the wrong fields.
    """
    try:
        return RunConf.from_mapping(params)
    except SpecError as error:
        faulty = {each.where for each in error.findings}
    further = params.get("hyperparameters")
    kept = {n: v for n, v in params.items() if n not in _tops(faulty)}
    if isinstance(further, Mapping) and "hyperparameters" not in faulty:
        kept["hyperparameters"] = {
            n: v for n, v in further.items() if f"hyperparameters.{n}" not in faulty
        }
    try:
        return RunConf.from_mapping(kept)
    except SpecError:
        return None


def _tops(places: Iterable[str]) -> set[str]:
    """Return the top-level fields of dotted paths."""
    return {re.split(r"[.\[]", each)[0] for each in places}


def warmup_of(max_steps: int) -> int:
    """Return the default number of warm-up steps: a tenth of all steps, as in the scripts. Worked: 40 of 400."""
    return max_steps // 10
