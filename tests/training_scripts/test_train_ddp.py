"""The whole script, with real ranks over gloo."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.torch
EQUIVALENCE_RTOL = 2e-5


def test_run_learns_and_leaves_model_metrics_and_summary(make_job):
    job = make_job()

    codes = job.run(world_size=2, max_steps=40, learning_rate=0.02, eval_interval=20)

    assert codes == [0, 0], job.log()
    first, last = (event["validation_loss"] for event in job.events("eval"))
    summary = json.loads((job.base_dir / "output/data/summary.json").read_text())
    model = json.loads((job.base_dir / "model/model.json").read_text())
    assert last < first < 5.0
    assert last < summary["unigram_loss"]
    assert summary["validation_loss"] == model["validation_loss"] == last
    assert model["config"]["kind"] == "gpt"
    assert "head.weight" in job.weights()


def test_metric_lines_have_the_fixed_format_and_come_from_rank_0_only(make_job):
    job = make_job()

    job.run(world_size=2)

    number = r"[0-9.]+(?:e[+-]\d+)?"
    step_line = re.compile(
        rf"trainyard step=\d+ epoch=\d+ loss={number} learning_rate={number} "
        rf"tokens_per_second={number} gradient_norm={number} eta_seconds={number} max_steps=6 "
        r"samples=\d+:\d+ digest=[0-9a-f]{16}"
    )
    lines = job.log_lines()
    assert len([line for line in lines if step_line.fullmatch(line)]) == 6
    assert re.fullmatch(rf"trainyard setup seconds={number}", lines[0])
    assert re.fullmatch(
        rf"trainyard eval step=3 validation_loss={number} validation_tokens=256", lines[5]
    )
    assert re.fullmatch(
        rf"trainyard done step=6 validation_loss={number} seconds={number} "
        r"weights_sha256=[0-9a-f]{64}",
        lines[-1],
    )
    assert "trainyard " not in job.log(1)


@pytest.mark.parametrize(
    ("world_size", "micro_batch_size"),
    [
        pytest.param(1, 4, id="1x4-accumulated-2", marks=pytest.mark.slow),
        pytest.param(2, 4, id="2x4", marks=pytest.mark.slow),
        pytest.param(2, 2, id="2x2-accumulated-2"),
        pytest.param(4, 1, id="4x1-accumulated-2", marks=pytest.mark.slow),
    ],
)
def test_ranks_and_accumulation_do_not_change_the_loss_curve(
    make_job, world_size, micro_batch_size
):
    reference, split = make_job("reference"), make_job("split")
    reference.run(world_size=1, micro_batch_size=8)

    split.run(world_size=world_size, micro_batch_size=micro_batch_size)

    assert len(split.losses()) == 6
    assert split.losses() == pytest.approx(reference.losses(), rel=EQUIVALENCE_RTOL)
    norms = [[event["gradient_norm"] for event in job.events("step")] for job in (reference, split)]
    assert norms[1] == pytest.approx(norms[0], rel=1e-4)
    validation = [job.events("eval")[-1]["validation_loss"] for job in (reference, split)]
    assert validation[1] == pytest.approx(validation[0], rel=EQUIVALENCE_RTOL)


def test_all_ranks_stop_early_at_the_same_step(make_job):
    job = make_job()

    codes = job.run(
        world_size=2, learning_rate=1e-9, max_steps=50, eval_interval=2, early_stopping_patience=2
    )

    evaluations = [event["validation_loss"] for event in job.events("eval")]
    best = min(range(len(evaluations)), key=evaluations.__getitem__)
    assert codes == [0, 0]
    assert len(evaluations) == best + 3
    assert json.loads((job.base_dir / "output/data/summary.json").read_text())["stopped_by"] == (
        "early_stopping"
    )


@pytest.mark.parametrize("precision", ["bf16", pytest.param("fp16", marks=pytest.mark.slow)])
def test_mixed_precision_follows_fp32_closely(make_job, precision):
    reference, mixed = make_job("fp32"), make_job(precision)
    reference.run()

    codes = mixed.run(precision=precision)

    assert codes == [0], mixed.log()
    assert mixed.losses() == pytest.approx(reference.losses(), rel=0.03)
    assert mixed.losses() != reference.losses()


def test_loader_processes_do_not_change_the_run(make_job):
    alone, helped = make_job("alone"), make_job("helped")
    alone.run(dropout=0.1)

    helped.run(dropout=0.1, num_workers=2)

    assert helped.losses() == alone.losses()


def test_epoch_counts_passes_over_the_training_split(make_job):
    job = make_job()

    job.run(max_steps=0, epochs=2, eval_interval=0, global_batch_size=64)

    steps = job.events("step")
    assert [steps[0]["epoch"], steps[-1]["epoch"]] == [0, 1]
    assert steps[-1]["step"] == steps[-1]["max_steps"]
