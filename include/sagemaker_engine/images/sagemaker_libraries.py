"""Replacements of SageMaker's two closed-source PyTorch libraries: packages `torch.sagemaker` and `smdistributed`.

The packages are in `images/sagemaker_libraries`. Instances with the image of the model parallel library (SMP) see both.
Instances with other PyTorch images see only the data parallel library (SMDDP), if the job requests it. The packages use
torch's own FSDP, tensor parallelism and gloo or NCCL. The engine does not import them, and writes nothing into an
environment: the instance sees them as a layer of a copy-on-write mount.
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
    """Return the packages (`SMP`, `SMDDP`) that an image of this family provides to a job with these hyperparameters.

    Examples: `smdistributed-modelparallel` provides both; `pytorch-training` provides SMDDP if the job requests it.
    """
    if family == SMP_FAMILY:
        return (SMP, SMDDP)
    if family in WITH_SMDDP and is_on(hyperparameters.get(SMDDP_FLAG)):
        return (SMDDP,)
    return ()


def lay_out_shims(shims: Iterable[str], folder: Path) -> Path:
    """Copy packages into the folder, in the layout of site-packages; return the folder.

    Raises OSError if the disk rejects a write.
    """
    for name in shims:
        target = folder / name
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(PACKAGES / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    return folder


def packages_folder(environments: Iterable[Path]) -> Path | None:
    """Return the site-packages folder with torch in the first environment that has it, or None."""
    for each in environments:
        found = next(each.glob("lib/python3*/site-packages/torch/__init__.py"), None)
        if found is not None:
            return found.parents[1]
    return None


def is_on(value: str | None) -> bool:
    """Return whether a hyperparameter is switched on; False if it is absent.

    The value is decoded as JSON, as by AWS's toolkit, and then converted to a truth value: `true`
    and `1` are on. A value that is not JSON is on if it is the word `true` in any case, such as `True`.
    """
    if value is None:
        return False
    try:
        return bool(json.loads(value))
    except ValueError:
        return value.lower() == "true"
