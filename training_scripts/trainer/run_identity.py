"""Identity of a run that resumes from a checkpoint: model, data set, seed, batch size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import CheckpointError

if TYPE_CHECKING:
    from collections.abc import Mapping


def check_identity(
    there: Mapping[str, Any], here: Mapping[str, Any], *, what: str = "the checkpoint"
) -> None:
    """Reject a checkpoint of another run, or one without the values of `here`.

    Args:
        there: identity in the checkpoint.
        here: identity of this run.
        what: name of the checkpoint in the error.

    Raises:
        CheckpointError: a value differs or is missing.
    """
    differing = [
        f"{name} is {there.get(name)!r} in the checkpoint and {value!r} in this run"
        for name, value in here.items()
        if there.get(name) != value
    ]
    if differing:
        message = (
            f"{what} belongs to another run: {'; '.join(differing)}; set another "
            "checkpoint_s3_uri for this run, or give this run the values of the checkpoint"
        )
        raise CheckpointError(message)
