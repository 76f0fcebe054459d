"""Form fields that all runs with one training share, by the form's sections."""

from __future__ import annotations

from trainyard.specs.base_run_conf_rules import BASE_CHOICES
from trainyard.specs.capacity_rung import MOST_RUNGS
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.specs.monitoring import TOPIC_ARN, Dashboard, Occasion
from trainyard_airflow.tasks.shared.form_schema import (
    INTEGER,
    INTEGER_OR_NONE,
    NUMBER_OR_NONE,
    Fields,
    Sections,
    exactly,
    named,
)

TEXT = {"type": "string", "minLength": 1}
TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
COUNT = {"type": "integer", "minimum": 1}
COUNT_OR_OFF = {"type": "integer", "minimum": 0}
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
            "instance_type": named("instance_type"),
            "instance_count": INTEGER_OR_NONE,
            "use_spot_instances": {"type": "boolean"},
            "max_wait_s": {"type": ["null", "integer"], "minimum": 1},
            "max_cost_usd": NUMBER_OR_NONE,
        },
    },
}
_DEBUGGER_HELP = (
    "own: our evaluator. service: SageMaker's Debugger judges by those of the rules that it has, where it can and the "
    "account has it; else our evaluator does, and train's log says why."
)
_NOTIFICATIONS_HELP = (
    'The SNS topic for messages about the run: {"topic_arn": "arn:aws:sns:...", "on": ["spot", "rule", "failure", '
    '"budget"]}. Empty: no messages.'
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
_RULES_HELP = (
    "What judges the training, while it runs and for the report: names of rules, SageMaker's rule configurations, or "
    'own expressions such as {"name": "hot", "expression": "gradient_norm > 5 * median(gradient_norm, 100)"}. Empty: '
    "every rule."
)

RANKS: Fields = {
    "processes_per_instance": (
        "Ranks per instance",
        "Empty: one for each accelerator of the type, one on a CPU type. Fewer leave paid accelerators idle.",
        INTEGER_OR_NONE,
    ),
}
EVALUATION: Fields = {
    "evaluation_instance_type": (
        "Evaluation instance type",
        "Empty: that of training if processing jobs may have it and it holds the model, else the cheapest.",
        named("evaluation_instance_type", or_none=True),
    ),
    "evaluation_max_run_s": (
        "Longest evaluation",
        "Seconds; empty: as the training, a day at most.",
        {**INTEGER_OR_NONE, "minimum": LEAST_RUN_S},
    ),
    "evaluation_volume_size_gb": (
        "Evaluation volume",
        "GiB; empty: what the model and the test split need.",
        INTEGER_OR_NONE,
    ),
}
APPROVAL: Fields = {
    "approval": (
        "Ask a person",
        "Before the model is registered: Airflow's Required Actions, or by REST. Nothing is paid meanwhile.",
        {"type": "boolean"},
    ),
}
LIMITS: Fields = {
    "volume_size_gb": ("Volume", "GiB for each instance.", INTEGER),
    "max_run_s": (
        "Longest training",
        "Seconds; the job is stopped then.",
        {**INTEGER, "minimum": LEAST_RUN_S},
    ),
    "image_uri": (
        "Training image",
        "Empty: AWS's own image for the framework and the region. Else registry/repository:tag.",
        named("image_uri", or_none=True),
    ),
}
SPOT: Fields = {
    "use_spot_instances": (
        "Spot instances",
        "Cheaper; may be interrupted, training then resumes from its last checkpoint.",
        {"type": "boolean"},
    ),
}
WAITING: Fields = {
    "max_wait_s": (
        "Longest wait with spot",
        "Seconds for waiting and training together; not below the longest training.",
        {**INTEGER_OR_NONE, "minimum": LEAST_RUN_S},
    ),
    "capacity_ladder": (
        "Capacity ladder",
        _LADDER_HELP,
        _LADDER,
    ),
    "heartbeat_timeout_s": (
        "Silence allowed",
        "Seconds; a training that prints nothing for so long hangs: it is stopped and resumed. 0 never.",
        INTEGER,
    ),
    "max_quota_wait_s": (
        "Longest wait for quota",
        "Seconds; a training that the account's quota has no room for is asked for again for so long. 0 for ever.",
        INTEGER,
    ),
    "max_retry_attempts": (
        "Restarts by the service",
        "How often SageMaker starts the training again after an error of its own, on the same instances. 0 never.",
        INTEGER,
    ),
}
BUDGET: Fields = {
    "budget_usd": (
        "Budget",
        "USD; a run whose jobs, with every retry, could cost more does not start.",
        NUMBER_OR_NONE,
    ),
}
CAP: Fields = {
    "max_cost_usd": (
        "Cost cap",
        "USD; the training is stopped before the run costs more, and the model so far is measured and registered.",
        NUMBER_OR_NONE,
    ),
    "stop_reserve_s": (
        "Reserve for a stop",
        "Seconds of the instances that the cost cap keeps back: SIGTERM's two minutes, checkpoint, upload.",
        INTEGER,
    ),
    "approval_above_usd": (
        "Approval above",
        "USD; a run whose expected cost is above it, or unknown, starts only if a person approves it.",
        NUMBER_OR_NONE,
    ),
    "approval_timeout_s": (
        "Longest wait for an approval",
        "Seconds; without an answer the run does not start, or its model is not registered.",
        INTEGER,
    ),
}
RULES: Fields = {
    "rules": ("Rules", _RULES_HELP, {"type": "array", "items": {"type": ["string", "object"]}}),
}
WATCHING: Fields = {
    "watch_rules": (
        "Watch by rules",
        "Judge the training while it runs by the rules above, and do what follows from an issue.",
        {"type": "boolean"},
    ),
    "debugger": (
        "Judged by",
        _DEBUGGER_HELP,
        {"type": "string", "enum": list(BASE_CHOICES["debugger"])},
    ),
    "on_rule_error": (
        "On an error",
        _ON_ERROR_HELP,
        {"type": "string", "enum": list(BASE_CHOICES["on_rule_error"])},
    ),
    "rules_poll_interval_s": (
        "Seconds between looks",
        "Of the rules at the training's statistics. Empty: as the connection says, or 15.",
        {"type": ["null", "number"], "minimum": 0.5, "maximum": 600},
    ),
    "notifications": ("Notifications", _NOTIFICATIONS_HELP, _NOTIFICATIONS),
    "monitoring": ("Alarms and dashboard", _MONITORING_HELP, _MONITORING),
}
PLACE: Fields = {
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
        {"type": "string", "enum": list(BASE_CHOICES["approval_status"])},
    ),
}
LAST_SECTIONS: Sections = {
    "Capacity": {**WAITING, **CAP},
    "Watching": {**RULES, **WATCHING},
    "Place and registry": PLACE,
}
"""Last sections of the forms for own scripts and fine-tuning."""
