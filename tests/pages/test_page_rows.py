"""Values that tasks left, as the pages read them from Airflow's database."""

from __future__ import annotations

from trainyard_airflow.pages.airflow_runs import _decoded, _unwrapped


def test_wrapped_tuples_are_lists_at_any_depth_and_no_class_is_loaded() -> None:
    wrapped = {"__classname__": "builtins.tuple", "__version__": 1, "__data__": [1, {"a": [2]}]}
    unknown = {"__classname__": "no.such.Class", "__version__": 1, "__data__": {"b": 3}}
    assert _unwrapped({"conf": {"rules": wrapped, "own": [unknown]}, "n": None}) == {
        "conf": {"rules": [1, {"a": [2]}], "own": [{"b": 3}]},
        "n": None,
    }


def test_stored_text_of_json_is_read_at_the_top_only() -> None:
    assert _unwrapped(_decoded('{"a": "{1}"}')) == {"a": "{1}"}
    assert _decoded("a job's name") == "a job's name"
