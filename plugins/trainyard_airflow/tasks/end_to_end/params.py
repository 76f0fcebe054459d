"""Params of an end-to-end run: one JSON schema for the form, the REST API and the schedule.

The defaults come from `RunConf`, which also checks conditions that a schema cannot express. A test checks
that the params are exactly the fields of `RunConf`.
"""

from __future__ import annotations

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
    REGISTRATION,
    RULES,
    SMOKE_TEST,
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
    Form,
    Sections,
    conf_defaults,
    exactly,
    named,
)

_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
_ON_STOP_HELP = (
    'Train again after a rule stopped the training: {"action": "retry_with_lower_learning_rate", "factor": 0.3, '
    '"rollback_steps": 1, "most": 1}, without the bad batches by {"action": "skip_batches"}, or as a person decides '
    'with {"action": "ask", "timeout_s": 86400, "default": "end"}. Empty: the run ends.'
)
_RANGES_HELP = (
    "For each hyperparameter: min_value, max_value and scaling_type (Auto, Linear, Logarithmic, ReverseLogarithmic), "
    "or values. Empty: learning rate, weight decay and warm-up around the settings above; for the mlp also dropout."
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

_CSV_HELP = (
    "For csv of another encoding, delimiter or mark of missing values: arguments of pandas.read_csv, such as "
    '{"encoding": "cp1252", "sep": ";", "decimal": ","}.'
)
_MIXTURE_HELP = (
    'Several sources with their shares of the samples, in place of Source: {"web": {"source": "s3://my-bucket/web/", '
    '"weight": 0.7}, "code": {"source": "s3://my-bucket/code/", "weight": 0.3, "text_column": "content"}}. Only gpt.'
)
_MIXTURE = {
    "type": "object",
    "additionalProperties": {
        "type": "object",
        "required": ["source", "weight"],
        "additionalProperties": False,
        "properties": {
            "source": _TEXT,
            "weight": {"type": "number", "exclusiveMinimum": 0},
            "data_format": {"enum": [None, *CHOICES["data_format"]]},
            "text_column": TEXT_OR_NONE,
            "csv_options": {"type": ["null", "object"]},
        },
    },
}

_SECTIONS: Sections = {
    "Basics": {
        "source": (
            "Source",
            "`python-stdlib` (the source of Python's standard library), a path that every worker can read, or `s3://...`.",
            _TEXT,
        ),
        "model": (
            "Model",
            "`gpt`: a decoder for text. `mlp`: a network for tables.",
            {"type": "string", "enum": list(CHOICES["model"])},
        ),
        "max_steps": ("Steps", "Number of optimizer steps.", INTEGER),
        "strategy": (
            "Strategy",
            "ddp: each rank holds the whole model. fsdp: model and optimizer are sharded. auto: the planner chooses.",
            {"type": "string", "enum": [*CHOICES["strategy"], AUTO]},
        ),
        "instance_type": (
            "Instance type",
            "For example ml.m5.large, ml.g5.2xlarge or ml.p4d.24xlarge. auto: the planner chooses a GPU type.",
            {"type": "string", "pattern": exactly(f"{INSTANCE_TYPE}|{AUTO}")},
        ),
        "instance_count": (
            "Instances",
            "Number of instances. 0: the planner chooses.",
            COUNT_OR_OFF,
        ),
        **SPOT,
        **BUDGET,
    },
    "Data": {
        "data_mixture": ("Mixture", _MIXTURE_HELP, _MIXTURE),
        "data_format": (
            "Format",
            "`auto`: by the extension of the files.",
            {"type": "string", "enum": list(CHOICES["data_format"])},
        ),
        "text_column": (
            "Text column",
            "Column with the text to tokenize, or with lists of token ids (not in csv).",
            TEXT_OR_NONE,
        ),
        "target_column": (
            "Target column",
            "For tables: the column to predict.",
            TEXT_OR_NONE,
        ),
        "ignore_columns": (
            "Columns left out",
            "For tables: columns to ignore.",
            {"type": "array", "items": {"type": "string"}},  # "" is the column of row names
        ),
        "category_columns": (
            "Category columns",
            "For tables in csv or jsonl: columns of numbers to read as categories.",
            _NAMES,
        ),
        "csv_options": ("CSV options", _CSV_HELP, {"type": "object"}),
        "tokenizer": (
            "Tokenizer",
            "`bytes`, or a `tokenizers` file: a path or an `s3://` URI.",
            _TEXT,
        ),
        "vocab_size": (
            "Vocabulary",
            "Number of token ids, for a source of token ids without a tokenizer file. 0: any other source.",
            INTEGER,
        ),
        "eos_token_id": (
            "End token",
            "For token ids: the id that ends a document. Empty: each row is 4,096 ids.",
            {**INTEGER_OR_NONE, "minimum": 0},
        ),
        "num_shards": (
            "Shards",
            "Shards of the train split. 0: chosen by the number of ranks.",
            INTEGER,
        ),
        "validation_fraction": ("Validation share", "Share of the rows, chosen by hash.", FRACTION),
        "test_fraction": ("Test share", "Share of the rows, chosen by hash.", FRACTION),
        "sample_fraction": (
            "Sample",
            "Share of the rows of each split to shard, for a trial run. 1: all.",
            {"type": "number", "exclusiveMinimum": 0, "maximum": 1},
        ),
        "max_bad_row_fraction": (
            "Bad rows allowed",
            "Sharding fails if a larger share of the rows cannot be read.",
            {"type": "number", "minimum": 0, "maximum": 1},
        ),
        "checksums": (
            "Checksums",
            "Of source and shards; the trainer verifies them. Off: faster, only sizes are checked.",
            {"type": "boolean"},
        ),
        "max_source_bytes": ("Source bytes", "Read at most this many bytes. 0: all.", INTEGER),
        "shard_instance_count": (
            "Sharding instances",
            "Instances of a processing job that shards an `s3://` source. 0: the Airflow worker shards.",
            INTEGER,
        ),
        "shard_instance_type": (
            "Sharding instance type",
            "Instance type of that processing job.",
            named("shard_instance_type"),
        ),
    },
    "Model": {
        "num_layers": ("Layers", "Transformer blocks, or hidden layers of the mlp.", INTEGER),
        "num_heads": ("Attention heads", "A divisor of the hidden size.", INTEGER),
        "hidden_size": ("Hidden size", "A multiple of twice the attention heads.", INTEGER),
        "sequence_length": ("Sequence length", "Tokens in one sample.", INTEGER),
        "init_from": (
            "Initial weights",
            "S3 prefix of a Llama's config.json and safetensors, or of an earlier run's model.tar.gz. Empty: random.",
            TEXT_OR_NONE,
        ),
    },
    "Training": {
        "global_batch_size": (
            "Global batch",
            "Samples per optimizer step over all ranks: a multiple of ranks x micro batch.",
            INTEGER,
        ),
        "micro_batch_size": ("Micro batch", "Samples per forward pass and rank.", INTEGER),
        "learning_rate": (
            "Learning rate",
            "Peak learning rate, reached after the warm-up.",
            NUMBER,
        ),
        "warmup_steps": (
            "Warm-up steps",
            "Empty: a tenth of the steps.",
            INTEGER_OR_NONE,
        ),
        "precision": (
            "Precision",
            "`auto`: compiled bf16 on GPUs that support it, otherwise fp32.",
            {"type": "string", "enum": list(CHOICES["precision"])},
        ),
        "seed": (
            "Seed",
            "Seed of initial weights, sample order and dropout.",
            INTEGER,
        ),
        "eval_interval": ("Evaluate every", "Steps. 0: only at the end.", INTEGER),
        "checkpoint_interval": (
            "Checkpoint every",
            "Steps. 0: chosen by the cost of a checkpoint and the time between interruptions. -1: only at the end.",
            INTEGER,
        ),
        "mean_time_to_interruption_s": (
            "Time between interruptions",
            "Mean seconds between spot interruptions, for the chosen checkpoint interval.",
            NUMBER,
        ),
        "early_stopping_patience": (
            "Patience",
            "Stop after this many evaluations without a better validation loss. 0: never.",
            INTEGER,
        ),
        "hyperparameters": (
            "More hyperparameters",
            "Further hyperparameters of the training script; they override those of this form.",
            {"type": "object"},
        ),
        **RULES,
    },
    "Tuning": {
        "tune": (
            "Search hyperparameters",
            "Tune before the training, which then uses the best trial's values.",
            {"type": "boolean"},
        ),
        "tuning_strategy": (
            "Search strategy",
            "Bayesian uses earlier trials; Grid needs ranges that are lists of values.",
            {"type": "string", "enum": list(SearchStrategy)},
        ),
        "tuning_max_jobs": (
            "Trials",
            "Largest number of training jobs of the search. For Grid: at least the number of combinations.",
            {"type": "integer", "minimum": 1, "maximum": MAX_JOBS},
        ),
        "tuning_max_parallel_jobs": (
            "Trials at a time",
            "With fewer, each trial learns from more earlier trials.",
            {"type": "integer", "minimum": 1, "maximum": MAX_PARALLEL_JOBS},
        ),
        "tuning_ranges": ("Ranges", _RANGES_HELP, _RANGES),
        "tuning_objective": (
            "Objective",
            "Losses are minimized, throughputs maximized: tokens of the gpt, samples of the mlp.",
            {"type": "string", "enum": list(OBJECTIVES)},
        ),
        "tuning_early_stopping": (
            "Stop poor trials early",
            "Stop trials that are worse than earlier ones at the same evaluation. They do not count for importance.",
            {"type": "boolean"},
        ),
        "tuning_max_steps": (
            "Steps of a trial",
            "0: a quarter of the training's, at least twice the warm-up.",
            COUNT_OR_OFF,
        ),
        "tuning_instance_count": (
            "Instances of a trial",
            "0: as for the training. Others must divide that number.",
            COUNT_OR_OFF,
        ),
        "tuning_max_run_s": ("Longest trial", "Seconds. 0: as for the training.", COUNT_OR_OFF),
        "tuning_max_time_s": (
            "Longest search",
            "Seconds; then the search ends and the best trial so far wins. Empty: no limit.",
            {**INTEGER_OR_NONE, "minimum": MIN_RUNTIME_S},
        ),
        "tuning_budget_share": (
            "Share of the budget",
            "Largest share of the run's budget for the search.",
            FRACTION,
        ),
    },
    "Instances": {
        **RANKS,
        "evaluation_place": (
            "Evaluation by",
            "A processing job, or the end of the training job. auto: a processing job if a type fits the model.",
            {"type": "string", "enum": [p for p in CHOICES["evaluation_place"] if p != "none"]},
        ),
        "evaluation_max_samples": (
            "Evaluated samples",
            "Samples of the test split, evenly spaced. Empty: as many as fit into half of the longest evaluation.",
            INTEGER_OR_NONE,
        ),
        **EVALUATION,
        **LIMITS,
    },
    "Smoke test": SMOKE_TEST,
    "Capacity": {
        **WAITING,
        **CAP,
        "deadline_h": (
            "Deadline",
            "Hours. If the planner chooses: the cheapest plan within them. Empty: the cheapest plan.",
            NUMBER_OR_NONE,
        ),
    },
    "Watching": {
        **WATCHING,
        "on_rule_stop": ("After a stop", _ON_STOP_HELP, {"type": "object"}),
    },
    "Place and registry": {**PLACE, **REGISTRATION},
}


FORM = Form(_SECTIONS, conf_defaults(RunConf))
