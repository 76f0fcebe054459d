"""Training with parameter servers, workers and a coordinator."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from tensorflow_trainer.adam import clipped, update
from tensorflow_trainer.host_contact import is_there, receive_stop_notices, send_stop_notice
from tensorflow_trainer.step_result import StepResult

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainyard_watch.stopping import StopRequest

log = logging.getLogger(__name__)

CHIEF_WORKER_PORT = 2224
"""Port of the worker on the first host. The toolkit starts none there, and the coordinator computes no gradients."""
POLL_S = 0.5


class ParameterServers:
    """Strategy with variables on parameter servers; workers compute gradients, the coordinator applies their mean."""

    is_chief = True

    def __init__(self, cluster: Mapping[str, list[str]], stop: StopRequest) -> None:
        """Start this host's worker, connect to the cluster, and listen for stop notices of other hosts."""
        spec = tf.train.ClusterSpec(cluster)
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            spec, task_type="chief", task_id=0, rpc_layer="grpc"
        )
        self._own_worker = tf.distribute.Server(
            spec, job_name="worker", task_index=0, protocol="grpc", start=True
        )
        self._strategy = tf.distribute.experimental.ParameterServerStrategy(resolver)
        self._coordinator = tf.distribute.experimental.coordinator.ClusterCoordinator(
            self._strategy
        )
        self.num_replicas = len(cluster["worker"])

        def note() -> None:
            stop.received = True

        receive_stop_notices(note)

    def hold(self, values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Return the values as variables, distributed over the parameter servers in turn."""
        with self._strategy.scope():
            return {name: tf.Variable(value, name=name) for name, value in values.items()}

    def compile(
        self, loss: Any, state: Mapping[str, Any], *, clip_norm: float, weight_decay: float
    ) -> None:
        """Define the workers' gradient function and the coordinator's update."""
        weights = state["weights"]
        self._state, self._clip_norm, self._weight_decay = state, clip_norm, weight_decay

        @tf.function
        def gradients(part: tf.Tensor) -> list[tf.Tensor]:
            with tf.GradientTape() as tape:
                value = loss(weights, part)
            found = tape.gradient(value, list(weights.values()))
            return [value, *(tf.convert_to_tensor(each) for each in found)]

        @tf.function
        def apply(means: list[tf.Tensor], learning_rate: tf.Tensor, number: tf.Tensor) -> tf.Tensor:
            kept, norm = clipped(means, clip_norm)
            for name, gradient in zip(weights, kept, strict=True):
                moments = (state["first"][name], state["second"][name])
                update(
                    weights[name],
                    gradient,
                    *moments,
                    learning_rate,
                    number,
                    weight_decay=weight_decay,
                )
            return norm

        self._gradients, self._apply = gradients, apply

    def step(
        self, block: np.ndarray, *, learning_rate: float, number: int, stops: bool
    ) -> StepResult:
        """Split the batch `block` into one part per worker, and apply the mean of the parts' gradients.

        The workers compute the gradients.
        """
        parts = np.split(block, self.num_replicas)
        asked = [
            self._coordinator.schedule(self._gradients, args=(tf.constant(part),)) for part in parts
        ]
        self._coordinator.join()
        found = [each.fetch() for each in asked]
        means = [np.mean(values, axis=0, dtype=np.float32) for values in zip(*found, strict=True)]
        norm = self._apply(means[1:], tf.constant(learning_rate), tf.constant(float(number)))
        return StepResult(loss=float(means[0]), norm=float(norm), is_stopping=stops)

    def leave(self) -> None:
        """Return at once.

        The coordinator calls this at its end. It must not wait for the workers, because they run until it has ended.
        """


def parameter_server_cluster(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the cluster of the toolkit's TF_CONFIG with TensorFlow 2's names.

    The toolkit's `master` is the coordinator, `chief`. It computes no gradients, so its host also gets the first
    worker.

    Example: master algo-1:2222 and worker algo-2:2222 become chief algo-1:2222, workers algo-1:2224 and algo-2:2222.
    """
    cluster = config["cluster"]
    master = cluster["master"][0]
    own = f"{master.rpartition(':')[0]}:{CHIEF_WORKER_PORT}"
    return {"chief": [master], "worker": [own, *cluster.get("worker", [])], "ps": cluster["ps"]}


def serve_as_worker(config: Mapping[str, Any], stop: StopRequest) -> None:
    """Serve as a worker until the coordinator has ended; forward this host's stop request to the coordinator."""
    cluster = parameter_server_cluster(config)
    index = 1 + config["task"]["index"]
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name="worker", task_index=index, protocol="grpc"
    )
    log.info("worker %d of the coordinator %s at %s", index, cluster["chief"][0], server.target)
    _serve_until_gone(cluster["chief"][0], stop)


def _serve_until_gone(address: str, stop: StopRequest) -> None:
    was_there, misses = False, 0
    while misses < 3:
        if is_there(address, timeout_s=5):
            was_there, misses = True, 0
        else:
            misses += was_there
        if stop.received:
            send_stop_notice(address.rpartition(":")[0])
        time.sleep(POLL_S)
