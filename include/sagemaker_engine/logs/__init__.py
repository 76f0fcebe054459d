"""CloudWatch Logs for the groups `/aws/sagemaker/*`, read straight from the files of the jobs.

A job's runner appends every line of every host to `jobs/<kind>/<name>/logs/<host>-<epoch>.jsonl`;
that file is the stream `<name>/<host>-<epoch>`. Other groups are left to the service behind.
"""

from sagemaker_engine.logs.handlers import LogsApi

__all__ = ["LogsApi"]
