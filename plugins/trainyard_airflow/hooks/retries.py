"""Retry settings of boto3 clients: many tries, or few tries with short timeouts."""

from __future__ import annotations

import os

from botocore.config import Config

PATIENT_TRIES = 16
"""Number of tries that outlasts a minute of server errors or throttling. botocore's standard mode waits
rand(0, 1) * min(2^i, 20) s after try i (from 0): 115 s on average in total, and below 60 s for one call in 500. Its
default of five tries ends after 7.5 s on average."""
IMPATIENT = Config(
    connect_timeout=3, read_timeout=5, retries={"mode": "standard", "total_max_attempts": 2}
)
"""Settings of calls that a task can do without; they end within 20 s, even if no network route leads to the service."""
_SET_ELSEWHERE = ("AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS")


def patient_config(given: Config | None) -> Config | None:
    """Return client settings with up to `PATIENT_TRIES` tries per call.

    If the settings or the environment set retries themselves, `given` is returned unchanged.

    Args:
        given: settings of the connection or the operator, which take precedence.
    """
    has_retries = given is not None and getattr(given, "retries", None) is not None
    if has_retries or any(os.environ.get(name) for name in _SET_ELSEWHERE):
        return given
    patient = Config(retries={"mode": "standard", "total_max_attempts": PATIENT_TRIES})
    return patient if given is None else patient.merge(given)
