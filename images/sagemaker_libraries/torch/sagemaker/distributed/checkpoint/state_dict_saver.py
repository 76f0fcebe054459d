"""Writers of sharded checkpoints, synchronous and asynchronous."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.distributed as dist
import torch.distributed.checkpoint as dcp

if TYPE_CHECKING:
    from concurrent.futures import Future

    from torch.distributed import ProcessGroup

_under_way: list[Future[Any]] = []
_groups: list[ProcessGroup] = []


def save(state_dict: dict[str, Any], **settings: Any) -> None:
    """Save a state dict. Every rank must call this function."""
    dcp.save(state_dict, **known(settings, "storage_writer"))


def async_save(state_dict: dict[str, Any], **settings: Any) -> None:
    """Save a state dict in the background, after waiting for the previous save.

    Every rank must call this function.
    """
    maybe_finalize_async_calls(blocking=True)
    if not _groups:
        _groups.append(dist.new_group(backend="gloo"))
    chosen = {"process_group": _groups[0], **known(settings, "storage_writer")}
    _under_way.append(dcp.async_save(state_dict, **chosen))


def maybe_finalize_async_calls(
    blocking: bool = True,
    process_group: ProcessGroup | None = None,  # noqa: ARG001 part of the interface
) -> list[int]:
    """Finalize the finished asynchronous saves, and return their indices in the list of pending saves.

    If `blocking`, wait for all pending saves first.
    """
    done = [place for place, each in enumerate(_under_way) if blocking or each.done()]
    for place in done:
        _under_way[place].result()
    _under_way[:] = [each for place, each in enumerate(_under_way) if place not in done]
    return done


def known(settings: dict[str, Any], storage: str) -> dict[str, Any]:
    """Return those settings that torch.distributed.checkpoint accepts and that are not None.

    Args:
        settings: The keyword arguments of the call.
        storage: Name of the accepted storage setting: `storage_writer` or `storage_reader`.

    Raises:
        ValueError: The settings refer to S3. Save to a folder instead, which the platform uploads to S3.
    """
    place = str(settings.get("checkpoint_id") or "")
    if place.startswith("s3://") or settings.get("s3_region"):
        message = (
            f"checkpoint_id {place!r} is not supported; save to a folder below the job's checkpoint folder, which is "
            "uploaded to S3"
        )
        raise ValueError(message)
    names = {"checkpoint_id", storage, "planner", "process_group"}
    return {name: value for name, value in settings.items() if name in names and value is not None}
