"""Request validation in the wording of the service's front end; it runs before any other check."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from sagemaker_engine.wire.errors import SerializationError, ValidationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sagemaker_engine.wire.model import ServiceModel, Shape

_INTEGER_TYPES = {"integer": "Integer", "long": "Long"}
_LATEST_TIMESTAMP_S = 253_402_300_800  # The end of 9999-12-31, UTC: the latest for clients.
_LARGEST_LONG = 1 << 63
_FRACTION_TYPES = {"float": "Float", "double": "Double"}
# Java writes characters outside the basic plane as two UTF-16 surrogates, Python as one code point.
_SURROGATE = r"\\u[dD][89a-fA-F][0-9a-fA-F]{2}"
_SURROGATE_RANGE = re.compile(f"{_SURROGATE * 2}-{_SURROGATE * 2}")
_ASTRAL_RANGE = r"\\U00010000-\\U0010FFFF"


def validate(model: ServiceModel, operation: str, request: Any) -> None:
    """Check a request that was parsed from JSON against the operation's input shape.

    Raises:
        SerializationError: A member has the wrong JSON type.
        ValidationError: Members violate constraints of the model; the message lists all of them.
    """
    shape_name = model.input_shape(operation)
    problems = list(_Checker(model).check(shape_name, request, ""))
    if problems:
        noun = "error" if len(problems) == 1 else "errors"
        raise ValidationError(f"{len(problems)} validation {noun} detected: " + "; ".join(problems))


class _Checker:
    """Walks a value along its shape and yields one sentence per violated constraint."""

    def __init__(self, model: ServiceModel) -> None:
        self._shapes = model.shapes
        self._checks: dict[str, Callable[[Shape, Any, str], Iterator[str]]] = {
            "structure": self._structure,
            "list": self._list,
            "map": self._map,
            "string": self._string,
            "character": self._string,
            "boolean": self._boolean,
            "timestamp": self._timestamp,
            "blob": self._blob,
            **dict.fromkeys(_INTEGER_TYPES, self._integer),
            **dict.fromkeys(_FRACTION_TYPES, self._fraction),
        }

    def check(self, shape_name: str, value: Any, path: str) -> Iterator[str]:
        shape = self._shapes[shape_name]
        return self._checks[shape["type"]](shape, value, path)

    def _structure(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            raise SerializationError(_mismatch(value, "a structure", path))
        members = shape["members"]
        for required in shape.get("required", ()):
            if value.get(required) is None:
                yield _sentence("null", _join(path, required), "Member must not be null")
        if shape.get("union") and sum(value.get(name) is not None for name in members) != 1:
            yield _sentence(
                _shown(value), path, f"Exactly one member must be set: [{', '.join(members)}]"
            )
        for name, member in members.items():
            if value.get(name) is not None:
                yield from self.check(member["shape"], value[name], _join(path, name))

    def _list(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, list):
            raise SerializationError(_mismatch(value, "a List", path))
        for constraint in _length_constraints(shape, len(value)):
            yield _sentence(_shown(value), path, constraint)
        for index, item in enumerate(value, start=1):
            place = f"{path}.{index}.member"
            if item is None:
                yield _sentence("null", place, "Member must not be null")
            else:
                yield from self.check(shape["member"]["shape"], item, place)

    def _map(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, dict):
            raise SerializationError(_mismatch(value, "a Map", path))
        for constraint in _length_constraints(shape, len(value)):
            yield _sentence(_shown(value), path, constraint)
        keys, values = (self._shapes[shape[part]["shape"]] for part in ("key", "value"))
        if any(_scalar_constraints(keys, key) for key in value):
            yield _sentence(
                _shown(value), path, f"Map keys must satisfy constraint: {_all_constraints(keys)}"
            )
        for key, item in value.items():
            if item is None:
                continue
            broken = list(self.check(shape["value"]["shape"], item, f"{path}.{key}.member"))
            if broken and values["type"] == "string":
                constraints = _all_constraints(values)
                message = f"Map value must satisfy constraint: {constraints}"
                yield _sentence(_shown(value), path, message)
                return
            yield from broken

    def _string(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str):
            raise SerializationError(_mismatch(value, "a String", path))
        shown = None if shape.get("sensitive") else f"'{value}'"
        for constraint in _scalar_constraints(shape, value):
            yield _sentence(shown, path, constraint)

    def _boolean(self, _shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, bool):
            raise SerializationError(_mismatch(value, "a Boolean", path))
        return iter(())

    def _integer(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int):
            raise SerializationError(_mismatch(value, "an " + _INTEGER_TYPES[shape["type"]], path))
        if not -_LARGEST_LONG <= value < _LARGEST_LONG:
            raise SerializationError(f"Numeric value ({value}) out of range of long at '{path}'")
        return self._range(shape, value, path)

    def _fraction(self, shape: Shape, value: Any, path: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SerializationError(_mismatch(value, "a " + _FRACTION_TYPES[shape["type"]], path))
        return self._range(shape, value, path)

    def _range(self, shape: Shape, value: float, path: str) -> Iterator[str]:
        for constraint in _bounds("value", shape, value):
            yield _sentence(f"'{value}'", path, constraint)

    def _timestamp(self, _shape: Shape, value: Any, path: str) -> Iterator[str]:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise SerializationError(_mismatch(value, "a Timestamp", path))
        if abs(value) > _LATEST_TIMESTAMP_S:
            raise SerializationError(
                f"{value} at '{path}' is not a time between the years -6060 and 9999"
            )
        return iter(())

    def _blob(self, _shape: Shape, value: Any, path: str) -> Iterator[str]:
        if not isinstance(value, str):
            raise SerializationError(_mismatch(value, "a Blob", path))
        return iter(())


def _scalar_constraints(shape: Shape, value: str) -> list[str]:
    broken = _length_constraints(shape, len(value))
    if "enum" in shape and value not in shape["enum"]:
        broken.append(f"Member must satisfy enum value set: [{', '.join(shape['enum'])}]")
    if "pattern" in shape and not matches(shape["pattern"], value):
        broken.append(f"Member must satisfy regular expression pattern: {shape['pattern']}")
    return broken


def matches(pattern: str, text: str) -> bool:
    """Return whether a pattern of the service model matches the whole text, as Java's `String.matches` does."""
    return _compile(pattern).fullmatch(text) is not None


@cache
def _compile(pattern: str) -> Any:
    translated = _SURROGATE_RANGE.sub(_ASTRAL_RANGE, pattern)
    try:
        return re.compile(translated)
    except re.error:  # \p{L} and ranges such as [\w-_] are Java syntax; few members use them.
        import regex  # type: ignore[import-untyped]  # noqa: PLC0415  # Slow to import.

        return regex.compile(translated, regex.V0)


def _length_constraints(shape: Shape, length: int) -> list[str]:
    return _bounds("length", shape, length)


def _bounds(noun: str, shape: Shape, measure: float) -> list[str]:
    broken = []
    if "max" in shape and measure > shape["max"]:
        broken.append(f"Member must have {noun} less than or equal to {shape['max']}")
    if "min" in shape and measure < shape["min"]:
        broken.append(f"Member must have {noun} greater than or equal to {shape['min']}")
    return broken


def _all_constraints(shape: Shape) -> str:
    parts = []
    if "max" in shape:
        parts.append(f"Member must have length less than or equal to {shape['max']}")
    parts.append(f"Member must have length greater than or equal to {shape.get('min', 0)}")
    if "pattern" in shape:
        parts.append(f"Member must satisfy regular expression pattern: {shape['pattern']}")
    return f"[{', '.join(parts)}]"


def _sentence(shown: str | None, path: str, constraint: str) -> str:
    value = "Value" if shown is None else f"Value {shown}"
    return f"{value} at '{path}' failed to satisfy constraint: {constraint}"


def _join(path: str, member: str) -> str:
    name = member[:1].lower() + member[1:]
    return f"{path}.{name}" if path else name


def _shown(value: Any) -> str:
    return f"'{_plain(value)}'"


def _plain(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_plain(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_plain(item) for item in value) + "]"
    return str(value)


def _mismatch(value: Any, wanted: str, path: str) -> str:
    match value:
        case bool():
            got = "TRUE_VALUE" if value else "FALSE_VALUE"
        case str():
            got = "STRING_VALUE"
        case int() | float():
            got = "NUMBER_VALUE"
        case dict():
            got = "START_OBJECT"
        case list():
            got = "START_ARRAY"
        case _:
            got = "NULL_VALUE"
    where = f" at '{path}'" if path else ""
    return f"{got} can not be converted to {wanted}{where}"
