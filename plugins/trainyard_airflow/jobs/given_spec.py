"""Specs that operators receive as mappings: defaults for the omitted fields, and the check at parse time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from trainyard.errors import Finding, SpecError
from trainyard.sagemaker_api.job_kinds import JobKind
from trainyard.specs.reading import UNKNOWN, check_spec
from trainyard_airflow.jobs.model_trainer import TrainerFunction


@dataclass(frozen=True, slots=True, kw_only=True)
class OmittedFields:
    """Functions that return values for the fields that a spec's mapping omits.

    They are functions because some of the values need the connection, which is known at run time only.

    Attributes:
        role: returns the role to use; its argument is the mapping's `role` or None.
        folder: returns the S3 prefix of a folder of the run; its argument is the folder, such as
            `tuning/output`.
        checkpoints: returns the S3 prefix of the task's checkpoints.
    """

    role: Callable[[Any], Any]
    folder: Callable[[str], Any]
    checkpoints: Callable[[], Any]


AT_PARSE_TIME = OmittedFields(
    role=lambda given: given or UNKNOWN, folder=lambda _: UNKNOWN, checkpoints=lambda: UNKNOWN
)
"""The connection and the run are known at run time only."""


def completed(kind: JobKind, given: Mapping[str, Any], omitted: OmittedFields) -> dict[str, Any]:
    """Return a copy of `given`, the mapping of a job's spec, with values for the fields that it omits."""
    if kind is JobKind.TUNING:
        training = given.get("training")
        if not isinstance(training, Mapping):
            return dict(given)
        return {**given, "training": _with_places(training, omitted, folder="tuning/output")}
    if kind is JobKind.PROCESSING:
        return {**given, "role": omitted.role(given.get("role"))}
    if kind is JobKind.AUTOML:
        return _with_places(given, omitted, folder="automl")
    mapping = _with_places(given, omitted, folder="output")
    needs_checkpoints = mapping.get("use_spot_instances") or mapping.get("training_plan")
    if needs_checkpoints and "checkpoint_s3_uri" not in mapping:
        mapping["checkpoint_s3_uri"] = omitted.checkpoints()
    return mapping


def _with_places(
    given: Mapping[str, Any], omitted: OmittedFields, *, folder: str
) -> dict[str, Any]:
    role = omitted.role(given.get("role"))
    return {
        **given,
        "role": role,
        "output_path": given.get("output_path") or omitted.folder(folder),
    }


def check_given(kind: JobKind, given: Any, *, subject: str) -> None:
    """Check the parts of an operator's spec that are known while the DAG file is parsed.

    A spec object of any class is accepted, because it was checked when it was created. A function is accepted, because
    its result is known at run time only.

    Args:
        kind: the kind of job.
        given: the spec, with `UNKNOWN` in place of each template.
        subject: the operator and its task, for the error.

    Raises:
        SpecError: the spec is wrong; the error lists all faults.
    """
    cls = _spec_class(kind)
    if isinstance(given, TrainerFunction):
        # The trainer has the other fields, or parts of them.
        given = {**dict.fromkeys((each.name for each in fields(cls)), UNKNOWN), **given.fields}
    if given is UNKNOWN or is_dataclass(given) or callable(given):
        return
    if not isinstance(given, Mapping):
        allowed = f"a {cls.__name__}, a mapping of its fields, or a function that returns either"
        wrong = Finding(
            where="spec",
            what="is not a spec",
            got=f"a value of type {type(given).__name__}",
            allowed=allowed,
        )
        raise SpecError(wrong, subject=subject)
    try:
        check_spec(cls, completed(kind, given, AT_PARSE_TIME), where="spec")
    except SpecError as error:
        raise SpecError(error.findings, subject=subject) from None


def _spec_class(kind: JobKind) -> type[Any]:
    """Return the class of the specs of a kind of job; it is imported only if a DAG file has such a job."""
    match kind:
        case JobKind.TRAINING:
            from trainyard.specs.training_job import TrainingJobSpec

            return TrainingJobSpec
        case JobKind.PROCESSING:
            from trainyard.specs.processing_job import ProcessingJobSpec

            return ProcessingJobSpec
        case JobKind.TUNING:
            from trainyard.specs.tuning_job import TuningJobSpec

            return TuningJobSpec
        case JobKind.AUTOML:
            from trainyard.specs.automl_job import AutoMLJobSpec

            return AutoMLJobSpec
