"""Generated secrets of a stack, created once and stored in the stack's folder (its home).

Only the login of the UI is printed.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.stack.home import Home

USER = "admin"


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """Secrets by which the components authenticate each other, and the password of the UI's only user."""

    password: str
    jwt_secret: str
    api_secret: str
    fernet_key: str


def load_or_create(home: Home) -> Identity:
    """Return the home's identity. The first call creates it; every call writes Airflow's password file."""
    if home.identity.exists():
        identity = Identity(**json.loads(home.identity.read_text()))
    else:
        identity = _generated()
        write_private(home.identity, json.dumps(asdict(identity)))
    write_private(home.passwords, json.dumps({USER: identity.password}))
    return identity


def write_private(path: Path, text: str) -> None:
    """Write `text` to `path` atomically, readable and writable by the owner only."""
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        stream.write(text)
    draft.replace(path)


def _generated() -> Identity:
    return Identity(
        password=secrets.token_urlsafe(12),
        jwt_secret=secrets.token_urlsafe(64),
        api_secret=secrets.token_urlsafe(32),
        fernet_key=base64.urlsafe_b64encode(os.urandom(32)).decode(),
    )
