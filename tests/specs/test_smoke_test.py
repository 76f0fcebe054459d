"""Conf of a smoke test: the run's, with fewer instances and steps."""

from __future__ import annotations

from typing import Any

import pytest

from trainyard.errors import SpecError
from trainyard.planning.run_cost import run_cap
from trainyard.planning.script_plan import plan_script, script_cap
from trainyard.specs.run_conf import RunConf
from trainyard.specs.script_conf import ScriptConf
from trainyard.specs.smoke_test import smoke_conf

SCRIPT = {"entry_point": "train.py", "source_dir": "project", "instance_count": 4}
P4D = {"instance_type": "ml.p4d.24xlarge", "use_spot_instances": True}


def of_script(**params: Any) -> ScriptConf | None:
    return smoke_conf(ScriptConf.from_mapping({**SCRIPT, **params}))


def test_a_run_without_the_param_has_no_smoke_test() -> None:
    assert of_script() is None
    assert smoke_conf(RunConf()) is None


def test_a_script_is_tested_on_one_instance_for_a_quarter_of_an_hour() -> None:
    test = of_script(smoke_hyperparameters={"steps": 5}, hyperparameters={"steps": 900, "lr": 0.1})

    assert test is not None
    assert (test.instance_count, test.max_run_s) == (1, 900)
    assert test.hyperparameters == {"steps": 5, "lr": 0.1}
    assert test.smoke_hyperparameters is None


def test_tiers_that_differ_in_their_instances_alone_become_one() -> None:
    ladder = [{**P4D, "instance_count": count} for count in (4, 2)]
    other = {"instance_type": "ml.g5.48xlarge", "instance_count": 4}

    test = of_script(smoke_hyperparameters={}, capacity_ladder=[*ladder, other])

    assert test is not None
    assert [(each.instance_type, each.instance_count) for each in test.rungs] == [
        ("ml.p4d.24xlarge", 1),
        ("ml.g5.48xlarge", 1),
    ]


def test_each_group_is_tested_with_fewer_instances() -> None:
    groups = [
        {"instance_group_name": name, "instance_type": kind, "instance_count": count}
        for name, kind, count in (("feed", "ml.c5.xlarge", 1), ("train", "ml.g5.12xlarge", 4))
    ]
    on_train = {"torch_distributed": {"enabled": True}, "instance_groups": ["train"]}

    test = of_script(
        instance_groups=groups,
        distribution=on_train,
        smoke_hyperparameters={},
        smoke_instance_count=2,
    )

    assert test is not None
    assert [each.instance_count for each in test.instance_groups] == [1, 2]


def test_a_plan_does_not_take_the_place_of_the_tier_on_demand() -> None:
    on_demand = {**P4D, "use_spot_instances": False}
    ladder = [{**on_demand, "training_plan": "reserved"}, on_demand]

    test = of_script(smoke_hyperparameters={}, capacity_ladder=ladder)

    assert test is not None
    assert [each.training_plan for each in test.rungs] == ["reserved", None]


def test_the_test_of_a_shipped_model_ends_its_warm_up() -> None:
    conf = RunConf(max_steps=1000, warmup_steps=100, smoke_hyperparameters={"max_steps": 5})

    test = smoke_conf(conf)

    assert test is not None
    assert (test.max_steps, test.warmup_steps) == (5, 4)


def test_a_wrong_test_is_refused_with_the_place() -> None:
    conf = RunConf(smoke_hyperparameters={"global_batch_size": 3})

    with pytest.raises(SpecError, match="global_batch_size of the smoke test: must be a multiple"):
        smoke_conf(conf)


def test_more_instances_than_the_training_are_refused() -> None:
    with pytest.raises(
        SpecError, match="smoke_instance_count: is larger than the training's instance count"
    ):
        of_script(smoke_hyperparameters={}, smoke_instance_count=5)


@pytest.mark.parametrize("params", [{}, {"use_spot_instances": True}])
def test_its_longest_run_is_a_part_of_the_cost(params: dict[str, Any]) -> None:
    without = {**SCRIPT, "instance_type": "ml.p4d.24xlarge", "max_cost_usd": 5000.0, **params}
    with_test = {**without, "smoke_hyperparameters": {"steps": 5}, "smoke_instance_count": 2}

    plans = [plan_script({**each, "max_cost_usd": None}) for each in (without, with_test)]
    caps = [script_cap(ScriptConf.from_mapping(each)) for each in (without, with_test)]

    assert caps[0] is not None
    assert caps[1] is not None
    per_s = caps[1].smoke_usd / (900 + 300)
    assert caps[0].smoke_usd == 0.0
    assert caps[1].least_usd - caps[0].least_usd == pytest.approx(caps[1].smoke_usd)
    ceilings = [each.ceiling_usd or 0.0 for each in plans]
    assert ceilings[1] - ceilings[0] == pytest.approx(900 * per_s)


def test_the_cap_of_a_shipped_model_has_it_too() -> None:
    conf = RunConf(max_cost_usd=50.0, smoke_hyperparameters={"max_steps": 5})

    parts = run_cap(conf)

    assert parts is not None
    assert 0.0 < parts.smoke_usd < parts.after_sharding_usd
