"""A watched training by Keras; prints losses and a digest.

`keras_loop.py <epochs> [<sleep> [unread | wider | stopped]]`: `stopped` receives SIGTERM in each validation.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import time

import keras
import numpy as np

import trainyard_watch.keras
from trainyard_watch.keras import KerasCallback


class Batches(keras.utils.PyDataset):
    """Three batches an epoch, the same in each."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = np.random.default_rng(index).normal(size=(16, 8)).astype(np.float32)
        return inputs, inputs.sum(axis=1, keepdims=True)


class Pause(keras.callbacks.Callback):
    """A pause after each epoch's first batch."""

    def on_train_batch_end(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        time.sleep(float(sys.argv[2]) if batch == 0 and len(sys.argv) > 2 else 0.0)


class Stop(keras.callbacks.Callback):
    """A SIGTERM in each batch of a validation."""

    def on_test_batch_begin(self, batch: int, logs: object = None) -> None:  # noqa: ARG002
        os.kill(os.getpid(), signal.SIGTERM)


def main() -> int:
    trainyard_watch.keras.LINE_EVERY_S = 0.0
    keras.utils.set_random_seed(0)
    case = "".join(sys.argv[3:])
    layers = [
        keras.layers.Dense(17 if case == "wider" else 16, "relu"),
        keras.layers.Dropout(0.2),
        keras.layers.Dense(1),
    ]
    model = keras.Sequential([keras.Input((8,)), *layers])
    rate = keras.optimizers.schedules.CosineDecay(0.01, 60)
    model.compile(keras.optimizers.AdamW(rate), loss="mse", metrics=["mae"])
    callback = KerasCallback(global_batch_size=16)
    first = 0 if case == "unread" else callback.resume(model)
    data = Batches()
    history = model.fit(
        data,
        epochs=int(sys.argv[1]),
        initial_epoch=first,
        validation_data=data,
        shuffle=False,
        verbose=0,
        callbacks=[Pause(), *([Stop()] if case == "stopped" else []), callback],
    )
    sys.stdout.write(f"losses {json.dumps(history.history['loss'])}\n")
    digest = hashlib.sha256(b"".join(each.tobytes() for each in model.get_weights()))
    sys.stdout.write(f"weights {digest.hexdigest()}\n")
    return callback.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
