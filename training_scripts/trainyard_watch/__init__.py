"""Monitoring of any training loop: metrics, statistics for the rules, checkpoints, SIGTERM, liveness.

    from trainyard_watch import watch

    with watch(model, optimizer, max_steps=1000) as run:
        state = run.resume()
        ...
        run.step(loss=loss)

The package is uploaded with the script that imports it, without the rest of Trainyard: it may import torch, the
standard library and itself only. Optional libraries (boto3, pynvml, tensorboard, mlflow, transformers, lightning,
keras) are imported on use. `trainyard_watch.keras` imports no torch, because images of TensorFlow do not have it. The
package follows the container contract (`SM_*` variables, `/opt/ml`, channels) and does not depend on the service that
started the job. It runs in images with Python 3.10 or later.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainyard_watch.run import Run, setting_up, watch

__all__ = ["Run", "setting_up", "watch"]


def __getattr__(name: str) -> Any:
    """Import and return the attribute `name`; imported late, because hosts without torch import this package, too.

    Raises:
        AttributeError: the name is not in `__all__`.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from trainyard_watch import run  # noqa: PLC0415  # see above

    return getattr(run, name)
