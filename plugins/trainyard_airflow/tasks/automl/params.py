"""The params of an `autopilot_tabular` run: one JSON schema for the form and the REST API."""

from __future__ import annotations

from trainyard.specs.automl_conf import DATASETS, AutoMLConf
from trainyard.specs.automl_job import MAX_CANDIDATES, METRICS, AutoMLMode, ProblemType
from trainyard_airflow.tasks.shared.form_fields import REGISTRY
from trainyard_airflow.tasks.shared.form_schema import (
    COUNT_OR_NONE,
    FRACTION,
    INTEGER,
    NUMBER_OR_NONE,
    TEXT_OR_NONE,
    Form,
    Sections,
    conf_defaults,
    named,
)

_METRICS = sorted({name for names in METRICS.values() for name in names})
_ALGORITHMS = [
    *("catboost", "extra-trees", "fastai", "lightgbm", "linear-learner", "mlp", "nn-torch"),
    *("randomforest", "xgboost"),
]


_SECTIONS: Sections = {
    "Data": {
        "dataset": (
            "Table",
            "A data set of scikit-learn, or `own`: the CSV files of the source.",
            {"type": "string", "enum": list(DATASETS)},
        ),
        "source": (
            "Source",
            "For `own`: `s3://bucket/prefix` with CSV files with a header.",
            TEXT_OR_NONE,
        ),
        "target_column": ("Target column", "For `own`: the column to predict.", TEXT_OR_NONE),
        "test_fraction": (
            "Test share",
            "Share of the rows that the search does not use.",
            FRACTION,
        ),
        "validation_fraction": (
            "Validation share",
            "Share of the rows that rank the candidates. 0: the service splits.",
            {"type": "number", "minimum": 0, "exclusiveMaximum": 1},
        ),
        "seed": ("Seed", "Seed of the split.", INTEGER),
    },
    "Search": {
        "mode": (
            "Mode",
            "ENSEMBLING or HYPERPARAMETER_TUNING of candidates; AUTO: by the size of the data.",
            {"type": "string", "enum": list(AutoMLMode)},
        ),
        "problem_type": (
            "Problem",
            "Empty: inferred from the target. Set it together with the objective.",
            {"type": ["null", "string"], "enum": [None, *ProblemType]},
        ),
        "objective": (
            "Objective",
            "Metric that ranks the candidates. Empty: F1, Accuracy or MSE.",
            {"type": ["null", "string"], "enum": [None, *_METRICS]},
        ),
        "algorithms": (
            "Algorithms",
            "Algorithms of the mode. Empty: all.",
            {"type": "array", "items": {"type": "string", "enum": _ALGORITHMS}},
        ),
        "max_candidates": (
            "Candidates",
            "Largest number of candidate models.",
            {"type": "integer", "minimum": 1, "maximum": MAX_CANDIDATES},
        ),
    },
    "Time and money": {
        "max_time_s": (
            "Time of the search",
            "Seconds; then the best candidate so far wins.",
            COUNT_OR_NONE,
        ),
        "max_time_per_candidate_s": ("Time of one candidate", "Seconds.", COUNT_OR_NONE),
        "budget_usd": (
            "Budget",
            "USD. Sets a time limit, by the price of assumed instances. The service may choose others, and cost more.",
            NUMBER_OR_NONE,
        ),
        "instance_type": (
            "Instance type",
            "Instance type of the jobs that prepare the data and evaluate the model.",
            named("instance_type"),
        ),
        "max_run_s": ("Time of those jobs", "Seconds per job.", INTEGER),
        "image_uri": (
            "Image of the preparation",
            "Empty: AWS's scikit-learn image.",
            named("image_uri", or_none=True),
        ),
    },
    "Place and registry": REGISTRY,
}

FORM = Form(_SECTIONS, conf_defaults(AutoMLConf))
