"""Params of an end-to-end run: one JSON schema for the form, the REST API and the schedule.

The defaults come from `RunConf`, which also checks conditions that a schema cannot express. A test keeps the fields of
both equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.specs.arithmetic import AUTO
from trainyard.specs.capacity_rung import INSTANCE_TYPE
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_rules import CHOICES
from trainyard.specs.run_conf_tuning import OBJECTIVES
from trainyard.specs.tuning_job import SearchStrategy
from trainyard.specs.tuning_job_ranges import Scaling
from trainyard.specs.tuning_job_rules import MAX_JOBS, MAX_PARALLEL_JOBS, MIN_RUNTIME_S
from trainyard_airflow.tasks.shared.form_fields import (
    BUDGET,
    CAP,
    COUNT_OR_OFF,
    EVALUATION,
    LIMITS,
    PLACE,
    RANKS,
    RULES,
    SPOT,
    WAITING,
    WATCHING,
)
from trainyard_airflow.tasks.shared.form_schema import (
    FRACTION,
    INTEGER,
    INTEGER_OR_NONE,
    NUMBER,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
    Sections,
    conf_params,
    exactly,
    named,
)

if TYPE_CHECKING:
    from airflow.sdk import Param

_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
_ON_STOP_HELP = (
    'Another training in place of a verdict: {"action": "retry_with_lower_learning_rate", "factor": 0.3, '
    '"rollback_steps": 1, "most": 1}, or {"action": "skip_batches"} without the bad batches, or {"action": "ask", '
    '"timeout_s": 86400, "default": "end"} as a human says. Empty: nothing.'
)
_RANGES_HELP = (
    "Hyperparameter to min_value, max_value and scaling_type (Auto, Linear, Logarithmic, ReverseLogarithmic), or to "
    "values. Empty: learning rate, weight decay and warm-up around the settings above, for the mlp dropout."
)
_RANGES = {
    "type": "object",
    "additionalProperties": {
        "type": ["object", "array"],
        "properties": {
            "min_value": {"type": ["null", "number"]},
            "max_value": {"type": ["null", "number"]},
            "scaling_type": {"type": "string", "enum": list(Scaling)},
            "values": {"type": "array"},
        },
    },
}

SECTIONS: Sections = {
    "Basics": {
        "source": (
            "Source",
            "`python-stdlib` (the standard library's source), a path all workers read, or `s3://`.",
            _TEXT,
        ),
        "model": (
            "Model",
            "`gpt`: a decoder on tokens. `mlp`: a network on a table.",
            {"type": "string", "enum": list(CHOICES["model"])},
        ),
        "max_steps": ("Steps", "Optimizer steps.", INTEGER),
        "strategy": (
            "Strategy",
            "ddp: whole copies. fsdp: state and layers spread over ranks. auto: the planner's, with what else is open.",
            {"type": "string", "enum": [*CHOICES["strategy"], AUTO]},
        ),
        "instance_type": (
            "Instance type",
            "Such as ml.m5.large, ml.g5.2xlarge, ml.p4d.24xlarge; or auto: the planner's, of all with GPUs.",
            {"type": "string", "pattern": exactly(f"{INSTANCE_TYPE}|{AUTO}")},
        ),
        "instance_count": ("Instances", "0: the planner's.", COUNT_OR_OFF),
        **SPOT,
        **BUDGET,
    },
    "Data": {
        "data_format": (
            "Format",
            "`auto` goes by the files' names.",
            {"type": "string", "enum": list(CHOICES["data_format"])},
        ),
        "text_column": (
            "Text column",
            "For jsonl, csv, parquet and arrow that hold text to tokenise; lists of token ids in the last two.",
            TEXT_OR_NONE,
        ),
        "target_column": (
            "Target column",
            "For tables: what the mlp learns to predict.",
            TEXT_OR_NONE,
        ),
        "ignore_columns": ("Columns left out", "Of a table.", _NAMES),
        "category_columns": (
            "Category columns",
            "Of a csv or jsonl table: read as categories though they look like numbers.",
            _NAMES,
        ),
        "tokenizer": (
            "Tokenizer",
            "`bytes`, or a `tokenizers` file: a path or an `s3://` address.",
            _TEXT,
        ),
        "vocab_size": (
            "Vocabulary",
            "Of a source of token ids without a tokenizer file: how many ids there are. 0: any other source.",
            INTEGER,
        ),
        "eos_token_id": (
            "End token",
            "The id that ends a document there. Empty: rows are pieces of 4,096 ids.",
            {**INTEGER_OR_NONE, "minimum": 0},
        ),
        "num_shards": ("Shards", "Of the train split; 0 fits them to the ranks.", INTEGER),
        "validation_fraction": ("Validation share", "Of the rows, by hash of the row.", FRACTION),
        "test_fraction": ("Test share", "Of the rows, by hash of the row.", FRACTION),
        "max_bad_row_fraction": (
            "Bad rows allowed",
            "The share of unreadable rows above which sharding fails.",
            {"type": "number", "minimum": 0, "maximum": 1},
        ),
        "checksums": (
            "Checksums",
            "Of sources and shards, which the trainer verifies. Off is faster, and checks sizes alone.",
            {"type": "boolean"},
        ),
        "max_source_bytes": ("Source bytes", "Read at most so many; 0 reads all.", INTEGER),
        "shard_instance_count": (
            "Sharding instances",
            "0 shards in the Airflow worker; more shard an `s3://` source by a processing job.",
            INTEGER,
        ),
        "shard_instance_type": (
            "Sharding instance type",
            "Of that processing job.",
            named("shard_instance_type"),
        ),
    },
    "Model": {
        "num_layers": ("Layers", "Transformer blocks, or hidden layers of the mlp.", INTEGER),
        "num_heads": ("Attention heads", "Must divide the hidden size.", INTEGER),
        "hidden_size": ("Hidden size", "A multiple of twice the attention heads.", INTEGER),
        "sequence_length": ("Sequence length", "Tokens of one sample.", INTEGER),
    },
    "Training": {
        "global_batch_size": (
            "Global batch",
            "Samples of one optimizer step, over all ranks; a multiple of ranks x micro batch.",
            INTEGER,
        ),
        "micro_batch_size": ("Micro batch", "Samples of one forward pass on one rank.", INTEGER),
        "learning_rate": (
            "Learning rate",
            "Of the optimizer, at the end of the warm-up.",
            NUMBER,
        ),
        "warmup_steps": (
            "Warm-up steps",
            "Empty: a tenth of the steps.",
            INTEGER_OR_NONE,
        ),
        "precision": (
            "Precision",
            "Of the calculations. `auto`: bf16, compiled, on GPUs that have it in hardware; else fp32.",
            {"type": "string", "enum": list(CHOICES["precision"])},
        ),
        "seed": (
            "Seed",
            "Of weights, sample order and dropout.",
            INTEGER,
        ),
        "eval_interval": ("Evaluate every", "Steps; 0 only at the end.", INTEGER),
        "checkpoint_interval": (
            "Checkpoint every",
            "Steps; 0 chooses by what a checkpoint costs and how often spot is interrupted; -1 only at the end.",
            INTEGER,
        ),
        "mean_time_to_interruption_s": (
            "Time between interruptions",
            "Seconds, on average, that spot instances of this type are kept: what the chosen interval goes by.",
            NUMBER,
        ),
        "early_stopping_patience": (
            "Patience",
            "Evaluations without a better validation loss before training stops; 0 never.",
            INTEGER,
        ),
        "hyperparameters": (
            "More hyperparameters",
            "Go to the training script over those the form makes.",
            {"type": "object"},
        ),
        **RULES,
    },
    "Tuning": {
        "tune": (
            "Search hyperparameters",
            "Before the training, which then takes the winner's.",
            {"type": "boolean"},
        ),
        "tuning_strategy": (
            "Search strategy",
            "Bayesian learns from the trials before; Grid takes values only.",
            {"type": "string", "enum": list(SearchStrategy)},
        ),
        "tuning_max_jobs": (
            "Trials",
            "Training jobs of the search, at most.",
            {"type": "integer", "minimum": 1, "maximum": MAX_JOBS},
        ),
        "tuning_max_parallel_jobs": (
            "Trials at a time",
            "Fewer learn more from each other.",
            {"type": "integer", "minimum": 1, "maximum": MAX_PARALLEL_JOBS},
        ),
        "tuning_ranges": ("Ranges", _RANGES_HELP, _RANGES),
        "tuning_objective": (
            "Objective",
            "Losses are made small, speeds large.",
            {"type": "string", "enum": list(OBJECTIVES)},
        ),
        "tuning_early_stopping": (
            "Stop poor trials early",
            "Those that are worse at an evaluation than trials before them were; they do not tell what mattered.",
            {"type": "boolean"},
        ),
        "tuning_max_steps": (
            "Steps of a trial",
            "0: a quarter of the training's, but twice the warm-up.",
            COUNT_OR_OFF,
        ),
        "tuning_instance_count": (
            "Instances of a trial",
            "0: as many as the training's; else a divisor of them.",
            COUNT_OR_OFF,
        ),
        "tuning_max_run_s": ("Longest trial", "Seconds; 0: as the training.", COUNT_OR_OFF),
        "tuning_max_time_s": (
            "Longest search",
            "Seconds from the first trial to the last, after which the best so far wins; empty: no bound.",
            {**INTEGER_OR_NONE, "minimum": MIN_RUNTIME_S},
        ),
        "tuning_budget_share": (
            "Share of the budget",
            "The most of the run's budget that the search may take.",
            FRACTION,
        ),
    },
    "Instances": {
        **RANKS,
        "evaluation_place": (
            "Evaluation by",
            "A processing job, or the training at its end; auto: the job if a type of processing jobs holds the model.",
            {"type": "string", "enum": list(CHOICES["evaluation_place"])},
        ),
        "evaluation_max_samples": (
            "Evaluated samples",
            "Of the test split, spread evenly; empty: all, or what half of the longest evaluation is enough for.",
            INTEGER_OR_NONE,
        ),
        **EVALUATION,
        **LIMITS,
    },
    "Capacity": {
        **WAITING,
        **CAP,
        "deadline_h": (
            "Deadline",
            "Hours that the planner lets the training take, where it is asked; empty: the cheapest.",
            NUMBER_OR_NONE,
        ),
    },
    "Watching": {
        **WATCHING,
        "on_rule_stop": ("After a stop", _ON_STOP_HELP, {"type": "object"}),
    },
    "Place and registry": PLACE,
}


def run_params(**defaults: Any) -> dict[str, Param]:
    """Return the params; `defaults` override those of `RunConf`.

    Raises:
        KeyError: there is no param of a default's name.
    """
    return conf_params(SECTIONS, RunConf, **defaults)
