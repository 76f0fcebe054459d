"""TensorFlow's distribution strategies behind one interface.

`TF_CONFIG`, which AWS's toolkit sets, selects the strategy. It describes a cluster with parameter servers,
a cluster with workers only, or no cluster. A global batch is divided into equal parts, one per replica.
All strategies take the same step, with the mean gradient.
"""

from __future__ import annotations

import json
import logging
import os
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import tensorflow as tf

from tensorflow_trainer.adam import clipped, update
from tensorflow_trainer.host_contact import wait_until_gone
from tensorflow_trainer.parameter_servers import (
    ParameterServers,
    parameter_server_cluster,
    serve_as_worker,
)
from tensorflow_trainer.step_result import StepResult
from trainyard_watch.environment import available_cpus

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from trainyard_watch.stopping import StopRequest

log = logging.getLogger(__name__)

LEAST_THREADS = 4
"""Minimum of inter-op threads with parameter servers. With one thread the first step deadlocks: it waits for a variable
that the same thread would have to send (TensorFlow 2.21)."""
LEAVING_S = 10.0
"""Seconds that the first host waits for the end of the other hosts' processes."""


class TensorFlowStrategy(Protocol):
    """Distribution strategy: placement of the variables, and computation of a step.

    Attributes:
        num_replicas: number of parts into which a global batch is divided.
        is_chief: whether this host evaluates, and writes metrics, checkpoints and the model.
    """

    num_replicas: int
    is_chief: bool

    def hold(self, values: Mapping[str, np.ndarray]) -> dict[str, tf.Variable]:
        """Create one variable per value, with that initial value; return the variables by name."""

    def compile(
        self, loss: Any, state: Mapping[str, Any], *, clip_norm: float, weight_decay: float
    ) -> None:
        """Build the computation that `step` runs.

        Args:
            loss: function of the weights and a block of samples; it returns the mean loss.
            state: `weights`, and AdamW's moments `first` and `second`, each as returned by `hold`.
            clip_norm: maximum global norm of the gradient; 0 = no clipping.
            weight_decay: AdamW's weight decay.
        """

    def step(
        self, block: np.ndarray, *, learning_rate: float, number: int, stops: bool
    ) -> StepResult:
        """Take step `number`, counted from 1, on a global batch; `stops` is whether this host received SIGTERM."""

    def leave(self) -> None:
        """Wait until every host that takes part in the steps has called this."""


class Replicated:
    """Strategy in which every replica has all weights.

    It wraps TensorFlow's default strategy (one replica in one process), MirroredStrategy (one host) or
    MultiWorkerMirroredStrategy (several hosts).
    """

    def __init__(
        self, strategy: tf.distribute.Strategy, *, worker: int = 0, others: Sequence[str] = ()
    ) -> None:
        """Store TensorFlow's strategy, this host's index, and the addresses of all hosts but the first."""
        self._strategy, self._others = strategy, others
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

        def replica_step(
            part: tf.Tensor, stops: tf.Tensor, learning_rate: tf.Tensor, step: tf.Tensor
        ) -> Any:
            with tf.GradientTape() as tape:
                value = loss(weights, part)
            gradients = [
                tf.convert_to_tensor(each)
                for each in tape.gradient(value, [weights[name] for name in names])
            ]
            context = tf.distribute.get_replica_context()
            own = [value, tf.identity(stops), *gradients]
            mean, share_stopping, *means = context.all_reduce(tf.distribute.ReduceOp.MEAN, own)
            kept, norm = clipped(means, clip_norm)
            context.merge_call(apply, args=(*kept, learning_rate, step))
            return mean, norm, share_stopping

        @tf.function(reduce_retracing=True)
        def step(parts: Any, *scalars: tf.Tensor) -> Any:
            results = strategy.run(replica_step, args=(parts, *scalars))
            return tf.nest.map_structure(
                lambda each: strategy.experimental_local_results(each)[0], results
            )

        self._step = step

    def step(
        self, block: np.ndarray, *, learning_rate: float, number: int, stops: bool
    ) -> StepResult:
        """Take one step; each replica processes its part of the block."""
        parts = np.split(block, self.num_replicas)
        mine = self._strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(parts[context.replica_id_in_sync_group])
        )
        scalars = (tf.constant(float(each)) for each in (stops, learning_rate, number))
        loss, norm, share_stopping = self._step(mine, *scalars)
        return StepResult(loss=float(loss), norm=float(norm), is_stopping=float(share_stopping) > 0)

    def leave(self) -> None:
        """Wait for the other hosts with one more all-reduce; the first host leaves last.

        No host gets the result of the all-reduce before all hosts have called this method. A host that has the
        result can leave while other hosts still receive data from it. The all-reduce then fails on those other
        hosts. This failure is logged, but is not an error.

        The first host leads TensorFlow's coordination, which would kill the other hosts if their leader left first.
        The first host therefore waits up to 10 s for each of the others to end.
        """

        @tf.function
        def synchronize() -> None:
            self._strategy.run(
                lambda: tf.distribute.get_replica_context().all_reduce(
                    tf.distribute.ReduceOp.SUM, tf.constant(1.0)
                )
            )

        try:
            synchronize()
        except tf.errors.OpError as error:
            log.info("another host left first: %s", type(error).__name__)
        if self.is_chief:
            for address in self._others:
                wait_until_gone(address, limit_s=LEAVING_S)


def choose(
    tf_config: str, *, num_replicas: int, num_threads: int, stop: StopRequest
) -> TensorFlowStrategy | None:
    """Return the strategy of `TF_CONFIG`, or serve as a worker and return None.

    If the cluster has parameter servers and this process is one of its workers, the function serves until the
    coordinator has ended, and returns None.

    Args:
        tf_config: the variable's JSON text, empty without a cluster.
        num_replicas: replicas of a single host without GPUs. On a host with GPUs, each GPU is a replica.
        num_threads: threads per operation; 0 for TensorFlow's default.
        stop: the process's stop request. In a cluster of several workers without parameter servers, its handler
            of SIGTERM is installed again, because TensorFlow's preemption notifier replaces it.
    """
    tf.config.threading.set_intra_op_parallelism_threads(num_threads)
    config = json.loads(tf_config or "{}")
    cluster = config.get("cluster", {})
    if "ps" in cluster:
        if available_cpus() < LEAST_THREADS:
            os.environ.setdefault("TF_NUM_INTEROP_THREADS", str(LEAST_THREADS))
        if config["task"]["type"] == "worker":
            serve_as_worker(config, stop)
            return None
        return ParameterServers(parameter_server_cluster(config), stop)
    if len(cluster.get("worker", [])) > 1:
        strategy = tf.distribute.MultiWorkerMirroredStrategy()
        stop.install()
        return Replicated(strategy, worker=config["task"]["index"], others=cluster["worker"][1:])
    num_gpus = len(tf.config.list_physical_devices("GPU"))
    if num_gpus > 1:
        return Replicated(tf.distribute.MirroredStrategy())
    if num_replicas > 1 and not num_gpus:
        return Replicated(tf.distribute.MirroredStrategy(_processors(num_replicas)))
    return Replicated(tf.distribute.get_strategy())


def _processors(count: int) -> list[str]:
    """Return the names of `count` logical CPU devices of this host."""
    cpu = tf.config.list_physical_devices("CPU")[0]
    tf.config.set_logical_device_configuration(
        cpu, [tf.config.LogicalDeviceConfiguration()] * count
    )
    return [each.name for each in tf.config.list_logical_devices("CPU")]
