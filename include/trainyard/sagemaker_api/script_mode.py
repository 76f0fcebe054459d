"""Script mode of AWS's framework toolkits: hyperparameters of program and launcher, and the forwarding of SIGTERM.

Values are JSON-encoded, as by the SDK's estimator (v2.257.7); the toolkit decodes each with `json.loads`. The
hyperparameters of a strategy are in its own module in `include/trainyard/specs/strategies`.
"""

from __future__ import annotations

import ast
import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.specs.strategies.strategy import Launcher, Target
from trainyard.specs.training_job_rules import ARGUMENTS, CODE_CHANNEL

if TYPE_CHECKING:
    from trainyard.specs.training_job import TrainingJobSpec

CODE_FOLDER = f"/opt/ml/input/data/{CODE_CHANNEL}"
"""Folder of the code in a container without access to S3 (SDK v2, `CONTAINER_CODE_CHANNEL_SOURCEDIR_PATH`)."""
RELAY = Path(__file__).with_name("sigterm_relay.py")
RUN_ARGUMENTS = "import sys; exec('\\n'.join(sys.argv[2:]))"
LONGEST_ARGUMENT = 256
"""Longest argument in characters (CreateTrainingJob's model; at most 100 arguments)."""


def script_mode_hyperparameters(
    spec: TrainingJobSpec, *, name: str, region: str, code_s3_uri: str | None
) -> dict[str, str]:
    """Return all hyperparameters of the request, those of script mode last; values are JSON text.

    Without an entry point (built-in algorithms, own containers) text is not JSON-encoded, since such images read plain
    strings.

    Raises:
        SpecError: there is an entry point, but its code has not been uploaded.
    """
    if not spec.entry_point:
        return {
            key: value if isinstance(value, str) else json.dumps(value)
            for key, value in spec.hyperparameters.items()
        }
    code = code_uri(spec, code_s3_uri=code_s3_uri)
    told: dict[str, object] = {
        **_model_folder(spec, name=name),
        **spec.hyperparameters,
        **({ARGUMENTS: [spec.entry_point, *spec.arguments]} if spec.arguments else {}),
        "sagemaker_program": spec.program,
        "sagemaker_submit_directory": f"{CODE_FOLDER}/{code.rpartition('/')[2]}"
        if spec.enable_network_isolation
        else code,
        "sagemaker_container_log_level": spec.container_log_level,
        "sagemaker_job_name": name,
        "sagemaker_region": region,
        **_strategy(spec),
    }
    return {key: json.dumps(value) for key, value in told.items()}


def code_uri(spec: TrainingJobSpec, *, code_s3_uri: str | None) -> str:
    """Return the S3 URI of the code of a spec with an entry point.

    Raises:
        SpecError: the code has not been uploaded.
    """
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
    return code


def _strategy(spec: TrainingJobSpec) -> dict[str, object]:
    if spec.launch is None:
        return {}
    return spec.launch.hyperparameters(
        Target(framework=spec.framework, instance_type=spec.instance_type)
    )


def _model_folder(spec: TrainingJobSpec, *, name: str) -> dict[str, object]:
    """Return TensorFlow's `model_dir`, the folder for checkpoints; a hyperparameter of that name takes precedence."""
    if spec.framework != "tensorflow":
        return {}
    is_mpi = spec.launch is not None and spec.launch.strategy.launcher is Launcher.MPIRUN
    place = "/opt/ml/model" if is_mpi else f"{spec.output_path.rstrip('/')}/{name}/model"
    return {"model_dir": place}


def forwarding_entrypoint(program: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the ContainerEntrypoint and ContainerArguments that forward SIGTERM to the ranks of `program`.

    The image needs `python3` and the toolkit's `train`, as AWS's framework images have them.

    Args:
        program: path of the script, the hyperparameter `sagemaker_program`.
    """
    return ("python3", "-c", RUN_ARGUMENTS), (program, *_relay_lines())


@cache
def _relay_lines() -> tuple[str, ...]:
    """Return the lines of the relay's code without docstrings and comments, one line per argument."""
    tree = ast.parse(RELAY.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.FunctionDef)) and ast.get_docstring(node):
            del node.body[0]
    return tuple(line for line in ast.unparse(tree).splitlines() if line)
