"""Params of a fine-tuning: one JSON schema for the form and the REST API, with the defaults of `FineTuneConf`."""

from __future__ import annotations

from trainyard.specs.fine_tune_conf import CHOICES, FURTHER_HYPERPARAMETERS, FineTuneConf
from trainyard_airflow.tasks.shared.form_fields import (
    BUDGET,
    LAST_SECTIONS,
    LIMITS,
    RANKS,
    REGISTRATION,
    SCRIPT_EVALUATION,
    SPOT,
    TEXT,
    TEXTS,
)
from trainyard_airflow.tasks.shared.form_schema import (
    INTEGER,
    INTEGER_OR_NONE,
    NUMBER,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
    Form,
    Sections,
    conf_defaults,
    named,
)

_BASE_HELP = (
    "S3 prefix of a model that save_pretrained wrote (safetensors and tokenizer), or owner/name on the Hugging Face "
    "hub, which the job must reach."
)
_DATA_HELP = (
    'S3 prefix of *.jsonl: {"messages": [...]}, {"prompt", "completion"} or {"text"}; for DPO {"prompt", "chosen", '
    '"rejected"}. docs/fine_tuning.md has each.'
)
_GATE_HELP = (
    "Condition on a metric of the evaluation: gain, test_loss, test_perplexity; for DPO gain, reward_accuracy, "
    "reward_margin. Empty: always. It has no effect without validation data."
)
_STRATEGY_HELP = (
    "ddp: a whole model on each GPU. fsdp: weights, gradients and optimizer state sharded over all GPUs. deepspeed: "
    "sharded by ZeRO, of stage 2 unless the hyperparameter ds_config has another."
)

_SECTIONS: Sections = {
    "Basics": {
        "base_model": ("Base model", _BASE_HELP, TEXT),
        "train_data": ("Training data", _DATA_HELP, TEXT),
        "validation_data": (
            "Validation data",
            "Same format, held out: base and tuned model are evaluated on it. Empty: no evaluation.",
            TEXT_OR_NONE,
        ),
        "method": (
            "Method",
            "sft: learn the answers. dpo: prefer one of two answers.",
            {"type": "string", "enum": list(CHOICES["method"])},
        ),
        "adapter": (
            "Adapter",
            "lora: train an adapter. qlora: an adapter over a base in 4 bits (bitsandbytes). none: train all weights.",
            {"type": "string", "enum": list(CHOICES["adapter"])},
        ),
        "instance_type": (
            "Instance type",
            "For example ml.g5.2xlarge or ml.p4d.24xlarge.",
            named("instance_type"),
        ),
        "instance_count": ("Instances", "Number of instances of the training.", INTEGER),
        **SPOT,
    },
    "Training": {
        "epochs": ("Epochs", "Number of passes over the data.", NUMBER),
        "max_steps": ("Steps", "Empty: by the epochs.", INTEGER_OR_NONE),
        "learning_rate": (
            "Learning rate",
            "Peak learning rate. Empty: 2e-4 for SFT with an adapter, 2e-5 without; 1e-5 and 1e-6 for DPO.",
            NUMBER_OR_NONE,
        ),
        "rank": ("Rank", "Rank of the adapter.", INTEGER),
        "batch_size": ("Batch", "Sequences per forward pass and rank.", INTEGER),
        "max_length": (
            "Longest sample",
            "Tokens; longer samples are truncated at the end.",
            INTEGER,
        ),
        "packing": (
            "Packing",
            "Pack several samples into one sequence, without attention between them.",
            {"type": "boolean"},
        ),
        "strategy": (
            "Strategy",
            _STRATEGY_HELP,
            {"type": "string", "enum": list(CHOICES["strategy"])},
        ),
        "seed": ("Seed", "Seed of the sample order and the adapter.", INTEGER),
        "init_from": (
            "Continue from",
            "S3 URI of an earlier run's model.tar.gz, merged or adapter. Empty: the base model.",
            TEXT_OR_NONE,
        ),
        "artifact": (
            "Artifact",
            "merged: the whole model. adapter: only the adapter's weights.",
            {"type": "string", "enum": list(CHOICES["artifact"])},
        ),
        "hyperparameters": (
            "Further hyperparameters",
            f"{', '.join(FURTHER_HYPERPARAMETERS)}.",
            {"type": "object", "propertyNames": {"enum": list(FURTHER_HYPERPARAMETERS)}},
        ),
        "environment": ("Environment", "Environment variables of the container.", TEXTS),
        **RANKS,
        **LIMITS,
        **BUDGET,
    },
    "Evaluation": {
        **SCRIPT_EVALUATION,
        **REGISTRATION,
        "register_when": ("Register if", _GATE_HELP, TEXT_OR_NONE),
    },
    **LAST_SECTIONS,
}


FORM = Form(_SECTIONS, conf_defaults(FineTuneConf))
