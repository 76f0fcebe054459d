"""A mapping becomes a spec, or every fault in it is reported at once."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import pytest
from hypothesis import given, strategies as st

from trainyard.errors import Finding, SpecError
from trainyard.specs.reading import read_spec


class Color(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    name: str
    count: int = 1
    share: float = 0.5
    is_on: bool = False
    color: Color = Color.RED
    inner: Inner | None = None
    items: tuple[Inner, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    anything: Any = None

    def __post_init__(self) -> None:
        if self.count > 5:
            raise SpecError([Finding(where="count", what="is above five")])


def refusal(mapping: Any) -> list[str]:
    with pytest.raises(SpecError) as caught:
        read_spec(Outer, mapping, where="conf")
    return [str(finding) for finding in caught.value.findings]


def test_every_kind_of_field_is_read() -> None:
    spec = read_spec(
        Outer,
        {
            "name": "a",
            "count": "3",
            "share": 1,
            "is_on": "True",
            "color": "blue",
            "inner": {"size": 2},
            "items": [{"size": 1}, {"size": 2.0}],
            "labels": {"k": "v"},
            "anything": [1],
        },
    )

    assert spec == Outer(
        name="a",
        count=3,
        share=1.0,
        is_on=True,
        color=Color.BLUE,
        inner=Inner(size=2),
        items=(Inner(size=1), Inner(size=2)),
        labels={"k": "v"},
        anything=[1],
    )
    assert isinstance(spec.count, int)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"count": 1.5}, "conf.count: has the wrong type or value; got 1.5 (float)"),
        ({"count": True}, "got True (bool); allowed: a whole number"),
        ({"count": "many"}, "allowed: a whole number"),
        ({"count": None}, "got nothing; allowed: a whole number"),
        ({"share": float("nan")}, "allowed: a number"),
        ({"share": "inf"}, "allowed: a number"),
        ({"is_on": 1}, "allowed: true or false"),
        ({"color": "green"}, "allowed: one of red, blue"),
        ({"inner": 4}, "conf.inner: has the wrong type or value"),
        ({"inner": {"size": "x"}}, "conf.inner.size: has the wrong type or value"),
        ({"items": "ab"}, "allowed: a list"),
        ({"items": [{"size": 1}, {"sise": 1}]}, "conf.items[1].sise: is an unknown key"),
        ({"labels": {"k": 5}}, "conf.labels.k: has the wrong type or value; got 5 (int)"),
        ({"name": 5}, "allowed: text"),
        ({"nmae": "x"}, "conf.nmae: is an unknown key; did you mean 'name'?"),
        ({"count": 6}, "conf.count: is above five"),
    ],
    ids=str,
)
def test_a_wrong_value_is_refused_where_it_stands(change: dict[str, Any], says: str) -> None:
    assert any(says in line for line in refusal({"name": "a", **change}))


def test_all_faults_are_reported_together() -> None:
    found = refusal({"count": "x", "is_on": 3, "color": "green", "cuont": 1})

    assert [line.split(":")[0] for line in found] == [
        "conf.cuont",
        "conf.name",
        "conf.count",
        "conf.is_on",
        "conf.color",
    ]


def test_what_is_no_mapping_is_refused() -> None:
    assert "allowed: a mapping with the keys of Outer" in refusal([1])[0]


@given(count=st.integers(-(10**18), 5))
def test_whole_numbers_arrive_exactly_also_as_text(count: int) -> None:
    assert read_spec(Outer, {"name": "a", "count": str(count)}).count == count
    assert read_spec(Outer, {"name": "a", "count": count}).count == count
