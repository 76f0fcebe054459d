"""The ways of TensorFlow to train over several processors and hosts, behind one interface.

The launcher of AWS's toolkit says which by `TF_CONFIG`: one with parameter servers, one with workers alone, or none. A
global batch is cut into equal parts, one for each replica; every way makes the same step of the mean gradient.
"""

from __future__ import annotations

import json
import logging
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tensorflow_trainer.adam import clipped, update

if TYPE_CHECKING:
    from collections.abc import Mapping

log = logging.getLogger(__name__)

CHIEF_WORKER_PORT = 2224
"""Of the worker on the first host, where the toolkit starts none: TensorFlow's coordinator computes nothing itself."""
LOOK_S = 0.5


class Strategy(Protocol):
    """Where the variables lie and how a step is made."""

    num_replicas: int
    is_chief: bool

    def hold(self, values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Return the values as variables."""

    def compile(
        self, loss: Any, state: Mapping[str, Any], *, clip_norm: float, weight_decay: float
    ) -> None:
        """Prepare the steps."""

    def step(self, block: np.ndarray, *, learning_rate: float, number: int) -> tuple[float, float]:
        """Make step `number`, counted from 1, on a global batch; return its mean loss and its gradient's norm."""


class Replicated:
    """Every replica has all weights: one process, MirroredStrategy or MultiWorkerMirroredStrategy."""

    def __init__(self, strategy: tf.distribute.Strategy, *, worker: int = 0) -> None:
        self._strategy = strategy
        self.num_replicas = strategy.num_replicas_in_sync
        self.is_chief = worker == 0

    def hold(self, values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Return the values as mirrored variables."""
        with self._strategy.scope():
            return {name: tf.Variable(value, name=name) for name, value in values.items()}

    def compile(
        self, loss: Any, state: Mapping[str, Any], *, clip_norm: float, weight_decay: float
    ) -> None:
        """Trace the step: gradients in each replica, their mean, one update."""
        weights = state["weights"]
        names = list(weights)
        strategy = self._strategy

        def apply(strategy: tf.distribute.StrategyExtended, *mirrored: Any) -> None:
            *gradients, learning_rate, step = mirrored
            extended = strategy.extended
            for name, gradient in zip(names, gradients, strict=True):
                moments = (state["first"][name], state["second"][name])
                extended.update(
                    weights[name],
                    lambda weight, *args: update(weight, *args, weight_decay=weight_decay),
                    args=(gradient, *moments, learning_rate, step),
                )

        def replica_step(part: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor) -> Any:
            with tf.GradientTape() as tape:
                value = loss(weights, part)
            gradients = [
                tf.convert_to_tensor(each)
                for each in tape.gradient(value, [weights[name] for name in names])
            ]
            context = tf.distribute.get_replica_context()
            means = context.all_reduce(tf.distribute.ReduceOp.MEAN, [value, *gradients])
            kept, norm = clipped(means[1:], clip_norm)
            context.merge_call(apply, args=(*kept, learning_rate, step))
            return means[0], norm

        @tf.function(reduce_retracing=True)
        def step(parts: Any, learning_rate: tf.Tensor, number: tf.Tensor) -> Any:
            results = strategy.run(replica_step, args=(parts, learning_rate, number))
            return tf.nest.map_structure(
                lambda each: strategy.experimental_local_results(each)[0], results
            )

        self._step = step

    def step(self, block: np.ndarray, *, learning_rate: float, number: int) -> tuple[float, float]:
        """Make one step; each replica takes its part of the block."""
        parts = np.split(block, self.num_replicas)
        mine = self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )
        loss, norm = self._step(mine, tf.constant(learning_rate), tf.constant(float(number)))
        return float(loss), float(norm)


class ParameterServers:
    """Variables lie on parameter servers, workers compute gradients, the coordinator makes the step of their mean."""

    is_chief = True

    def __init__(self, cluster: Mapping[str, list[str]]) -> None:
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

    def hold(self, values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Return the values as variables on the parameter servers, in turn."""
        with self._strategy.scope():
            return {name: tf.Variable(value, name=name) for name, value in values.items()}

    def compile(
        self, loss: Any, state: Mapping[str, Any], *, clip_norm: float, weight_decay: float
    ) -> None:
        """Trace what workers compute; remember what the step needs."""
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

    def step(self, block: np.ndarray, *, learning_rate: float, number: int) -> tuple[float, float]:
        """Let the workers compute the gradients of their parts, and make the step of the mean."""
        parts = np.split(block, self.num_replicas)
        asked = [
            self._coordinator.schedule(self._gradients, args=(tf.constant(part),)) for part in parts
        ]
        self._coordinator.join()
        found = [each.fetch() for each in asked]
        means = [np.mean(values, axis=0, dtype=np.float32) for values in zip(*found, strict=True)]
        norm = self._apply(means[1:], tf.constant(learning_rate), tf.constant(float(number)))
        return float(means[0]), float(norm)


def parameter_server_cluster(config: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the cluster of a TF_CONFIG of AWS's toolkit in the words of TensorFlow 2.

    The toolkit's `master` is the coordinator, `chief`. It computes nothing, so its host gets a worker, too: the first.

    Worked: master algo-1:2222 and worker algo-2:2222 become chief algo-1:2222, workers algo-1:2224 and algo-2:2222.
    """
    cluster = config["cluster"]
    master = cluster["master"][0]
    own = f"{master.rpartition(':')[0]}:{CHIEF_WORKER_PORT}"
    return {"chief": [master], "worker": [own, *cluster.get("worker", [])], "ps": cluster["ps"]}


def serve_as_worker(config: Mapping[str, Any]) -> None:
    """Compute for the coordinator until it is gone."""
    cluster = parameter_server_cluster(config)
    index = 1 + config["task"]["index"]
    server = tf.distribute.Server(
        tf.train.ClusterSpec(cluster), job_name="worker", task_index=index, protocol="grpc"
    )
    log.info("worker %d of the coordinator %s at %s", index, cluster["chief"][0], server.target)
    _wait_until_gone(cluster["chief"][0])


def choose(tf_config: str, *, num_replicas: int, num_threads: int) -> Strategy | None:
    """Return the strategy that `TF_CONFIG` asks for; None on a host that serves another's steps, once they are over.

    `num_replicas` is that of one host without GPUs; with GPUs each is a replica. `num_threads` are this process's for
    one operation; 0: as TensorFlow does.
    """
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    config = json.loads(tf_config or "{}")
    cluster = config.get("cluster", {})
    if "ps" in cluster:
        if config["task"]["type"] == "worker":
            serve_as_worker(config)
            return None
        return ParameterServers(parameter_server_cluster(config))
    if len(cluster.get("worker", [])) > 1:
        return Replicated(
            tf.distribute.MultiWorkerMirroredStrategy(), worker=config["task"]["index"]
        )
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus > 1:
        return Replicated(tf.distribute.MirroredStrategy())
    if num_replicas > 1 and not num_gpus:
        return Replicated(tf.distribute.MirroredStrategy(_processors(num_replicas)))
    return Replicated(tf.distribute.get_strategy())


def _processors(count: int) -> list[str]:
    """Return so many devices of this host's processors."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return [each.name for each in tf.config.list_logical_devices("CPU")]


def _wait_until_gone(address: str) -> None:
    host, _, port = address.rpartition(":")
    was_there, misses = False, 0
    while misses < 3:
        try:
            socket.create_connection((host, int(port)), timeout=5).close()
        except OSError:
            misses += was_there
        else:
            was_there, misses = True, 0
        threading.Event().wait(LOOK_S)
