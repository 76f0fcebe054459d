"""Where the statistics of a training lie: beside its checkpoints, and in a run's folder. Pure."""

from __future__ import annotations

STATISTICS_FOLDER = "statistics"


def statistics_uri(checkpoint_s3_uri: str) -> str:
    """Return where a training with such a checkpoint folder syncs its statistics to.

    Worked value: `s3://b/run/checkpoints` -> `s3://b/run/checkpoints/statistics/`.
    """
    return f"{checkpoint_s3_uri.rstrip('/')}/{STATISTICS_FOLDER}/"


def hook_uri(hook_s3_uri: str, job_name: str) -> str:
    """Return where a training whose request has a DebugHookConfig syncs its statistics to, as Debugger's outputs.

    Worked value: `s3://b/out`, `train-1` -> `s3://b/out/train-1/debug-output/`.
    """
    return f"{hook_s3_uri.rstrip('/')}/{job_name}/debug-output/"
