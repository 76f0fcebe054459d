"""The cells of a comparison, what is wrong with them, and what they can cost."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import BudgetExceededError, SpecError
from trainyard.planning.comparison_plan import Cell, plan_comparison

DDP: dict[str, Any] = {"strategies": [{"name": "ddp"}]}
TWO = [{"name": "ddp"}, {"name": "other", "hyperparameters": {"compile": True}, "ranks": [2, 4]}]


def refused(**params: Any) -> str:
    with pytest.raises(SpecError) as caught:
        plan_comparison(params)
    return str(caught.value)


def test_each_strategy_is_trained_on_each_number_of_ranks() -> None:
    plan = plan_comparison({"strategies": TWO, "ranks": [2, 1], "micro_batch_size": 4})

    assert [each.name for each in plan.cells] == ["ddp x 1", "ddp x 2", "other x 2", "other x 4"]
    assert [each.instance_count for each in plan.cells] == [1, 2, 2, 4]
    assert plan.cells[3].hyperparameters == {"compile": True}


def test_ranks_fill_the_instances() -> None:
    plan = plan_comparison(
        {**DDP, "ranks": [1, 2, 4], "processes_per_instance": 2, "micro_batch_size": 4}
    )

    layouts = [(each.instance_count, each.processes_per_instance) for each in plan.cells]
    assert layouts == [(1, 1), (1, 2), (2, 2)]
    assert plan.cells[2].distribution == {
        "torch_distributed": {"processes_per_host": 2, "enabled": True}
    }


def test_ranks_fill_the_accelerators() -> None:
    plan = plan_comparison(
        {**DDP, "ranks": [4, 8], "instance_type": "ml.g5.12xlarge", "global_batch_size": 64}
    )

    layouts = [(each.instance_count, each.processes_per_instance) for each in plan.cells]
    assert layouts == [(1, 4), (2, 4)]


def test_shards_are_cut_for_every_number_of_ranks() -> None:
    plan = plan_comparison({**DDP, "ranks": [2, 3], "global_batch_size": 48})

    assert plan.sharding.world_size == 6


def test_cell_comes_back_from_json() -> None:
    cell = plan_comparison({}).cells[-1]

    assert cell.hyperparameters == {"tensor_parallel_degree": 2}
    assert Cell.from_dict(cell.to_dict()) == cell


def test_ceiling_is_every_cell_for_its_longest_time_as_often_as_it_may_start() -> None:
    # 1 + 2 instances of ml.m5.large at 0.115 USD/h for 600 s, twice: 0.115 USD
    plan = plan_comparison({**DDP, "ranks": [1, 2], "max_run_s": 600}, job_attempts=2)

    assert plan.ceiling_usd == pytest.approx(0.115)
    assert plan.once_usd == pytest.approx(0.0575)


def test_sharding_job_is_priced_for_no_longer_than_the_service_lets_it_run() -> None:
    plan = plan_comparison(
        {
            **DDP,
            "ranks": [1],
            "shard_instance_count": 1,
            "source": "s3://b/data",
            "max_run_s": 10**6,
        }
    )

    assert "shard: 1 x ml.m5.xlarge at 0.23 USD/h for at most 9 d" in plan.cost_note


def test_budget_holds_for_all_cells_together() -> None:
    conf = {**DDP, "ranks": [1, 2], "max_run_s": 600}

    assert plan_comparison({**conf, "budget_usd": 0.06}).ceiling_usd == pytest.approx(0.0575)
    with pytest.raises(BudgetExceededError) as caught:
        plan_comparison({**conf, "budget_usd": 0.05})
    assert caught.value.needed_usd == pytest.approx(0.0575)


def test_everything_that_is_wrong_is_told_at_once() -> None:
    said = refused(
        strategies=[{"name": "a b"}, {"name": "x", "hyperparametrs": {}}],
        ranks=[0],
        tune=True,
        max_steps="many",
    )

    assert "is malformed" in said
    assert "did you mean 'hyperparameters'?" in said
    assert "has an invalid or a repeated number of ranks" in said
    assert "tune: is a param of train_end_to_end" in said
    assert "max_steps: has the wrong type" in said


def test_finding_of_some_cells_names_them_and_one_of_all_does_not() -> None:
    old = {"precision": "bf16", "instance_type": "ml.p3.2xlarge"}

    assert "1. precision: bf16 is not supported by the hardware of" in refused(ranks=[1, 2], **old)
    assert "global_batch_size (ddp x 3): must be a multiple" in refused(**DDP, ranks=[1, 3])


@pytest.mark.parametrize(
    ("conf", "what"),
    [
        (
            {"strategies": [{"name": "a"}, {"name": "a"}]},
            "has several strategies with the same name",
        ),
        ({"strategies": []}, "strategies: is empty"),
        ({"ranks": []}, "ranks: is empty"),
        ({"ranks": [1, 1]}, "has an invalid or a repeated number of ranks"),
        ({"ranks": [3], "processes_per_instance": 2}, "does not fill whole instances"),
        (
            {"ranks": list(range(1, 66))},
            "makes too many trainings, one for each strategy and number of ranks",
        ),
        ({"loss_tolerance": 1}, "loss_tolerance: is not a share"),
        ({"worthwhile_efficiency": 0}, "worthwhile_efficiency: is not a share"),
        ({"instance_count": 2}, "set ranks instead"),
        ({"cells_at_once": -1}, "cells_at_once: is too small"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_comparison_that_makes_no_sense_is_refused(conf: dict[str, Any], what: str) -> None:
    assert what in refused(**conf)


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secrets.py", "a/../../b.py", "train_ddp", ".py", "a b.py", "x.py\n"]
)
def test_a_script_stays_in_its_folder(path: str) -> None:
    said = refused(strategies=[{"name": "ddp", "entry_point": path}])

    assert "entry_point: is not a script in training_scripts/" in said
