"""docker-compose.yaml read as compose reads it: merged, and with its variables filled in."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).resolve().parents[2] / "docker-compose.yaml"
VARIABLE = re.compile(r"\$\$|\$\{(?P<name>\w+)(?::(?P<kind>[-?])(?P<text>[^}]*))?\}")

SECRETS = {
    "AIRFLOW_FERNET_KEY": "cFz5sWd3UEKrX9Nz4kTiOMW9mLQ0O7lzdVNqTGNaQWM=",
    "AIRFLOW_SECRET_KEY": "a-long-secret-for-sessions",
    "AIRFLOW_JWT_SECRET": "0123456789abcdef" * 4,
    "AIRFLOW_ADMIN_PASSWORD": "let-me-in",
    "POSTGRES_PASSWORD": "pgsecret",
    "REDIS_PASSWORD": "redissecret",
    "TRAINYARD_DEPLOYMENT": "production",
    "TRAINYARD_BUCKET": "sagemaker-us-east-1-123456789012",
    "TRAINYARD_EXECUTION_ROLE_ARN": "arn:aws:iam::123456789012:role/TrainyardExecutionRole",
}
LOCAL = {
    "AWS_ENDPOINT_URL": "http://engine:4566",
    "AWS_ACCESS_KEY_ID": "local",
    "AWS_SECRET_ACCESS_KEY": "engine-takes-any-secret",
}


def services(variables: dict[str, str]) -> dict[str, dict[str, Any]]:
    """Return the services with `variables` filled in; a variable given by name alone passes through."""
    document = yaml.safe_load(FILE.read_text())
    return {name: _filled(service, variables) for name, service in document["services"].items()}


def environment(service: dict[str, Any], variables: dict[str, str]) -> dict[str, str]:
    """Return a service's variables as its container would see them."""
    given = {**service.get("environment", {})}
    passed_on = {key: variables.get(key) for key, value in given.items() if value is None}
    return {key: str(value) for key, value in {**given, **passed_on}.items() if value is not None}


def _filled(value: Any, variables: dict[str, str]) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, variables) for key, each in value.items()}
    if isinstance(value, list):
        return [_filled(each, variables) for each in value]
    return (
        VARIABLE.sub(lambda match: _value(match, variables), value)
        if isinstance(value, str)
        else value
    )


def _value(match: re.Match[str], variables: dict[str, str]) -> str:
    if match[0] == "$$":
        return "$"
    if match["name"] in variables:
        return variables[match["name"]]
    if match["kind"] == "-":
        return match["text"]
    raise KeyError(match["name"], match["text"])
