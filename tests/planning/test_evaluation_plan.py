"""The evaluation of a run is planned before the training: it fits, or preflight says what to change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import botocore.session
import pytest

from trainyard.catalog.instances import catalogue
from trainyard.errors import SpecError
from trainyard.planning.evaluation_plan import (
    LIMIT_S,
    EvaluationPlan,
    Place,
    evaluation_findings,
    on_type,
    plan_evaluation,
)
from trainyard.planning.run_plan import plan_run
from trainyard.specs.run_conf import RunConf

BILLIONS_12: dict[str, Any] = {
    "strategy": "fsdp",
    "instance_type": "ml.p4d.24xlarge",
    "instance_count": 8,
    "processes_per_instance": 8,
    "num_layers": 40,
    "hidden_size": 5120,
    "num_heads": 40,
    "sequence_length": 2048,
    "precision": "bf16",
    "global_batch_size": 64,
    "micro_batch_size": 1,
    "max_run_s": 432_000,
    "volume_size_gb": 500,
}
"""12.6e9 parameters on a type that processing jobs cannot have."""


def planned(**changes: Any) -> EvaluationPlan:
    return plan_evaluation(RunConf.from_mapping({**BILLIONS_12, **changes}))


def refusal(**changes: Any) -> str:
    with pytest.raises(SpecError) as caught:
        plan_run({**BILLIONS_12, **changes})
    return str(caught.value)


def test_a_model_trained_on_p4d_is_evaluated_on_a_gpu_type_that_holds_it() -> None:
    plan = planned()

    assert plan.place is Place.PROCESSING
    known = catalogue().types[plan.instance_type]
    assert known.is_for_processing
    assert known.num_accelerators == plan.num_processes > 1
    assert plan.is_sharded
    assert plan.memory_bytes <= plan.usable_bytes
    assert "12.8 B parameters" in plan.reason or "12.6 B parameters" in plan.reason


def test_the_type_chosen_is_one_that_the_service_lets_processing_jobs_have() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert planned().instance_type in model.shape_for("ProcessingInstanceType").enum


def test_the_volume_holds_the_archive_and_what_is_unpacked_from_it() -> None:
    plan = planned(volume_size_gb=30)

    assert plan.volume_size_gb >= 2 * 12.6e9 * 4 / 1024**3
    assert "evaluation_volume_size_gb" in refusal(evaluation_volume_size_gb=30)


@pytest.mark.parametrize(
    ("instance_type", "disks_gb"), [("ml.g5.xlarge", 250), ("ml.g4dn.xlarge", 125)]
)
def test_the_volume_is_at_most_the_types_local_disks(instance_type: str, disks_gb: int) -> None:
    conf = RunConf(volume_size_gb=500, evaluation_instance_type=instance_type, precision="fp32")

    assert plan_evaluation(conf).volume_size_gb == disks_gb
    assert not list(evaluation_findings(conf))


def test_disks_that_do_not_hold_what_is_unpacked_are_refused() -> None:
    asked = {"evaluation_instance_type": "ml.g5.xlarge", "model": "gpt", "test_fraction": 0.1}
    conf = RunConf(volume_size_gb=3000, **asked)

    (finding,) = evaluation_findings(conf)

    assert finding.where == "evaluation_instance_type"
    assert "303 GiB" in finding.got
    assert "250 GB of local disks" in finding.got


def test_a_volume_of_its_own_above_the_types_disks_is_refused() -> None:
    asked = {"evaluation_instance_type": "ml.g5.xlarge", "evaluation_volume_size_gb": 251}

    (finding,) = evaluation_findings(RunConf(**asked))

    assert finding.where == "evaluation_volume_size_gb"
    assert (finding.got, finding.allowed) == ("251 GB on ml.g5.xlarge", "at most 250 GB")
    assert not list(evaluation_findings(RunConf(**{**asked, "evaluation_volume_size_gb": 250})))


def test_a_type_whose_disks_are_too_small_is_not_chosen() -> None:
    conf = RunConf(instance_type="ml.g5.xlarge", evaluation_volume_size_gb=500, precision="bf16")

    plan = plan_evaluation(conf)

    disks = catalogue().types[plan.instance_type].local_storage_gb
    assert not plan.unfit
    assert plan.volume_size_gb == 500
    assert disks is None or disks >= 500


def test_the_evaluation_keeps_its_own_limit_and_the_services() -> None:
    assert planned().max_run_s == 86_400
    assert planned(evaluation_max_run_s=LIMIT_S).max_run_s == LIMIT_S
    said = refusal(evaluation_max_run_s=LIMIT_S + 1)
    assert "evaluation_max_run_s" in said
    assert "777600" in said


def test_the_limit_is_the_services() -> None:
    model = botocore.session.get_session().get_service_model("sagemaker")
    assert model.shape_for("ProcessingMaxRuntimeInSeconds").metadata["max"] == LIMIT_S


def test_samples_are_as_many_as_the_limit_lets_be_measured() -> None:
    hour, day = (planned(evaluation_max_run_s=each) for each in (3 * 3600, 86_400))

    assert 0 < hour.max_samples < day.max_samples
    assert hour.estimated_s <= hour.max_run_s


def test_more_samples_than_the_limit_lets_be_measured_are_refused() -> None:
    said = refusal(evaluation_max_samples=10_000_000_000)

    assert "evaluation_max_samples" in said
    assert "evaluation_max_run_s" in said


def test_a_type_of_the_confs_own_that_does_not_hold_the_model_is_refused() -> None:
    said = refusal(evaluation_instance_type="ml.m5.xlarge")

    assert "evaluation_instance_type: cannot run the evaluation" in said
    assert "GiB" in said
    assert "set it to ml." in said


def test_a_small_model_is_evaluated_where_it_was_trained_by_one_process() -> None:
    plan = plan_evaluation(RunConf())

    assert (plan.instance_type, plan.num_processes, plan.is_sharded) == ("ml.m5.large", 1, False)
    assert (plan.volume_size_gb, plan.max_run_s) == (30, 3600)


def test_every_accelerator_of_the_type_measures_its_part() -> None:
    plan = plan_evaluation(
        RunConf(instance_type="ml.g5.12xlarge", precision="bf16", global_batch_size=64)
    )

    assert (plan.num_processes, plan.is_sharded) == (4, False)


def test_no_type_without_bf16_evaluates_what_was_trained_so() -> None:
    assert on_type(RunConf(precision="bf16"), "ml.p3.2xlarge").unfit
    assert not on_type(RunConf(precision="fp32"), "ml.p3.2xlarge").unfit


@pytest.mark.parametrize(
    ("instance_type", "precision"),
    [("ml.g5.xlarge", "bf16"), ("ml.g4dn.xlarge", "fp32"), ("ml.m5.large", "fp32")],
)
def test_the_precision_is_that_of_training_where_the_conf_leaves_it_open(
    instance_type: str, precision: str
) -> None:
    conf = RunConf(instance_type=instance_type)

    assert plan_evaluation(conf).precision == precision
    assert on_type(conf, "ml.m5.xlarge").precision == precision
    assert plan_evaluation(replace(conf, evaluation_place="training")).precision == precision


def test_long_sequences_and_large_vocabularies_do_not_multiply() -> None:
    """16 samples of 8,192 tokens with fp32 logits and their log-softmax took 134 GB (torch.md B7)."""
    conf = RunConf.from_mapping(
        {**BILLIONS_12, "sequence_length": 8192, "tokenizer": "s3://b/tokenizer.json"}
    )

    one = on_type(conf, "ml.g6e.12xlarge")

    assert not one.unfit
    assert one.memory_bytes < 40 * 1024**3


def test_the_ceiling_counts_the_evaluation_as_planned() -> None:
    plan = plan_run(BILLIONS_12)
    evaluation = plan.evaluation
    price = catalogue().types[evaluation.instance_type].price_usd_per_hour
    training = 8 * catalogue().types["ml.p4d.24xlarge"].price_usd_per_hour * 432_000 / 3600

    assert plan.once_usd == pytest.approx(training + price * evaluation.max_run_s / 3600)
    assert plan.to_dict()["evaluation"]["reason"] == evaluation.reason


def test_a_training_beyond_the_limit_of_processing_jobs_has_jobs_within_it() -> None:
    plan = plan_run({"max_run_s": 864_000, "source": "s3://b/raw/", "shard_instance_count": 2})

    assert plan.evaluation.max_run_s <= LIMIT_S
    assert "shard: 2 x ml.m5.xlarge at 0.23 USD/h for at most 9 d 0 h" in plan.cost_note


HUGE: dict[str, Any] = {"num_layers": 120, "hidden_size": 16_384, "num_heads": 128}


def test_what_no_processing_type_holds_the_training_measures_at_its_end() -> None:
    plan = planned(**HUGE, precision="fp32")

    assert plan.place is Place.TRAINING
    assert "no type of processing jobs can evaluate the model" in plan.reason
    assert plan.max_samples > 0


def test_the_trainings_last_step_costs_no_job() -> None:
    plan = plan_run({**BILLIONS_12, "evaluation_place": "training"})
    training = 8 * catalogue().types["ml.p4d.24xlarge"].price_usd_per_hour * 432_000 / 3600

    assert plan.once_usd == pytest.approx(training)
    assert plan.evaluation.place is Place.TRAINING


def test_whole_replicas_gather_no_weights_in_the_trainings_last_step() -> None:
    place = {"evaluation_place": "training", "instance_type": "ml.p4d.24xlarge"}

    replicas, shards = (planned(**place, strategy=each) for each in ("ddp", "fsdp"))

    assert (replicas.is_sharded, shards.is_sharded) == (False, True)
    assert replicas.tokens_per_s > shards.tokens_per_s
    alone = {"evaluation_place": "training", "instance_type": "ml.g5.xlarge", "instance_count": 1}
    assert planned(**alone, strategy="fsdp").tokens_per_s == planned(**alone).tokens_per_s


def test_a_processing_job_that_cannot_be_is_refused_with_the_way_out() -> None:
    conf = RunConf.from_mapping(
        {**BILLIONS_12, **HUGE, "precision": "fp32", "evaluation_place": "processing"}
    )

    (finding,) = evaluation_findings(conf)

    assert finding.where == "evaluation_place"
    assert 'set evaluation_place to "training"' in str(finding)


@pytest.mark.parametrize(
    "name", ["evaluation_instance_type", "evaluation_max_run_s", "evaluation_volume_size_gb"]
)
def test_settings_of_a_job_that_there_is_not_are_refused(name: str) -> None:
    value: Any = "ml.g5.12xlarge" if name == "evaluation_instance_type" else 3600

    assert (
        f"{name}: applies to an evaluation in a processing job, but this run evaluates in the training's last step"
        in refusal(evaluation_place="training", **{name: value})
    )


def test_a_ladder_has_one_place_for_all_its_rungs() -> None:
    ladder = [{"instance_type": "ml.p4d.24xlarge"}, {"instance_type": "ml.p4de.24xlarge"}]
    conf = RunConf.from_mapping({**BILLIONS_12, "capacity_ladder": ladder})

    places = {plan_evaluation(conf, trained_on=each["instance_type"]).place for each in ladder}

    assert places == {Place.PROCESSING}


def test_a_run_without_its_own_evaluation_reserves_nothing_for_it() -> None:
    measured = plan_run({"max_cost_usd": 5.0})
    plan = plan_run({"max_cost_usd": 5.0, "evaluation_place": "none"})

    assert plan.evaluation.place is Place.NONE
    assert (plan.evaluation.max_samples, plan.evaluation.reason) == (0, "no job of the run")
    assert plan.once_usd is not None
    assert measured.once_usd is not None
    assert plan.once_usd < measured.once_usd
