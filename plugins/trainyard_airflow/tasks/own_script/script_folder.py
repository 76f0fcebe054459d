"""Checks of the source folders that a run may send to its jobs, and of the scripts in them."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from trainyard.errors import Finding, Severity, SpecError
from trainyard.installation import SHIPPED
from trainyard.sagemaker_api.source_archive import linked_folders
from trainyard.sharding.local_files import CREDENTIAL_NAMES, ROOTS_KEY
from trainyard_airflow.hooks import account_check
from trainyard_airflow.hooks.local_files import readable_files
from trainyard_airflow.jobs.git_source import REPOSITORIES_KEY, SCHEME
from trainyard_airflow.jobs.job_code import (
    code_findings,
    code_folder,
    python_of,
    source_folder,
)
from trainyard_airflow.operators.source_check import entry_point_findings

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainyard.specs.training_job import TrainingJobSpec
    from trainyard_airflow.hooks.aws_clients import AwsClients

_ARCHIVE_ENDING = "/sourcedir.tar.gz"
OF_AIRFLOW = frozenset({"logs", "config", "airflow-logs"})
"""Folders beside `dags` that belong to Airflow."""


def script_findings(
    clients: AwsClients,
    source_dir: str,
    *,
    entry_points: Sequence[str],
    requirements: str | None = None,
    training: TrainingJobSpec | None = None,
    project: Path,
) -> Iterator[Finding]:
    """Yield the findings on a source folder and its files.

    There are findings for a folder that is missing or that a run may not send to its jobs, and for files that
    are missing or invalid.

    Args:
        clients: clients of the run's connection.
        source_dir: the folder, in one of the forms of a job's spec.
        entry_points: paths of the scripts in the folder.
        requirements: path of the requirements file in the folder; None = no check.
        training: the training job with this source; None = no check of its launcher and image.
        project: the parent of Airflow's `dags` folder.
    """
    outside = [each for each in entry_points if _leads_out(each)]
    for entry_point in outside:
        yield Finding(
            where="entry_point",
            what="is outside the source folder",
            got=entry_point,
            allowed="a path inside it",
        )
    if source_dir.startswith("s3://"):
        yield from _archive_findings(clients, source_dir)
    if outside or source_dir.startswith("s3://"):
        return
    try:
        if not source_dir.startswith((SHIPPED, SCHEME)):
            folder = source_folder(source_dir, project=project)
            if refused := list(_refusals(clients, folder, project=project)):
                yield from refused
                return
        python = python_of(clients, training) if training else None
        with code_folder(clients, source_dir, project=project) as folder:
            for entry_point in entry_points:
                yield from entry_point_findings(folder, entry_point, python=python)
            if training:
                yield from code_findings(training, folder, python=python)
            yield from map(_link_finding, linked_folders(folder))
            if requirements and (_leads_out(requirements) or not (folder / requirements).is_file()):
                yield Finding(
                    where="requirements",
                    what="is not a file of the source folder",
                    got=requirements,
                    allowed="a path inside it",
                    next_step="correct the path, or leave requirements empty to install requirements.txt",
                )
    except SpecError as error:
        yield from error.findings


def _link_finding(link: str) -> Finding:
    return Finding(
        where="source_dir",
        what="has a symbolic link to a folder, which is not copied to the job",
        got=repr(link),
        next_step="if the scripts need the folder, replace the link with a copy of it",
        severity=Severity.WARNING,
    )


def _leads_out(entry_point: str) -> bool:
    path = PurePosixPath(entry_point)
    return path.is_absolute() or ".." in path.parts


def _is_of_scripts(folder: Path, project: Path) -> bool:
    """Return whether a folder of the project is allowed as a folder of scripts.

    A folder is not allowed if it is one of Airflow's folders (`OF_AIRFLOW`) or is inside one, or if a part of
    its path is hidden or is a usual name for credentials.
    """
    parts = folder.relative_to(project).parts
    hidden = any(each.startswith(".") for each in parts)
    return not hidden and parts[0] not in OF_AIRFLOW and CREDENTIAL_NAMES.isdisjoint(parts)


def _archive_findings(clients: AwsClients, uri: str) -> Iterator[Finding]:
    if not uri.endswith(_ARCHIVE_ENDING):
        yield Finding(
            where="source_dir",
            what=f"does not end with {_ARCHIVE_ENDING}",
            got=uri,
            allowed="s3://.../sourcedir.tar.gz",
            next_step="pack the folder's content with tar -czf, without the folder itself",
        )
        return
    yield from account_check.object_findings(clients, uri, where="source_dir")


def _refusals(clients: AwsClients, folder: Path, *, project: Path) -> Iterator[Finding]:
    """Yield a finding if the folder must not be sent, because it may have credentials or Airflow's own files.

    Raises:
        SpecError: `trainyard.source_roots` or `trainyard.private_folders` in the connection's extra is not a
            list of absolute folders.
    """
    real, home = (Path(os.path.realpath(each)) for each in (folder, project))
    files = readable_files(clients)
    if real != home and real.is_relative_to(home) and _is_of_scripts(real, home):
        return
    if not next(iter(files.findings(str(folder), where="source_dir")), None):
        return
    roots = ", ".join(map(str, files.roots)) or "none is set"
    of_airflow = " or ".join(sorted(OF_AIRFLOW))
    yield Finding(
        where="source_dir",
        what="is not a folder that a run may send to its jobs",
        got=str(folder),
        allowed=f"a folder below {home} (not hidden, not named like credentials, not in {of_airflow}); a folder below "
        f"a path in trainyard.{ROOTS_KEY} of the connection's extra ({roots}); s3://.../sourcedir.tar.gz; or "
        f"{SCHEME}...@<commit>, for a repository in trainyard.{REPOSITORIES_KEY}",
        next_step="move the scripts to a separate folder below one of the allowed folders",
    )
