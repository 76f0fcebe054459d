"""The arithmetic that a run has where its hyperparameters leave it open."""

from __future__ import annotations

import pytest
import torch

from trainer.hyperparameters import Hyperparameters
from trainer.precision import settled

pytestmark = pytest.mark.torch


@pytest.mark.parametrize(
    ("device", "has_bf16", "expected"),
    [
        ("cpu", True, ("fp32", False)),
        ("cuda", True, ("bf16", True)),
        ("cuda", False, ("fp32", False)),
    ],
    ids=["cpu", "cuda-with-bf16", "cuda-without"],
)
def test_open_settings_follow_the_device(monkeypatch, device, has_bf16, expected):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: has_bf16)

    found = settled(Hyperparameters().precision, Hyperparameters().compile, torch.device(device))

    assert tuple(found.values()) == expected


def test_given_settings_stay(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)

    found = settled("fp32", compiles=False, device=torch.device("cuda"))

    assert found == {"precision": "fp32", "compile": False}
