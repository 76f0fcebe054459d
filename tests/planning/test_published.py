"""The model of a step beside published measurements.

One figure for each kind of accelerator (`efficiency`) was fitted to those marked so; everything else was not.
"""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from trainyard.catalog.hardware import hardware
from trainyard.planning.activations import Batching, Recompute
from trainyard.planning.candidates import USABLE_SHARE, usable_bytes
from trainyard.planning.compute import Cluster, step_time
from trainyard.planning.memory import memory_use
from trainyard.planning.mesh import Mesh
from trainyard.planning.shapes import EAGER, GPT, PUBLISHED, TRAINYARD, ModelShape
from trainyard.units import BYTES_PER_GIB

KORTHIKANTI = "Korthikanti et al. 2022, tables 3 and 5, on A100 80 GB"
TITAN_A100 = "torchtitan docs/performance.md, on 64 A100 80 GB, sequences of 8192"
TITAN_H100 = "torchtitan benchmarks/llama3_h100_202412_torchtitan.md, tables 1, 3 and 4"
TITAN_ASYNC_TP = "torchtitan benchmarks/asyncTP_llama3_h100_2025-06_torchtitan.md, the table's rows of vanilla TP"
NANOGPT = "nanoGPT's README: 124M on 8 A100 40 GB, about 250 ms for a step of 480 sequences"


def megatron(layers: int, hidden: int, heads: int) -> ModelShape:
    return ModelShape(
        num_layers=layers,
        hidden_size=hidden,
        num_heads=heads,
        vocab_size=51200,
        sequence_length=2048,
        family=GPT,
        attention=EAGER,
    )


SMALL = ModelShape(
    num_layers=24,
    hidden_size=1024,
    num_heads=16,
    vocab_size=32_768,
    sequence_length=2048,
    family=TRAINYARD,
)
"""The decoder of training_scripts in benchmarks/gpu_training.py."""


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A published step: seconds, how far the model may be from it, and why it is."""

    shape: ModelShape
    on: str
    count: int
    mesh: Mesh
    micro: int
    batch: int
    recompute: Recompute
    seconds: float
    tolerance: float
    why: str = ""
    is_compiled: bool = True


def of_tokens(rate: float, *, ranks: int, batch: int, length: int = 8192) -> float:
    """Return the seconds of a step from tokens a second of one GPU."""
    return batch * length / rate / ranks


SELECTIVE, FULL = Recompute.SELECTIVE, Recompute.FULL
MEASURED = {
    "22B, TP 8": Measured(
        shape=megatron(48, 6144, 64),
        on="ml.p4de.24xlarge",
        count=1,
        mesh=Mesh(tp=8),
        micro=4,
        batch=4,
        recompute=SELECTIVE,
        seconds=1.10,
        tolerance=0.25,
        why="narrow products of a layer cut in eight reach less of the peak than the fitted share",
    ),
    "175B, TP 8 x PP 8": Measured(  # fitted
        shape=PUBLISHED["gpt3-175b"],
        on="ml.p4de.24xlarge",
        count=8,
        mesh=Mesh(tp=8, pp=8),
        micro=1,
        batch=64,
        recompute=SELECTIVE,
        seconds=13.75,
        tolerance=0.05,
    ),
    "175B, recomputed": Measured(
        shape=PUBLISHED["gpt3-175b"],
        on="ml.p4de.24xlarge",
        count=8,
        mesh=Mesh(tp=8, pp=8),
        micro=1,
        batch=64,
        recompute=FULL,
        seconds=18.13,
        tolerance=0.05,
    ),
    "530B, TP 8 x PP 35": Measured(
        shape=megatron(105, 20480, 128),
        on="ml.p4de.24xlarge",
        count=35,
        mesh=Mesh(tp=8, pp=35),
        micro=1,
        batch=280,
        recompute=SELECTIVE,
        seconds=37.83,
        tolerance=0.05,
    ),
    "1T, TP 8 x PP 64": Measured(
        shape=megatron(128, 25600, 160),
        on="ml.p4de.24xlarge",
        count=64,
        mesh=Mesh(tp=8, pp=64),
        micro=1,
        batch=512,
        recompute=SELECTIVE,
        seconds=71.49,
        tolerance=0.05,
    ),
    "Llama 3 8B, FSDP 64": Measured(  # fitted
        shape=PUBLISHED["llama3-8b"],
        on="ml.p4de.24xlarge",
        count=8,
        mesh=Mesh(dp_shard=64),
        micro=1,
        batch=64,
        recompute=SELECTIVE,
        seconds=of_tokens(2973, ranks=64, batch=64),
        tolerance=0.05,
    ),
    "Llama 3 70B, FSDP 64": Measured(  # fitted
        shape=PUBLISHED["llama3-70b"],
        on="ml.p4de.24xlarge",
        count=8,
        mesh=Mesh(dp_shard=64),
        micro=1,
        batch=64,
        recompute=FULL,
        seconds=of_tokens(331, ranks=64, batch=64),
        tolerance=0.07,
    ),
    "GPT-2 124M, DDP 8": Measured(
        shape=PUBLISHED["gpt2-124m"],
        on="ml.p4d.24xlarge",
        count=1,
        mesh=Mesh(dp_replicate=8),
        micro=4,
        batch=480,
        recompute=Recompute.NONE,
        seconds=0.25,
        tolerance=0.10,
    ),
    "Llama 3 8B, FSDP 8 on H100, compiled": Measured(  # fitted
        shape=PUBLISHED["llama3-8b"],
        on="ml.p5.48xlarge",
        count=1,
        mesh=Mesh(dp_shard=8),
        micro=2,
        batch=16,
        recompute=SELECTIVE,
        seconds=of_tokens(6667, ranks=8, batch=16),
        tolerance=0.05,
    ),
    "Llama 3 8B, FSDP 128 on H100, compiled": Measured(
        shape=PUBLISHED["llama3-8b"],
        on="ml.p5.48xlarge",
        count=16,
        mesh=Mesh(dp_shard=128),
        micro=2,
        batch=256,
        recompute=SELECTIVE,
        seconds=of_tokens(6514, ranks=128, batch=256),
        tolerance=0.05,
    ),
    "Llama 3 8B, FSDP 8 on H100, eager": Measured(  # fitted
        shape=PUBLISHED["llama3-8b"],
        on="ml.p5.48xlarge",
        count=1,
        mesh=Mesh(dp_shard=8),
        micro=2,
        batch=16,
        recompute=SELECTIVE,
        is_compiled=False,
        seconds=of_tokens(5762, ranks=8, batch=16),
        tolerance=0.05,
    ),
    "350M, one H100, compiled": Measured(  # benchmarks/RESULTS.md
        shape=SMALL,
        on="ml.p5.4xlarge",
        count=1,
        mesh=Mesh(),
        micro=8,
        batch=16,
        recompute=Recompute.NONE,
        seconds=of_tokens(154_000, ranks=1, batch=16, length=2048),
        tolerance=0.05,
    ),
    "350M, one H100, eager": Measured(  # fitted
        shape=SMALL,
        on="ml.p5.4xlarge",
        count=1,
        mesh=Mesh(),
        micro=8,
        batch=16,
        recompute=Recompute.NONE,
        is_compiled=False,
        seconds=of_tokens(108_000, ranks=1, batch=16, length=2048),
        tolerance=0.06,
    ),
    "Llama 3.1 70B, FSDP 32 x TP 8 on H100, bf16": Measured(
        shape=PUBLISHED["llama3-70b"],
        on="ml.p5.48xlarge",
        count=32,
        mesh=Mesh(dp_shard=32, tp=8),
        micro=16,
        batch=512,
        recompute=FULL,
        seconds=of_tokens(597, ranks=256, batch=512),
        tolerance=0.10,
    ),
    "Llama 3.1 8B, FSDP 8 x TP 8 on H100, bf16": Measured(
        shape=PUBLISHED["llama3-8b"],
        on="ml.p5.48xlarge",
        count=8,
        mesh=Mesh(dp_shard=8, tp=8),
        micro=12,
        batch=96,
        recompute=SELECTIVE,
        seconds=of_tokens(4378, ranks=64, batch=96),
        tolerance=0.18,
        why="collectives of small layers cut in eight reach less of the link than the modeled share",
    ),
    "Llama 3 70B, FSDP 32 x TP 8 on H100": Measured(
        shape=PUBLISHED["llama3-70b"],
        on="ml.p5.48xlarge",
        count=32,
        mesh=Mesh(dp_shard=32, tp=8),
        micro=16,
        batch=512,
        recompute=FULL,
        seconds=of_tokens(829, ranks=256, batch=512),
        tolerance=0.55,
        why="measured with float8 products, which the planner does not plan",
    ),
}


def _batching(each: Measured) -> Batching:
    return Batching(
        micro_batch_size=each.micro,
        num_micro_batches=each.batch // each.mesh.dp // each.micro,
        precision="bf16",
        recompute=each.recompute,
    )


@pytest.mark.parametrize("case", MEASURED)
def test_a_step_takes_about_as_long_as_published(case: str) -> None:
    each = MEASURED[case]
    share, rest = divmod(each.batch, each.mesh.dp * each.micro)
    batching = Batching(
        micro_batch_size=each.micro,
        num_micro_batches=share,
        precision="bf16",
        recompute=each.recompute,
        is_compiled=each.is_compiled,
    )
    on = Cluster(hardware=hardware()[each.on], instance_count=each.count)

    step = step_time(each.shape, each.mesh, batching, on, global_batch_size=each.batch)

    assert rest == 0
    assert each.mesh.num_ranks == on.num_ranks
    assert step.total == pytest.approx(each.seconds, rel=each.tolerance)
    assert each.tolerance <= 0.10 or each.why


def test_models_beyond_a_tenth_off_are_off_in_the_direction_that_their_reason_says() -> None:
    """A narrow layer takes longer than modeled; float8 less."""
    for case, is_slower in {
        "22B, TP 8": True,
        "Llama 3.1 8B, FSDP 8 x TP 8 on H100, bf16": True,
        "Llama 3 70B, FSDP 32 x TP 8 on H100": False,
    }.items():
        each = MEASURED[case]
        batching = _batching(each)
        on = Cluster(hardware=hardware()[each.on], instance_count=each.count)
        step = step_time(each.shape, each.mesh, batching, on, global_batch_size=each.batch)
        assert (each.seconds > step.total) is is_slower


@pytest.mark.parametrize(
    ("name", "mesh", "micro", "recompute", "gib", "tolerance"),
    [
        ("llama3-8b", Mesh(dp_shard=8), 2, SELECTIVE, 77.0, 0.05),
        ("llama3-8b", Mesh(dp_shard=128), 2, SELECTIVE, 62.0, 0.05),
        ("llama3-8b", Mesh(dp_shard=8), 2, SELECTIVE, 82.4, 0.06),
        ("llama3-8b", Mesh(dp_shard=128), 2, SELECTIVE, 67.0, 0.05),
    ],
    ids=["8 compiled", "128 compiled", "8 eager", "128 eager"],
)
def test_a_rank_takes_about_as_many_bytes_as_torchtitan_report(
    name: str, mesh: Mesh, micro: int, recompute: Recompute, gib: float, tolerance: float
) -> None:
    assert reserved_gib(name, mesh, micro, recompute) == pytest.approx(gib, rel=tolerance)


def reserved_gib(name: str, mesh: Mesh, micro: int, recompute: Recompute) -> float:
    """Return what they report: what the allocator reserved, of which tensors have a share (metrics.py)."""
    batching = Batching(
        micro_batch_size=micro, num_micro_batches=1, precision="bf16", recompute=recompute
    )
    return memory_use(PUBLISHED[name], mesh, batching).total / USABLE_SHARE / BYTES_PER_GIB


@pytest.mark.parametrize(
    ("published_gib", "low_gib", "unexplained_gib"),
    [(67.6, 10.5, 2.3), (71.9, 14.8, 6.6)],
    ids=["AsyncTP", "gathered inputs"],
)
def test_split_layers_under_torch_s_parallel_loss_are_planned_low_by_this_much(
    published_gib: float, low_gib: float, unexplained_gib: float
) -> None:
    """Table 4, 70B with float8: the plan is 15.5 % and 20.6 % low, and this says by what.

    8.2 GiB are the logits in fp32 once more, 4 sbV/t, which the formula lacks: at its peak the backward pass of
    `loss_parallel` has 16 bytes of each logit beside the logits themselves, that of the plain loss 12 (torch 2.13,
    measured; torch/distributed/tensor/parallel/loss.py keeps `torch.exp(x)` beside its sum). For the rest nobody
    published a cause. It is hardly float8: with it 8B takes 0.2 GiB less (tables 1 and 3).
    """
    planned = reserved_gib("llama3-70b", Mesh(dp_shard=32, tp=8), 16, FULL)
    logits_once_more = 4 * 8192 * 16 * 128_256 / 8 / USABLE_SHARE / BYTES_PER_GIB

    assert planned == pytest.approx(57.1, abs=0.05)
    assert published_gib - planned == pytest.approx(low_gib, abs=0.05)
    assert published_gib - planned - logits_once_more == pytest.approx(unexplained_gib, abs=0.05)


@pytest.mark.parametrize("case", [name for name, each in MEASURED.items() if "p4de" in each.on])
def test_what_was_run_on_an_accelerator_fits_it(case: str) -> None:
    """To 1 %: of 1T's 512 micro batches torch's stages have 6 GiB of buffers, Megatron's only those in flight."""
    each = MEASURED[case]
    batching = _batching(each)
    on = Cluster(hardware=hardware()[each.on], instance_count=each.count)

    assert memory_use(each.shape, each.mesh, batching).total <= 1.01 * usable_bytes(
        on.hardware.instance
    )
