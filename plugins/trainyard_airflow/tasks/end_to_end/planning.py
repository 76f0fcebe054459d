"""`PlanOperator` and its params: ranked plans of a training, as a table in the log and as a result; starts no job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator, Param

from trainyard.planning.plan_request import PRECISIONS, PlanRequest
from trainyard.planning.plan_table import plan_table
from trainyard.planning.plans import make_plans
from trainyard.planning.shapes import EAGER, FLASH, GPT, LLAMA, PUBLISHED, TRAINYARD
from trainyard_airflow.retry_policy import RETRIES, retried_by_error
from trainyard_airflow.tasks.shared.form_schema import COUNT_OR_NONE, bounded

if TYPE_CHECKING:
    from airflow.sdk import Context

_AMOUNT_OR_NONE: dict[str, Any] = {"type": ["null", "number"], "exclusiveMinimum": 0}


def plan_params() -> dict[str, Param]:
    """Return the params of `plan_training`: the fields of `PlanRequest`; the defaults are nanoGPT's GPT-2 training."""
    model: dict[str, Any] = {"section": "Model"}
    limits: dict[str, Any] = {"section": "Time, money and instances"}
    params = {
        "model": Param(
            "gpt2-124m",
            type=["null", "string"],
            enum=[None, *PUBLISHED],
            title="Published model",
            description="Empty: by the shape below, or by the number of parameters.",
            **model,
        ),
        "num_parameters": Param(
            None,
            **_AMOUNT_OR_NONE,
            title="Parameters",
            description="A llama shape of about this size.",
            **model,
        ),
        "num_layers": Param(
            None,
            **COUNT_OR_NONE,
            title="Layers",
            description="Part of the shape. Empty with a published model.",
            **model,
        ),
        "hidden_size": Param(
            None,
            **COUNT_OR_NONE,
            title="Hidden size",
            description="Part of the shape. Empty with a published model.",
            **model,
        ),
        "num_heads": Param(
            None,
            **COUNT_OR_NONE,
            title="Attention heads",
            description="Part of the shape. Empty with a published model.",
            **model,
        ),
        "num_kv_heads": Param(
            None,
            **COUNT_OR_NONE,
            title="Key-value heads",
            description="For grouped-query attention. Empty: as many as attention heads.",
            **model,
        ),
        "feed_forward_size": Param(
            None,
            **COUNT_OR_NONE,
            title="Feed-forward size",
            description="Width of the feed-forward layer. Empty: the family's.",
            **model,
        ),
        "family": Param(
            LLAMA,
            type="string",
            enum=[LLAMA, GPT, TRAINYARD],
            title="Family",
            description="Architecture of a block.",
            **model,
        ),
        "attention": Param(
            FLASH,
            type="string",
            enum=[FLASH, EAGER],
            title="Attention",
            description="eager keeps the attention scores in memory, flash does not.",
            **model,
        ),
        "vocab_size": Param(
            None,
            **COUNT_OR_NONE,
            title="Vocabulary",
            description="Tokens. Empty: the published model's, or 50,304.",
            **model,
        ),
        "sequence_length": Param(
            None,
            **COUNT_OR_NONE,
            title="Sequence length",
            description="Tokens. Empty: the published model's, or 2,048.",
            **model,
        ),
        "global_batch_size": Param(
            480, type="integer", minimum=1, title="Global batch", description="Sequences.", **model
        ),
        "tokens": Param(
            9e9,
            type="number",
            exclusiveMinimum=0,
            title="Tokens",
            description="Number of tokens to train on.",
            **model,
        ),
        "precision": Param(
            "bf16",
            type="string",
            enum=list(PRECISIONS),
            title="Precision",
            description="Of weights and computation.",
            **model,
        ),
        "compile": Param(
            True,
            type="boolean",
            title="Compiled",
            description="Use torch.compile.",
            **model,
        ),
        "deadline_h": Param(
            None, **_AMOUNT_OR_NONE, title="Deadline", description="Hours.", **limits
        ),
        "budget_usd": Param(None, **_AMOUNT_OR_NONE, title="Budget", description="USD.", **limits),
        "instance_types": Param(
            [],
            type="array",
            items={"type": "string"},
            title="Instance types",
            description="Empty: all NVIDIA types of the catalogue.",
            **limits,
        ),
        "max_instances": Param(
            16,
            type="integer",
            minimum=1,
            title="Most instances",
            description="Limit for the largest type of a family.",
            **limits,
        ),
        "instance_count": Param(
            None,
            **COUNT_OR_NONE,
            title="Instances",
            description="Empty: any number up to that limit.",
            **limits,
        ),
    }
    return bounded(params)


@retried_by_error
class PlanOperator(BaseOperator):
    """Ranks ways to train a model; returns `Plans.to_dict()` and logs the table."""

    ui_color = "#e8f4fd"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**{**RETRIES, **kwargs})

    def execute(self, context: Context) -> dict[str, Any]:
        """Return the plans of the run's params.

        Raises:
            SpecError: the params contradict each other; it lists all findings.
            PlanError: no cluster fits; it has the reason for each cluster.
        """
        request = PlanRequest.from_mapping(dict(context["params"]))
        plans = make_plans(request)
        for line in plan_table(request, plans):
            self.log.info("%s", line)
        return plans.to_dict()
