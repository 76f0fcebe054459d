"""Where the statistics of a training lie: beside its checkpoints, and in a run's folder. Pure."""

from __future__ import annotations

STATISTICS_FOLDER = "statistics"


def statistics_uri(checkpoint_s3_uri: str) -> str:
    """Return where a training with such a checkpoint folder syncs its statistics to.

    Worked value: `s3://b/run/checkpoints` -> `s3://b/run/checkpoints/statistics/`.
    """
    return f"{checkpoint_s3_uri.rstrip('/')}/{STATISTICS_FOLDER}/"
