"""Communicator of all hosts for script mode, with the interface of AWS's container."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sagemaker_xgboost_container.collective import PORT, cluster, hosts_with_data

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def rabit_run(
    exec_fun: Callable[..., Any],
    args: dict[str, Any],
    include_in_training: bool,  # the container's interface
    hosts: Sequence[str],
    current_host: str,
    first_port: int | None = None,
    second_port: int | None = None,
    max_connect_attempts: int | None = None,  # noqa: ARG001  # the container's interface
    connect_retry_timeout: int = 3,  # noqa: ARG001  # the container's interface
    update_rabit_args: bool = False,  # the container's interface
) -> None:
    """Call `exec_fun(**args)` on the hosts that have data, within one communicator.

    All hosts must call this function. A host passes `include_in_training=False` if it has no data. On such a
    host, `exec_fun` is not called. If `update_rabit_args` is set, `exec_fun` also gets `is_master`, which is
    true on the host that saves the model.

    Raises:
        TimeoutError: The other hosts do not join in time.
    """
    taking_part = hosts_with_data(hosts, current_host, has_data=include_in_training)
    if current_host not in taking_part:
        return
    port = second_port or (first_port or PORT) + 1
    with cluster(taking_part, current_host, port=port) as is_first:
        exec_fun(**{**args, "is_master": is_first} if update_rabit_args else args)
