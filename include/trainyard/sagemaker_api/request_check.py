"""Full check of a request against botocore's description of SageMaker's API.

botocore itself checks types, names, required members and minimums. The service also rejects wrong enums, patterns and
maximums. This module checks all of them before anything is sent, and reports all faults at once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, near_matches, shortened, unknown_key

if TYPE_CHECKING:
    from botocore.model import ServiceModel, Shape

_FEW = 12
_SECRET_MEMBERS = ("Environment",)


def validate_request(operation: str, request: Mapping[str, Any]) -> None:
    """Check a request against botocore's description of SageMaker's API.

    The check covers required members, unknown members (naming the nearest), types, enums, patterns, minimums and
    maximums. Messages never contain values of environment variables.

    Raises:
        SpecError: there are faults; the error lists all of them, each with its path (`ResourceConfig.InstanceType`).
    """
    findings = list(request_findings(operation, request))
    if findings:
        raise SpecError(findings, subject=f"{operation} request")


def request_findings(operation: str, request: Mapping[str, Any]) -> Iterator[Finding]:
    """Yield every fault of the request."""
    yield from _check(_input_shape(operation), request, "")


def accepted_items(
    operation: str, *members: str, model: ServiceModel | None = None
) -> frozenset[str]:
    """Return the values that the items of a list in a request may have.

    AWS adds values with new releases of botocore, so an older botocore, such as MWAA's, accepts fewer values.

    Args:
        operation: such as `CreateModelPackage`.
        members: path of the list in the request.
        model: botocore's description of SageMaker's API; by default that of the installed botocore.
    """
    shape: Any = _operation_input(model or _installed_model(), operation)
    for name in members:
        shape = shape.members[name]
    return frozenset(shape.member.enum)


@cache
def _input_shape(operation: str) -> Shape:
    return _operation_input(_installed_model(), operation)


def _operation_input(model: ServiceModel, operation: str) -> Shape:
    shape = model.operation_model(operation).input_shape
    assert shape is not None, operation  # noqa: S101  # every Create operation has one
    return shape


@cache
def _installed_model() -> ServiceModel:
    from botocore.loaders import Loader  # noqa: PLC0415  # DAG files import this module
    from botocore.model import ServiceModel  # noqa: PLC0415

    return ServiceModel(Loader().load_service_model("sagemaker", "service-2"), "sagemaker")


def _check(shape: Any, value: object, path: str) -> Iterator[Finding]:
    wrong = _wrong_type(shape, value, path)
    if wrong:
        yield wrong
        return
    match shape.type_name:
        case "structure":
            yield from _structure(shape, value, path)
        case "list":
            yield from _limits(shape, len(value), path, "items")  # type: ignore[arg-type]
            for index, each in enumerate(value):  # type: ignore[arg-type,var-annotated]
                yield from _check(shape.member, each, f"{path}[{index}]")
        case "map":
            yield from _limits(shape, len(value), path, "entries")  # type: ignore[arg-type]
            for key, each in value.items():  # type: ignore[attr-defined]
                yield from _check(shape.key, key, f"{path}.{key} (name)")
                yield from _check(shape.value, each, f"{path}.{key}")
        case "string":
            yield from _text(shape, str(value), path)
        case "integer" | "long" | "float" | "double":
            yield from _limits(shape, value, path, "")  # type: ignore[arg-type]
        case _:
            pass


def _structure(shape: Any, value: Any, path: str) -> Iterator[Finding]:
    for name in shape.required_members:
        if name not in value:
            yield Finding(where=_joined(path, name), what="is required")
    for name, each in value.items():
        if name in shape.members:
            yield from _check(shape.members[name], each, _joined(path, name))
        else:
            yield unknown_key(path, name, list(shape.members))


_TYPES: Mapping[str, tuple[tuple[type, ...], str]] = {
    "structure": ((Mapping,), "a mapping"),
    "map": ((Mapping,), "a mapping"),
    "list": ((list, tuple), "a list"),
    "string": ((str,), "text"),
    "boolean": ((bool,), "true or false"),
    "integer": ((int,), "a whole number"),
    "long": ((int,), "a whole number"),
    "float": ((int, float), "a number"),
    "double": ((int, float), "a number"),
}


def _wrong_type(shape: Any, value: object, path: str) -> Finding | None:
    kinds, wanted = _TYPES.get(shape.type_name, ((object,), ""))
    is_bool_as_number = isinstance(value, bool) and shape.type_name != "boolean"
    if isinstance(value, kinds) and not is_bool_as_number:
        return None
    got = f"{_shown(path, value)} ({type(value).__name__})"
    return Finding(where=path, what="has the wrong type", got=got, allowed=wanted)


def _text(shape: Any, value: str, path: str) -> Iterator[Finding]:
    if shape.enum:
        if value not in shape.enum:
            near = near_matches(value, shape.enum)
            few = len(shape.enum) <= _FEW
            yield Finding(
                where=path,
                what="is not a value that SageMaker accepts",
                got=_shown(path, value),
                allowed=", ".join(shape.enum) if few else f"{len(shape.enum)} values",
                next_step=f"nearest: {', '.join(near)}" if near and not few else None,
            )
        return
    yield from _limits(shape, len(value), path, "characters")
    most = shape.metadata.get("max")
    pattern = _pattern(shape.metadata.get("pattern", ""))
    if pattern and (most is None or len(value) <= most) and not pattern.fullmatch(value):
        yield Finding(
            where=path,
            what="does not match SageMaker's pattern",
            got=_shown(path, value),
            allowed=shortened(shape.metadata["pattern"], limit=120),
        )


def _limits(shape: Any, size: float, path: str, unit: str) -> Iterator[Finding]:
    least, most = shape.metadata.get("min"), shape.metadata.get("max")
    if (least is None or size >= least) and (most is None or size <= most):
        return
    allowed = f"at least {least}" if most is None else f"{least or 0} to {most}"
    what = (
        ("is too long" if unit == "characters" else f"has too many {unit}")
        if unit
        else "is too large"
    )
    if least is not None and size < least:
        what = (
            ("is too short" if unit == "characters" else f"has too few {unit}")
            if unit
            else "is too small"
        )
    yield Finding(
        where=path,
        what=what,
        got=f"{size} {unit}".strip(),
        allowed=f"{allowed} {unit}".strip(),
    )


# The model's patterns are Java's: Unicode classes are named differently there.
_JAVA_CLASSES = (
    (r"\p{L}", r"\w"),
    (r"\p{N}", r"\d"),
    (r"\p{Z}", r"\s"),
    (r"\p{Alnum}", "a-zA-Z0-9"),
)


@cache
def _pattern(text: str) -> re.Pattern[str] | None:
    """Return the compiled pattern; None if there is none or Python cannot read it."""
    for java, python in _JAVA_CLASSES:
        text = text.replace(java, python)
    try:
        return re.compile(text, re.DOTALL) if text else None
    except re.error:
        return None


def _shown(path: str, value: object) -> str:
    is_secret = path.split(".", maxsplit=1)[0] in _SECRET_MEMBERS and not path.endswith("(name)")
    return "a value that is not shown" if is_secret else shortened(repr(value), limit=120)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
