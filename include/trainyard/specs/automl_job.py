"""`AutoMLJobSpec`: one AutoML job over a table, in the service's vocabulary."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

from trainyard.errors import SpecError
from trainyard.specs.automl_job_rules import automl_findings
from trainyard.specs.reading import read_spec


class ProblemType(StrEnum):
    """Kind of prediction."""

    BINARY_CLASSIFICATION = "BinaryClassification"
    MULTICLASS_CLASSIFICATION = "MulticlassClassification"
    REGRESSION = "Regression"


class AutoMLMode(StrEnum):
    """Method by which candidates are made."""

    AUTO = "AUTO"
    """ENSEMBLING for data up to 100 MB, HYPERPARAMETER_TUNING beyond."""
    ENSEMBLING = "ENSEMBLING"
    """Several algorithms, and at last a model made of the best of them."""
    HYPERPARAMETER_TUNING = "HYPERPARAMETER_TUNING"
    """A search over the hyperparameters of few algorithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLJobSpec:
    """One AutoML job: a table, the column to predict, and what the search may take.

    Attributes:
        train: `s3://` prefix of the training rows; so is `validation`, without which the service splits or
            cross-validates.
        target: the column to predict.
        problem_type: inferred from the target when absent; goes only together with `objective`.
        objective: the metric to choose by, by the service's name, such as `F1`, `AUC`, `MSE`.
        algorithms: of the mode's; all of them when empty.
        max_candidates: models that are fitted.
        max_runtime_s: of the whole job; a job that it ends hands on the best candidate so far.
        max_runtime_per_candidate_s: of one candidate's training job.
        validation_fraction: share of the training rows that is held out, above 0 and below 1.
        budget_usd: what all jobs of all attempts of the task may cost by the on-demand price; None = no bound. The
            request's time limit is set so that `num_parallel` candidates on `candidate_instance_type` cannot cross it.
        candidate_instance_type: what the service is taken to train on: it chooses by itself, and does not say before.
        num_parallel: how many candidates it is taken to train at a time.
    """

    role: str
    train: str
    target: str
    output_path: str
    validation: str | None = None
    problem_type: ProblemType | None = None
    objective: str | None = None
    mode: AutoMLMode = AutoMLMode.AUTO
    algorithms: tuple[str, ...] = ()
    max_candidates: int | None = None
    max_runtime_s: int | None = None
    max_runtime_per_candidate_s: int | None = None
    validation_fraction: float | None = None
    sample_weight: str | None = None
    feature_specification: str | None = None
    content_type: str = "text/csv;header=present"
    compression: str = "None"
    s3_data_type: str = "S3Prefix"
    budget_usd: float | None = None
    candidate_instance_type: str = "ml.m5.4xlarge"
    num_parallel: int = 2
    output_kms_key: str | None = None
    volume_kms_key: str | None = None
    subnets: tuple[str, ...] = ()
    security_group_ids: tuple[str, ...] = ()
    encrypt_inter_container_traffic: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    raw_request_overrides: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Check what this one spec can know.

        Raises:
            SpecError: everything that is wrong, at once.
        """
        findings = list(automl_findings(self))
        if findings:
            raise SpecError(findings, subject="AutoMLJobSpec")

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, where: str = "") -> Self:
        """Return the spec read from plain data.

        A SpecError names every unknown key (with the nearest known one) and wrong type at once.
        """
        return read_spec(cls, mapping, where=where)
