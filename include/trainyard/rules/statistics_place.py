"""Names of the places in which a training's statistics are stored."""

from __future__ import annotations

STATISTICS_FOLDER = "statistics"
"""Folder of the statistics in a run's report and in `runs/<run id>`."""


def debug_output_uri(hook_s3_uri: str, job_name: str) -> str:
    """Return the S3 prefix to which the service copies the statistics of a job with a DebugHookConfig.

    Worked value: `s3://b/out`, `train-1` -> `s3://b/out/train-1/debug-output/`.

    Args:
        hook_s3_uri: `S3OutputPath` of the request's DebugHookConfig.
        job_name: name of the training job.
    """
    return f"{hook_s3_uri.rstrip('/')}/{job_name}/debug-output/"
