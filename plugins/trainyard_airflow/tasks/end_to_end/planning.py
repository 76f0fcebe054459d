"""The operator and the form of the DAG `plan_training`.

`PlanOperator` ranks plans for a training: instances and parallelism, with time and cost. The task logs the
plans as a table and returns them. It starts no job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator

from trainyard.planning.plan_request import PRECISIONS, PlanRequest
from trainyard.planning.plan_table import plan_table
from trainyard.planning.plans import make_plans
from trainyard.planning.shapes import EAGER, FLASH, GPT, LLAMA, PUBLISHED, TRAINYARD
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.shared.form_schema import COUNT_OR_NONE, Form, Sections, conf_defaults

if TYPE_CHECKING:
    from airflow.sdk import Context

_AMOUNT: dict[str, Any] = {"type": "number", "exclusiveMinimum": 0}
_AMOUNT_OR_NONE: dict[str, Any] = {"type": ["null", "number"], "exclusiveMinimum": 0}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 1}
_SHAPE_HELP = "Part of the shape. Empty with a published model."
_DEFAULTS = {"model": "gpt2-124m", "global_batch_size": 480, "tokens": 9e9}
"""nanoGPT's training of GPT-2."""

_SECTIONS: Sections = {
    "Model": {
        "model": (
            "Published model",
            "Empty: by the shape below, or by the number of parameters.",
            {"type": ["null", "string"], "enum": [None, *PUBLISHED]},
        ),
        "num_parameters": ("Parameters", "A llama shape of about this size.", _AMOUNT_OR_NONE),
        "num_layers": ("Layers", _SHAPE_HELP, COUNT_OR_NONE),
        "hidden_size": ("Hidden size", _SHAPE_HELP, COUNT_OR_NONE),
        "num_heads": ("Attention heads", _SHAPE_HELP, COUNT_OR_NONE),
        "num_kv_heads": (
            "Key-value heads",
            "For grouped-query attention. Empty: as many as attention heads.",
            COUNT_OR_NONE,
        ),
        "feed_forward_size": (
            "Feed-forward size",
            "Width of the feed-forward layer. Empty: the family's.",
            COUNT_OR_NONE,
        ),
        "family": (
            "Family",
            "Architecture of a block.",
            {"type": "string", "enum": [LLAMA, GPT, TRAINYARD]},
        ),
        "attention": (
            "Attention",
            "eager keeps the attention scores in memory, flash does not.",
            {"type": "string", "enum": [FLASH, EAGER]},
        ),
        "vocab_size": (
            "Vocabulary",
            "Tokens. Empty: the published model's, or 50,304.",
            COUNT_OR_NONE,
        ),
        "sequence_length": (
            "Sequence length",
            "Tokens. Empty: the published model's, or 2,048.",
            COUNT_OR_NONE,
        ),
        "global_batch_size": ("Global batch", "Sequences.", _COUNT),
        "tokens": ("Tokens", "Number of tokens to train on.", _AMOUNT),
        "precision": (
            "Precision",
            "Of weights and computation.",
            {"type": "string", "enum": list(PRECISIONS)},
        ),
        "compile": ("Compiled", "Use torch.compile.", {"type": "boolean"}),
    },
    "Time, money and instances": {
        "deadline_h": ("Deadline", "Hours.", _AMOUNT_OR_NONE),
        "budget_usd": ("Budget", "USD.", _AMOUNT_OR_NONE),
        "instance_types": (
            "Instance types",
            "Empty: all NVIDIA types of the catalogue.",
            {"type": "array", "items": {"type": "string"}},
        ),
        "max_instances": ("Most instances", "Limit for the largest type of a family.", _COUNT),
        "instance_count": ("Instances", "Empty: any number up to that limit.", COUNT_OR_NONE),
    },
}


FORM = Form(_SECTIONS, {**conf_defaults(PlanRequest), **_DEFAULTS})
"""Form of `plan_training`: the fields of `PlanRequest`; the defaults are nanoGPT's GPT-2 training."""


@retried_by_error
class PlanOperator(BaseOperator):
    """Ranks ways to train a model; returns `Plans.to_dict()` and logs the table."""

    ui_color = "#e8f4fd"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the ranked plans for the training that the run's params describe.

        Raises:
            SpecError: the params contradict each other; the error lists all findings.
            PlanError: no cluster fits; the error has the reason for each cluster.
        """
        request = PlanRequest.from_mapping(dict(context["params"]))
        plans = make_plans(request)
        for line in plan_table(request, plans):
            self.log.info("%s", line)
        return plans.to_dict()
