"""The arithmetic that a run has where its hyperparameters leave it open."""

from __future__ import annotations

import pytest
import torch

from trainer.hyperparameters import Hyperparameters
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

    hp = settle(Hyperparameters.load("{}"), torch.device(device))

    assert (hp.precision, hp.compile) == expected


def test_given_settings_stay(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda **_: True)
    given = Hyperparameters.load('{"precision": "fp32", "compile": "false"}')

    hp = settle(given, torch.device("cuda"))

    assert (hp.precision, hp.compile) == ("fp32", False)
