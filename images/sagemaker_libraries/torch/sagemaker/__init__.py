"""Replacement of SageMaker's model parallel library v2 (SMP), with torch's own FSDP, HSDP and tensor parallelism.

Training jobs on Trainyard's local engine use it. It has the interface documented in "The SageMaker model parallel
library v2 reference" (read November 2026), with two exceptions. `init` rejects expert and context parallelism. The
FlashAttention modules, which need a GPU, are missing.
"""

from __future__ import annotations

from torch.sagemaker import checkpoint
from torch.sagemaker._initialization import init, is_initialized
from torch.sagemaker._state import state
from torch.sagemaker._transformation import transform

__all__ = ["checkpoint", "init", "is_initialized", "state", "transform"]
