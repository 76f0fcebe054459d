"""The names of SageMaker's model parallel library v2, over torch's own FSDP, HSDP and tensor parallelism.

Stands in for the library where a training job runs on Trainyard's local engine. What it has is what "The SageMaker
model parallel library v2 reference" documents (read November 2026). It lacks experts and context parallelism, which
`init` refuses, and the FlashAttention modules, which need a GPU.
"""

from __future__ import annotations

from torch.sagemaker import checkpoint
from torch.sagemaker._initialization import init, is_initialized
from torch.sagemaker._state import state
from torch.sagemaker._transformation import transform

__all__ = ["checkpoint", "init", "is_initialized", "state", "transform"]
