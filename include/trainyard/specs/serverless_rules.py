"""Rules for the spec of a serverless job: fine-tuning or evaluation of a model of the hub (`serverless_job_config`).

Source: `ServerlessJobConfig` of botocore's service model, and the SDK's `SFTTrainer`, `DPOTrainer`, `RLVRTrainer` and
`RLAIFTrainer` (sagemaker-train 1.27.0).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

    from trainyard.specs.training_job import TrainingJobSpec

FINE_TUNING, EVALUATION = "FineTuning", "Evaluation"
TECHNIQUES = ("SFT", "DPO", "RLVR", "RLAIF")
JUDGED = ("RLVR", "RLAIF")
"""Techniques whose reward is an evaluator of the hub."""
OF_INSTANCES = (
    *("instance_type", "instance_count", "instance_groups", "instance_preferences"),
    *("instance_placement_config", "training_plan", "capacity_ladder", "use_spot_instances"),
    *("max_wait", "keep_alive_period_in_seconds", "volume_kms_key"),
)
OF_CODE = (
    *("image_uri", "algorithm_name", "entry_point", "source_dir", "arguments", "distribution"),
    *(
        "requirements",
        "container_entry_point",
        "container_arguments",
        "forward_sigterm",
        "metric_definitions",
    ),
    *("checkpoint_s3_uri", "checkpoint_local_path", "debugger_hook_config", "rules"),
)
OF_PRICE = ("budget_usd", "max_cost_usd")


def serverless_findings(spec: TrainingJobSpec) -> Iterator[Finding]:
    """Yield every fault in the spec of a serverless job; yield nothing for the spec of another job."""
    config = spec.serverless_job_config
    if not config:
        return
    for names, what in (
        (OF_INSTANCES, "has no effect on a serverless job, whose instances SageMaker chooses"),
        (OF_CODE, "has no effect on a serverless job, which runs SageMaker's own recipe"),
        (OF_PRICE, "cannot be enforced for a serverless job, whose price per hour is not known"),
    ):
        for name in names:
            if getattr(spec, name):
                yield Finding(
                    where=name, what=what, next_step="remove it, or remove serverless_job_config"
                )
    yield from _config_findings(config)
    if not (spec.model_package_config or {}).get("ModelPackageGroupArn"):
        yield Finding(
            where="model_package_config.ModelPackageGroupArn",
            what="is required for a serverless job, which registers its model in this group",
            next_step="set it to the ARN of a model package group",
        )


def _config_findings(config: Mapping[str, Any]) -> Iterator[Finding]:
    place = "serverless_job_config"
    kind, technique = config.get("JobType"), config.get("CustomizationTechnique")
    if not config.get("BaseModelArn"):
        yield Finding(
            where=f"{place}.BaseModelArn",
            what="is required",
            next_step="set it to the ARN of a model of SageMaker's public hub",
        )
    if kind not in (FINE_TUNING, EVALUATION):
        yield Finding(
            where=f"{place}.JobType",
            what="is not an allowed value" if kind else "is required",
            got=kind,
            allowed=f"{FINE_TUNING}, {EVALUATION}",
        )
    elif kind == EVALUATION and not config.get("EvaluationType"):
        yield Finding(
            where=f"{place}.EvaluationType", what=f"is required if JobType is {EVALUATION}"
        )
    elif kind == FINE_TUNING and technique not in TECHNIQUES:
        yield Finding(
            where=f"{place}.CustomizationTechnique",
            what="is not an allowed value"
            if technique
            else f"is required if JobType is {FINE_TUNING}",
            got=technique,
            allowed=", ".join(TECHNIQUES),
        )
    if technique in JUDGED and not config.get("EvaluatorArn"):
        yield Finding(
            where=f"{place}.EvaluatorArn",
            what=f"is required for {technique}, because the evaluator calculates the reward",
            next_step="set it to the ARN of an evaluator of your hub",
        )
