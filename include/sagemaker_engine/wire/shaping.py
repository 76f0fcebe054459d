"""Reduction of responses to the service's shape: only members of the model, and no null values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sagemaker_engine.wire.model import ServiceModel


def shape_answer(model: ServiceModel, operation: str, answer: dict[str, Any]) -> dict[str, Any]:
    """Return the members of `answer` that are in the operation's output shape, ready for `json.dumps`.

    Timestamps are already epoch seconds; they are rounded to milliseconds, as the service does.
    """
    output = model.output_shape(operation)
    if output is None:
        return {}
    shaped: dict[str, Any] = _shape(model, output, answer)
    return shaped


def _shape(model: ServiceModel, shape_name: str, value: Any) -> Any:
    shape = model.shapes[shape_name]
    match shape["type"]:
        case "structure":
            members = shape["members"]
            return {
                name: _shape(model, members[name]["shape"], item)
                for name, item in value.items()
                if item is not None and name in members
            }
        case "list":
            return [_shape(model, shape["member"]["shape"], item) for item in value]
        case "map":
            return {key: _shape(model, shape["value"]["shape"], v) for key, v in value.items()}
        case "timestamp":
            return round(float(value), 3)
        case _:
            return value
