"""Conversion of a mapping (JSON, YAML, rendered templates) into a frozen spec; all faults are in one error.

A field's type determines the accepted values: `int`, `float`, `bool`, `str`, a `StrEnum`, `Mapping`, `tuple[X, ...]`,
`X | None`, or another spec (read from a nested mapping). Text that spells a number or a boolean is converted, because
templated Airflow fields and form inputs arrive as text. Numbers are never rounded.

`check_spec` reads a mapping in which values are still `UNKNOWN`, such as templates while a DAG file is parsed.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import MISSING, Field, fields, is_dataclass, replace
from enum import StrEnum
from functools import cache
from typing import Any, Self, TypeVar, Union, get_args, get_origin, get_type_hints

from trainyard.errors import Finding, SpecError, shortened, unknown_key

Spec = TypeVar("Spec")
READ_EACH = "read_each"
"""Key in a field's metadata: the reader of each value of a mapping, called as `reader(value, where=...)`."""


class _RunTimeValue:
    """Type of `UNKNOWN`, the placeholder for a value that is known at run time only."""

    def __repr__(self) -> str:
        return "UNKNOWN"


UNKNOWN = _RunTimeValue()
"""Stands for a value that is known at run time only."""


def read_spec(cls: type[Spec], mapping: Mapping[str, Any], *, where: str = "") -> Spec:
    """Build an instance of `cls` from the mapping.

    Args:
        cls: a frozen dataclass.
        mapping: field names to values; nested specs as nested mappings.
        where: path of the mapping inside the user's input, put before each field's name in
            findings.

    Raises:
        SpecError: unknown, missing or mistyped keys, or values that the spec itself rejects; the error lists all of
            them.
    """
    try:
        spec: Spec = _read(cls, mapping, where)
    except SpecError as error:
        raise SpecError(error.findings, subject=cls.__name__) from None
    return spec


class FromMapping:
    """Base of the specs and confs that users write as plain data."""

    __slots__ = ()

    @classmethod
    def from_mapping(cls, mapping: Mapping[str, Any], *, where: str = "") -> Self:
        """Build the spec from plain data; the arguments are those of `read_spec`.

        Raises:
            SpecError: unknown, missing or mistyped keys, values out of range or contradictions; the error lists all of
                them, and the nearest known keys.
        """
        return read_spec(cls, mapping, where=where)


def check_spec(cls: type[Any], mapping: Mapping[str, Any], *, where: str = "") -> None:
    """Check everything about a mapping that does not depend on its `UNKNOWN` values.

    The spec's `checks` run on an instance without the unknown, mistyped and missing fields. A check ends when it reads
    such a field.

    Raises:
        SpecError: as `read_spec`.
    """
    read_spec(cls, mapping, where=where)


def read_each(
    reader: Callable[..., Any], mapping: Mapping[str, Any], *, where: str
) -> tuple[dict[str, Any], list[Finding]]:
    """Convert each value of a mapping with `reader`. Return the converted values by key, and the findings.

    The findings are those of the values that `reader` rejects. `UNKNOWN` values are kept as they are.
    """
    read: dict[str, Any] = {}
    findings: list[Finding] = []
    for key, each in mapping.items():
        try:
            known = each is not UNKNOWN
            read[str(key)] = reader(each, where=f"{where}.{key}") if known else UNKNOWN
        except SpecError as error:
            findings += error.findings
    return read, findings


def _read(cls: type[Spec], mapping: object, where: str) -> Any:
    if not isinstance(mapping, Mapping):
        raise SpecError(_mistyped(where, mapping, f"a mapping with the keys of {cls.__name__}"))
    declared = {field.name: field for field in fields(cls)}  # type: ignore[arg-type]  # a dataclass
    findings = [
        unknown_key(where, str(key), list(declared)) for key in mapping if key not in declared
    ]
    values: dict[str, Any] = {}
    hints = _hints(cls)  # type: ignore[arg-type]  # a class is hashable; mypy asks about instances
    for name, field in declared.items():
        path = f"{where}.{name}" if where else name
        if name not in mapping:
            findings += [Finding(where=path, what="is required")] if _is_required(field) else []
            continue
        try:
            values[name] = _field_value(field, hints[name], mapping[name], path)
        except SpecError as error:
            findings += error.findings
    can_build = all(name in values or not _is_required(field) for name, field in declared.items())
    if not all(map(_is_known, values.values())) or (hasattr(cls, "checks") and not can_build):
        part = _known_part(cls, values, unset=set(mapping) - set(values))
        findings += [_moved(each, where) for each in _known_findings(part)]
        if findings:
            raise SpecError(findings)
        return part
    spec = None
    if can_build:
        spec, refused = _built(cls, values, mistyped=(set(mapping) & set(declared)) - set(values))
        findings += [_moved(each, where) for each in refused]
    if findings or spec is None:
        raise SpecError(findings)
    return spec


def _built(
    cls: type[Spec], values: dict[str, Any], *, mistyped: set[str]
) -> tuple[Spec | None, list[Finding]]:
    """Return the spec, or the findings of its own checks.

    Mistyped fields have their defaults in these checks. A finding that mentions such a field is left out, because it
    would report a value that the user never wrote.
    """
    try:
        return cls(**values), []
    except SpecError as error:
        words = (set(re.findall(r"\w+", str(finding))) for finding in error.findings)
        kept = [
            f
            for f, mentioned in zip(error.findings, words, strict=True)
            if not mentioned & mistyped
        ]
        return None, kept


def _known_part(cls: type[Any], values: Mapping[str, Any], *, unset: set[str]) -> Any:
    """Return an instance with only those fields that have a usable value.

    Reading any other field raises AttributeError. A field is left out if its value is `UNKNOWN`. A field
    without a value is left out if it is required or in `unset`, and otherwise has its default. A class with a
    `__post_init__` but no `checks` cannot be checked in part, so for such a class the result is `UNKNOWN`.
    """
    if not hasattr(cls, "checks") and hasattr(cls, "__post_init__"):
        return UNKNOWN
    part = object.__new__(cls)
    for field in fields(cls):
        if field.name in values:
            value = values[field.name]
        elif field.name in unset or _is_required(field):
            continue
        else:
            value = field.default if field.default_factory is MISSING else field.default_factory()
        if value is not UNKNOWN:
            object.__setattr__(part, field.name, value)
    return part


def _known_findings(part: Any) -> Iterator[Finding]:
    """Yield the findings of an instance's checks. Some fields of the instance may be unset.

    A check ends when it first reads an unset field. The next check then begins.

    Raises:
        AttributeError: a check reads an attribute that does not exist.
    """
    for check in part.checks() if hasattr(part, "checks") else ():
        try:
            yield from check
        except AttributeError as error:
            if not is_dataclass(error.obj) or error.name not in {f.name for f in fields(error.obj)}:
                raise


def _is_known(value: object) -> bool:
    """Return whether a value is complete: neither it nor a value inside it is `UNKNOWN` or a spec without a field.

    `check_spec` leaves fields out of a spec if they are missing, invalid or `UNKNOWN`.
    """
    if isinstance(value, Mapping):
        return all(map(_is_known, value.values()))
    if isinstance(value, (list, tuple)):
        return all(map(_is_known, value))
    if is_dataclass(value) and not isinstance(value, type):
        return all(
            hasattr(value, f.name) and _is_known(getattr(value, f.name)) for f in fields(value)
        )
    return value is not UNKNOWN


def _field_value(field: Field[Any], hint: Any, value: object, path: str) -> Any:
    reader = field.metadata.get(READ_EACH)
    if reader is None or value is UNKNOWN:
        return _value(hint, value, path)
    return _mapping(reader, value, path)


def _value(hint: Any, value: object, path: str) -> Any:
    origin, arguments = get_origin(hint), get_args(hint)
    if value is UNKNOWN:
        return value
    if hint is Any:
        return value if _is_known(value) else UNKNOWN
    if origin in (Union, types.UnionType):
        return _one_of(arguments, value, path)
    if origin is tuple:
        return _sequence(arguments[0], value, path)
    if origin is not None and issubclass(origin, Mapping):
        return _mapping(lambda each, where: _value(arguments[1], each, where), value, path)
    if is_dataclass(hint) and isinstance(hint, type):
        reader = getattr(hint, "from_value", None)
        if isinstance(value, hint):
            return value
        return reader(value, where=path) if reader else _read(hint, value, path)
    if isinstance(hint, type) and issubclass(hint, StrEnum):
        return _member(hint, value, path)
    return _scalar(hint, value, path)


def _one_of(options: tuple[Any, ...], value: object, path: str) -> Any:
    if value is None and type(None) in options:
        return None
    others = [option for option in options if option is not type(None)]
    for option in others[:-1]:
        try:
            return _value(option, value, path)
        except SpecError:
            continue
    return _value(others[-1], value, path)


def _sequence(hint: Any, value: object, path: str) -> Any:
    if isinstance(value, str) or not isinstance(value, Sequence):
        raise SpecError(_mistyped(path, value, "a list"))
    read: list[Any] = []
    findings: list[Finding] = []
    for index, each in enumerate(value):
        try:
            read.append(_value(hint, each, f"{path}[{index}]"))
        except SpecError as error:
            findings += error.findings
    if findings:
        raise SpecError(findings)
    return UNKNOWN if any(each is UNKNOWN for each in read) else tuple(read)


def _mapping(reader: Callable[..., Any], value: object, path: str) -> Any:
    if not isinstance(value, Mapping):
        raise SpecError(_mistyped(path, value, "a mapping"))
    read, findings = read_each(reader, value, where=path)
    if findings:
        raise SpecError(findings)
    return UNKNOWN if any(each is UNKNOWN for each in read.values()) else read


def _member(hint: type[StrEnum], value: object, path: str) -> StrEnum:
    if isinstance(value, str) and value in {member.value for member in hint}:
        return hint(value)
    raise SpecError(_mistyped(path, value, "one of " + ", ".join(m.value for m in hint)))


def _scalar(hint: Any, value: object, path: str) -> Any:
    if hint is bool:
        words = {"true": True, "false": False}
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.strip().lower() in words:
            return words[value.strip().lower()]
        raise SpecError(_mistyped(path, value, "true or false"))
    if hint is int:
        return _integer(value, path)
    if hint is float:
        return _number(value, path)
    if hint is str and isinstance(value, str):
        return value
    raise SpecError(_mistyped(path, value, "text"))


def _integer(value: object, path: str) -> int:
    number = _number(value, path, "a whole number")
    if number != int(number):
        raise SpecError(_mistyped(path, value, "a whole number"))
    return (
        int(value)
        if isinstance(value, (int, str)) and str(value).lstrip("+-").isdigit()
        else int(number)
    )


def _number(value: object, path: str, wanted: str = "a number") -> float:
    if isinstance(value, (int, float, str)) and not isinstance(value, bool):
        try:
            number = float(value)
        except ValueError:
            number = float("nan")
        if number - number == 0:  # neither NaN nor infinite
            return number
    raise SpecError(_mistyped(path, value, wanted))


def _mistyped(where: str, value: object, allowed: str) -> Finding:
    got = (
        "nothing"
        if value is None
        else f"{shortened(repr(value), limit=80)} ({type(value).__name__})"
    )
    return Finding(where=where, what="has the wrong type or value", got=got, allowed=allowed)


def _moved(finding: Finding, where: str) -> Finding:
    return replace(finding, where=f"{where}.{finding.where}") if where else finding


def _is_required(field: Field[Any]) -> bool:
    return field.default is MISSING and field.default_factory is MISSING


@cache
def _hints(cls: Hashable) -> dict[str, Any]:
    return get_type_hints(cls)
