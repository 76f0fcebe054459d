"""The params of an `autopilot_tabular` run: one JSON schema for the form and the REST API."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.specs.automl_conf import DATASETS, AutoMLConf
from trainyard.specs.automl_job import AutoMLMode, ProblemType
from trainyard.specs.automl_job_rules import MAX_CANDIDATES, METRICS
from trainyard.specs.base_run_conf_rules import BASE_CHOICES
from trainyard_airflow.tasks.shared.form_schema import (
    COUNT_OR_NONE,
    FRACTION,
    INTEGER,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
    Sections,
    conf_defaults,
    form_params,
    named,
)

if TYPE_CHECKING:
    from airflow.sdk import Param

_METRICS = sorted({name for names in METRICS.values() for name in names})
_ALGORITHMS = [
    *("catboost", "extra-trees", "fastai", "lightgbm", "linear-learner", "mlp", "nn-torch"),
    *("randomforest", "xgboost"),
]


_SECTIONS: Sections = {
    "Data": {
        "dataset": (
            "Table",
            "One that comes with scikit-learn, or `own`: the CSV files of the source.",
            {"type": "string", "enum": list(DATASETS)},
        ),
        "source": (
            "Source",
            "Of an own table: `s3://bucket/prefix`, CSV with a header.",
            TEXT_OR_NONE,
        ),
        "target_column": ("Target column", "Of an own table: what to predict.", TEXT_OR_NONE),
        "test_fraction": ("Test share", "Rows that the search never sees.", FRACTION),
        "validation_fraction": (
            "Validation share",
            "Rows that rank the candidates; 0 leaves that to the service.",
            {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        ),
        "seed": ("Seed", "Of the split.", INTEGER),
    },
    "Search": {
        "mode": (
            "Mode",
            "How candidates come to be.",
            {"type": "string", "enum": list(AutoMLMode)},
        ),
        "problem_type": (
            "Problem",
            "Empty: inferred from the target. Goes together with the objective.",
            {"type": ["null", "string"], "enum": [None, *ProblemType]},
        ),
        "objective": (
            "Objective",
            "The metric to choose by; empty: F1, Accuracy or MSE.",
            {"type": ["null", "string"], "enum": [None, *_METRICS]},
        ),
        "algorithms": (
            "Algorithms",
            "Of the mode's; empty: all of them.",
            {"type": "array", "items": {"type": "string", "enum": _ALGORITHMS}},
        ),
        "max_candidates": (
            "Candidates",
            "Models that are fitted at most.",
            {"type": "integer", "minimum": 1, "maximum": MAX_CANDIDATES},
        ),
    },
    "Time and money": {
        "max_time_s": (
            "Time of the search",
            "Seconds; then the best so far is taken.",
            COUNT_OR_NONE,
        ),
        "max_time_per_candidate_s": ("Time of one candidate", "Seconds.", COUNT_OR_NONE),
        "budget_usd": (
            "Budget",
            "USD; the search ends before it could cost more.",
            NUMBER_OR_NONE,
        ),
        "instance_type": (
            "Instance type",
            "Of the jobs that prepare and evaluate.",
            named("instance_type"),
        ),
        "max_run_s": ("Time of those jobs", "Seconds each.", INTEGER),
        "image_uri": (
            "Image of the preparation",
            "Empty: AWS's scikit-learn image.",
            named("image_uri", or_none=True),
        ),
    },
    "Place and registry": {
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
    },
}


def automl_params() -> dict[str, Param]:
    """Return the params with `AutoMLConf`'s defaults."""
    return form_params(_SECTIONS, conf_defaults(AutoMLConf))
