"""Close of a run's ledger: a limited wait for the end of everything that the run created."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainyard.errors import TrainingRunError

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.hooks.ledger import RunLedger

log = logging.getLogger(__name__)

# A stopped job may take the service's 120 s between SIGTERM and SIGKILL, and an upload.
CLOSING_LIMIT_S = 180.0
_POLL_S = 2.0


def closed_ledger(
    ledger: RunLedger,
    *,
    limit_s: float = CLOSING_LIMIT_S,
    pause: Callable[[float], None] = time.sleep,
) -> Ledger | None:
    """Return the ledger once all its entries are settled, or after `limit_s`; None if it cannot be read.

    Args:
        ledger: the run's ledger.
        limit_s: maximum wait, seconds.
        pause: sleeps for some seconds between two reads.
    """
    from botocore.exceptions import BotoCoreError

    deadline = time.monotonic() + limit_s
    try:
        while not (now := ledger.reconciled()).is_empty and time.monotonic() < deadline:
            names = ", ".join(each.name for each in now.unsettled)
            log.info("Waiting for the end of %s", names)
            pause(_POLL_S)
    except (TrainingRunError, BotoCoreError) as error:
        log.warning("The run's ledger %s cannot be read: %s", ledger.uri, error)
        return None
    for each in now.unsettled:
        log.error("The %s %s still costs money, or may: stop it by hand", each.kind, each.name)
    return now
