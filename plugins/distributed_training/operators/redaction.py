"""Keeps secrets of a request out of logs. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

MASK = "***"

_SECRET_NAME = re.compile(
    r"pass(word|phrase|wd)?|secret|token(?!i[sz]er|s\b|s_)|credential|api_?key|access_?key|private_?key|auth(?!or)",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name is likely a secret (`HF_TOKEN`, `db_password`; not `tokenizer`)."""
    return _SECRET_NAME.search(name) is not None


def redacted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the request as it may be logged: no environment value, no value under a secret-like name."""
    return {key: _redacted(key, value) for key, value in request.items()}


def spec_secrets(spec: object) -> Iterator[str]:
    """Yield the values under secret-like names in a spec's environment and hyperparameters.

    Args:
        spec: a spec object, or a mapping of its fields.
    """
    for part in ("environment", "hyperparameters"):
        values = spec.get(part) if isinstance(spec, Mapping) else getattr(spec, part, None)
        if isinstance(values, Mapping):
            for name, value in values.items():
                if is_secret_name(str(name)) and value:
                    yield str(value)


def _redacted(key: str, value: Any) -> Any:
    if key == "Environment" and isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(key, each) for each in value]
    return MASK if is_secret_name(key) and isinstance(value, str) else value
