"""Bandwidth, limited by faults, between the hosts of one attempt and S3."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from sagemaker_engine.channels.bandwidth import Line
from sagemaker_engine.faults.model import LINE_KINDS, FaultKind

if TYPE_CHECKING:
    from collections.abc import Callable

    from sagemaker_engine.faults.model import Fault
    from sagemaker_engine.faults.store import FaultStore

LOOK_S = 0.2
"""Seconds for which the list read from the fault store is reused."""
BYTES_PER_MEGABYTE = 1_000_000


@dataclass(slots=True, kw_only=True)
class HostLines:
    """Network lines between the hosts of one attempt and S3; faults limit their bandwidth.

    `subject` is the name of the attempt in the fault store's records.
    """

    fault_store: FaultStore
    job: str
    subject: str
    attempt: int
    clock: Callable[[], float] = time.monotonic
    _known: list[Fault] = field(default_factory=list, init=False)
    _looked_at: float = field(default=float("-inf"), init=False)
    _noted: set[str] = field(default_factory=set, init=False)

    def uplink(self, host: str) -> Line:
        """Return a host's line for uploads; its bandwidth is unlimited without a fault."""
        return Line(bytes_per_s=partial(self._bytes_per_s, FaultKind.SLOW_UPLINK, host))

    def downlink(self, host: str) -> Line:
        """Return a host's line for downloads; its bandwidth is unlimited without a fault."""
        return Line(bytes_per_s=partial(self._bytes_per_s, FaultKind.SLOW_DOWNLINK, host))

    def _bytes_per_s(self, kind: FaultKind, host: str) -> float | None:
        now = self.clock()
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self._known = self.fault_store.holding(LINE_KINDS)
        slow = [
            each
            for each in self._known
            if each.what is kind and each.hits_job(self.job, self.attempt) and each.hits_host(host)
        ]
        for each in slow:
            if each.id not in self._noted:
                self._noted.add(each.id)
                self.fault_store.claim(each, subject=self.subject)
        speeds = [each.megabytes_per_s for each in slow if each.megabytes_per_s is not None]
        return min(speeds) * BYTES_PER_MEGABYTE if speeds else None
