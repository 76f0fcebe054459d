"""Params of a run with the user's own script: one JSON schema for the form and the REST API.

The defaults come from `ScriptConf`, which also checks conditions that a schema cannot express. The script and its
folder have no defaults and are required.
"""

from __future__ import annotations

from trainyard.specs.script_conf import CHOICES, ScriptConf
from trainyard.specs.training_job_rules import MAX_INSTANCE_GROUPS
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
    TEXT_OR_NONE,
    Form,
    Sections,
    conf_defaults,
    named,
)

_NAMES = {"type": "array", "items": TEXT}
_OBJECT = {"type": "object"}
_SOURCE_HELP = (
    "Folder with the script: relative to the parent of Airflow's `dags` folder, below one of the connection's "
    "`source_roots`, `s3://.../sourcedir.tar.gz`, or `git+https://host/repo.git@<commit>#subdirectory=<folder>` below "
    "one of its `source_repositories`. Its requirements.txt is installed first."
)
_ARGUMENTS_HELP = 'Arguments in any other form, before the hyperparameters: ["config.py", "--device=cpu", "--resume"].'
_INPUTS_HELP = (
    'Data of each channel: {"train": "s3://bucket/prefix/"}, or the fields of a channel, for example '
    '{"s3_data": ..., "input_mode": "FastFile"}, or file_system_id, file_system_type and directory_path of FSx or EFS.'
)
_STRATEGY_HELP = (
    "How the script is started. auto: torchrun for PyTorch and Hugging Face, otherwise plain, one process on each "
    "instance. deepspeed is torchrun and horovod is mpi; the script uses the library."
)
_DISTRIBUTION_HELP = (
    "The SageMaker SDK's `distribution` instead of a strategy, with settings: torch_distributed, pytorchddp, "
    "smdistributed (dataparallel, modelparallel), mpi, parameter_server. Empty: that of the strategy."
)
_GROUPS_HELP = (
    'Instances of several types in one job, in place of type and instances above: [{"instance_group_name": "train", '
    '"instance_type": "ml.g5.2xlarge", "instance_count": 2}, ...]. `distribution` names the group that it starts on '
    '("instance_groups": ["train"]), each channel of the data those that get it. Empty: instances of one type.'
)
_GROUPS = {
    "type": "array",
    "maxItems": MAX_INSTANCE_GROUPS,
    "items": {
        "type": "object",
        "required": ["instance_group_name", "instance_type", "instance_count"],
        "additionalProperties": False,
        "properties": {
            "instance_group_name": {**TEXT, "maxLength": 64},
            "instance_type": named("instance_type"),
            "instance_count": INTEGER,
        },
    },
}
_METRICS = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["name", "regex"],
        "additionalProperties": False,
        "properties": {"name": TEXT, "regex": TEXT},
    },
}
_METRICS_HELP = (
    'Read from the log by SageMaker: [{"name": "validation:loss", "regex": "val_loss=([0-9.]+)"}].'
)
_EVALUATION_HELP = (
    "Script in the same folder that evaluates the model: it reads /opt/ml/processing/input/model/model.tar.gz and "
    "writes /opt/ml/processing/output/evaluation/evaluation.json. Empty: no evaluation."
)

_SECTIONS: Sections = {
    "Basics": {
        "entry_point": ("Training script", "File in the source folder.", TEXT),
        "source_dir": ("Source folder", _SOURCE_HELP, TEXT),
        "hyperparameters": ("Hyperparameters", "Arguments of the script: --name value.", _OBJECT),
        "inputs": ("Data", _INPUTS_HELP, _OBJECT),
        "instance_type": (
            "Instance type",
            "For example ml.m5.large, ml.g5.2xlarge or ml.p4d.24xlarge.",
            named("instance_type"),
        ),
        "instance_count": ("Instances", "Number of instances of the training.", INTEGER),
        **SPOT,
        **BUDGET,
    },
    "Script": {
        "requirements": (
            "Requirements",
            "File in the source folder that the training installs instead of requirements.txt.",
            TEXT_OR_NONE,
        ),
        "arguments": ("Arguments", _ARGUMENTS_HELP, _NAMES),
        "strategy": (
            "Strategy",
            _STRATEGY_HELP,
            {"type": "string", "enum": list(CHOICES["strategy"])},
        ),
        "distribution": ("Distribution", _DISTRIBUTION_HELP, {"type": ["null", "object"]}),
        "instance_groups": ("Instance groups", _GROUPS_HELP, _GROUPS),
        **RANKS,
        "framework": (
            "Framework",
            "Framework of AWS's image, if no image is set below.",
            {"type": "string", "enum": list(CHOICES["framework"])},
        ),
        "framework_version": ("Framework version", "Empty: the newest version.", TEXT_OR_NONE),
        "py_version": ("Python version", "For example py312. Empty: the image's.", TEXT_OR_NONE),
        "environment": ("Environment", "Environment variables of the container.", TEXTS),
        "input_mode": (
            "Input mode",
            "Default of the channels: File copies, FastFile and Pipe stream.",
            {"type": "string", "enum": list(CHOICES["input_mode"])},
        ),
        "metric_definitions": ("Metrics", _METRICS_HELP, _METRICS),
        "subnets": ("Subnets", "Empty: the connection's.", _NAMES),
        "security_group_ids": ("Security groups", "Empty: the connection's.", _NAMES),
        **LIMITS,
    },
    "Evaluation": {
        "evaluation_entry_point": ("Evaluation script", _EVALUATION_HELP, TEXT_OR_NONE),
        "evaluation_inputs": (
            "Evaluation data",
            'Inputs of the evaluation: {"test": "s3://bucket/prefix/"} is mounted at /opt/ml/processing/input/test.',
            TEXTS,
        ),
        **SCRIPT_EVALUATION,
        **REGISTRATION,
    },
    "Serving": {
        "inference_entry_point": (
            "Handlers",
            "Script with model_fn etc., which the training saves in `code/` of the model. Empty: the image's handlers.",
            TEXT_OR_NONE,
        ),
        "inference_content_types": ("Content types", "Content types of requests.", _NAMES),
        "inference_instance_types": (
            "Instance types for serving",
            "Types for endpoints and batch transform. Empty: not stated.",
            _NAMES,
        ),
    },
    **LAST_SECTIONS,
}


FORM = Form(_SECTIONS, conf_defaults(ScriptConf))
