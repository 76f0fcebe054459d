"""Rules for one AutoML job spec by itself; limits by the API reference, November 2026."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trainyard.errors import Finding, not_an_s3_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.specs.automl_job import AutoMLJobSpec

METRICS = {
    "BinaryClassification": ("F1", "Accuracy", "AUC", "BalancedAccuracy", "Precision", "Recall"),
    "MulticlassClassification": (
        *("Accuracy", "BalancedAccuracy", "F1macro", "PrecisionMacro", "RecallMacro"),
    ),
    "Regression": ("MSE", "RMSE", "MAE", "R2"),
}
"""The service's metrics per problem type, its default first."""
MAX_CANDIDATES = 750
_COUNTS = (
    *("max_candidates", "max_runtime_s", "max_runtime_per_candidate_s", "budget_usd"),
    "num_parallel",
)


def automl_findings(spec: AutoMLJobSpec) -> Iterator[Finding]:
    """Yield every fault of the spec."""
    yield from _addresses(spec)
    yield from _bounds(spec)
    yield from _objective(spec)
    if not spec.target:
        yield Finding(where="target", what="must name a column", got=repr(spec.target))
    if spec.algorithms and spec.mode == "AUTO":
        yield Finding(
            where="algorithms",
            what="cannot be chosen if the service chooses the mode",
            got=", ".join(spec.algorithms),
            next_step="set mode to ENSEMBLING or HYPERPARAMETER_TUNING",
        )
    if spec.sample_weight and spec.mode != "ENSEMBLING":
        yield Finding(
            where="sample_weight",
            what="is supported in one mode only",
            got=f"mode {spec.mode}",
            allowed="mode ENSEMBLING",
        )
    if spec.validation and spec.validation_fraction is not None:
        yield Finding(
            where="validation_fraction",
            what="cannot be combined with a validation channel",
            got=f"{spec.validation_fraction}, and validation {spec.validation}",
        )


def _addresses(spec: AutoMLJobSpec) -> Iterator[Finding]:
    for name in ("train", "validation", "output_path", "feature_specification"):
        uri = getattr(spec, name)
        if uri is not None and not uri.startswith("s3://"):
            yield not_an_s3_uri(name, uri)


def _bounds(spec: AutoMLJobSpec) -> Iterator[Finding]:
    for name in _COUNTS:
        value = getattr(spec, name)
        if value is not None and value <= 0:
            yield Finding(where=name, what="must be above 0", got=str(value))
    if spec.max_candidates is not None and spec.max_candidates > MAX_CANDIDATES:
        yield Finding(
            where="max_candidates",
            what="is more than the service allows",
            got=str(spec.max_candidates),
            allowed=f"at most {MAX_CANDIDATES}",
        )
    fraction = spec.validation_fraction
    if fraction is not None and not 0 < fraction < 1:
        yield Finding(
            where="validation_fraction",
            what="is not a share of the rows",
            got=str(fraction),
            allowed="above 0 and below 1; below 0.5 is recommended",
        )
    one, whole = spec.max_runtime_per_candidate_s, spec.max_runtime_s
    if one is not None and whole is not None and one > whole:
        yield Finding(
            where="max_runtime_per_candidate_s",
            what="is longer than the whole job",
            got=f"{one} s",
            allowed=f"at most max_runtime_s, {whole} s",
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
