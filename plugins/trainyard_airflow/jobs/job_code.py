"""Code and image of a job: upload of the source folder under its SHA-256, and choice of AWS's image."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainyard.catalog.instances import first_accelerated
from trainyard.errors import Finding, SpecError
from trainyard.installation import SHIPPED, TRAINING_SCRIPTS
from trainyard.sagemaker_api.images import image_python, image_uri
from trainyard.sagemaker_api.source_archive import imports_watch, source_archive
from trainyard.specs.strategies.strategy import Launcher
from trainyard.specs.training_job import TrainingJobSpec
from trainyard_airflow.jobs.git_source import REPOSITORIES_KEY, SCHEME, GitSource

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainyard.catalog.strategy_support import Version
    from trainyard.specs.processing_job import ProcessingJobSpec
    from trainyard_airflow.hooks.aws_clients import AwsClients
    from trainyard_airflow.jobs.task_jobs import TaskJobs

ARCHIVE_NAME = "sourcedir.tar.gz"
WATCH_PYTHON = (3, 10)
"""Oldest Python version that can import `trainyard_watch`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UploadedCode:
    """S3 address and SHA-256 of a job's code."""

    s3_uri: str
    sha256: str

    def to_dict(self) -> dict[str, Any]:
        """Return the fields as JSON-safe data."""
        return {"s3_uri": self.s3_uri, "sha256": self.sha256}


def source_folder(source_dir: str, *, project: Path) -> Path:
    """Return the folder of a job's code.

    Args:
        source_dir: an absolute path, a path relative to `project`, or `shipped:<folder>` for a folder of
            Trainyard's own training scripts.
        project: the folder that holds Airflow's `dags` folder.

    Raises:
        SpecError: a `shipped:` path leads out of Trainyard's own scripts.
    """
    if source_dir.startswith(SHIPPED):
        folder = TRAINING_SCRIPTS / source_dir.removeprefix(SHIPPED)
        if not folder.resolve().is_relative_to(TRAINING_SCRIPTS.resolve()):
            outside = Finding(
                where="source_dir",
                what="is not a folder of Trainyard's own scripts",
                got=repr(source_dir),
                allowed=f"{SHIPPED!r} or '{SHIPPED}<folder>'",
            )
            raise SpecError(outside, subject="source_dir")
        return folder
    return project / source_dir


def uploaded_code(
    clients: AwsClients,
    folder: Path,
    *,
    entry_point: str,
    prefix_uri: str,
    requirements: str | None = None,
    has_arguments: bool = False,
) -> UploadedCode:
    """Upload the code of a local folder, unless S3 has the same content already, and return its address.

    Args:
        clients: clients of a connection with write access to the prefix.
        folder: folder of the code.
        entry_point: path in the folder.
        prefix_uri: `s3://bucket/prefix/code`; the archive goes to
            `<prefix>/<sha256>/sourcedir.tar.gz`.
        requirements: the folder's file that becomes requirements.txt; None = the folder's own requirements.txt.
        has_arguments: whether to add the program that passes a job's `arguments` to the entry point.

    Raises:
        SpecError: the folder does not exist, or does not contain the entry point or the requirements.
    """
    from trainyard_airflow.hooks.objects import S3Objects

    archive = source_archive(
        folder, entry_point=entry_point, requirements=requirements, has_arguments=has_arguments
    )
    uri = f"{prefix_uri.rstrip('/')}/{archive.sha256}/{ARCHIVE_NAME}"
    objects = S3Objects(clients.client("s3"))
    if not objects.exists(uri):
        objects.write(uri, archive.content, content_type="application/gzip")
    return UploadedCode(s3_uri=uri, sha256=archive.sha256)


@contextmanager
def code_folder(clients: AwsClients, source_dir: str, *, project: Path) -> Iterator[Path]:
    """Yield the folder of a job's code, on this worker's disk or fetched from a git repository.

    Raises:
        SpecError: the repository is not allowed, or the commit or the folder is not available.
        ConnectionError: the repository's host does not answer.
    """
    if not source_dir.startswith(SCHEME):
        yield source_folder(source_dir, project=project)
        return
    source = GitSource.read(source_dir)
    source.check(clients.defaults.get(REPOSITORIES_KEY))
    with source.fetched() as folder:
        yield folder


def code_findings(
    spec: TrainingJobSpec, folder: Path, *, python: Version | None
) -> Iterator[Finding]:
    """Yield an error for each of two faults with which the job would fail at its start.

    The faults are a `setup.py` beside a script that torchrun starts, and an import of `trainyard_watch` in an
    image whose Python is too old for it.

    Args:
        spec: the job.
        folder: the folder of its code.
        python: Python version of its image; None = unknown.
    """
    launch = spec.launch
    is_torchrun = launch is not None and launch.strategy.launcher is Launcher.TORCHRUN
    if is_torchrun and (folder / "setup.py").is_file():
        yield Finding(
            where="source_dir",
            what="has a setup.py, so the container starts the script as a package, but torchrun cannot start packages",
            got=repr(spec.source_dir),
            next_step="set source_dir to the script's own folder, without setup.py (for a repository, add "
            "#subdirectory=<folder>), or, in train_own_script, set strategy to mpi or plain, which do not "
            "use torchrun",
            source="sagemaker-training 5.1.4, torch_distributed.py",
        )
    script = folder / (spec.entry_point or "")
    if python and python < WATCH_PYTHON and script.is_file() and imports_watch(script):
        yield Finding(
            where="framework_version" if spec.image_uri is None else "image_uri",
            what="selects an image whose Python is too old for trainyard_watch, which the script imports",
            got="Python {}.{}".format(*python),
            allowed="Python {}.{} or later".format(*WATCH_PYTHON),
            next_step="choose a newer image, such as PyTorch 2.0 or TensorFlow 2.12, or remove the import",
        )


def job_code(jobs: TaskJobs, spec: TrainingJobSpec | ProcessingJobSpec) -> UploadedCode | None:
    """Upload a job's code and return its address; None if the job has no entry point, or its source is in S3 already.

    Raises:
        SpecError: the folder does not exist, or does not contain the entry point, or the job would fail at its start.
    """
    source_dir = spec.source_dir or "."
    if not spec.entry_point or source_dir.startswith("s3://"):
        return None
    training = spec if isinstance(spec, TrainingJobSpec) else None
    with code_folder(jobs.clients, source_dir, project=jobs.project) as folder:
        if training:
            python = python_of(jobs.clients, training)
            if found := list(code_findings(training, folder, python=python)):
                raise SpecError(found, subject="source code")
        return uploaded_code(
            jobs.clients,
            folder,
            entry_point=spec.entry_point,
            prefix_uri=spec.code_location or f"{jobs.clients.root}/code",
            requirements=training.requirements if training else None,
            has_arguments=bool(training and training.arguments),
        )


def job_image(spec: TrainingJobSpec | ProcessingJobSpec, *, region: str) -> str | None:
    """Return the URI of the job's image: the spec's own, otherwise AWS's for its framework and instance type.

    The result is None for a job with `algorithm_name`, unless the spec names an image.

    Raises:
        SpecError: AWS has no such image; the message lists the available images.
    """
    if spec.image_uri:
        return spec.image_uri
    if getattr(spec, "algorithm_name", None):
        return None
    return image_uri(
        region=region,
        instance_type=_instance_type(spec),
        framework=spec.framework,
        framework_version=spec.framework_version,
        py_version=spec.py_version,
        has_model_parallel=_has_model_parallel(spec),
    )


def python_of(clients: AwsClients, spec: TrainingJobSpec) -> Version | None:
    """Return the Python version of a job's image; None if the version is unknown, or no image fits the job."""
    try:
        return image_python(job_image(spec, region=clients.region))
    except SpecError:
        return None


def _has_model_parallel(spec: TrainingJobSpec | ProcessingJobSpec) -> bool:
    launch = getattr(spec, "launch", None)
    return launch is not None and launch.strategy.name == "smp_v2"


def _instance_type(spec: TrainingJobSpec | ProcessingJobSpec) -> str:
    if spec.instance_type:
        return spec.instance_type
    choices = (*getattr(spec, "instance_groups", ()), *getattr(spec, "instance_preferences", ()))
    return first_accelerated([each.instance_type for each in choices]) or "ml.m5.large"
