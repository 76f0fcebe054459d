"""Mixed precision: the autocast context of the forward pass, and the scaling of gradients."""

from __future__ import annotations

import dataclasses
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from trainer.hyperparameters import Hyperparameters

H = TypeVar("H", bound="Hyperparameters")
DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


def settle(hp: H, device: torch.device) -> H:
    """Return the hyperparameters with `precision` "auto" and `compile` None resolved for the device.

    A GPU with bf16 gets bf16 and torch.compile; other devices get fp32 without torch.compile.
    """
    is_fast = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
    precision, compiles = ("bf16", True) if is_fast else ("fp32", False)
    return dataclasses.replace(
        hp,
        precision=precision if hp.precision == "auto" else hp.precision,
        compile=compiles if hp.compile is None else hp.compile,
    )


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
