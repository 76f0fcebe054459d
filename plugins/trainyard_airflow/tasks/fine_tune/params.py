"""Params of a fine-tuning: one JSON schema for the form and the REST API, with the defaults of `FineTuneConf`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard.specs.fine_tune_conf import CHOICES, FURTHER_HYPERPARAMETERS, FineTuneConf
from trainyard_airflow.tasks.shared.form_fields import (
    APPROVAL,
    BUDGET,
    EVALUATION,
    LAST_SECTIONS,
    LIMITS,
    RANKS,
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
    Sections,
    conf_params,
    named,
)

if TYPE_CHECKING:
    from airflow.sdk import Param

_BASE_HELP = (
    "S3 prefix of a model that save_pretrained wrote (safetensors and tokenizer), or owner/name on the Hugging Face "
    "hub, which the job must reach."
)
_DATA_HELP = (
    'S3 prefix of *.jsonl: {"messages": [...]}, {"prompt", "completion"} or {"text"}; for DPO {"prompt", "chosen", '
    '"rejected"}. docs/fine_tuning.md has each.'
)
_GATE_HELP = (
    "A metric of the evaluation: gain, test_loss, test_perplexity; for DPO gain, reward_accuracy. Empty: always. "
    "Without validation data nothing is measured, and this is not looked at."
)

SECTIONS: Sections = {
    "Basics": {
        "base_model": ("Base model", _BASE_HELP, TEXT),
        "train_data": ("Training data", _DATA_HELP, TEXT),
        "validation_data": (
            "Validation data",
            "Likewise, held out: base and tuned model are measured on it. Empty: nothing measures the model.",
            TEXT_OR_NONE,
        ),
        "method": (
            "Method",
            "sft learns answers, dpo prefers one answer of two.",
            {"type": "string", "enum": list(CHOICES["method"])},
        ),
        "adapter": (
            "Adapter",
            "lora trains an adapter, qlora one over a base in 4 bits (bitsandbytes), none every weight.",
            {"type": "string", "enum": list(CHOICES["adapter"])},
        ),
        "instance_type": (
            "Instance type",
            "Such as ml.g5.2xlarge, ml.p4d.24xlarge.",
            named("instance_type"),
        ),
        "instance_count": ("Instances", "Of the training.", INTEGER),
        **SPOT,
    },
    "Training": {
        "epochs": ("Epochs", "Passes over the data.", NUMBER),
        "max_steps": ("Steps", "Empty: by epochs.", INTEGER_OR_NONE),
        "learning_rate": (
            "Learning rate",
            "The peak. Empty: 2e-4 for SFT with an adapter, 2e-5 without; DPO 1e-5 and 1e-6.",
            NUMBER_OR_NONE,
        ),
        "rank": ("Rank", "Of the adapter.", INTEGER),
        "batch_size": ("Batch", "Sequences of one rank in one pass.", INTEGER),
        "max_length": ("Longest sample", "Tokens; what is longer is cut at its end.", INTEGER),
        "packing": (
            "Packing",
            "Several samples in one sequence, each with attention to itself only.",
            {"type": "boolean"},
        ),
        "seed": ("Seed", "Of the data's order and the adapter.", INTEGER),
        "init_from": (
            "Continue from",
            "S3 address of an earlier run's model.tar.gz, whole or adapter. Empty: the base model.",
            TEXT_OR_NONE,
        ),
        "artifact": (
            "Artifact",
            "merged: a whole model. adapter: the adapter's weights only.",
            {"type": "string", "enum": list(CHOICES["artifact"])},
        ),
        "hyperparameters": (
            "Further hyperparameters",
            f"{', '.join(FURTHER_HYPERPARAMETERS)}.",
            {"type": "object", "propertyNames": {"enum": list(FURTHER_HYPERPARAMETERS)}},
        ),
        "environment": ("Environment", "Variables of the container.", TEXTS),
        **RANKS,
        **LIMITS,
        **BUDGET,
    },
    "Evaluation": {
        **EVALUATION,
        "register_when": ("Register if", _GATE_HELP, TEXT_OR_NONE),
        **APPROVAL,
    },
    **LAST_SECTIONS,
}


def fine_tune_params(**defaults: Any) -> dict[str, Param]:
    """Return the params; `defaults` override those of `FineTuneConf`.

    Raises:
        KeyError: there is no param of a default's name.
    """
    return conf_params(SECTIONS, FineTuneConf, **defaults)
