"""Form fields that are the same for all runs with one training, grouped by the form's sections."""

from __future__ import annotations

from trainyard.specs.base_run_conf_rules import BASE_CHOICES
from trainyard.specs.capacity_rung import MOST_RUNGS, TRAINING_PLAN
from trainyard.specs.limits import LEAST_RUN_S
from trainyard.specs.monitoring import TOPIC_ARN, Dashboard, Occasion
from trainyard_airflow.tasks.shared.form_schema import (
    INTEGER,
    INTEGER_OR_NONE,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
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
    "Capacity tiers in the order to try them, for example spot on one type, spot on another, on demand. The first "
    "replaces type, instances and spot above. Each has instance_type, and optionally instance_count, "
    "use_spot_instances, training_plan (name or ARN of a plan), max_wait_s (longest single wait for instances) and "
    "max_cost_usd."
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
            "training_plan": {"type": ["null", "string"], "pattern": exactly(TRAINING_PLAN)},
            "max_wait_s": {"type": ["null", "integer"], "minimum": 1},
            "max_cost_usd": NUMBER_OR_NONE,
        },
    },
}
_DEBUGGER_HELP = (
    "own: Trainyard evaluates the rules. service: SageMaker's Debugger evaluates those it has, if the account has "
    "access; otherwise Trainyard does, and the log of `train` has the reason."
)
_NOTIFICATIONS_HELP = (
    'The SNS topic for messages about the run: {"topic_arn": "arn:aws:sns:...", "on": ["spot", "rule", "failure", '
    '"budget", "approval"]}. Empty: no messages.'
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
    'CloudWatch during the training: {"alarms": true, "dashboard": "run"}. Alarms on idle CPUs and GPUs, memory and '
    "disk. The dashboard is deleted after the training (run) or stays (keep). Both cost money on AWS."
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
    "Action on an issue of severity error: warn, stop the training with a verdict, or fail the task. A rule's own "
    "`action` has precedence."
)
_RULES_HELP = (
    "Rules to evaluate, live and for the report: names of rules, SageMaker's rule configurations, or expressions, for "
    'example {"name": "hot", "expression": "gradient_norm > 5 * median(gradient_norm, 100)"}. Empty: all rules.'
)

RANKS: Fields = {
    "processes_per_instance": (
        "Ranks per instance",
        "Empty: one per GPU or NeuronCore, or one on a CPU type. Fewer leave paid accelerators idle.",
        INTEGER_OR_NONE,
    ),
}
EVALUATION: Fields = {
    "evaluation_instance_type": (
        "Evaluation instance type",
        "Empty: the training's if processing jobs support it and the model fits, otherwise the cheapest that fits.",
        named("evaluation_instance_type", or_none=True),
    ),
    "evaluation_max_run_s": (
        "Longest evaluation",
        "Seconds. Empty: as for the training, at most a day.",
        {**INTEGER_OR_NONE, "minimum": LEAST_RUN_S},
    ),
    "evaluation_volume_size_gb": (
        "Evaluation volume",
        "GiB. Empty: by the size of model and test split.",
        INTEGER_OR_NONE,
    ),
}
_SCRIPT_HELP = {
    "evaluation_instance_type": "Empty: the training's if processing jobs support it, otherwise ml.m5.xlarge (Hugging "
    "Face: ml.g5.12xlarge).",
    "evaluation_volume_size_gb": "GiB. Empty: as for the training.",
}
SCRIPT_EVALUATION: Fields = {
    name: (title, _SCRIPT_HELP.get(name, help_text), schema)
    for name, (title, help_text, schema) in EVALUATION.items()
}
REGISTRATION: Fields = {
    "register_when": (
        "Register if",
        "Condition on a metric of the evaluation, or of the training without one: accuracy >= 0.9. Empty: always.",
        TEXT_OR_NONE,
    ),
    "approval": (
        "Ask a person",
        "Approval before the model is registered, in Airflow's Required Actions or by REST. Waiting is free.",
        {"type": "boolean"},
    ),
}
LIMITS: Fields = {
    "volume_size_gb": ("Volume", "GiB per instance.", INTEGER),
    "max_run_s": (
        "Longest training",
        "Seconds; the job is stopped afterwards.",
        {**INTEGER, "minimum": LEAST_RUN_S},
    ),
    "image_uri": (
        "Training image",
        "registry/repository:tag. Empty: AWS's image for framework and region.",
        named("image_uri", or_none=True),
    ),
}
SPOT: Fields = {
    "use_spot_instances": (
        "Spot instances",
        "Cheaper. After an interruption, training resumes from its last checkpoint.",
        {"type": "boolean"},
    ),
}
WAITING: Fields = {
    "max_wait_s": (
        "Longest wait with spot",
        "Seconds for waiting and training together: at least the longest training.",
        {**INTEGER_OR_NONE, "minimum": LEAST_RUN_S},
    ),
    "capacity_ladder": (
        "Capacity ladder",
        _LADDER_HELP,
        _LADDER,
    ),
    "heartbeat_timeout_s": (
        "Silence allowed",
        "Seconds without output after which a training is stopped and resumed. 0: never.",
        INTEGER,
    ),
    "max_quota_wait_s": (
        "Longest wait for quota",
        "Seconds to wait for room in the account's quota. 0: no limit.",
        INTEGER,
    ),
    "max_retry_attempts": (
        "Restarts by the service",
        "Restarts by SageMaker on the same instances after an internal error. 0: none.",
        INTEGER,
    ),
    "keep_alive_period_in_seconds": (
        "Warm pool",
        "Seconds for which instances wait, billed, for the run's next attempt or trial. Empty: none.",
        INTEGER_OR_NONE,
    ),
}
BUDGET: Fields = {
    "budget_usd": (
        "Budget",
        "USD. A run does not start if its jobs, with every retry, could cost more.",
        NUMBER_OR_NONE,
    ),
}
CAP: Fields = {
    "max_cost_usd": (
        "Cost cap",
        "USD. Training stops before the run costs more; the model so far is evaluated and registered.",
        NUMBER_OR_NONE,
    ),
    "stop_reserve_s": (
        "Reserve for a stop",
        "Seconds for SIGTERM, checkpoint and upload, reserved below the cap and before AWS ends a plan's instances.",
        INTEGER,
    ),
    "stop_if_idle_minutes": (
        "Stop if idle",
        "Minutes of steps without work for any GPU after which the training is stopped as by its cap. Empty: never.",
        NUMBER_OR_NONE,
    ),
    "approval_above_usd": (
        "Approval above",
        "USD. A run needs approval if its expected cost is higher or unknown.",
        NUMBER_OR_NONE,
    ),
    "approval_timeout_s": (
        "Longest wait for an approval",
        "Seconds. Without an answer the run does not start, or its model is not registered.",
        INTEGER,
    ),
}
SMOKE_TEST: Fields = {
    "smoke_hyperparameters": (
        "Smoke test",
        'Hyperparameters of a short training that must complete first, such as {"max_steps": 5}. Empty: no test.',
        {"type": ["null", "object"]},
    ),
    "smoke_instance_count": (
        "Instances of the smoke test",
        "The model must fit on them. A test on one instance finds most faults of a script.",
        INTEGER,
    ),
    "smoke_max_run_s": (
        "Longest smoke test",
        "Seconds. If the test takes longer, the run ends without a training.",
        {**INTEGER, "minimum": LEAST_RUN_S},
    ),
}
RULES: Fields = {
    "rules": ("Rules", _RULES_HELP, {"type": "array", "items": {"type": ["string", "object"]}}),
}
WATCHING: Fields = {
    "watch_rules": (
        "Watch by rules",
        "Evaluate the rules while the training runs, and act on their issues.",
        {"type": "boolean"},
    ),
    "debugger": (
        "Evaluated by",
        _DEBUGGER_HELP,
        {"type": "string", "enum": list(BASE_CHOICES["debugger"])},
    ),
    "on_rule_error": (
        "On an error",
        _ON_ERROR_HELP,
        {"type": "string", "enum": list(BASE_CHOICES["on_rule_error"])},
    ),
    "rules_poll_interval_s": (
        "Seconds between polls",
        "Interval between two evaluations of the rules. Empty: the connection's, or 15.",
        {"type": ["null", "number"], "minimum": 0.5, "maximum": 600},
    ),
    "notifications": ("Notifications", _NOTIFICATIONS_HELP, _NOTIFICATIONS),
    "monitoring": ("Alarms and dashboard", _MONITORING_HELP, _MONITORING),
}
REGISTRY: Fields = {
    "role": (
        "Execution role",
        "ARN or name. Empty: the connection's.",
        named("role", or_none=True),
    ),
    "model_package_group": (
        "Model package group",
        "Created if it does not exist.",
        named("model_package_group"),
    ),
    "approval_status": (
        "Approval",
        "Approval status of the registered model.",
        {"type": "string", "enum": list(BASE_CHOICES["approval_status"])},
    ),
    "intended_uses": (
        "Intended uses",
        "Text for the model card: uses that the model is meant for, and uses that it is not meant for.",
        {"type": ["null", "string"]},
    ),
}
PLACE: Fields = {
    "bucket": ("Bucket", "Empty: the connection's.", named("bucket", or_none=True)),
    "prefix": (
        "Prefix",
        "Prefix of all keys in the bucket.",
        named("prefix"),
    ),
    **REGISTRY,
    "inference_image_uri": (
        "Serving image",
        "Image that serves the registered model. Empty: AWS's image for Trainyard's own models, none for others.",
        named("inference_image_uri", or_none=True),
    ),
}
LAST_SECTIONS: Sections = {
    "Smoke test": SMOKE_TEST,
    "Capacity": {**WAITING, **CAP},
    "Watching": {**RULES, **WATCHING},
    "Place and registry": PLACE,
}
"""Last sections of the forms for users' own scripts and for fine-tuning."""
