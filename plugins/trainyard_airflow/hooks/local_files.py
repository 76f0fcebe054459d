"""Local files that a run may read, as set by the connection and by Airflow's configuration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from airflow.configuration import conf, get_airflow_home

from trainyard.sharding.local_files import PRIVATE_KEY, ROOTS_KEY, LocalFiles, local_files

if TYPE_CHECKING:
    from trainyard_airflow.hooks.aws_clients import AwsClients


def readable_files(clients: AwsClients) -> LocalFiles:
    """Return the local files that a run of this connection may read; Airflow's own files are excluded.

    Raises:
        SpecError: `trainyard.source_roots` or `trainyard.private_folders` in the connection's extra is not a
            list of absolute folders.
    """
    private = clients.defaults.get(PRIVATE_KEY) or []
    own = [get_airflow_home(), conf.get("logging", "base_log_folder")]
    given = (
        [*private, *(str(Path(each).absolute()) for each in own)]
        if isinstance(private, list)
        else private
    )
    return local_files(roots=clients.defaults.get(ROOTS_KEY) or [], private=given)
