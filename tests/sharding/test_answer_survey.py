"""Rows of a fine-tuning's data: formats, bad rows by number, duplicates, lengths, bounds."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from trainyard.errors import SpecError
from trainyard.sharding.answer_rows import faults_of
from trainyard.sharding.answer_survey import MAX_FINDINGS, AnswerSurvey
from trainyard.sharding.chat_template import ChatTemplate
from trainyard.sharding.objects import LocalObjects

if TYPE_CHECKING:
    from pathlib import Path

USER, ANSWER = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi."}
SYSTEM = {"role": "system", "content": "Be short."}
CALL = {"role": "assistant", "content": None, "tool_calls": [{"type": "function"}]}
TOOL = {"role": "tool", "content": "6"}
URI = "s3://bucket/data/"


def survey(folder: Path, *rows: Any, method: str = "sft", **members: Any) -> AnswerSurvey:
    """Return what is found in rows, lines or values, of one file."""
    place = folder / "bucket" / "data" / "part"
    place.mkdir(parents=True)
    lines = (row if isinstance(row, str) else json.dumps(row) for row in rows)
    (place / "rows.jsonl").write_text("".join(f"{line}\n" for line in lines))
    made = AnswerSurvey(uri=URI, method=method, **members)
    made.read(LocalObjects(folder))
    return made


@pytest.mark.parametrize(
    ("row", "method"),
    [
        ({"messages": [SYSTEM, USER, ANSWER, USER, ANSWER]}, "sft"),
        ({"messages": [USER, CALL, TOOL, TOOL, ANSWER]}, "sft"),
        ({"prompt": "Hi?", "completion": "Hi."}, "sft"),
        ({"prompt": [USER], "completion": [ANSWER]}, "sft"),
        ({"text": "Hi."}, "sft"),
        ({"prompt": "", "chosen": "a", "rejected": "b"}, "dpo"),
        ({"prompt": [USER], "chosen": [ANSWER], "rejected": [{**ANSWER, "content": "No."}]}, "dpo"),
    ],
)
def test_good_rows_have_no_fault(row: dict[str, Any], method: str) -> None:
    assert list(faults_of(row, method=method)) == []


@pytest.mark.parametrize(
    ("row", "method", "fault"),
    [
        ([], "sft", "is not a JSON object"),
        ({"question": "?"}, "sft", "has the keys question; sft requires messages or"),
        ({"text": "a"}, "dpo", "has the keys text; dpo requires prompt+chosen+rejected"),
        ({"messages": []}, "sft", "has no list of messages"),
        ({"messages": [{"role": "bot", "content": "a"}]}, "sft", "has role 'bot' in message 1"),
        ({"messages": [USER]}, "sft", "has no assistant message"),
        ({"messages": [ANSWER]}, "sft", "begins with role assistant"),
        ({"messages": [USER, ANSWER, USER]}, "sft", "ends with role user"),
        ({"messages": [USER, USER, ANSWER]}, "sft", "has two consecutive user messages"),
        (
            {"messages": [USER, SYSTEM, ANSWER]},
            "sft",
            "has a system message after messages of other roles",
        ),
        ({"messages": [USER, {**ANSWER, "content": " "}]}, "sft", "has an empty answer"),
        ({"messages": [{**USER, "content": 3}, ANSWER]}, "sft", "has content of type int"),
        ({"prompt": "a", "completion": ""}, "sft", "has an empty completion"),
        ({"prompt": "a", "completion": [ANSWER]}, "sft", "mixes types: prompt str"),
        ({"text": "\n"}, "sft", "has an empty text"),
        ({"prompt": "a", "chosen": "b", "rejected": "b"}, "dpo", "has the same text in chosen"),
    ],
)
def test_a_bad_row_says_what_is_wrong(row: Any, method: str, fault: str) -> None:
    (found,) = faults_of(row, method=method)

    assert found.startswith(fault)


def test_bad_rows_are_refused_by_their_numbers(tmp_path: Path) -> None:
    made = survey(tmp_path, {"text": "a"}, "{", "", {"text": ""}, *["[]"] * 40)

    with pytest.raises(SpecError) as caught:
        made.raise_errors()

    places = [each.where for each in caught.value.findings]
    assert places[:3] == ["part/rows.jsonl row 2", "part/rows.jsonl row 4", "part/rows.jsonl row 5"]
    assert len(places) == MAX_FINDINGS
    assert "42 of 43 rows" in str(caught.value)


def test_figures_of_good_rows(tmp_path: Path) -> None:
    rows = [{"text": "x" * 4000}, {"text": "y" * 40}, {"text": "y" * 40}]
    made = survey(tmp_path, *rows, {"messages": [USER, ANSWER]})

    made.raise_errors()
    assert made.formats == {"text": 3, "chat": 1}
    assert (made.num_rows, made.num_duplicates) == (4, 1)
    assert made.estimated_tokens == round((4000 + 80 + 6) / 4)
    warnings = " ".join(made.warnings(max_length=100))
    assert "1 of 4 rows are duplicates" in warnings
    assert "at least 1 rows are longer than max_length 100" in warnings
    assert "several formats" in warnings
    json.dumps(made.to_dict())


def test_a_prefix_larger_than_the_bound_is_estimated_by_its_size(tmp_path: Path) -> None:
    made = survey(tmp_path, *[{"text": f"{n:04}"} for n in range(100)], max_read_bytes=360)

    assert made.num_rows < 25
    assert not made.is_complete
    assert made.estimated_rows == pytest.approx(100, rel=0.01)
    assert "the number of rows in the rest is estimated from its size" in " ".join(
        made.warnings(max_length=9)
    )


def test_a_prefix_without_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="has no rows"):
        survey(tmp_path)
    (tmp_path / "bucket" / "data" / "part" / "rows.jsonl").rename(tmp_path / "bucket" / "a.txt")
    with pytest.raises(SpecError, match=r"has no \*\.jsonl"):
        AnswerSurvey(uri=URI, method="sft").read(LocalObjects(tmp_path))


def test_rows_that_the_job_refuses_are_found(tmp_path: Path) -> None:
    lone, mark = '{"text": "x \\ud83d"}', '\ufeff{"text": "a"}'
    tools = {"messages": [USER, ANSWER], "tools": "{"}
    made = survey(tmp_path, mark, lone, '{"text": "a", "text": "b"}', tools)

    found = {each.where: each.what for each in made.findings}

    assert found["part/rows.jsonl row 2"].startswith("has a lone surrogate")
    assert found["part/rows.jsonl row 3"] == "has the key text twice"
    assert found["part/rows.jsonl row 4"].startswith("has tools as a text that is not JSON")
    assert made.num_bad == 3


def test_what_the_chat_template_leaves_out_is_one_finding(tmp_path: Path) -> None:
    text = (
        "{% for message in messages if message.role != 'developer' %}"
        "{{ raise_exception('no tools') if message.role == 'tool' }}{{ message.content }}{% endfor %}"
    )
    lost = {"messages": [{"role": "developer", "content": "Be short."}, USER, ANSWER]}
    pair = {
        "prompt": lost["messages"][:2],
        "chosen": [ANSWER],
        "rejected": [{**ANSWER, "content": "No."}],
    }
    template = ChatTemplate(sources={"default": text}, tokens={})
    rows = [
        {"messages": [USER, ANSWER]},
        *[lost] * 30,
        *[{"messages": [USER, CALL, TOOL, ANSWER]}] * 2,
    ]
    made = survey(tmp_path / "sft", *rows, template=template)
    pairs = survey(tmp_path / "dpo", pair, method="dpo", template=template)

    with pytest.raises(SpecError) as caught:
        made.raise_errors()

    first, second = caught.value.findings
    assert first.where == "part/rows.jsonl row 2, and 29 other rows"
    assert first.what.startswith("have a message of role developer, which the base model's chat")
    assert first.next_step == "rename the role to system"
    assert second.where == "part/rows.jsonl row 32, and 1 other row"
    assert second.what.startswith("have a conversation that the base model's chat template rejects")
    assert "no tools" in second.what
    assert (made.num_bad, pairs.num_bad) == (32, 1)


def test_conversations_without_a_template_are_refused(tmp_path: Path) -> None:
    template = ChatTemplate(sources={}, tokens={})
    made = survey(tmp_path, {"text": "a"}, {"messages": [USER, ANSWER]}, template=template)

    with pytest.raises(SpecError, match="the base model's tokenizer has no chat template"):
        made.raise_errors()
    assert made.num_bad == 1


def test_keys_that_are_ignored_are_counted(tmp_path: Path) -> None:
    answer = {**ANSWER, "weight": 1, "score": 3, "reasoning_content": "hm"}
    rows = [{"messages": [USER, answer, USER, answer], "id": n, "tools": []} for n in range(2)]
    template = ChatTemplate(sources={"default": "{{ messages }} reasoning_content"}, tokens={})
    made = survey(tmp_path, *rows, {"text": "a", "prompt": "b"}, template=template)

    assert "ignores: id in 2 rows, messages[].score in 2 rows, prompt in 1 rows" in " ".join(
        made.warnings(max_length=100)
    )
