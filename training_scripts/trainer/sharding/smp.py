"""SageMaker's model parallel library (SMP), started if the job has `mp_parameters` and the image has the library."""

from __future__ import annotations

import importlib
import json
import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)
VARIABLE = "SM_HP_MP_PARAMETERS"
OURS = ("context_parallel_degree",)  # split by trainer.sharding itself


def start_library(environ: Mapping[str, str]) -> bool:
    """Initialise `torch.sagemaker` if the job has `mp_parameters`; return whether it was initialised.

    trainer.sharding implements the parameters with torch alone, so training is the same without the library.
    """
    parameters = json.loads(environ.get(VARIABLE) or "{}")
    if not parameters:
        return False
    try:
        library = importlib.import_module("torch.sagemaker")
    except ImportError:
        log.warning("mp_parameters: the image has no torch.sagemaker; sharding by torch alone")
        return False
    library.init({name: value for name, value in parameters.items() if name not in OURS})
    log.info("torch.sagemaker has started: hybrid_shard_degree %s, tensor_parallel_degree %s",
             library.state.hybrid_shard_degree, library.state.tensor_parallel_degree)  # fmt: skip
    return True
