"""Job names are legal, stable and unique."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import assume, given, strategies as st

from trainyard.sagemaker_api.names import job_name, run_slug, slug

LEGAL = re.compile(r"[a-zA-Z0-9](-*[a-zA-Z0-9]){0,62}")  # botocore's pattern of TrainingJobName

IDENTITIES = st.fixed_dictionaries(
    {
        "dag_id": st.text(max_size=120),
        "run_id": st.text(max_size=120),
        "task_id": st.text(max_size=120),
        "map_index": st.integers(-1, 10_000),
        "attempt": st.integers(1, 200),
        "deployment": st.none() | st.text(min_size=1, max_size=80),
    }
)


@given(IDENTITIES)
def test_a_job_name_is_legal(identity: dict[str, Any]) -> None:
    assert LEGAL.fullmatch(job_name(**identity))


@given(IDENTITIES)
def test_name_of_a_tuning_job_is_legal(identity: dict[str, Any]) -> None:
    name = job_name(**identity, longest=32)

    assert LEGAL.fullmatch(name)
    assert len(name) <= 32


@given(IDENTITIES, IDENTITIES)
def test_different_jobs_have_different_names(one: dict[str, Any], other: dict[str, Any]) -> None:
    assume(one != other)

    assert job_name(**one) != job_name(**other)


@pytest.mark.parametrize(
    ("identity", "name"),
    [
        ({}, "train-end-to-end-train-4aa8421040"),
        ({"map_index": 3}, "train-end-to-end-train-3-fec3a77ca5"),
        ({"attempt": 4}, "train-end-to-end-train-a4-90308908a9"),
        ({"deployment": "prod"}, "train-end-to-end-train-67cd105197"),
    ],
    ids=["plain", "mapped", "attempt", "deployment"],
)
def test_a_job_name_is_the_same_for_ever(identity: dict[str, Any], name: str) -> None:
    base = {"dag_id": "train_end_to_end", "run_id": "manual__2026", "task_id": "train"}

    assert job_name(**base, **identity) == name


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"dag_id": "a", "task_id": "b_c"}, {"dag_id": "a_b", "task_id": "c"}),
        ({"dag_id": "a.b"}, {"dag_id": "a-b"}),
        ({"dag_id": "x" * 100 + "1"}, {"dag_id": "x" * 100 + "2"}),
    ],
    ids=["boundary", "same slug", "cut off"],
)
def test_names_that_read_alike_differ_by_their_digest(
    one: dict[str, str], other: dict[str, str]
) -> None:
    base = {"dag_id": "d", "run_id": "r", "task_id": "t"}

    assert job_name(**{**base, **one}) != job_name(**{**base, **other})


@given(st.text(max_size=300))
def test_a_run_slug_is_one_safe_key_part(run_id: str) -> None:
    part = run_slug(run_id)

    assert re.fullmatch(r"[A-Za-z0-9._=-]{1,80}", part)
    assert not part.startswith(".")


@given(st.text(max_size=120), st.text(max_size=120))
def test_different_runs_have_different_slugs(one: str, other: str) -> None:
    assume(one != other)

    assert run_slug(one) != run_slug(other)


def test_a_safe_run_id_stays_as_it_is() -> None:
    assert run_slug("manual__2026-11-21") == "manual__2026-11-21"


def test_a_slug_has_letters_digits_and_single_hyphens() -> None:
    assert slug("Train__End.to End") == "train-end-to-end"
