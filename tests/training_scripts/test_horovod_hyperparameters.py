"""Horovod averages in the background: what would touch gradients before they are averaged is refused.

tests/strategies/test_horovod.py trains in the engine image.
"""

from __future__ import annotations

import pytest

from train_horovod import HorovodTraining
from trainyard_watch.errors import HyperparameterError


def test_a_loss_scaler_is_refused_under_horovod() -> None:
    with pytest.raises(HyperparameterError, match=r"precision fp16 needs a loss scaler.*use bf16"):
        HorovodTraining.hyperparameters_class.load('{"precision": "fp16"}')


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_what_needs_no_scaler_is_taken_under_horovod(precision: str) -> None:
    hp = HorovodTraining.hyperparameters_class.load(f'{{"precision": "{precision}"}}')

    assert hp.precision == precision
