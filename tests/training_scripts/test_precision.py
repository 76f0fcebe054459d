"""The arithmetic that a run has where its hyperparameters leave it open."""

from __future__ import annotations

import pytest
import torch

from trainer.precision import settle

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

    assert settle("auto", None, torch.device(device)) == expected


def test_given_settings_stay(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)

    assert settle("fp32", False, torch.device("cuda")) == ("fp32", False)
