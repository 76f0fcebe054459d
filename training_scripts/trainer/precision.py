"""Mixed precision: the autocast context of the forward pass, and the scaling of gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import torch

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def settle(precision: str, compiles: bool | None, device: torch.device) -> tuple[str, bool]:
    """Return the precision, and whether to use torch.compile; "auto" and None are resolved for the device.

    A GPU with bf16 gets bf16 and torch.compile; other devices get fp32 without torch.compile.
    """
    is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    usual = "bf16" if is_fast else "fp32"
    return usual if precision == "auto" else precision, is_fast if compiles is None else compiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Precision of the forward pass: weights stay float32, matrix products run in `dtype`, fp16 uses the scaler."""

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
