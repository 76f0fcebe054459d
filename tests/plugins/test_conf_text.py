"""The text of a conf stays text: in templates, command lines, addresses and pages."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st
from sagemaker_training import mapping

import tests.dags.airflow_home  # noqa: F401  # before the first import of airflow
from tests.runs.sample_run import sample_record
from trainyard.rules.conf_facts import decoded
from trainyard.runs.report.page import render_report_html
from trainyard.sagemaker_api.names import run_slug
from trainyard.specs.base_run_conf_rules import PATTERNS
from trainyard.specs.run_conf import RunConf
from trainyard_airflow.operators.shard_dataset import ShardDatasetOperator
from trainyard_airflow.tasks.end_to_end.task_specs import shard_task_spec
from trainyard_airflow.tasks.shared.run_paths import RunPaths
from trainyard_airflow.tasks.shared.run_state import RunState

HOSTILE = st.lists(
    st.sampled_from(
        [
            *(
                "{{ 7 * 7 }}",
                "{% raw %}",
                "{#",
                "$(touch x)",
                "`id`",
                "; rm -rf /",
                "../",
                "\\",
                "'",
            ),
            *(
                '"',
                "<x-mark onload=1>",
                "</title>",
                "&lt;",
                "-->",
                "]]>",
                "%s",
                "{0}",
                "\n",
                " ",
                "é",
            ),
        ]
    )
    | st.text(max_size=8),
    min_size=1,
    max_size=6,
).map("".join)


@settings(max_examples=25, deadline=None)
@given(text=HOSTILE)
def test_text_of_a_conf_is_no_template(text: str) -> None:
    conf = RunConf(source=f"/data/{text}", ignore_columns=(text,))
    paths = RunPaths(bucket="b", prefix="p", dag_id="d", run_id="r")
    state = RunState(conf=conf, paths=paths, role="role", region="us-east-1", plan={}).to_dict()
    ti = SimpleNamespace(task_id="shard", xcom_pull=lambda **_: state)
    operator = ShardDatasetOperator(task_id="shard", spec=shard_task_spec)

    operator.render_template_fields({"ti": ti})

    spec: Any = operator.spec
    assert spec.source.uri == f"/data/{text}"
    assert spec.settings.ignore_columns == (text,)


@given(text=HOSTILE)
def test_a_hyperparameter_is_one_argument_of_the_script(text: str) -> None:
    """SageMaker's toolkit makes the command line, and starts it without a shell."""
    assert mapping.to_cmd_args({"problem": text}) == ["--problem", text]


@given(text=HOSTILE)
def test_a_hyperparameter_comes_back_as_it_was_written(text: str) -> None:
    assert decoded({"problem": json.dumps(text)}) == {"problem": text}


@given(run_id=HOSTILE, other=HOSTILE)
def test_a_runs_address_is_one_name_of_its_own(run_id: str, other: str) -> None:
    name = run_slug(run_id)

    assert re.fullmatch(r"[A-Za-z0-9_=.-]{1,80}", name)
    assert name not in {".", ".."}
    assert (name == run_slug(other)) == (run_id == other)


@given(prefix=st.from_regex(PATTERNS["prefix"][0], fullmatch=True) | HOSTILE)
def test_a_prefix_never_climbs(prefix: str) -> None:
    if not re.fullmatch(PATTERNS["prefix"][0], prefix):
        return
    root = RunPaths(bucket="b", prefix=prefix, dag_id="d", run_id="r").root

    assert {"", ".", ".."}.isdisjoint(root.removeprefix("s3://").split("/"))


class HtmlTags(HTMLParser):
    """Collects the elements of a page, and their attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, frozenset[str]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, frozenset(name for name, _ in attrs)))


def tags_of(text: str) -> list[tuple[str, frozenset[str]]]:
    parser = HtmlTags()
    parser.feed(
        render_report_html(
            sample_record(
                run_id=text,
                conf={"source": text, text: text},
                failure={"what": text, "log_tail": [text]},
            )
        )
    )
    return parser.found


PLAIN = tags_of("plain")


@pytest.mark.slow
@settings(max_examples=15, deadline=None)
@given(text=HOSTILE)
def test_text_of_a_run_makes_no_element_of_its_report(text: str) -> None:
    assert "x-mark" not in {tag for tag, _ in tags_of(text)}
    assert set(tags_of(text)) <= set(PLAIN)
