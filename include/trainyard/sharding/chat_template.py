"""`ChatTemplate`: chat template of a model in S3, rendered as transformers renders it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jinja2.parser import Parser

    from trainyard.sharding.objects import Objects

_TOKENS = ("bos_token", "eos_token", "unk_token", "pad_token")
CONFIG, TEMPLATE, ARCHIVE = "tokenizer_config.json", "chat_template.jinja", "model.tar.gz"
VARIANTS = "additional_chat_templates"
"""Folder in which transformers saves the named templates beside the default."""


@dataclass(frozen=True, kw_only=True)
class ChatTemplate:
    """Chat template of a tokenizer.

    Attributes:
        sources: the template's text by name; `tool_use` is for rows with tools, `default` for all others. Empty
            if the tokenizer has no template.
        tokens: text of each special token by name, such as `bos_token`. If tokenizer_config.json does not have
            the name, the text is empty, because the default of the tokenizer's class is not known here. If the
            file has null for the name, the token is left out, as in transformers.
    """

    sources: Mapping[str, str]
    tokens: Mapping[str, str]

    @classmethod
    def of_model(cls, objects: Objects, prefixes: Sequence[str]) -> ChatTemplate | None:
        """Return the template of the first tokenizer below the prefixes; None if there is no tokenizer.

        The prefixes are searched in order. A prefix with a model.tar.gz ends the search with None, because archives
        are not read.

        Raises:
            ValueError: tokenizer_config.json is not valid JSON.
            jinja2.TemplateSyntaxError: the template has a syntax error, or an unknown tag or filter.
        """
        for prefix in prefixes:
            uris = sorted((each.uri for each in objects.list(prefix)), key=len)
            if _first(uris, ARCHIVE):
                return None
            if config := _first(uris, CONFIG):
                named = [each for each in uris if each.rpartition("/")[0].endswith(f"/{VARIANTS}")]
                files = {each.rpartition("/")[2].removesuffix(".jinja"): each for each in named}
                if template := _first(uris, TEMPLATE):
                    files["default"] = template
                return cls._read(objects, config=config, files=files)
        return None

    @classmethod
    def _read(cls, objects: Objects, *, config: str, files: Mapping[str, str]) -> ChatTemplate:
        values = json.loads(_read(objects, config))
        found = values.get("chat_template") or {}
        sources = {"default": found} if isinstance(found, str) else _by_name(found)
        sources |= {name: _read(objects, uri).decode() for name, uri in files.items()}
        named = {name: token for name, token in values.items() if name.endswith("_token")}
        given = dict.fromkeys(_TOKENS, "") | named
        tokens = {name: _text(token) for name, token in given.items() if token is not None}
        made = cls(sources=sources, tokens=tokens)
        _ = made._compiled  # raises here
        return made

    @property
    def text(self) -> str:
        """The text of all variants of the template."""
        return "\n".join(self.sources.values())

    @cached_property
    def _compiled(self) -> Mapping[str, jinja2.Template]:
        environment = _environment()
        return {name: environment.from_string(text) for name, text in self.sources.items()}

    def render(self, messages: Sequence[Any], tools: Sequence[Any] | None) -> str:
        """Return the text of a conversation.

        Raises:
            jinja2.TemplateError: the template rejects the conversation.
        """
        name = "tool_use" if tools and "tool_use" in self.sources else "default"
        return self._compiled[name].render(
            messages=messages,
            tools=tools,
            documents=None,
            add_generation_prompt=False,
            **self.tokens,
        )


def _first(uris: Sequence[str], name: str) -> str:
    return next((uri for uri in uris if uri.rpartition("/")[2] == name), "")


def _read(objects: Objects, uri: str) -> bytes:
    with objects.open(uri) as stream:
        return stream.read()


def _by_name(variants: Any) -> dict[str, str]:
    """Return the chat templates by name, from the value of `chat_template` in tokenizer_config.json.

    The value is a list of `{"name": ..., "template": ...}`, or already an object with the templates by name.
    """
    if isinstance(variants, dict):
        return dict(variants)
    return {each["name"]: each["template"] for each in variants}


def _text(token: Any) -> str:
    """Return the text of a special token.

    In tokenizer_config.json, a token is a text or an object with `content`.
    """
    return str(token.get("content", "")) if isinstance(token, dict) else str(token)


class _Generation(Extension):
    """The tag `{% generation %}`, whose body is rendered as it is."""

    tags = {"generation"}  # noqa: RUF012  # jinja2's own declaration

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


def _environment() -> jinja2.Environment:
    """Return a Jinja environment with the settings, filters and functions that chat templates have in transformers.

    Source: `_compile_jinja_template` of transformers 5.3.
    """
    made = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, "jinja2.ext.loopcontrols"]
    )
    made.filters["tojson"] = _tojson
    made.globals["raise_exception"] = _raise
    made.globals["strftime_now"] = lambda pattern: datetime.now().astimezone().strftime(pattern)
    return made


def _tojson(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
