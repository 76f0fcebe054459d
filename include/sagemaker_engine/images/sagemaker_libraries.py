"""SageMaker's two closed PyTorch libraries as names that scripts import: `torch.sagemaker` and `smdistributed`.

`images/sagemaker_libraries` has what a job's image shows beside its own packages, and only if AWS's image has it: SMP's
image, and a job that asks for SMDDP. They map to FSDP, tensor parallelism and gloo or NCCL of torch itself. The engine
imports none of it, and nothing is written into an environment: an instance sees the folder as a layer of a
copy-on-write mount.
"""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING

from sagemaker_engine import IMAGES_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

PACKAGES = IMAGES_FOLDER / "sagemaker_libraries"
SMP, SMDDP = "torch/sagemaker", "smdistributed"
SMP_FAMILY = "smdistributed-modelparallel"
SMDDP_FLAG = "sagemaker_distributed_dataparallel_enabled"
WITH_SMDDP = frozenset({"pytorch-training", "huggingface-pytorch-training", "trainyard"})


def wanted_shims(family: str, hyperparameters: Mapping[str, str]) -> tuple[str, ...]:
    """Return which packages an image of this family shows a job of these hyperparameters.

    Worked: `smdistributed-modelparallel` has both; `pytorch-training` has SMDDP where the job asks for it.
    """
    if family == SMP_FAMILY:
        return (SMP, SMDDP)
    if family in WITH_SMDDP and is_on(hyperparameters.get(SMDDP_FLAG)):
        return (SMDDP,)
    return ()


def lay_out_shims(shims: Iterable[str], folder: Path) -> Path:
    """Copy packages into the folder as they are to lie beside an environment's own; return it.

    Fails with OSError: the disk refuses.
    """
    for name in shims:
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(PACKAGES / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def packages_folder(environments: Iterable[Path]) -> Path | None:
    """Return the folder of packages that torch lies in, of the first environment that has it; None: of none."""
    for each in environments:
        found = next(each.glob("lib/python3*/site-packages/torch/__init__.py"), None)
        if found is not None:
            return found.parents[1]
    return None


def is_on(value: str | None) -> bool:
    """Return whether a hyperparameter says yes: the toolkit decodes JSON, and takes text as it is."""
    if value is None:
        return False
    try:
        return bool(json.loads(value))
    except ValueError:
        return value.lower() == "true"
