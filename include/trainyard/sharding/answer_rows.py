"""Fine-tuning data as JSON lines: the row formats, and the checks of a row.

| format | row |
|---|---|
| chat | `{"messages": [{"role": "user", "content": "..."}, {"role": "assistant", "content": "..."}]}` |
| completion | `{"prompt": ..., "completion": ...}`, both texts or both lists of messages |
| text | `{"text": "..."}` |
| pair | `{"prompt": ..., "chosen": ..., "rejected": ...}`, all texts or all lists of messages |
"""

from __future__ import annotations

from enum import StrEnum
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence


class RowFormat(StrEnum):
    """Format of a row, identified by its keys."""

    CHAT = "chat"
    COMPLETION = "completion"
    TEXT = "text"
    PAIR = "pair"


FORMATS: Mapping[str, tuple[RowFormat, ...]] = {
    "sft": (RowFormat.CHAT, RowFormat.COMPLETION, RowFormat.TEXT),
    "dpo": (RowFormat.PAIR,),
}
"""Accepted row formats, by fine-tuning method."""
KEYS: Mapping[RowFormat, tuple[str, ...]] = {
    RowFormat.CHAT: ("messages",),
    RowFormat.PAIR: ("prompt", "chosen", "rejected"),
    RowFormat.COMPLETION: ("prompt", "completion"),
    RowFormat.TEXT: ("text",),
}
ROLES = ("system", "developer", "user", "assistant", "tool")


def format_of(row: Mapping[str, Any]) -> RowFormat | None:
    """Return the format whose keys are all in the row, or None."""
    return next((name for name, keys in KEYS.items() if all(key in row for key in keys)), None)


def faults_of(row: object, *, method: str) -> Iterator[str]:
    """Yield the faults of a row, each as a predicate: "has no assistant message".

    Args:
        row: a line's JSON.
        method: `sft` or `dpo`.
    """
    if not isinstance(row, dict):
        yield "is not a JSON object"
        return
    kind = format_of(row)
    if kind not in FORMATS[method]:
        allowed = " or ".join("+".join(KEYS[each]) for each in FORMATS[method])
        yield f"has the keys {', '.join(sorted(row)) or 'none'}; {method} requires {allowed}"
        return
    if kind is RowFormat.CHAT:
        yield from _chat_faults(row["messages"], where="messages")
        return
    yield from _part_faults(row, KEYS[kind])
    if kind is RowFormat.PAIR and row["chosen"] == row["rejected"]:
        yield "has the same text in chosen and rejected"


def _part_faults(row: Mapping[str, Any], keys: Sequence[str]) -> Iterator[str]:
    """Yield the faults of a row's parts, which are texts or lists of messages. Only a prompt text may be empty."""
    parts = {key: row[key] for key in keys}
    if all(isinstance(each, str) for each in parts.values()):
        for key, text in parts.items():
            if key != "prompt" and not text.strip():
                yield f"has an empty {key}"
    elif all(isinstance(each, list) for each in parts.values()):
        for key in keys[1:]:
            yield from _chat_faults([*parts["prompt"], *parts[key]], where=key)
    else:
        kinds = ", ".join(f"{key} {type(each).__name__}" for key, each in parts.items())
        yield f"mixes types: {kinds}; allowed: all texts, or all lists of messages"


def _chat_faults(messages: object, *, where: str) -> Iterator[str]:
    if not isinstance(messages, list) or not messages:
        yield f"has no list of messages in {where}"
        return
    for number, message in enumerate(messages, start=1):
        if not isinstance(message, dict) or message.get("role") not in ROLES:
            role = message.get("role") if isinstance(message, dict) else message
            yield f"has role {role!r} in message {number} of {where}; allowed: {', '.join(ROLES)}"
            return
        if fault := _content_fault(message):
            yield f"has {fault} in message {number} of {where}"
    yield from _order_faults([message["role"] for message in messages], where=where)


def _content_fault(message: Mapping[str, Any]) -> str | None:
    content = message.get("content")
    if message["role"] == "assistant" and message.get("tool_calls"):
        return None
    if not isinstance(content, str):
        return f"content of type {type(content).__name__}"
    is_answer = message["role"] == "assistant"
    return "an empty answer" if is_answer and not content.strip() else None


def _order_faults(roles: Sequence[str], *, where: str) -> Iterator[str]:
    """Yield each fault in the sequence of a conversation's roles.

    Examples are a late system message, and no assistant message at the end.
    """
    talk = [role for role in roles if role not in {"system", "developer"}]
    if any(role in {"system", "developer"} for role in roles[len(roles) - len(talk) :]):
        yield f"has a system message after messages of other roles in {where}"
    if talk and talk[0] != "user":
        yield f"begins with role {talk[0]} in {where}; allowed: user, or system messages and then user"
    if again := next((one for one, two in pairwise(talk) if one == two and one != "tool"), None):
        yield f"has two consecutive {again} messages in {where}"
    if "assistant" not in talk:
        yield f"has no assistant message in {where}"
    elif talk[-1] != "assistant":
        yield f"ends with role {talk[-1]} in {where}; allowed: assistant"


def conversations_of(row: Mapping[str, Any]) -> Iterator[Sequence[Mapping[str, Any]]]:
    """Yield the conversations in a row that has no fault.

    A chat is one conversation. A completion is the prompt with its completion. A pair is two conversations: the
    prompt with each of its answers. Nothing is yielded if the row consists of texts instead of messages.
    """
    kind = format_of(row)
    if kind is RowFormat.CHAT:
        yield row["messages"]
    elif kind is not None and isinstance(row.get("prompt"), list):
        for key in KEYS[kind][1:]:
            yield [*row["prompt"], *row[key]]


def texts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield all texts of a row that has no fault."""
    kind = format_of(row)
    for key in KEYS[kind] if kind else ():
        value = row[key]
        if isinstance(value, str):
            yield value
        else:
            yield from (str(each.get("content") or "") for each in value)
