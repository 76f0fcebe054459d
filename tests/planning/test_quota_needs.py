"""What a run's jobs need of an account's quotas."""

from __future__ import annotations

from trainyard.planning.quota_needs import LONGEST_RUN, quota_needs
from trainyard.specs.run_conf import RunConf


def test_each_job_s_quota_is_named_as_service_quotas_does() -> None:
    conf = RunConf(
        instance_type="ml.c5.4xlarge",
        instance_count=3,
        global_batch_size=24,
        use_spot_instances=True,
        max_wait_s=7200,
        source="s3://bucket/text/",
        shard_instance_count=2,
        evaluation_instance_type="ml.m5.xlarge",
    )

    assert {each.name: (each.where, each.amount) for each in quota_needs(conf)} == {
        LONGEST_RUN: ("max_run_s", 3600),
        "ml.c5.4xlarge for spot training job usage": ("instance_type", 3),
        "ml.m5.xlarge for processing job usage": ("evaluation_instance_type", 1),
    }
    assert [each.amount for each in quota_needs(conf) if each.where == "shard_instance_type"] == [2]


def test_rungs_are_alternatives() -> None:
    ladder = [
        {"instance_type": "ml.m5.large", "instance_count": 4},
        {"instance_type": "ml.m5.large", "instance_count": 2, "use_spot_instances": False},
    ]
    conf = RunConf.from_mapping(
        {"capacity_ladder": ladder, "max_wait_s": 7200, "global_batch_size": 32}
    )

    needs = [each for each in quota_needs(conf) if each.is_alternative]

    assert [(each.where, each.name, each.amount) for each in needs] == [
        ("capacity_ladder[0]", "ml.m5.large for spot training job usage", 4),
        ("capacity_ladder[1]", "ml.m5.large for training job usage", 2),
    ]


def test_a_training_that_measures_itself_needs_no_processing_instance() -> None:
    conf = RunConf(evaluation_place="training")

    assert not [each for each in quota_needs(conf) if "processing" in each.name]


def test_every_rung_s_evaluation_type_is_asked_for() -> None:
    ladder = [
        {"instance_type": name, "use_spot_instances": False}
        for name in ("ml.c5.4xlarge", "ml.m5.2xlarge")
    ]
    conf = RunConf.from_mapping({"capacity_ladder": ladder})

    names = {each.name for each in quota_needs(conf) if each.where == "evaluation_instance_type"}

    assert names == {f"ml.{name} for processing job usage" for name in ("c5.4xlarge", "m5.2xlarge")}
