"""Rows of JSONL channels and their tokens: chat, prompt with completion, plain text, and pairs of answers.

Only tokens that the model should learn to produce have labels: assistant messages, completions, and all of a plain
text.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trl.chat_template_utils import get_training_chat_template, has_generation_markers

from sft.errors import FineTuningError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from transformers import PreTrainedTokenizerBase

    Message = dict[str, Any]

IGNORED = -100
"""Label of a token that the loss ignores: the default `ignore_index` of torch's cross entropy."""
_PAIR = ("prompt", "chosen", "rejected")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """Token ids of one sample and their labels, of one length."""

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
        FineTuningError: there is no such file, or a line is not a JSON object.
    """
    files = sorted(folder.rglob("*.jsonl"))
    if not files:
        raise FineTuningError(
            f"{folder} has no *.jsonl files; set the channel to a prefix with such files"
        )
    for path in files:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, start=1):
                if line.strip():
                    yield (
                        f"{path.name} row {number}",
                        _object(line, where=f"{path.name} row {number}"),
                    )


def _object(line: str, *, where: str) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except ValueError as error:
        raise FineTuningError(
            f"{where} is not valid JSON ({error}); correct the row in its file"
        ) from error
    if not isinstance(row, dict):
        raise FineTuningError(
            f"{where} is a JSON {type(row).__name__}, not an object; correct the row in its file"
        )
    return row


class RowTokenizer:
    """Tokenizer of rows, with a model's tokenizer and its chat template."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase) -> None:
        self._tokenizer = tokenizer
        self._marked = _marked_template(tokenizer)

    def tokens(self, row: dict[str, Any], *, where: str) -> Tokens:
        """Return a row's tokens without truncation.

        Args:
            row: with `messages`, `prompt` and `completion`, or `text`.
            where: the row, for errors.

        Raises:
            FineTuningError: the row has another form, or its answers cannot be located with the chat template.
        """
        prompt, completion = row.get("prompt"), row.get("completion")
        if "messages" in row:
            return self._chat(row["messages"], tools=row.get("tools"), num_given=0, where=where)
        if isinstance(prompt, list) and isinstance(completion, list):
            messages = [*prompt, *completion]
            return self._chat(messages, tools=row.get("tools"), num_given=len(prompt), where=where)
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
            FineTuningError: there is no chat template, or answers cannot be located with it.
        """
        if self._tokenizer.chat_template is None:
            raise FineTuningError(
                f"{where} is a conversation, but the base model's tokenizer has no chat template; set one in its "
                "tokenizer_config.json or chat_template.jinja, or use prompt and completion"
            )
        if self._marked and not num_given:
            return self._by_markers(messages, tools=tools)
        text = self._rendered(messages, tools=tools)
        spans = [
            self._answer_span(messages, number, text=text, tools=tools, where=where)
            for number, message in enumerate(messages)
            if message["role"] == "assistant" and number >= num_given
        ]
        return self._by_spans(text, spans, adds_special_tokens=False)

    def _by_markers(self, messages: Sequence[Message], *, tools: Any) -> Tokens:
        made = self._tokenizer.apply_chat_template(
            list(messages),
            tools=tools,
            chat_template=self._marked,
            tokenize=True,
            return_dict=True,
            return_assistant_tokens_mask=True,
        )
        pairs = zip(made["input_ids"], made["assistant_masks"], strict=True)
        labels = [token if is_answer else IGNORED for token, is_answer in pairs]
        return Tokens(input_ids=list(made["input_ids"]), labels=labels)

    def _rendered(self, messages: Sequence[Message], *, tools: Any, is_open: bool = False) -> str:
        text: str = self._tokenizer.apply_chat_template(
            list(messages), tools=tools, tokenize=False, add_generation_prompt=is_open
        )
        return text

    def _answer_span(
        self, messages: Sequence[Message], number: int, *, text: str, tools: Any, where: str
    ) -> tuple[int, int]:
        """Return the span of characters of an assistant message: from the end of its generation prompt to its end.

        Raises:
            FineTuningError: the template renders the message differently if other messages follow.
        """
        before = self._rendered(messages[:number], tools=tools, is_open=True)
        up_to = self._rendered(messages[: number + 1], tools=tools)
        if not (text.startswith(up_to) and up_to.startswith(before)):
            raise FineTuningError(
                f"{where}: the chat template renders message {number + 1} differently if messages follow it, so "
                "its tokens cannot be found; mark answers in the template with {% generation %}, or use rows with a "
                "single answer"
            )
        return len(before), len(up_to)

    def _by_spans(
        self, text: str, spans: Sequence[tuple[int, int]], *, adds_special_tokens: bool
    ) -> Tokens:
        """Return the tokens of a text; tokens that overlap a span of characters have labels."""
        made = self._tokenizer(
            text, add_special_tokens=adds_special_tokens, return_offsets_mapping=True
        )
        labels = [
            token if any(begin < stop and end > start for start, stop in spans) else IGNORED
            for token, (begin, end) in zip(made["input_ids"], made["offset_mapping"], strict=True)
        ]
        return Tokens(input_ids=list(made["input_ids"]), labels=labels)


def _marked_template(tokenizer: PreTrainedTokenizerBase) -> str | None:
    """Return a chat template that marks answers: the tokenizer's, or TRL's for a known model family, or None."""
    if tokenizer.chat_template is None:
        return None
    if has_generation_markers(tokenizer.chat_template):
        return str(tokenizer.chat_template)
    try:
        return get_training_chat_template(tokenizer)
    except ValueError:  # a family that TRL does not know
        return None


def pair_of(row: dict[str, Any], *, where: str) -> dict[str, Any]:
    """Return the prompt and the two answers of a row for TRL, all texts or all lists of messages.

    Raises:
        FineTuningError: the row has another form.
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
    return dict(zip(_PAIR, values, strict=True))


def _wrong_form(row: dict[str, Any], *, where: str, wanted: Sequence[str], allowed: str) -> str:
    """Return the error text for a row that does not have the allowed keys and types.

    It names the type of the value of each key in `wanted`, or of every key of the row if `wanted` is empty.
    """
    kinds = {str: "a text", list: "a list", type(None): "null"}
    types = {key: kinds.get(type(value), type(value).__name__) for key, value in row.items()}
    got = ", ".join(f"{key}: {types.get(key, 'missing')}" for key in wanted or sorted(row))
    return f"{where} has {got or 'no keys'}; allowed: {allowed}; correct the row in its file"
