"""Credentials of the jobs of a role."""

from __future__ import annotations

import hashlib


def role_access_key(role_arn: str) -> str:
    """Return the access key of a role's jobs; it identifies the role in their requests."""
    return f"ASIA{hashlib.sha256(role_arn.encode()).hexdigest()[:16].upper()}"
