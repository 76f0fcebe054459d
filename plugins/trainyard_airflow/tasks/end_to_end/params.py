"""The params of an end-to-end run: one JSON schema for the form, the REST API and the schedule.

Defaults come from `RunConf`, which checks again what a schema cannot say; a test keeps the two
lists equal.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import ParamValidationError

from trainyard.errors import Finding, SpecError
from trainyard.specs.capacity_rung import INSTANCE_TYPE, MOST_RUNGS
from trainyard.specs.limits import (
    LEAST_RUN_S,
    MAX_PROCESSING_RUN_S,
    MAX_PROCESSING_VOLUME_GB,
    MAX_RETRY_ATTEMPTS,
)
from trainyard.specs.monitoring import TOPIC_ARN, Dashboard, Occasion
from trainyard.specs.run_conf import RunConf
from trainyard.specs.run_conf_rules import CHOICES
from trainyard.specs.run_conf_tuning import OBJECTIVES
from trainyard.specs.tuning_job import SearchStrategy
from trainyard.specs.tuning_job_ranges import Scaling
from trainyard.specs.tuning_job_rules import MAX_JOBS, MAX_PARALLEL_JOBS
from trainyard_airflow.tasks.shared.form_schema import (
    COUNT_OR_NONE,
    TEXT_OR_NONE,
    Sections,
    conf_defaults,
    exactly,
    form_params,
    named,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from airflow.sdk import Param

_TEXT = {"type": "string", "minLength": 1}
_NAMES = {"type": "array", "items": {"type": "string", "minLength": 1}}
_COUNT = {"type": "integer", "minimum": 1}
_COUNT_OR_OFF = {"type": "integer", "minimum": 0}
_FRACTION = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
_LADDER_HELP = (
    "What to try in turn, such as spot on one type, on another, then on demand; the first rung takes the place of "
    "type, instances and spot above. Each has instance_type, and may have instance_count, use_spot_instances, "
    "max_wait_s (waiting for instances in one go) and max_cost_usd."
)
_LADDER = {
    "type": "array",
    "maxItems": MOST_RUNGS,
    "items": {
        "type": "object",
        "required": ["instance_type"],
        "properties": {
            "instance_type": {"type": "string", "pattern": exactly(INSTANCE_TYPE)},
            "instance_count": {"type": ["null", "integer"], "minimum": 1},
            "use_spot_instances": {"type": "boolean"},
            "max_wait_s": {"type": ["null", "integer"], "minimum": 1},
            "max_cost_usd": {"type": ["null", "number"], "exclusiveMinimum": 0},
        },
    },
}
_RULES_HELP = (
    "What judges the training, while it runs and for the report: names of rules, SageMaker's rule configurations, or "
    'own expressions such as {"name": "hot", "expression": "gradient_norm > 5 * median(gradient_norm, 100)"}. Empty: '
    "every rule."
)
_DEBUGGER_HELP = (
    "own: our evaluator. service: SageMaker's Debugger judges by those of the rules that it has, where it can and the "
    "account has it; else our evaluator does, and train's log says why."
)
_NOTIFICATIONS_HELP = (
    'An SNS topic that is told what happens: {"topic_arn": "arn:aws:sns:...", "on": ["spot", "rule", "failure", '
    '"budget"]}. Empty: nobody is.'
)
_NOTIFICATIONS = {
    "type": ["null", "object"],
    "required": ["topic_arn"],
    "additionalProperties": False,
    "properties": {
        "topic_arn": {"type": "string", "pattern": exactly(TOPIC_ARN)},
        "on": {
            "type": "array",
            "minItems": 1,
            "items": {"type": "string", "enum": list(Occasion)},
        },
    },
}
_MONITORING_HELP = (
    'CloudWatch while it trains: {"alarms": true, "dashboard": "run"}. Alarms on idle processors and GPUs, memory and '
    "disk; the dashboard goes with the training (run) or stays (keep). Both cost money on AWS."
)
_MONITORING = {
    "type": ["null", "object"],
    "additionalProperties": False,
    "properties": {
        "alarms": {"type": "boolean"},
        "dashboard": {"type": "string", "enum": list(Dashboard)},
    },
}
_ON_ERROR_HELP = (
    "What follows an issue of severity error: a warning, a stop with a verdict, or a failure. A rule's own `action` "
    "goes before it."
)
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
    "Data": {
        "source": (
            "Source",
            "`python-stdlib` (the standard library's source), a path all workers read, or `s3://`.",
            _TEXT,
        ),
        "data_format": (
            "Format",
            "`auto` goes by the files' names.",
            {"type": "string", "enum": ["auto", "text", "jsonl", "csv", "parquet"]},
        ),
        "text_column": (
            "Text column",
            "For jsonl, csv and parquet that hold text to tokenise.",
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
        "num_shards": ("Shards", "Of the train split; 0 fits them to the ranks.", _COUNT_OR_OFF),
        "validation_fraction": ("Validation share", "Of the rows, by hash of the row.", _FRACTION),
        "test_fraction": ("Test share", "Of the rows, by hash of the row.", _FRACTION),
        "max_bad_row_fraction": (
            "Bad rows allowed",
            "The share of unreadable rows above which sharding fails.",
            {"type": "number", "minimum": 0, "maximum": 1},
        ),
        "max_source_bytes": ("Source bytes", "Read at most so many; 0 reads all.", _COUNT_OR_OFF),
        "shard_instance_count": (
            "Sharding instances",
            "0 shards in the Airflow worker; more shard an `s3://` source by a processing job.",
            _COUNT_OR_OFF,
        ),
        "shard_instance_type": (
            "Sharding instance type",
            "Of that processing job.",
            named("shard_instance_type"),
        ),
    },
    "Model": {
        "model": (
            "Model",
            "`gpt`: a decoder on tokens. `mlp`: a network on a table.",
            {"type": "string", "enum": ["gpt", "mlp"]},
        ),
        "num_layers": ("Layers", "Transformer blocks, or hidden layers of the mlp.", _COUNT),
        "num_heads": ("Attention heads", "Must divide the hidden size.", _COUNT),
        "hidden_size": ("Hidden size", "A multiple of twice the attention heads.", _COUNT),
        "sequence_length": ("Sequence length", "Tokens of one sample.", _COUNT),
    },
    "Training": {
        "global_batch_size": (
            "Global batch",
            "Samples of one optimizer step, over all ranks; a multiple of ranks x micro batch.",
            _COUNT,
        ),
        "micro_batch_size": ("Micro batch", "Samples of one forward pass on one rank.", _COUNT),
        "max_steps": ("Steps", "Optimizer steps.", _COUNT),
        "learning_rate": (
            "Learning rate",
            "Of the optimizer, at the end of the warm-up.",
            {"type": "number", "exclusiveMinimum": 0},
        ),
        "warmup_steps": (
            "Warm-up steps",
            "Empty: a tenth of the steps.",
            {**COUNT_OR_NONE, "minimum": 0},
        ),
        "precision": (
            "Precision",
            "Of the calculations. `auto`: bf16, compiled, on GPUs that have it in hardware; else fp32.",
            {"type": "string", "enum": list(CHOICES["precision"])},
        ),
        "seed": (
            "Seed",
            "Of weights, sample order and dropout.",
            {"type": "integer", "minimum": 0},
        ),
        "eval_interval": ("Evaluate every", "Steps; 0 only at the end.", _COUNT_OR_OFF),
        "checkpoint_interval": (
            "Checkpoint every",
            "Steps; 0 chooses by what a checkpoint costs and how often spot is interrupted; -1 only at the end.",
            {"type": "integer", "minimum": -1},
        ),
        "mean_time_to_interruption_s": (
            "Time between interruptions",
            "Seconds, on average, that spot instances of this type are kept: what the chosen interval goes by.",
            {"type": "number", "exclusiveMinimum": 0},
        ),
        "early_stopping_patience": (
            "Patience",
            "Evaluations without a better validation loss before training stops; 0 never.",
            _COUNT_OR_OFF,
        ),
        "hyperparameters": (
            "More hyperparameters",
            "Go to the training script over those the form makes.",
            {"type": "object"},
        ),
        "rules": ("Rules", _RULES_HELP, {"type": "array", "items": {"type": ["string", "object"]}}),
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
            _COUNT_OR_OFF,
        ),
        "tuning_instance_count": (
            "Instances of a trial",
            "0: as many as the training's; else a divisor of them.",
            _COUNT_OR_OFF,
        ),
        "tuning_max_run_s": ("Longest trial", "Seconds; 0: as the training.", _COUNT_OR_OFF),
        "tuning_max_time_s": (
            "Longest search",
            "Seconds from the first trial to the last, after which the best so far wins; empty: no bound.",
            {"type": ["null", "integer"], "minimum": 120},
        ),
        "tuning_budget_share": (
            "Share of the budget",
            "The most of the run's budget that the search may take.",
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1},
        ),
    },
    "Instances": {
        "strategy": (
            "Strategy",
            "ddp: whole copies. fsdp: state and layers spread over ranks. auto: the planner's, with what else is open.",
            {"type": "string", "enum": ["ddp", "fsdp", "auto"]},
        ),
        "instance_type": (
            "Instance type",
            "Such as ml.m5.large, ml.g5.2xlarge, ml.p4d.24xlarge; or auto: the planner's, of all with GPUs.",
            {"type": "string", "pattern": exactly(f"{INSTANCE_TYPE}|auto")},
        ),
        "instance_count": ("Instances", "0: the planner's.", _COUNT_OR_OFF),
        "processes_per_instance": (
            "Ranks per instance",
            "Empty: one for each accelerator of the type, one on a CPU type. Fewer leave paid accelerators idle.",
            COUNT_OR_NONE,
        ),
        "evaluation_place": (
            "Evaluation by",
            "A processing job, or the training at its end; auto: the job if a type of processing jobs holds the model.",
            {"type": "string", "enum": ["auto", "processing", "training"]},
        ),
        "evaluation_instance_type": (
            "Evaluation instance type",
            "Empty: that of training if processing jobs may have it and it holds the model, else the cheapest.",
            named("evaluation_instance_type", or_none=True),
        ),
        "evaluation_max_run_s": (
            "Longest evaluation",
            "Seconds; empty: as the training, a day at most.",
            {"type": ["null", "integer"], "minimum": 60, "maximum": MAX_PROCESSING_RUN_S},
        ),
        "evaluation_volume_size_gb": (
            "Evaluation volume",
            "GiB; empty: what the model and the test split need.",
            {"type": ["null", "integer"], "minimum": 1, "maximum": MAX_PROCESSING_VOLUME_GB},
        ),
        "evaluation_max_samples": (
            "Evaluated samples",
            "Of the test split, spread evenly; empty: all, or what half of the longest evaluation is enough for.",
            {"type": ["null", "integer"], "minimum": 1},
        ),
        "volume_size_gb": ("Volume", "GiB for each instance.", _COUNT),
        "max_run_s": (
            "Longest training",
            "Seconds; the job is stopped then.",
            {"type": "integer", "minimum": LEAST_RUN_S, "maximum": 2419200},
        ),
        "image_uri": (
            "Training image",
            "Empty: AWS's own PyTorch image for the region. Else registry/repository:tag.",
            named("image_uri", or_none=True),
        ),
    },
    "Spot and budget": {
        "use_spot_instances": (
            "Spot instances",
            "Cheaper; may be interrupted, training then resumes from its last checkpoint.",
            {"type": "boolean"},
        ),
        "max_wait_s": (
            "Longest wait with spot",
            "Seconds for waiting and training together; not below the longest training.",
            {"type": ["null", "integer"], "minimum": 60},
        ),
        "capacity_ladder": (
            "Capacity ladder",
            _LADDER_HELP,
            _LADDER,
        ),
        "heartbeat_timeout_s": (
            "Silence allowed",
            "Seconds; a training that prints nothing for so long hangs: it is stopped and resumed. 0 never.",
            _COUNT_OR_OFF,
        ),
        "max_quota_wait_s": (
            "Longest wait for quota",
            "Seconds; a training that the account's quota has no room for is asked for again for so long. 0 for ever.",
            _COUNT_OR_OFF,
        ),
        "max_retry_attempts": (
            "Restarts by the service",
            "How often SageMaker starts the training again after an error of its own, on the same instances. 0 never.",
            {"type": "integer", "minimum": 0, "maximum": MAX_RETRY_ATTEMPTS},
        ),
        "deadline_h": (
            "Deadline",
            "Hours that the planner lets the training take, where it is asked; empty: the cheapest.",
            {"type": ["null", "number"], "exclusiveMinimum": 0},
        ),
        "budget_usd": (
            "Budget",
            "USD; a run whose jobs, with every retry, could cost more does not start.",
            {"type": ["null", "number"], "exclusiveMinimum": 0},
        ),
    },
    "Watching": {
        "watch_rules": (
            "Watch by rules",
            "Judge the training while it runs by the rules above, and do what follows from an issue.",
            {"type": "boolean"},
        ),
        "debugger": (
            "Judged by",
            _DEBUGGER_HELP,
            {"type": "string", "enum": ["own", "service"]},
        ),
        "on_rule_error": (
            "On an error",
            _ON_ERROR_HELP,
            {"type": "string", "enum": ["warn", "stop", "fail"]},
        ),
        "on_rule_stop": ("After a stop", _ON_STOP_HELP, {"type": "object"}),
        "rules_poll_interval_s": (
            "Seconds between looks",
            "Of the rules at the training's statistics. Empty: as the connection says, or 15.",
            {"type": ["null", "number"], "minimum": 0.5, "maximum": 600},
        ),
        "notifications": ("Notifications", _NOTIFICATIONS_HELP, _NOTIFICATIONS),
        "monitoring": ("Alarms and dashboard", _MONITORING_HELP, _MONITORING),
    },
    "Place and registry": {
        "bucket": ("Bucket", "Empty: the connection's.", named("bucket", or_none=True)),
        "prefix": (
            "Prefix",
            "All keys of Trainyard start with it.",
            named("prefix"),
        ),
        "role": (
            "Execution role",
            "ARN or name; empty: the connection's.",
            named("role", or_none=True),
        ),
        "model_package_group": (
            "Model package group",
            "Made when it is not there.",
            named("model_package_group"),
        ),
        "approval_status": (
            "Approval",
            "Of the registered model.",
            {"type": "string", "enum": ["PendingManualApproval", "Approved", "Rejected"]},
        ),
    },
}


def run_params(**defaults: Any) -> dict[str, Param]:
    """Return the params, with `defaults` in place of `RunConf`'s.

    Raises:
        KeyError: a default names no param.
    """
    values = {**conf_defaults(RunConf), **defaults}
    params = form_params(SECTIONS, values)
    if unknown := values.keys() - params.keys():
        raise KeyError(f"no such params: {sorted(unknown)}")
    return params


def params_with(defaults: Mapping[str, Any], *, subject: str) -> dict[str, Param]:
    """Return the params with other defaults.

    Args:
        defaults: values by the params' names.
        subject: of the error.

    Raises:
        SpecError: names of no param, and values that the form would refuse, all at once.
    """
    params = run_params()
    unknown = [
        Finding(
            where=f"defaults.{name}",
            what="is no field of the run",
            allowed=", ".join(get_close_matches(name, params)) or None,
            next_step="take a name of the form or of docs/dags.md",
        )
        for name in defaults
        if name not in params
    ]
    refused = schema_findings(defaults, next_step="correct the defaults of the DAG file")
    if findings := [*unknown, *refused]:
        raise SpecError(findings, subject=subject)
    return run_params(**defaults) if defaults else params


def schema_findings(values: Mapping[str, Any], *, next_step: str) -> Iterator[Finding]:
    """Yield what the form and the REST API refuse in these values, in their words."""
    params = run_params() if values else {}
    for name in (each for each in values if each in params):
        try:
            params[name].resolve(values[name])
        except ParamValidationError as error:
            says = getattr(error.args[0], "message", error)
            what = f"Invalid input for param {name}: {says}"
            yield Finding(where=name, what=what, next_step=next_step)
