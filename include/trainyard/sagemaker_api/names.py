"""Deterministic names: the same logical job always has the same SageMaker name."""

from __future__ import annotations

import hashlib
import json
import re

MAX_JOB_NAME = 63
_DIGEST_CHARACTERS = 10
UNNAMED_MARKER = "trainyard/unnamed-airflow.json"
"""Key of an object in a bucket. It has the id of the one Airflow without a deployment name that may use the bucket.

See docs/adr/0079.
"""


def job_name(
    *,
    dag_id: str,
    run_id: str,
    task_id: str,
    map_index: int = -1,
    attempt: int = 1,
    longest: int = MAX_JOB_NAME,
    deployment: str | None = None,
) -> str:
    """Return the name of one logical job: stable, and valid in SageMaker (`[a-zA-Z0-9-]`, up to `longest` characters).

    A readable part (`<dag>-<task>`, shortened) is followed by a digest of all arguments except `longest`. Different
    jobs therefore have different names, and a retry, a restarted worker or a second submit finds the same job.

    `attempt` is the number of the job in its task, from 1; only a failed or stopped job is followed by another. It is
    not Airflow's try number: a retry that re-attaches keeps the attempt. `longest` is 32 for a tuning job, because the
    names of its trials begin with its name. `deployment` is the name of the job's Airflow deployment: scheduled runs of
    two deployments in one account may have the same run id. Without `deployment`, the names are those of releases that
    did not have this argument.
    """
    owner = [] if deployment is None else [deployment]
    # The zero was part of the names of release 0.1.0, whose running jobs must be found again.
    identity = json.dumps([*owner, dag_id, run_id, task_id, map_index, 0, attempt])
    digest = hashlib.sha256(identity.encode()).hexdigest()[:_DIGEST_CHARACTERS]
    suffix = f"-{map_index}" if map_index >= 0 else ""
    suffix += (f"-a{attempt}" if attempt > 1 else "") + f"-{digest}"
    room = longest - len(suffix)
    task = slug(task_id)[: max(min(8, room), room // 2)].strip("-")
    dag = slug(dag_id)[: max(0, room - len(task) - 1)].strip("-")
    readable = "-".join(part for part in (dag, task) if part) or "job"
    return f"{readable}{suffix}"


def run_slug(run_id: str) -> str:
    """Return a run id as a safe part of an S3 key: at most 80 characters, with a digest if it was changed."""
    cleaned = re.sub(r"[^A-Za-z0-9._=-]+", "-", run_id).strip("-.")
    if cleaned == run_id and 0 < len(run_id) <= 80:
        return run_id
    digest = hashlib.sha256(run_id.encode(errors="backslashreplace")).hexdigest()[:8]
    return f"{cleaned[:70].strip('-.') or 'run'}-{digest}"


def deployment_prefix(prefix: str, deployment: str | None) -> str:
    """Return the prefix of all S3 keys of a deployment.

    It is `prefix/<deployment>`; for a deployment without a name, it is `prefix`.
    """
    root = prefix.strip("/")
    return root if deployment is None else f"{root}/{run_slug(deployment)}"


def run_uri(root: str, *, dag_id: str, run_id: str) -> str:
    """Return the S3 prefix of one run; `root` is the prefix of all runs of a deployment, `s3://bucket/prefix`."""
    return f"{root}/runs/{dag_id}/{run_slug(run_id)}"


def slug(text: str) -> str:
    """Return the text as lower-case ASCII letters, digits and single hyphens; the result may be empty."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")
