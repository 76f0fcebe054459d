"""Compiled layers have the gradients of eager ones, in every layout."""

from __future__ import annotations

import pytest
import torch

from trainer.sharding.hyperparameters import ShardedHyperparameters
from trainer.sharding.mesh import RankMesh
from trainer.sharding.model import parallelize_model

pytestmark = pytest.mark.torch
RTOL = 1e-5
"""Of losses and norms, in float32 on a CPU: compiled kernels add floats in another order."""
SHAPE = {"max_steps": 2, "eval_interval": 0, "num_layers": 1, "warmup_steps": 0}
MORE = {
    "ddp": {"main": "train_ddp"},
    "fsdp": {},
    "context": {"context_parallel_degree": 2},
    "pipeline": {"pipeline_parallel_degree": 2, "num_layers": 2},
    "tensor-dropout": {
        "main": "eager_random_rank",
        "tensor_parallel_degree": 2,
        "dropout": 0.1,
    },
    "tensor-recomputed": {"tensor_parallel_degree": 2, "activation_checkpointing": "full"},
}
CPU = torch.device("cpu")
LAYER = {"num_layers": 1, "num_heads": 2, "hidden_size": 8, "sequence_length": 4}
CONFIG = {"kind": "gpt", "vocab_size": 16, **LAYER}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # torch's tracer reads it of every input
def test_a_split_embedding_has_a_gradient_before_a_compiled_layer(two_ranks):
    """The tracer loses the gradient: `aot_eager` shows it without the kernels, which take a minute to compile."""
    hp = ShardedHyperparameters(**LAYER, tensor_parallel_degree=2, precision="fp32")
    model, _ = parallelize_model(CONFIG, hp, RankMesh.of(hp.degrees(2), CPU), CPU)
    model.blocks["0"].compile(backend="aot_eager")

    model(torch.arange(4).view(1, 4)).square().sum().backward()

    norms = {name: each.grad.to_local().norm().item() for name, each in model.named_parameters()}
    assert [name for name, norm in norms.items() if norm == 0] == []


@pytest.mark.filterwarnings("ignore:The .grad attribute", "ignore:.torch.jit.script_method")
@pytest.mark.parametrize("kind", ["full", pytest.param("selective", marks=pytest.mark.slow)])
def test_a_compiled_layer_that_is_split_may_be_recomputed(two_ranks, kind):
    """With all that draws random numbers: torch takes the mesh for a tensor if it recomputes them on a CPU."""
    hp = ShardedHyperparameters(
        **LAYER,
        tensor_parallel_degree=2,
        precision="fp32",
        compile=True,
        activation_checkpointing=kind,
    )
    config = {**CONFIG, "dropout": 0.1}
    model, _ = parallelize_model(config, hp, RankMesh.of(hp.degrees(2), CPU), CPU)
    model.blocks["0"].compile(backend="aot_eager")

    model(torch.arange(4).view(1, 4)).square().sum().backward()

    assert all(each.grad is not None for each in model.parameters())


def check(make_job, settings):
    eager, compiled = make_job("eager"), make_job("compiled")
    run = {"main": "train_fsdp", **SHAPE, **settings, "world_size": 2}
    norms = '{"gradients": {"save_interval": 1}}'
    assert eager.run(**run, statistics=norms) == [0, 0], eager.log()

    codes = compiled.run(**run, statistics=norms, compile="true")

    assert codes == [0, 0], compiled.log()
    assert compiled.losses() == pytest.approx(eager.losses(), rel=RTOL)
    assert gradient_norms(compiled) == pytest.approx(gradient_norms(eager), rel=RTOL, abs=1e-8)


def gradient_norms(job):
    """Return the norm of each parameter's gradient at each step, by rank, step and name."""
    found = {}
    for step in job.observed_steps():
        for name, each in step.collection("gradients").items():
            place = step.rank, step.step, name.removeprefix("gradient/").replace("_orig_mod.", "")
            found[str(place)] = each.l2
    assert found
    return found


@pytest.mark.slow
def test_compiled_layers_that_are_split_have_eagers_gradients(make_job):
    check(make_job, {"tensor_parallel_degree": 2})


@pytest.mark.slow
@pytest.mark.parametrize("name", MORE)
def test_compiled_layers_have_eagers_gradients_in_every_layout(make_job, name):
    check(make_job, MORE[name])
