"""The hyperparameters of script mode: how AWS's framework toolkits learn what to run and how.

Values are JSON-encoded, as the SDK's estimator did (v2.257.7); the toolkit decodes each with
`json.loads`. The toolkit reads `sagemaker_mpi_num_of_processes_per_host` for torchrun too: it is
the only way to say how many ranks an instance runs (sagemaker-pytorch-training 3.0.0).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from include.errors import Finding, SpecError

if TYPE_CHECKING:
    from include.specs.training_job import TrainingJobSpec


def script_mode_hyperparameters(
    spec: TrainingJobSpec, *, name: str, region: str, code_s3_uri: str | None
) -> dict[str, str]:
    """Return all hyperparameters of the request, those of script mode last; values are JSON text.

    Without an entry point (built-in algorithms, own containers) text goes as it is: such images
    read plain strings.

    Raises:
        SpecError: an entry point without uploaded code.
    """
    if not spec.entry_point:
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in spec.hyperparameters.items()
        }
    is_on_s3 = (spec.source_dir or "").startswith("s3://")
    code = code_s3_uri or (spec.source_dir if is_on_s3 else None)
    if code is None:
        raise SpecError(
            [
                Finding(
                    where="code_s3_uri",
                    what="is needed to run an entry_point",
                    next_step="upload source_archive(source_dir) first and pass its S3 URI",
                )
            ]
        )
    toolkit: dict[str, object] = {
        "sagemaker_program": spec.entry_point,
        "sagemaker_submit_directory": code,
        "sagemaker_container_log_level": spec.container_log_level,
        "sagemaker_job_name": name,
        "sagemaker_region": region,
        **_launcher(spec),
    }
    return {key: json.dumps(value) for key, value in {**spec.hyperparameters, **toolkit}.items()}


def _launcher(spec: TrainingJobSpec) -> dict[str, object]:
    if spec.launcher is None:
        return {}
    members: dict[str, object] = {"sagemaker_torch_distributed_enabled": True}
    if spec.instance_type:
        members["sagemaker_instance_type"] = spec.instance_type
    if spec.launcher.processes_per_host is not None:
        members["sagemaker_mpi_num_of_processes_per_host"] = spec.launcher.processes_per_host
    return members
