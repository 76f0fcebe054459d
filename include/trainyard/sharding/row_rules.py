"""Rules for the JSON rows of a fine-tuning: parsing, allowed keys, and the parts that a chat template leaves out.

The data check and the job apply the same rules. The job's container has no trainyard, so this file is uploaded with
the scripts (`source_archive`). It must not import another module of the package.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from jinja2 import TemplateError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    Message = Mapping[str, Any]
    # A part that the chat template leaves out, as the object of "has", and the remedy; "" if it may be left out.
    Loss = tuple[str, str]
    Render = Callable[[Sequence[Message], Sequence[Mapping[str, Any]] | None], str]

CONVERSATIONS = ("messages", "prompt", "completion", "chosen", "rejected")
"""Keys of a row whose values may be lists of messages."""
REJECTED_KEYS = {
    "system": "make it the first message, with the role system",
    "chat_template_kwargs": "remove it, and change the chat template of the base model instead",
    "functions": "rename it to tools",
    "images": "remove it, and the rows that need it: only text is learned",
}
"""Keys of a row that the training cannot use, and what to do with each."""
MESSAGE_KEYS = ("role", "content", "tool_calls", "tool_call_id", "name", "weight")
THINKING = "the thinking of an answer"
EARLIER_THINKING = "thinking of earlier answers"
_THINKING_END = re.compile(r"</\w*think\w*>|\[/think\]", re.IGNORECASE)
_MARK = "zq{number}trainyardqz"
"""Word that no row has: lowercase and without punctuation, so that templates do not change it."""


def parse_row(line: bytes) -> Any:
    """Return the JSON value of a line; a byte order mark before it is skipped.

    Raises:
        ValueError: it is not UTF-8 or not JSON, has a key twice, or has half of a surrogate pair. The message is a
            predicate: "is not valid JSON (...)".
    """
    try:
        text = line.decode().removeprefix("\ufeff")
        value = json.loads(text, object_pairs_hook=_object)
        if "\\ud" in text.lower():
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        half = ascii(error.object[error.start])[1:-1]
        raise ValueError(f"has a lone surrogate, {half}, which is half of a character") from error
    except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"is not valid JSON ({error})") from error
    return value


def _object(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(
            f"has the key {next(each for each in names if names.count(each) > 1)} twice"
        )
    return made


def key_faults(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield faults of a row's keys, each as a predicate: "has the key system; make it ..."."""
    for key, remedy in REJECTED_KEYS.items():
        if row.get(key):
            yield f"has the key {key}, which is not used; {remedy}"
    try:
        tools_of(row)
    except ValueError as error:
        yield str(error)
    for key, number, message in _messages(row):
        weight = message.get("weight", 1)
        if isinstance(weight, bool) or weight not in {0, 1, None}:
            yield f"has weight {weight!r} in message {number} of {key}; allowed: 0 or 1"
        if message.get("function_call"):
            yield f"has function_call in message {number} of {key}, which is not used; use tool_calls"


def tools_of(row: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Return the tools of a row, parsed if they are JSON text; None if there are none.

    Raises:
        ValueError: they are not a list of objects. The message is the predicate of a sentence about the row:
            "has tools that are ...".
    """
    tools = row.get("tools")
    if isinstance(tools, str):
        try:
            tools = json.loads(tools) if tools.strip() else None
        except ValueError as error:
            raise ValueError(f"has tools as a text that is not JSON ({error})") from error
    if tools is None or (isinstance(tools, list) and all(isinstance(one, dict) for one in tools)):
        return tools or None
    raise ValueError(
        "has tools that are neither a list of objects nor the JSON text of such a list"
    )


def unused_keys(row: Mapping[str, Any], *, used: Sequence[str], template: str) -> Iterator[str]:
    """Yield the names of the keys that the training ignores.

    The name of a row's key is the key itself, such as `id`. The name of a message's key begins with the key of
    the list of messages, such as `messages[].id`.

    Args:
        row: a row without a fault.
        used: the keys of its format.
        template: text of the chat template; a message key that occurs in it counts as used.
    """
    yield from (key for key in row if key not in used and key not in {"tools", *REJECTED_KEYS})
    for key, _, message in _messages({each: row[each] for each in used}):
        for name in message:
            if name not in MESSAGE_KEYS and name not in template:
                yield f"{key}[].{name}"


def _messages(row: Mapping[str, Any]) -> Iterator[tuple[str, int, Message]]:
    for key in CONVERSATIONS:
        messages = row.get(key)
        for number, message in enumerate(messages if isinstance(messages, list) else (), start=1):
            if isinstance(message, dict):
                yield key, number, message


def with_call_arguments(
    messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None, render: Render
) -> list[Message]:
    """Return messages whose tool-call arguments are objects or JSON text, as the chat template expects them.

    In the wrong form, the arguments are rendered incorrectly. A template that expects objects encodes JSON text
    a second time. A template that expects text renders objects as Python. If the template renders neither form
    correctly, the messages are returned unchanged.

    Args:
        messages: a conversation of valid messages.
        tools: the tools of the row.
        render: as in `losses_of`.
    """
    if not any(each.get("tool_calls") for each in messages):
        return list(messages)
    for form in (_as_object, _as_text):
        changed = [_with_arguments(each, form) for each in messages]
        marks: dict[str, Loss] = {}
        try:
            text = render(_marked_messages(changed, marks), tools)
        except (TemplateError, TypeError, ValueError, KeyError):
            continue
        if not any(f"'{word}': '{word}'" in text or f'\\"{word}\\"' in text for word in marks):
            return changed
    return list(messages)


def losses_of(
    messages: Sequence[Message], *, tools: Sequence[Mapping[str, Any]] | None, render: Render
) -> list[Loss]:
    """Return (part, remedy) for each kind of part of a conversation that is missing in its rendered text.

    A unique word is added to each part. If the rendered text lacks the word, the template leaves out the part.
    For the thinking of earlier answers, the remedy is empty. This loss is intended: a template that leaves out
    such thinking in the rendered conversation also leaves it out in every prompt.

    Args:
        messages: a conversation of valid messages.
        tools: the tools of the row.
        render: renders messages and tools with the chat template; it raises what the template raises.
    """
    marks: dict[str, Loss] = {}
    marked = _marked_messages(messages, marks)
    marked_tools = [_marked_tool(each, marks) for each in tools] if tools else None
    text = render(marked, marked_tools).lower()
    return list(dict.fromkeys(loss for word, loss in marks.items() if word not in text))


def template_messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the messages as the chat template gets them.

    The key `weight` of a message is left out. Keys with a null value are left out, too, because a template
    renders null as the text None.
    """
    return [
        {key: value for key, value in each.items() if key != "weight" and value is not None}
        for each in messages
    ]


def _lost_word(marks: dict[str, Loss], part: str, remedy: str) -> str:
    return _word(marks, (f"{part}, which the base model's chat template leaves out", remedy))


def _word(marks: dict[str, Loss], loss: Loss) -> str:
    """Return a new unique word, and store it in `marks` with its `loss`.

    `loss` is the (part, remedy) that is reported if the rendered text lacks the word.
    """
    word = _MARK.format(number=len(marks))
    marks[word] = loss
    return word


def _with_marked_thinking(content: str, marks: dict[str, Loss], *, is_last: bool) -> str:
    """Return a message's text with a unique word at the end of its thinking; unchanged if it has no thinking.

    The thinking is the part of the text before an end tag such as `</think>`. If the rendered text lacks the
    word, the chat template leaves the thinking out.
    """
    if not (end := _THINKING_END.search(content)):
        return content
    remedy = "use a chat template that keeps it, or remove it from the rows"
    word = _lost_word(marks, THINKING, remedy) if is_last else _word(marks, (EARLIER_THINKING, ""))
    return f"{content[: end.start()]} {word} {content[end.start() :]}"


def _marked_messages(messages: Sequence[Message], marks: dict[str, Loss]) -> list[Message]:
    last = len(messages) - 1
    return [
        _marked_message(each, marks, is_last=number == last)
        for number, each in enumerate(template_messages(messages))
    ]


def _marked_message(message: Message, marks: dict[str, Loss], *, is_last: bool) -> Message:
    role, content, made = message.get("role"), message.get("content"), dict(message)
    if isinstance(content, str) and content.strip():
        is_developer = role == "developer"
        remedy = "rename the role to system" if is_developer else "use another chat template"
        part = f"a message of role {role}{' with tool_calls' * bool(message.get('tool_calls'))}"
        made["content"] = (
            f"{_with_marked_thinking(content, marks, is_last=is_last)} {_lost_word(marks, part, remedy)}"
        )
    if isinstance(calls := message.get("tool_calls"), list):
        made["tool_calls"] = [
            _marked_call(each, f"a message of role {role}", marks) for each in calls
        ]
    return made


def _marked_call(call: Any, where: str, marks: dict[str, Loss]) -> Any:
    if not isinstance(call, dict):
        return call
    if isinstance(call.get("function"), dict):
        return {**call, "function": _marked_call(call["function"], where, marks)}
    made, part = dict(call), f"tool_calls in {where}"
    remedy = "use a chat template with tools, or remove tool_calls"
    if isinstance(call.get("name"), str):
        made["name"] += _lost_word(marks, part, remedy)
    if arguments := call.get("arguments"):
        made["arguments"] = _with_word(arguments, _lost_word(marks, f"arguments of {part}", remedy))
    return made


def _marked_tool(tool: Mapping[str, Any], marks: dict[str, Loss]) -> Mapping[str, Any]:
    if isinstance(tool.get("function"), dict):
        return {**tool, "function": _marked_tool(tool["function"], marks)}
    if not isinstance(tool.get("name"), str):
        return tool
    word = _lost_word(marks, "tools", "use a chat template with tools, or remove tools")
    return {**tool, "name": tool["name"] + word}


def _with_arguments(message: Message, form: Callable[[Any], Any]) -> Message:
    """Return the message, with `form` applied to the arguments of each tool call."""

    def changed(call: Any) -> Any:
        if not isinstance(call, dict):
            return call
        if isinstance(call.get("function"), dict):
            return {**call, "function": changed(call["function"])}
        return {**call, "arguments": form(call["arguments"])} if "arguments" in call else call

    calls = message.get("tool_calls")
    return (
        {**message, "tool_calls": list(map(changed, calls))} if isinstance(calls, list) else message
    )


def _as_object(arguments: Any) -> Any:
    """Return a tool call's arguments: parsed if they are the JSON text of an object, otherwise unchanged."""
    try:
        value = json.loads(arguments) if isinstance(arguments, str) else arguments
    except ValueError:
        return arguments
    return value if isinstance(value, dict) else arguments


def _as_text(arguments: Any) -> Any:
    """Return a tool call's arguments: an object as JSON text, anything else unchanged."""
    return json.dumps(arguments, ensure_ascii=False) if isinstance(arguments, dict) else arguments


def _with_word(arguments: Any, word: str) -> Any:
    """Return a tool call's arguments with `word` as an additional key and as its value.

    Arguments given as JSON text are returned as JSON text; other text gets the word appended.
    """
    value = _as_object(arguments)
    if isinstance(value, dict):
        made = {**value, word: word}
        return made if value is arguments else json.dumps(made)
    return f"{arguments} {word}" if isinstance(arguments, str) else arguments
