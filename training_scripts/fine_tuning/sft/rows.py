"""Rows of JSONL channels and their tokens: chat, prompt with completion, plain text, and pairs of answers.

Only tokens that the model should learn to produce have labels: assistant messages, completions, and all of a plain
text.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import jinja2
from trl.chat_template_utils import get_training_chat_template, has_generation_markers

from sft.answer_spans import (
    common_length,
    marked_spans,
    trained_tokens,
    with_sentinels,
)
from sft.errors import FineTuningError
from trainyard.sharding.row_rules import (
    key_faults,
    losses_of,
    parse_row,
    template_messages,
    tools_of,
    with_call_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    from trainyard.sharding.row_rules import Message, Render

IGNORED = -100
"""Label of a token that the loss ignores: the default `ignore_index` of torch's cross entropy."""
_PAIR = ("prompt", "chosen", "rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token ids of one sample, and a label per token: its id, or `IGNORED` if not learned."""

    input_ids: list[int]
    labels: list[int]

    def cut(self, max_length: int) -> Tokens:
        """Return the first `max_length` tokens."""
        return Tokens(input_ids=self.input_ids[:max_length], labels=self.labels[:max_length])

    @property
    def num_trained(self) -> int:
        """Number of tokens with a label, without the first token, which the model does not predict."""
        return sum(label != IGNORED for label in self.labels[1:])


def read_rows(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (place, row) for each row of a channel's `*.jsonl` files, sorted by name.

    Raises:
        FineTuningError: there is no such file, or a line is not a JSON object with usable keys.
    """
    files = sorted(each for each in folder.rglob("*.jsonl") if each.is_file())
    if not files:
        raise FineTuningError(
            f"{folder} has no *.jsonl files; set the channel to a prefix with such files"
        )
    for path in files:
        with path.open("rb") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    where = f"{path.name} row {number}"
                    yield where, _object(line, where=where)


def _object(line: bytes, *, where: str) -> dict[str, Any]:
    try:
        row = parse_row(line)
    except ValueError as error:
        raise FineTuningError(f"{where} {error}; correct the row in its file") from error
    if not isinstance(row, dict):
        raise FineTuningError(
            f"{where} is a JSON {type(row).__name__}, not an object; correct the row in its file"
        )
    if fault := next(key_faults(row), None):
        raise FineTuningError(f"{where} {fault}; correct the row in its file")
    return row


class RowTokenizer:
    """Tokenizer of rows, with a model's tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._marked = _marked_template(tokenizer)

    def samples(self, row: dict[str, Any], *, method: str, where: str) -> list[Tokens]:
        """Return a row's samples without truncation.

        A row has one sample. With the method `dpo` it has two, first for its chosen and then for its rejected
        answer.

        Raises:
            FineTuningError: `tokens` rejects a sample; or, with `dpo`, the row's `prompt`, `chosen` and `rejected`
                are neither all texts nor all lists of messages.
        """
        answers = answers_of(row, where=where) if method == "dpo" else [row]
        return [self.tokens(each, where=where) for each in answers]

    def tokens(self, row: dict[str, Any], *, where: str) -> Tokens:
        """Return a row's tokens without truncation.

        Args:
            row: it has either `messages`, or `prompt` with `completion`, or `text`.
            where: the row, for errors.

        Raises:
            FineTuningError: the row has another form, or its answers cannot be located with the chat template.
        """
        prompt, completion = row.get("prompt"), row.get("completion")
        if "messages" in row:
            return self._chat(row["messages"], tools=tools_of(row), num_given=0, where=where)
        if isinstance(prompt, list) and isinstance(completion, list):
            messages = [*prompt, *completion]
            return self._chat(messages, tools=tools_of(row), num_given=len(prompt), where=where)
        if isinstance(prompt, str) and isinstance(completion, str):
            return self._plain(prompt, completion)
        if isinstance(row.get("text"), str):
            return self._plain("", row["text"])
        raise FineTuningError(
            _wrong_form(
                row,
                where=where,
                wanted=() if prompt is completion is None else ("prompt", "completion"),
                allowed="messages (a list), prompt and completion (both texts or both lists), or text (a text)",
            )
        )

    def _plain(self, prompt: str, completion: str) -> Tokens:
        text = prompt + completion
        end = self._tokenizer.eos_token or ""
        text += "" if text.endswith(end) else end
        return self._by_spans(text, [(len(prompt), len(text))], adds_special_tokens=True)

    def _chat(
        self, messages: Sequence[Message], *, tools: Any, num_given: int, where: str
    ) -> Tokens:
        """Return the tokens of a conversation; its first `num_given` messages have no labels.

        Raises:
            FineTuningError: there is no chat template, the template rejects the conversation or leaves out a part
                of it, or the answers cannot be located with the template.
        """
        if self._tokenizer.chat_template is None:
            raise FineTuningError(
                f"{where} is a conversation, but the base model's tokenizer has no chat template; set one in its "
                "tokenizer_config.json or chat_template.jinja, or use prompt and completion"
            )
        try:
            template = None if num_given else self._marked
            render = partial(self._rendered, template=template)
            messages = with_call_arguments(messages, tools=tools, render=render)
            self._check_losses(messages, tools=tools, render=render, where=where)
            text, spans = self._answers(messages, tools=tools, num_given=num_given, where=where)
        except (jinja2.TemplateError, TypeError, ValueError, KeyError) as error:
            raise FineTuningError(
                f"{where} is rejected by the chat template of the base model: {error}; correct the row in its file, "
                "or use another template"
            ) from error
        return self._by_spans(text, spans, adds_special_tokens=False)

    def _answers(
        self, messages: Sequence[Message], *, tools: Any, num_given: int, where: str
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of a conversation, and the character spans of the answers to learn.

        The answers to learn are the assistant's messages after the first `num_given` messages. Messages with
        `weight` 0 are left out.

        Raises:
            FineTuningError: answers cannot be located with the chat template.
        """
        answers = [
            number
            for number, one in enumerate(messages)
            if one["role"] == "assistant" and number >= num_given
        ]
        learned = [number for number in answers if messages[number].get("weight") != 0]
        if not self._marked or num_given:
            try:
                return self._rendered_answers(messages, learned, tools=tools, where=where)
            except FineTuningError:
                if not self._marked:
                    raise
        given = self._rendered(messages[:num_given], tools, is_open=True) if num_given else ""
        text, spans = self._marked_answers(messages, tools=tools, given=given, where=where)
        if len(learned) < len(answers):
            if len(spans) != len(answers):
                raise FineTuningError(
                    f"{where} has an answer with weight 0, but the chat template marks {len(spans)} answers, "
                    f"and the row has {len(answers)}; mark each answer once in the template, or remove the key weight"
                )
            spans = [spans[answers.index(number)] for number in learned]
        return text, spans

    def _check_losses(
        self, messages: Sequence[Message], *, tools: Any, render: Render, where: str
    ) -> None:
        """Reject a conversation if the chat template leaves out a part of it.

        Raises:
            FineTuningError: a message, a tool call or the tools are not in the rendered text.
        """
        losses = losses_of(messages, tools=tools, render=render)
        if lost := [f"{where} has {what}; {remedy}" for what, remedy in losses if remedy]:
            raise FineTuningError("; ".join(lost))

    def _marked_answers(
        self, messages: Sequence[Message], *, tools: Any, given: str, where: str
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of a conversation, and the spans of characters within `{% generation %}` marks.

        transformers' own masks are wrong for some tokenizers (its issue 47325), so the marks are located in the text.
        Marks in `given`, the text before the first answer to learn, are ignored.

        Raises:
            FineTuningError: the marks cannot be located.
        """
        text = self._rendered(messages, tools, template=self._marked)
        found, spans = marked_spans(
            self._rendered(messages, tools, template=with_sentinels(self._marked))
        )
        if found != text:
            raise FineTuningError(
                f"{where}: the answers in the {{% generation %}} blocks of the chat template cannot be located, "
                "because the template changes or repeats a block's text outside of the block; use filters such as trim "
                "inside the block, or remove the {% generation %} tags"
            )
        start = common_length(given, text)
        return text, [(max(start, begin), end) for begin, end in spans if end > start]

    def _rendered(
        self,
        messages: Sequence[Message],
        tools: Any,
        *,
        template: str | None = None,
        is_open: bool = False,
    ) -> str:
        text: str = self._tokenizer.apply_chat_template(
            template_messages(messages),
            tools=tools,
            chat_template=template,
            tokenize=False,
            add_generation_prompt=is_open,
        )
        return text

    def _rendered_answers(
        self, messages: Sequence[Message], learned: Sequence[int], *, tools: Any, where: str
    ) -> tuple[str, list[tuple[int, int]]]:
        """Return the text of a conversation, and the character span of each message to learn.

        `learned` has the indexes of these messages. A span is (begin, end). It begins after the generation prompt
        of its message. Some templates render the last message of a conversation without this prompt. The span of
        this message then begins at the first character at which the text differs from a rendering of the earlier
        messages with the prompt, as in TRL's DPO.

        Raises:
            FineTuningError: the template renders a message differently if other messages follow.
        """
        text, spans = self._rendered(messages, tools), []
        for number in learned:
            before = self._rendered(messages[:number], tools, is_open=True)
            up_to = self._rendered(messages[: number + 1], tools)
            is_last = number + 1 == len(messages)
            if not (text.startswith(up_to) and (is_last or up_to.startswith(before))):
                raise FineTuningError(
                    f"{where}: the chat template renders message {number + 1} differently if messages follow it, so "
                    "its tokens cannot be found; mark answers in the template with {% generation %}, or use rows with "
                    "a single answer"
                )
            spans.append((common_length(before, up_to), len(up_to)))
        return text, spans

    def _by_spans(
        self, text: str, spans: Sequence[tuple[int, int]], *, adds_special_tokens: bool
    ) -> Tokens:
        """Return the tokens of a text; tokens that overlap a span of characters have labels."""
        made = self._tokenizer(
            text, add_special_tokens=adds_special_tokens, return_offsets_mapping=True
        )
        is_trained = trained_tokens(text, made["offset_mapping"], spans)
        labels = [
            token if learned else IGNORED
            for token, learned in zip(made["input_ids"], is_trained, strict=True)
        ]
        return Tokens(input_ids=list(made["input_ids"]), labels=labels)


def _marked_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return a chat template that marks answers: the tokenizer's, or TRL's for a known model family, or None."""
    if tokenizer.chat_template is None:
        return None
    if has_generation_markers(tokenizer.chat_template):
        return str(tokenizer.get_chat_template())
    try:
        return get_training_chat_template(tokenizer)
    except ValueError:  # a family that TRL does not know
        return None


def answers_of(row: dict[str, Any], *, where: str) -> list[dict[str, Any]]:
    """Return a pair as two rows with `prompt` and `completion`, the chosen answer first, each with the row's tools.

    Raises:
        FineTuningError: prompt and answers are neither all texts nor all lists of messages.
    """
    values = [row.get(name) for name in _PAIR]
    if not any(all(isinstance(value, kind) for value in values) for kind in (str, list)):
        raise FineTuningError(
            _wrong_form(
                row,
                where=where,
                wanted=_PAIR,
                allowed="prompt, chosen and rejected, all texts or all lists of messages",
            )
        )
    shared = {key: row[key] for key in ("prompt", "tools") if key in row}
    return [{**shared, "completion": row[name]} for name in ("chosen", "rejected")]


def _wrong_form(row: dict[str, Any], *, where: str, wanted: Sequence[str], allowed: str) -> str:
    """Return the error text for a row that does not have the allowed keys and types.

    It names the type of the value of each key in `wanted`, or of every key of the row if `wanted` is empty.
    """
    kinds = {str: "a text", list: "a list", type(None): "null"}
    types = {key: kinds.get(type(value), type(value).__name__) for key, value in row.items()}
    got = ", ".join(f"{key}: {types.get(key, 'missing')}" for key in wanted or sorted(row))
    return f"{where} has {got or 'no keys'}; allowed: {allowed}; correct the row in its file"
