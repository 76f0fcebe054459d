"""`AutoMLJobSpec`: one AutoML job over a table, in the service's vocabulary.

The limits are those of the API reference, November 2026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain
from typing import Any

from trainyard.errors import Finding, SpecError, not_an_s3_uri
from trainyard.specs.reading import FromMapping

METRICS = {
    "BinaryClassification": ("F1", "Accuracy", "AUC", "BalancedAccuracy", "Precision", "Recall"),
    "MulticlassClassification": (
        *("Accuracy", "BalancedAccuracy", "F1macro", "PrecisionMacro", "RecallMacro"),
    ),
    "Regression": ("MSE", "RMSE", "MAE", "R2"),
}
"""The service's metrics per problem type, its default first."""
MAX_CANDIDATES = 750
_ADDRESSES = ("train", "validation", "output_path", "feature_specification")
_COUNTS = (
    *("max_candidates", "max_runtime_s", "max_runtime_per_candidate_s", "budget_usd"),
    "num_parallel",
)


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
class AutoMLJobSpec(FromMapping):
    """One AutoML job: a table, the column to predict, and the limits of the search.

    Attributes:
        train: `s3://` prefix of the training rows.
        validation: `s3://` prefix of the validation rows; without it the service splits or cross-validates.
        target: the column to predict.
        problem_type: kind of prediction; None = the service infers it from the target. Set `problem_type` and
            `objective` both, or neither.
        objective: the metric that ranks candidates, by the service's name, such as `F1`, `AUC`, `MSE`.
        algorithms: algorithms to use, a subset of those of the given `mode`; empty = all of them. Must be empty
            if `mode` is AUTO.
        max_candidates: largest number of fitted models.
        max_runtime_s: time limit of the whole job; at the limit the best candidate so far is the result.
        max_runtime_per_candidate_s: time limit of one candidate's training job.
        validation_fraction: share of the training rows to hold out, above 0 and below 1.
        budget_usd: limit for the cost of all jobs over all attempts of the task, at the on-demand price; None =
            no limit. The request's time limit is chosen so that `num_parallel` candidates on
            `candidate_instance_type` cannot exceed the budget.
        candidate_instance_type: assumed instance type of the candidates; the service chooses the actual one
            later.
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
        """Check the fields of the spec.

        Raises:
            SpecError: fields are invalid; the error lists all faults.
        """
        if findings := list(chain.from_iterable(self.checks())):
            raise SpecError(findings, subject="AutoMLJobSpec")

    def checks(self) -> Iterator[Iterable[Finding]]:
        """Yield the findings of each rule, as one lazy iterable per rule."""
        for name in _ADDRESSES:
            yield _address(self, name)
        for name in _COUNTS:
            yield _above_zero(self, name)
        for rule in _RULES:
            yield rule(self)


def _address(spec: AutoMLJobSpec, name: str) -> Iterator[Finding]:
    uri = getattr(spec, name)
    if uri is not None and not uri.startswith("s3://"):
        yield not_an_s3_uri(name, uri)


def _above_zero(spec: AutoMLJobSpec, name: str) -> Iterator[Finding]:
    value = getattr(spec, name)
    if value is not None and value <= 0:
        yield Finding(where=name, what="must be above 0", got=str(value))


def _most_candidates(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if spec.max_candidates is not None and spec.max_candidates > MAX_CANDIDATES:
        yield Finding(
            where="max_candidates",
            what="is more than the service allows",
            got=str(spec.max_candidates),
            allowed=f"at most {MAX_CANDIDATES}",
        )


def _fraction(spec: AutoMLJobSpec) -> Iterator[Finding]:
    fraction = spec.validation_fraction
    if fraction is not None and not 0 < fraction < 1:
        yield Finding(
            where="validation_fraction",
            what="is not a share of the rows",
            got=str(fraction),
            allowed="above 0 and below 1; below 0.5 is recommended",
        )


def _runtimes(spec: AutoMLJobSpec) -> Iterator[Finding]:
    one, whole = spec.max_runtime_per_candidate_s, spec.max_runtime_s
    if one is not None and whole is not None and one > whole:
        yield Finding(
            where="max_runtime_per_candidate_s",
            what="is longer than the whole job",
            got=f"{one} s",
            allowed=f"at most {whole} s (max_runtime_s)",
        )


def _objective(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if (spec.problem_type is None) != (spec.objective is None):
        given = "objective" if spec.problem_type is None else "problem_type"
        missing = "problem_type" if spec.problem_type is None else "objective"
        yield Finding(
            where=missing,
            what=f"is required with {given}",
            got="None",
            next_step=f"set {missing}, or remove {given}: the service then chooses both",
        )
    elif spec.problem_type is not None and spec.objective not in METRICS[spec.problem_type]:
        yield Finding(
            where="objective",
            what=f"is not a metric of {spec.problem_type}",
            got=str(spec.objective),
            allowed=", ".join(METRICS[spec.problem_type]),
        )


def _target(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if not spec.target:
        yield Finding(
            where="target",
            what="must name a column",
            got=repr(spec.target),
            next_step="set it to the column to predict",
        )


def _algorithms(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if spec.algorithms and spec.mode == "AUTO":
        yield Finding(
            where="algorithms",
            what="cannot be chosen if the service chooses the mode",
            got=", ".join(spec.algorithms),
            next_step="set mode to ENSEMBLING or HYPERPARAMETER_TUNING",
        )


def _sample_weight(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if spec.sample_weight and spec.mode != "ENSEMBLING":
        yield Finding(
            where="sample_weight",
            what="is supported in one mode only",
            got=f"mode {spec.mode}",
            allowed="mode ENSEMBLING",
        )


def _validation(spec: AutoMLJobSpec) -> Iterator[Finding]:
    if spec.validation and spec.validation_fraction is not None:
        yield Finding(
            where="validation_fraction",
            what="cannot be combined with a validation channel",
            got=f"{spec.validation_fraction} with validation {spec.validation}",
            next_step="remove one of them",
        )


_RULES = (
    *(_most_candidates, _fraction, _runtimes, _objective),
    *(_target, _algorithms, _sample_weight, _validation),
)
