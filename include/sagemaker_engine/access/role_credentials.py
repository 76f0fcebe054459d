"""Access keys with which jobs act as an IAM role."""

from __future__ import annotations

import hashlib


def role_access_key(role_arn: str) -> str:
    """Return the access key with which all jobs of a role sign their requests.

    The key identifies the role. It is derived from the ARN, so it never changes.
    """
    return f"ASIA{hashlib.sha256(role_arn.encode()).hexdigest()[:16].upper()}"
