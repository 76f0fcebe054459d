"""XGBoost communicators over the hosts of a training job, with a tracker on the first host."""

from __future__ import annotations

import logging
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

log = logging.getLogger(__name__)

PORT = 9099
MEETING_LIMIT_S = 300.0
RETRY_S = 1.0


@contextmanager
def cluster(hosts: Sequence[str], current_host: str, *, port: int = PORT) -> Iterator[bool]:
    """Join the communicator of all hosts; yield whether this host is the first, which saves the model.

    Raises:
        TimeoutError: The other hosts did not join within `MEETING_LIMIT_S` seconds.
    """
    ordered = sorted(hosts, key=lambda host: (len(host), host))
    is_first = current_host == ordered[0]
    if len(ordered) == 1:
        yield True
        return
    from xgboost import collective
    from xgboost.tracker import RabitTracker

    address = _address(ordered[0])
    tracker = None
    if is_first:
        tracker = RabitTracker(n_workers=len(ordered), host_ip=address, port=port, sortby="task")
        tracker.start()
    arguments: dict[str, str | int] = {
        "dmlc_tracker_uri": address,
        "dmlc_tracker_port": port,
        "dmlc_task_id": str(ordered.index(current_host)),
    }
    _join(arguments)
    log.info("Distributed node training with %s hosts: %s", len(ordered), ordered)
    try:
        yield is_first
    finally:
        collective.finalize()
        if tracker is not None:
            tracker.wait_for(timeout=5)


def hosts_with_data(hosts: Sequence[str], current_host: str, *, has_data: bool) -> list[str]:
    """Return the hosts that have data; only these take part in the training.

    All hosts must call this function. It returns the same list on each.
    """
    if len(hosts) == 1:
        return [current_host] if has_data else []
    with cluster(hosts, current_host):
        from xgboost import collective

        own_entry = f"{current_host}={has_data}"
        num_hosts = collective.get_world_size()
        entries = [
            str(collective.broadcast(own_entry if collective.get_rank() == root else "", root))
            for root in range(num_hosts)
        ]
    return [host for host, _, flag in (each.partition("=") for each in entries) if flag == "True"]


def _join(arguments: dict[str, str | int]) -> None:
    from xgboost import collective
    from xgboost.core import XGBoostError

    deadline = time.monotonic() + MEETING_LIMIT_S
    while True:
        try:
            collective.init(**arguments)
        except XGBoostError as error:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"not all hosts connected to the tracker at {arguments['dmlc_tracker_uri']}:"
                    f"{arguments['dmlc_tracker_port']} within {MEETING_LIMIT_S:.0f} s: {error}"
                ) from error
            threading.Event().wait(RETRY_S)
        else:
            return


def _address(host: str) -> str:
    return str(socket.getaddrinfo(host, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0])
