"""Mixed precision: which context the forward pass runs in and how gradients are scaled."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Weights stay float32; matrix products run in `dtype`; only fp16 needs the scaler."""

    dtype: torch.dtype
    device_type: str
    scaler: torch.amp.GradScaler

    @classmethod
    def of(cls, name: str, device: torch.device) -> Precision:
        """Return the precision called `name` ("fp32", "bf16" or "fp16") on `device`."""
        scaler = torch.amp.GradScaler(device.type, enabled=name == "fp16")
        return cls(dtype=DTYPES[name], device_type=device.type, scaler=scaler)

    def forward(self) -> AbstractContextManager[object]:
        """Return the context for a forward pass and its loss."""
        if self.dtype is torch.float32:
            return nullcontext()
        return torch.autocast(self.device_type, dtype=self.dtype)
