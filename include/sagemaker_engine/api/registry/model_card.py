"""Check of a model package's model card: AWS's published schema, version 0.1.0.

Source: SageMaker Developer Guide, "View the Details of a Model Version", model package model card schema (2026-11).
The guide's schema limits some arrays by `maxContains`, others by a `maxItems` in the schema of their items. The engine
reads both as the maximum length of the array. A pattern must match the whole text. Unknown members are rejected, except
in the two objects that the schema leaves open (`additionalProperties`). The service's own wording of a violation is not
published.
"""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any, NoReturn

from sagemaker_engine.wire.errors import ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    Check = Callable[[Any, str], Iterator[str]]
    """Yields a sentence for each violation of a value at a path."""


def check_model_card(request: Mapping[str, Any], *, known: Mapping[str, Any] | None = None) -> None:
    """Check the ModelCard in a request of CreateModelPackage or UpdateModelPackage, if it has one.

    Args:
        request: Members of the request.
        known: The card that the package has before the request; None if it has none.

    Raises:
        ValidationError: The content of the new card violates the schema, or the card `known` is archived.
    """
    if "ModelCard" not in request:
        return
    if (known or {}).get("ModelCardStatus") == "Archived":
        raise ValidationError("Model Card is in Archived state")
    content = request["ModelCard"].get("ModelCardContent")
    if content is None:
        return
    try:
        document = json.loads(content, parse_constant=_refuse)
    except ValueError as error:
        raise ValidationError(f"ModelCardContent is not valid JSON: {error}") from error
    faults = list(_CARD(document, "$"))
    if faults:
        raise ValidationError(
            f"ModelCardContent does not match the model card schema: {'; '.join(faults)}"
        )


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not a JSON value")


def _text(most: int, *, least: int = 0, choices: tuple[str, ...] = ()) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str):
            yield f"{path} is not a string"
        elif choices and value not in choices:
            yield f"{path} is {value!r}; allowed: {', '.join(choices)}"
        elif not least <= len(value) <= most:
            yield f"{path} has {len(value)} characters; allowed: {least} to {most}"
        elif least and "\n" in value:
            yield f"{path} has more than one line"

    return check


def _anything(value: Any, path: str) -> Iterator[str]:  # noqa: ARG001  # a Check
    yield from ()


def _number(value: Any, path: str) -> Iterator[str]:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value):
        yield f"{path} is not a number"


def _boolean(value: Any, path: str) -> Iterator[str]:
    if not isinstance(value, bool):
        yield f"{path} is not true or false"


def _array(item: Check, *, most: int | None = None, least: int = 0) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            yield f"{path} is not an array"
            return
        if len(value) < least or (most is not None and len(value) > most):
            yield f"{path} has {len(value)} items; allowed: {least} to {most or 'any'}"
        for index, each in enumerate(value):
            yield from item(each, f"{path}[{index}]")

    return check


def _object(
    members: Mapping[str, Check], *, required: tuple[str, ...] = (), others: Check | None = None
) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{path} is not an object"
            return
        yield from (f"{path}.{name} is required" for name in required if name not in value)
        for name, each in value.items():
            member = members.get(name, others)
            if member is None:
                yield f"{path}.{name} is not in the schema"
            else:
                yield from member(each, f"{path}.{name}")

    return check


def _any_of(*checks: Check) -> Check:
    def check(value: Any, path: str) -> Iterator[str]:
        if all(any(True for _ in each(value, path)) for each in checks):
            yield f"{path} matches none of the allowed forms"

    return check


def _texts(*names: str, most: int) -> dict[str, Check]:
    return dict.fromkeys(names, _text(most))


_NAME = _text(255, least=1)
_ADDRESSES = _array(_text(1024), most=15)
_AXIS, _AXES = _text(63), _array(_text(63))


def _metric(kinds: tuple[str, ...], value: Check, *, x: Check, y: Check) -> Check:
    members = {"name": _NAME, "notes": _text(1024), "type": _text(63, choices=kinds)}
    return _object(
        {**members, "value": value, "x_axis_name": x, "y_axis_name": y},
        required=("name", "type", "value"),
    )


_METRIC = _any_of(
    _metric(
        ("number", "string", "boolean"), _any_of(_number, _text(63), _boolean), x=_AXIS, y=_AXIS
    ),
    _metric(("linear_graph",), _array(_array(_number, least=2, most=2), least=1), x=_AXIS, y=_AXIS),
    _metric(("bar_chart",), _array(_number, least=1), x=_AXES, y=_AXIS),
    _metric(
        ("matrix",),
        _array(_array(_number, least=1, most=20), least=1, most=20),
        x=_AXES,
        y=_AXES,
    ),
)
_METRIC_GROUP = _object(
    {"name": _text(63, least=1), "metric_data": _array(_METRIC)},
    required=("name", "metric_data"),
    others=_anything,
)
_EVALUATION = _object(
    {
        "name": _text(63, least=1),
        "evaluation_observation": _text(2096),
        "evaluation_job_arn": _text(256),
        "datasets": _array(_text(1024), most=10),
        "metadata": _object({}, others=_text(1024)),
        "metric_groups": _array(_METRIC_GROUP),
    },
    required=("name",),
)
_TRAINING_METRICS = _array(
    _object({"name": _NAME, "notes": _text(1024), "value": _number}, required=("name", "value")),
    most=50,
)
_HYPERPARAMETERS = _array(
    _object({"name": _NAME, "value": _NAME}, required=("name", "value")), most=100
)
_OBJECTIVE = _object(
    {
        "function": _object(
            {"function": _text(63, choices=("Maximize", "Minimize"))}
            | _texts("facet", "condition", most=63)
        ),
        "notes": _text(1024),
    },
    others=_anything,
)
_TRAINING_JOB = _object(
    {
        "training_arn": _text(1024),
        "training_datasets": _ADDRESSES,
        "training_environment": _object({"container_image": _ADDRESSES}),
        "training_metrics": _TRAINING_METRICS,
        "user_provided_training_metrics": _TRAINING_METRICS,
        "hyper_parameters": _HYPERPARAMETERS,
        "user_provided_hyper_parameters": _HYPERPARAMETERS,
    }
)
_CARD = _object(
    {
        "model_overview": _object({"model_creator": _text(1024), "model_artifact": _ADDRESSES}),
        "intended_uses": _object(
            {"risk_rating": _text(63, choices=("High", "Medium", "Low", "Unknown"))}
            | _texts("purpose_of_model", "intended_uses", most=2048)
            | _texts(
                "factors_affecting_model_efficiency", "explanations_for_risk_rating", most=2048
            )
        ),
        "business_details": _object(
            _texts("business_problem", "business_stakeholders", "line_of_business", most=2048)
        ),
        "training_details": _object(
            {
                "objective_function": _OBJECTIVE,
                "training_observations": _text(1024),
                "training_job_details": _TRAINING_JOB,
            }
        ),
        "evaluation_details": _array(_EVALUATION),
        "additional_information": _object(
            _texts("ethical_considerations", "caveats_and_recommendations", most=2048)
            | {"custom_details": _object({}, others=_text(1024))}
        ),
    }
)
