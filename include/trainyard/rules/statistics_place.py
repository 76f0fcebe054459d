"""S3 location of a training's statistics: in Debugger's output folder, or below the checkpoints' prefix. Pure."""

from __future__ import annotations

STATISTICS_FOLDER = "statistics"


def statistics_place(
    *, job_name: str, hook_s3_uri: str | None, checkpoint_s3_uri: str | None
) -> str | None:
    """Return the S3 prefix of a job's statistics, or None if it uploads none.

    If the request has a DebugHookConfig, the prefix is below its `S3OutputPath`. Otherwise it is
    below the checkpoints' prefix.

    Args:
        job_name: name of the training job.
        hook_s3_uri: `S3OutputPath` of the request's DebugHookConfig.
        checkpoint_s3_uri: `S3Uri` of the request's CheckpointConfig.
    """
    if hook_s3_uri:
        return hook_uri(hook_s3_uri, job_name)
    return statistics_uri(checkpoint_s3_uri) if checkpoint_s3_uri else None


def statistics_uri(checkpoint_s3_uri: str) -> str:
    """Return the S3 prefix of statistics that a user's own script writes into its checkpoint folder.

    `trainyard_watch` does not write there: it uploads statistics beside the checkpoints (`place_variables`).

    Worked value: `s3://b/run/checkpoints` -> `s3://b/run/checkpoints/statistics/`.
    """
    return f"{checkpoint_s3_uri.rstrip('/')}/{STATISTICS_FOLDER}/"


def hook_uri(hook_s3_uri: str, job_name: str) -> str:
    """Return the S3 prefix of the statistics of a training whose request has a DebugHookConfig.

    Worked value: `s3://b/out`, `train-1` -> `s3://b/out/train-1/debug-output/`.
    """
    return f"{hook_s3_uri.rstrip('/')}/{job_name}/debug-output/"
