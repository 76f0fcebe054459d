"""The clock of a running engine's training plans (docs/faults.md)."""

from __future__ import annotations

import json
import urllib.error
import urllib.request

LIMIT_S = 60.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def advance_plans(endpoint_url: str, seconds: float) -> None:
    """Move the clock of the training plans ahead; every window is as many seconds nearer.

    Raises:
        ValueError: The engine rejects the number.
    """
    request = urllib.request.Request(  # noqa: S310  # the engine under test
        f"{endpoint_url}/_engine/training-plans",
        data=json.dumps({"advance_s": seconds}).encode(),
        method="PUT",
    )
    try:
        _DIRECT.open(request, timeout=LIMIT_S).close()
    except urllib.error.HTTPError as error:
        raise ValueError(f"the engine rejects {seconds} s: {error.read().decode()}") from error
