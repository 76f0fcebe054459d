"""Rules of a fine-tuning's rows that the data check and the job share: parsing, keys, losses by the chat template."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest
from jinja2 import UndefinedError

from trainyard.sharding.chat_template import ChatTemplate
from trainyard.sharding.objects import LocalObjects
from trainyard.sharding.row_rules import (
    key_faults,
    losses_of,
    parse_row,
    tools_of,
    with_call_arguments,
)

if TYPE_CHECKING:
    from pathlib import Path

USER, ANSWER = {"role": "user", "content": "Hi?"}, {"role": "assistant", "content": "Hi."}
DEVELOPER = {"role": "developer", "content": "Be short."}
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {}}}
CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"function": {"name": "weather", "arguments": {"city": "Rome"}}}],
}
PLAIN = (
    "{% for message in messages %}{{ message.role }}: {{ message.content | trim }}\n{% endfor %}"
)
ROLES = (
    "{%- for message in messages if message.role in ('system', 'user', 'assistant') %}\n"
    "{{- message.content }}{% generation %}\n{% endgeneration %}{%- endfor %}"
)
WITH_TOOLS = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for message in messages %}{{ message.content }}{% for call in message.tool_calls or [] %}"
    "{{ call.function.name | upper }} {{ call.function.arguments | tojson }}{% endfor %}{% endfor %}"
)
NAMES_ONLY = WITH_TOOLS.replace("{{ call.function.arguments | tojson }}", "")
NO_TOOLS = "{{ raise_exception('no tools') if tools }}" + PLAIN


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        (b"{", "is not valid JSON ("),
        (b'{"text": "\xff"}', "is not valid JSON ("),
        ('{"text": "a"}'.encode("utf-16"), "is not valid JSON ("),
        (b"[" * 100_000, "is not valid JSON ("),
        (b'{"text": "first", "text": "second"}', "has the key text twice"),
        (b'{"text": "x \\uD83d y"}', "has a lone surrogate, \\ud83d, which is half of a character"),
    ],
    ids=["cut", "latin", "utf-16", "deep", "doubled", "surrogate"],
)
def test_a_line_that_the_job_cannot_use_is_named(line: bytes, fault: str) -> None:
    with pytest.raises(ValueError, match=f"^{re.escape(fault)}"):
        parse_row(line)


@pytest.mark.parametrize(
    "line", [b'\xef\xbb\xbf{"text": "a"}', b'{"text": "\\ud83d\\ude00"}', b'{"text": "\\\\ud8"}']
)
def test_byte_order_marks_and_whole_surrogate_pairs_are_accepted(line: bytes) -> None:
    assert list(parse_row(line)) == ["text"]


@pytest.mark.parametrize(
    ("row", "fault"),
    [
        ({"system": "Be short."}, "has the key system, which is not used; make it the first"),
        ({"chat_template_kwargs": {"a": 1}}, "has the key chat_template_kwargs, which is not used"),
        ({"tools": "{"}, "has tools as a text that is not JSON"),
        ({"tools": ["weather"]}, "has tools that are neither a list of objects"),
        ({"messages": [{**ANSWER, "weight": 0.5}]}, "has weight 0.5 in message 1 of messages"),
        ({"messages": [{**ANSWER, "function_call": {"name": "a"}}]}, "has function_call in"),
    ],
)
def test_keys_that_the_training_would_ignore_are_refused(row: dict[str, Any], fault: str) -> None:
    (found,) = key_faults(row)

    assert found.startswith(fault)


def test_tools_may_be_json_text() -> None:
    assert tools_of({"tools": json.dumps([WEATHER])}) == [WEATHER]
    assert tools_of({"tools": "[]"}) is None
    assert list(key_faults({"messages": [{**ANSWER, "weight": 0}], "tools": "[]"})) == []


@pytest.mark.parametrize(
    ("template", "messages", "tools", "lost"),
    [
        (PLAIN, [DEVELOPER, USER, ANSWER], None, []),
        (PLAIN, [USER, {**ANSWER, "content": " ", "weight": 0}], None, []),
        (ROLES, [DEVELOPER, USER, ANSWER], None, ["a message of role developer"]),
        (PLAIN, [USER, ANSWER], [WEATHER], ["tools"]),
        (
            PLAIN,
            [USER, CALL, ANSWER, USER, CALL],
            None,
            ["tool_calls in a message of role", "arguments of tool_calls"],
        ),
        (NAMES_ONLY, [USER, CALL], None, ["arguments of tool_calls"]),
        (WITH_TOOLS, [USER, CALL], [WEATHER], []),
        (
            PLAIN.replace("message.content", "'' if message.tool_calls else message.content"),
            [USER, {**CALL, "content": "Let me see."}],
            None,
            ["a message of role assistant with tool_calls", "tool_calls", "arguments"],
        ),
    ],
    ids=["none", "empty", "developer", "tools", "calls", "arguments", "all", "text of a call"],
)
def test_parts_that_a_template_leaves_out_are_found(
    template: str, messages: list[Any], tools: list[Any] | None, lost: list[str]
) -> None:
    rendered = ChatTemplate(sources={"default": template}, tokens={})

    found = losses_of(messages, tools=tools, render=rendered.render)

    assert len(found) == len(lost)
    for (what, remedy), wanted in zip(found, lost, strict=True):
        assert what.startswith(wanted)
        assert remedy


def test_arguments_as_json_text_stay_json() -> None:
    asked = {"function": {"name": "weather", "arguments": '{"city": "Rome"}'}}
    texts: list[Any] = []

    def render(messages: Any, tools: Any) -> str:
        (call,) = messages[0]["tool_calls"]
        texts.append(json.loads(call["function"]["arguments"]))
        return str(messages)

    assert losses_of([{**CALL, "tool_calls": [asked]}], tools=None, render=render) == []
    assert texts[0]["city"] == "Rome"


R1 = PLAIN.replace("message.content | trim", "message.content.split('</think>')[-1] | trim")
QWEN = PLAIN.replace(
    "message.content | trim",
    "('<think>' + message.content.split('<think>')[-1]) if loop.last else message.content.split('</think>')[-1]",
)


@pytest.mark.parametrize(
    ("template", "lost"),
    [
        (PLAIN, []),
        (R1, ["thinking of earlier answers", "the thinking of an answer"]),
        (QWEN, ["thinking of earlier answers"]),
    ],
    ids=["kept", "cut", "the last kept"],
)
def test_thinking_that_a_template_cuts_off_is_found(template: str, lost: list[str]) -> None:
    thought = {"role": "assistant", "content": "<think>\nHm.\n</think>\n\nHi."}
    render = ChatTemplate(sources={"default": template}, tokens={}).render

    found = losses_of([USER, thought, USER, thought], tools=None, render=render)

    assert [what.partition(",")[0] for what, _ in found] == lost
    assert [bool(remedy) for _, remedy in found] == ["earlier" not in what for what in lost]


@pytest.mark.parametrize(
    "given", [{"city": "Rome", "of": "Güell"}, '{"city": "Rome", "of": "Güell"}']
)
@pytest.mark.parametrize(
    "rendered",
    [
        "{{ call.function.arguments | tojson }}",
        "{{ call.function.arguments }}",
        "{{ 'as JSON: ' + call.function.arguments }}",
        "{{ call.function.arguments if call.function.arguments is string else call.function.arguments | tojson }}",
    ],
    ids=["objects", "texts", "texts only", "both"],
)
def test_templates_get_the_arguments_in_the_form_that_they_render(
    given: Any, rendered: str
) -> None:
    template = WITH_TOOLS.replace("{{ call.function.arguments | tojson }}", rendered)
    render = ChatTemplate(sources={"default": template}, tokens={}).render
    asked = {**CALL, "tool_calls": [{"function": {"name": "weather", "arguments": given}}]}

    messages = with_call_arguments([USER, asked, ANSWER], tools=None, render=render)

    assert '{"city": "Rome", "of": "Güell"}' in render(messages, None)
    assert losses_of(messages, tools=None, render=render) == []


def test_arguments_of_another_form_are_unchanged() -> None:
    calls = [{"name": "a", "arguments": "no JSON"}, {"name": "b", "arguments": "[1]"}, "c"]
    render = ChatTemplate(sources={"default": PLAIN}, tokens={}).render

    made = with_call_arguments([{**CALL, "tool_calls": calls}], tools=None, render=render)

    assert made == [{**CALL, "tool_calls": calls}]


@pytest.mark.parametrize("kind", ["file", "config", "variants", "files", "none"])
def test_template_of_a_model_in_s3(tmp_path: Path, kind: str) -> None:
    place = tmp_path / "bucket" / "base"
    (place / "old").mkdir(parents=True)
    config: dict[str, Any] = {"bos_token": {"content": "<s>"}, "pad_token": None}
    if kind == "variants":
        names = {"default": "{{ bos_token }}d", "tool_use": "t"}
        config["chat_template"] = [{"name": key, "template": one} for key, one in names.items()]
    elif kind != "none":
        config["chat_template"] = "{{ bos_token }}c{{ pad_token }}"
    (place / "tokenizer_config.json").write_text(json.dumps(config))
    (place / "old" / "tokenizer_config.json").write_text("{")
    if kind in {"file", "files"}:
        (place / "chat_template.jinja").write_text("f")
    if kind == "files":
        (place / "additional_chat_templates").mkdir()
        (place / "additional_chat_templates/tool_use.jinja").write_text("t")

    made = ChatTemplate.of_model(LocalObjects(tmp_path), ["s3://bucket/none/", "s3://bucket/base/"])

    assert made is not None
    if kind == "none":
        assert not made.sources
    else:
        texts = {"file": "f", "files": "f", "config": "<s>c", "variants": "<s>d"}
        assert made.render([USER], None) == texts[kind]
        assert made.render([USER], [WEATHER]) == (texts | {"variants": "t", "files": "t"})[kind]


def test_a_token_that_the_tokenizer_lacks_is_not_empty(tmp_path: Path) -> None:
    place = tmp_path / "bucket" / "base"
    place.mkdir(parents=True)
    (place / "tokenizer_config.json").write_text('{"bos_token": null}')
    (place / "chat_template.jinja").write_text("{{ eos_token + bos_token }}")
    made = ChatTemplate.of_model(LocalObjects(tmp_path), ["s3://bucket/base/"])

    assert made is not None
    with pytest.raises(UndefinedError, match="bos_token"):
        made.render([USER], None)


def test_a_model_in_an_archive_has_no_readable_template(tmp_path: Path) -> None:
    place = tmp_path / "bucket" / "base"
    place.mkdir(parents=True)
    for name in ("model.tar.gz", "tokenizer_config.json"):
        (place / name).write_text("{}")

    assert ChatTemplate.of_model(LocalObjects(tmp_path), ["s3://bucket/base/"]) is None
