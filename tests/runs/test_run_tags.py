"""Tags lead back to the task they were made from, and hold only what a tag may hold."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from trainyard.runs.run_tags import RUN_ID, Owner

TAG_VALUE = re.compile(
    r"[\w\s.:/=+@-]*"
)  # the service's pattern, for the ASCII that run ids become
DAG_IDS = st.text("abcXYZ019._-", min_size=1, max_size=60)


@given(dag_id=DAG_IDS, task_id=DAG_IDS, run_id=st.text(min_size=1, max_size=25))
def test_owner_is_read_back_from_its_tags(dag_id: str, task_id: str, run_id: str) -> None:
    owner = Owner(dag_id=dag_id, run_id=run_id, task_id=task_id, deployment="local")
    tags = owner.tags()
    if len(tags.get(RUN_ID, "")):
        assert Owner.from_tags(tags) == owner
    assert all(len(value) <= 256 and TAG_VALUE.fullmatch(value) for value in tags.values())


@pytest.mark.parametrize(
    ("run_id", "tag"),
    [
        ("manual__2026-11-21T17:07:38.088199+00:00", "manual__2026-11-21T17:07:38.088199+00:00"),
        ("a=b#é", "a=3Db=23=C3=A9"),
    ],
)
def test_run_id_is_escaped_only_where_it_must_be(run_id: str, tag: str) -> None:
    assert Owner(dag_id="d", run_id=run_id, task_id="t").tags()[RUN_ID] == tag


def test_run_id_that_does_not_fit_is_left_out() -> None:
    tags = Owner(dag_id="d", run_id="é" * 100, task_id="t").tags()
    assert RUN_ID not in tags
    assert Owner.from_tags(tags) is None


def test_tags_of_somebody_else_name_no_owner() -> None:
    assert Owner.from_tags({"team": "a", "trainyard:dag": "d"}) is None
