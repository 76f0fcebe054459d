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
    """Method that creates the candidates."""

    AUTO = "AUTO"
    """ENSEMBLING for data up to 100 MB, HYPERPARAMETER_TUNING for more."""
    ENSEMBLING = "ENSEMBLING"
    """Several algorithms, combined into an ensemble of the best models."""
    HYPERPARAMETER_TUNING = "HYPERPARAMETER_TUNING"
    """A search over the hyperparameters of a few algorithms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoMLJobSpec:
    """One AutoML job: a table, the column to predict, and the limits of the search.

    Attributes:
        train: `s3://` prefix of the training rows.
        validation: `s3://` prefix of the validation rows; without it the service splits or cross-validates.
        target: the column to predict.
        problem_type: inferred from the target if absent; requires `objective`, and `objective` requires it.
        objective: the metric that ranks candidates, by the service's name, such as `F1`, `AUC`, `MSE`.
        algorithms: a subset of the mode's algorithms; empty = all of them.
        max_candidates: largest number of fitted models.
        max_runtime_s: time limit of the whole job; at the limit the best candidate so far is the result.
        max_runtime_per_candidate_s: time limit of one candidate's training job.
        validation_fraction: share of the training rows to hold out, above 0 and below 1.
        budget_usd: limit for the cost of all jobs over all attempts of the task, at the on-demand price; None = no
            limit. The request's time limit is chosen so that `num_parallel` candidates on `candidate_instance_type`
            cannot exceed it.
        candidate_instance_type: assumed instance type of the candidates; the service chooses the actual one later.
        num_parallel: assumed number of candidates that train in parallel.
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
        """Check the spec by itself.

        Raises:
            SpecError: there are faults; reports all of them at once.
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
