"""Masks the secrets of a job in logs, XComs and reports, with pure functions."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from trainyard.sagemaker_api.snapshot import JobSnapshot, settings_of

MASK = "***"

# As in Airflow's own masker: a shorter value is part of too many innocent words.
_SHORTEST_SECRET = 5

_SECRET_NAME = re.compile(
    r"pass(word|phrase|wd)?|secret|token(?!i[sz]er|s\b|s_)|credential|api_?key|access_?key|private_?key|auth(?!or)"
    r"|wandb_?key|(?<![a-z])(pwd|dsn)(?![a-z])",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Return whether a value under this name is likely a secret (`HF_TOKEN`, `db_password`; not `tokenizer`)."""
    return _SECRET_NAME.search(name) is not None


def redacted(request: Mapping[str, Any]) -> dict[str, Any]:
    """Return a request or a conf for display, without environment values and values under secret-like names."""
    return {key: _redacted(key, value) for key, value in request.items()}


def spec_secrets(spec: object) -> Iterator[str]:
    """Yield the values under secret-like names in a spec's environment and hyperparameters.

    Args:
        spec: a spec object, or a mapping of its fields; for a search, its `training` is included.
    """
    for part in ("environment", "hyperparameters"):
        yield from _secret_values(_member(spec, part))
    training = _member(spec, "training")
    if training is not None:
        yield from spec_secrets(training)


def description_secrets(description: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the secrets of a job in a Describe answer, in all forms that its log may contain."""
    parts = settings_of(description)
    return secret_forms(value for part in parts for value in _secret_values(part))


def secret_forms(secrets: Iterable[str]) -> tuple[str, ...]:
    """Return the forms that secrets may have in a log, longest first.

    A secret has these forms: as given, decoded from JSON, encoded as JSON, and each line of the decoded secret.
    Forms shorter than 5 characters are omitted.
    """
    forms = set()
    for secret in secrets:
        plain = _without_json(secret)
        forms |= {secret, plain, json.dumps(plain)[1:-1], *plain.splitlines()}
    return tuple(sorted((f for f in forms if len(f) >= _SHORTEST_SECRET), key=len, reverse=True))


def masked(text: str, secrets: Iterable[str]) -> str:
    """Return the text with each secret replaced by `***`."""
    for secret in secrets:
        text = text.replace(secret, MASK)
    return text


def masked_snapshot(description: Mapping[str, Any]) -> JobSnapshot:
    """Return the snapshot of a Describe answer, with the job's secrets masked in texts from the script.

    Raises:
        ContractError: the mapping is not a Describe answer of a job.
    """
    snapshot = JobSnapshot.from_describe(description)
    secrets = description_secrets(description)
    return replace(
        snapshot,
        failure_reason=snapshot.failure_reason and masked(snapshot.failure_reason, secrets),
        exit_message=snapshot.exit_message and masked(snapshot.exit_message, secrets),
        status_message=snapshot.status_message and masked(snapshot.status_message, secrets),
    )


def _member(spec: object, name: str) -> object:
    return spec.get(name) if isinstance(spec, Mapping) else getattr(spec, name, None)


def _secret_values(values: object) -> Iterator[str]:
    if isinstance(values, Mapping):
        for name, value in values.items():
            if is_secret_name(str(name)) and value:
                yield str(value)


def _without_json(text: str) -> str:
    """Return the string whose JSON form is `text`, or `text` itself if it is not the JSON form of a string.

    Script mode passes hyperparameters in this form.
    """
    try:
        value = json.loads(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _redacted(key: str, value: Any) -> Any:
    if key.lower() == "environment" and isinstance(value, Mapping):
        return dict.fromkeys(value, MASK)
    if isinstance(value, Mapping):
        return {name: _redacted(str(name), each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_redacted(key, each) for each in value]
    return MASK if is_secret_name(key) and isinstance(value, str) else value
