"""Watches a training loop from within: metrics, statistics for the rules, checkpoints, SIGTERM, signs of life.

    from trainyard_watch import watch

    with watch(model, optimizer, max_steps=1000) as run:
        state = run.resume()
        ...
        run.step(loss=loss)

This package is uploaded alone with a script that imports it: it may import torch, the standard library and itself,
nothing else. It knows the container contract (`SM_*` variables, `/opt/ml`, channels) and never who started the job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard_watch.run import Run, watch

__all__ = ["Run", "watch"]


def __getattr__(name: str) -> Any:
    """Return a name of the loop's part, which imports torch: hyperparameters are judged on hosts that have none.

    Raises:
        AttributeError: the package has no such name.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainyard_watch import run  # noqa: PLC0415  # see above

    return getattr(run, name)
