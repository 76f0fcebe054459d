"""Strict parser of fault documents: an unknown key is an error that names the nearest valid key."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from difflib import get_close_matches
from enum import StrEnum
from typing import Any, TypeVar

from sagemaker_engine.faults.model import (
    LINE_KINDS,
    WINDOWED_KINDS,
    Fault,
    FaultError,
    FaultKind,
    JobState,
    Moment,
)
from sagemaker_engine.faults.schedule import Schedule

_TEXT, _WHOLE, _NUMBER = "a string", "a whole number", "a number"
_TYPES: Mapping[str, tuple[type, ...]] = {
    _TEXT: (str,),
    _WHOLE: (int,),
    _NUMBER: (int, float),
}
_FIELDS: Mapping[str, str] = {
    **dict.fromkeys(("id", "job", "operation", "bucket", "key_prefix", "code"), _TEXT),
    **dict.fromkeys(("attempt", "count", "status"), _WHOLE),
    **dict.fromkeys(("notice_s", "duration_s", "factor", "megabytes_per_s"), _NUMBER),
}
_SCHEDULE: Mapping[str, str] = {
    "seed": _WHOLE,
    "interruptions_per_hour": _NUMBER,
    "notice_s": _NUMBER,
    "max_interruptions": _WHOLE,
}
_Closed = TypeVar("_Closed", bound=StrEnum)


def read_plan(document: Any) -> tuple[list[Fault], Schedule | None]:
    """Return the faults and the seeded schedule (or None) of a JSON document.

    The document is a list of faults, or an object with a schedule (`seed`, `interruptions_per_hour`, ...),
    a list of `faults`, or both.

    Raises:
        FaultError: A key is unknown, or a value has the wrong type or is out of range.
    """
    if isinstance(document, list):
        return _faults(document), None
    if not isinstance(document, Mapping):
        raise FaultError(
            f"faults: got {_kind(document)}; give a list of faults, "
            "or an object with `faults`, with a schedule, or with both"
        )
    _check_keys("schedule", document, [*_SCHEDULE, "faults"])
    faults = _faults(document.get("faults", []))
    if set(document) == {"faults"}:
        return faults, None
    return faults, _schedule(document)


def read_fault(document: Any, *, where: str = "fault") -> Fault:
    """Return the fault that a JSON object describes. A fault without an `id` gets a random one.

    Raises:
        FaultError: As for `read_plan`.
    """
    if not isinstance(document, Mapping):
        raise FaultError(f"{where}: got {_kind(document)}; a fault is an object")
    _check_keys(where, document, [*_FIELDS, "what", "at", "hosts"])
    what = _closed(f"{where}.what", document.get("what"), FaultKind)
    given = {key: value for key, value in document.items() if value is not None}
    values: dict[str, Any] = {
        key: _typed(f"{where}.{key}", value, _FIELDS[key])
        for key, value in given.items()
        if key in _FIELDS
    }
    values.setdefault("id", f"f-{uuid.uuid4().hex[:8]}")
    if "count" in given and what in LINE_KINDS:
        raise FaultError(f"{where}.count: {what.value} is limited by duration_s only; remove count")
    if "count" in document:
        values["count"] = document["count"]
    elif what in LINE_KINDS or (what in WINDOWED_KINDS and "duration_s" in given):
        values["count"] = None
    if "at" in given:
        values["at"] = _moment(f"{where}.at", given["at"])
    return Fault(what=what, hosts=_hosts(f"{where}.hosts", given.get("hosts", "all")), **values)


def _faults(documents: Any) -> list[Fault]:
    if not isinstance(documents, list):
        raise FaultError(f"faults: got {_kind(documents)}; give a list")
    faults = [read_fault(each, where=f"faults[{number}]") for number, each in enumerate(documents)]
    ids = [fault.id for fault in faults]
    twice = sorted({each for each in ids if ids.count(each) > 1})
    if twice:
        raise FaultError(
            f"faults: got the id {', '.join(map(repr, twice))} more than once; ids must be unique"
        )
    return faults


def _schedule(document: Mapping[str, Any]) -> Schedule:
    missing = sorted({"seed", "interruptions_per_hour"} - set(document))
    if missing:
        raise FaultError(
            f"schedule: got no {' and no '.join(missing)}; a schedule needs seed and interruptions_per_hour"
        )
    return Schedule(
        **{
            key: _typed(f"schedule.{key}", value, _SCHEDULE[key])
            for key, value in document.items()
            if key in _SCHEDULE and value is not None
        }
    )


def _moment(where: str, document: Any) -> Moment:
    if not isinstance(document, Mapping):
        raise FaultError(f'{where}: got {_kind(document)}; give an object such as {{"step": 120}}')
    _check_keys(where, document, ["step", "seconds", "state"])
    state = document.get("state")
    return Moment(
        step=None if "step" not in document else _typed(f"{where}.step", document["step"], _WHOLE),
        seconds=None
        if "seconds" not in document
        else _typed(f"{where}.seconds", document["seconds"], _NUMBER),
        state=None if state is None else _closed(f"{where}.state", state, JobState),
    )


def _hosts(where: str, value: Any) -> tuple[str, ...] | None:
    if value == "all":
        return None
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return tuple(value)
    raise FaultError(f'{where}: got {value!r}; give "all" or a list of names such as ["algo-1"]')


def _check_keys(where: str, document: Mapping[str, Any], known: list[str]) -> None:
    for key in document:
        if key not in known:
            near = get_close_matches(str(key), known)
            hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(known)}"
            raise FaultError(f"{where}: {key!r} is not a known key; {hint}")


def _closed(where: str, value: Any, kind: type[_Closed]) -> _Closed:
    try:
        return kind(value)
    except ValueError:
        allowed = [each.value for each in kind]
        near = get_close_matches(str(value), allowed)
        hint = f"did you mean {' or '.join(near)}?" if near else f"allowed: {', '.join(allowed)}"
        raise FaultError(f"{where}: got {value!r}; {hint}") from None


def _typed(where: str, value: Any, wanted: str) -> Any:
    if isinstance(value, bool) or not isinstance(value, _TYPES[wanted]):
        raise FaultError(f"{where}: got {value!r}; it must be {wanted}")
    return value


def _kind(value: Any) -> str:
    return {dict: "an object", list: "a list", str: "a string", type(None): "null"}.get(
        type(value), f"{value!r}"
    )
