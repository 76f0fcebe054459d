"""Spans of the answers between `{% generation %}` marks, and their tokens: laws that need no transformers."""

from __future__ import annotations

from itertools import groupby
from typing import Any

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from sft.answer_spans import common_length, marked_spans, trained_tokens, with_sentinels
from trainyard.sharding.chat_template import ChatTemplate

LOOP = (
    "{%% for message in messages %%}<{{ message.role }}>\n"
    "{%% if message.role == 'assistant' %%}%s{%% else %%}{{ message.content }}\n{%% endif %%}{%% endfor %%}"
)
WITH_END = LOOP % "{% generation %}{{ message.content + '\n' }}{% endgeneration %}"
CONTENT = LOOP % "{% generation %}{{ message.content }}{% endgeneration %}\n"


def rendered(template: str, *answers: str) -> str:
    """Return a conversation with these answers."""
    messages = [
        {"role": role, "content": text}
        for answer in answers
        for role, text in (("user", "Which?"), ("assistant", answer))
    ]
    return ChatTemplate(sources={"default": template}, tokens={}).render(messages, None)


@pytest.mark.parametrize(
    "template",
    [
        WITH_END,
        CONTENT,
        LOOP % "  {%- generation -%}  {{ message.content }}  {%- endgeneration -%}  \n",
        LOOP % "  {% generation %}\n{{ message.content }}\n  {% endgeneration %}\n",
        LOOP % "{%- generation %}{% set a = 1 %}{{ message.content }}{% endgeneration -%}\n{{ a }}",
        "{#- {% generation %} / {% endgeneration %} -#}" + CONTENT,
        "{% macro say(m) %}{% generation %}{{ m.content }}{% endgeneration %}{% endmacro %}"
        + LOOP % "{{ say(message) }}",
    ],
    ids=["end", "content", "minus", "lines", "scope", "comment", "macro"],
)
def test_marks_are_located_and_the_text_is_unchanged(template: str) -> None:
    text, spans = marked_spans(rendered(with_sentinels(template), "one", "\u597d two"))

    assert text == rendered(template, "one", "\u597d two")
    assert [text[begin:end].strip() for begin, end in spans] == ["one", "\u597d two"]


@pytest.mark.parametrize(
    ("template", "answers", "normalizer", "trims", "learned"),
    [
        (WITH_END, ["one", " two", "x "], None, True, ["one\n", " two\n", "x \n"]),
        (CONTENT, ["fine \U0001f44d", "\u597d"], None, False, ["fine \U0001f44d", "\u597d"]),
        (CONTENT, ["fine \U0001f44d", "\u597d"], None, True, ["fine \U0001f44d", "\u597d"]),
        (CONTENT, ["cafe\u0301", "ok"], normalizers.NFC(), False, ["caf\u00e9", "ok"]),
        (WITH_END, ["cafe\u0301", "ok"], normalizers.NFC(), True, ["caf\u00e9\n", "ok\n"]),
    ],
    ids=["trimmed", "bytes", "bytes trimmed", "normalized", "normalized trimmed"],
)
def test_tokens_of_answers_are_learned_whole_and_alone(
    template: str, answers: list[str], normalizer: Any, trims: bool, learned: list[str]
) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={each: n for n, each in enumerate(letters)}, merges=[]))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=trims)
    text, spans = marked_spans(rendered(with_sentinels(template), *answers))

    made = tokenizer.encode(text)

    flags = trained_tokens(text, made.offsets, spans)
    runs = groupby(zip(made.ids, flags, strict=True), key=lambda pair: pair[1])
    assert [tokenizer.decode([one for one, _ in run]) for yes, run in runs if yes] == learned


def test_common_length() -> None:
    assert [common_length(one, "abc") for one in ("", "ab", "abc", "abd", "abcd")] == [
        0,
        2,
        3,
        2,
        3,
    ]


def test_a_template_that_cuts_a_mark_off_is_noticed_by_its_text() -> None:
    block = "{% generation %}{{ messages[1].content }}{% endgeneration %}"
    template = "{% set x %}" + block + "{% endset %}{{ x[:-1] }}"

    text, spans = marked_spans(rendered(with_sentinels(template), "one"))

    assert (text, spans) == ("one", [])
    assert rendered(template, "one") == "on"


@pytest.mark.parametrize(
    ("marked", "answers"),
    [
        ("q<one q<two>", ["two"]),
        ("one> q<two>", ["two"]),
        ("q<one> q<two", ["one"]),
        ("<one><two>", ["one", "two"]),
    ],
    ids=["lost end", "lost begin", "cut off", "whole"],
)
def test_no_text_between_answers_is_learned_if_a_mark_is_lost(
    marked: str, answers: list[str]
) -> None:
    text, spans = marked_spans(marked.translate({ord("<"): "\ufdd0", ord(">"): "\ufdd1"}))

    assert [text[begin:end] for begin, end in spans] == answers
