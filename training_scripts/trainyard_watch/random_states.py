"""Random states of one rank: torch, Python, and CUDA and numpy if they are in use."""

from __future__ import annotations

import hashlib
import random
import sys
from typing import TYPE_CHECKING, Any

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping


def random_states(device: torch.device) -> dict[str, Any]:
    """Return this process's random states as tensors, numbers, texts and lists of them."""
    python = random.getstate()
    states: dict[str, Any] = {"torch": torch.get_rng_state(), "python": _as_lists(python)}
    if device.type == "cuda":
        states["cuda"] = torch.cuda.get_rng_state(device)
    if "numpy" in sys.modules:
        name, keys, *rest = sys.modules["numpy"].random.get_state()
        states["numpy"] = [name, keys.tolist(), *rest]
    return states


def restore_random_states(states: Mapping[str, Any], device: torch.device) -> None:
    """Restore the result of `random_states`."""
    torch.set_rng_state(states["torch"])
    random.setstate(_as_tuples(states["python"]))
    if device.type == "cuda" and "cuda" in states:
        torch.cuda.set_rng_state(states["cuda"], device)
    if "numpy" in sys.modules and "numpy" in states:
        sys.modules["numpy"].random.set_state(tuple(states["numpy"]))


def begin_random_states(seed: int, *, rank: int, step: int) -> None:
    """Seed this rank's random streams, at step 0 or after a change of the number of ranks.

    After such a change the saved states do not match the ranks. The seed includes the step, because a rank would
    otherwise draw the dropout masks of step 0 again.
    """
    digest = hashlib.sha256(f"trainyard random streams {seed} {rank} {step}".encode()).digest()
    torch.manual_seed(int.from_bytes(digest[:7], "little"))
    random.seed(digest)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(list(digest))


def _as_lists(value: Any) -> Any:
    return [_as_lists(item) for item in value] if isinstance(value, tuple) else value


def _as_tuples(value: Any) -> Any:
    return tuple(_as_tuples(item) for item in value) if isinstance(value, list) else value
