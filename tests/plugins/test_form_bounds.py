"""Bounds of a form's numbers are those of trainyard.specs.limits, without a second declaration."""

from __future__ import annotations

import pytest

from trainyard.specs.limits import ABOVE_ZERO, LEAST, MOST, USUAL_MOST
from trainyard_airflow.tasks.end_to_end.params import FORM
from trainyard_airflow.tasks.shared.form_schema import with_bounds

_OWN = {"minimum", "exclusiveMinimum"}
_PARAMS = FORM.params()


@pytest.mark.parametrize("name", [each for each in _PARAMS if each in {*ABOVE_ZERO, *LEAST}])
def test_param_without_a_bound_of_its_own_has_the_declared_one(name: str) -> None:
    declared = next(fields[name][2] for fields in FORM.sections.values() if name in fields)
    schema = _PARAMS[name].schema
    if not _OWN & set(declared):
        least = {"exclusiveMinimum": 0} if name in ABOVE_ZERO else {"minimum": LEAST[name]}
        assert {key: schema[key] for key in _OWN & set(schema)} == least
        assert schema["maximum"] == MOST.get(name, USUAL_MOST)


def test_schema_keeps_a_bound_of_its_own() -> None:
    schema = with_bounds("max_run_s", {"type": "integer", "minimum": 60})
    assert schema["minimum"] == 60
