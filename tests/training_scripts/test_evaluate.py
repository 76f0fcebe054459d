"""The evaluation script: model.tar.gz and test split in, evaluation.json out."""

from __future__ import annotations

import json
import math
import tarfile

import pytest
import torch

import evaluate
from trainer import tasks
from trainyard.planning import evaluation_plan
from trainyard.specs.metrics import TEST_METRICS
from trainyard_watch.distributed import Ranks

pytestmark = pytest.mark.torch


def processing_folder(base_dir, data, model_dir):
    """Lay out what a processing job finds: the archive, the test split and the index."""
    inputs = base_dir / "processing" / "input"
    (inputs / "model").mkdir(parents=True)
    for name in ("test", "index"):
        (inputs / name).symlink_to(data / name)
    with tarfile.open(inputs / "model" / "model.tar.gz", "w:gz") as tar:
        for path in model_dir.iterdir():
            tar.add(path, arcname=path.name)
    return base_dir


def read_report(base_dir):
    return json.loads((base_dir / "processing/output/evaluation/evaluation.json").read_text())


def test_evaluation_measures_the_test_split(make_job, evaluation, tmp_path, token_data):
    job = make_job()
    job.run(max_steps=40, learning_rate=0.02, eval_interval=0)
    base_dir = processing_folder(tmp_path / "evaluation", token_data, job.base_dir / "model")

    code = evaluation(base_dir)

    assert code == 0, (base_dir / "evaluate.log").read_text()
    report = read_report(base_dir)
    index = json.loads((token_data / "index" / "index.json").read_text())
    metrics = report["metrics"]
    assert tuple(metrics) == TEST_METRICS["gpt"]
    assert metrics["test_loss"] < metrics["unigram_loss"]
    assert metrics["unigram_loss"] == index["baseline"]["unigram_loss_nats"]
    assert metrics["test_perplexity"] == pytest.approx(math.exp(metrics["test_loss"]))
    assert report["num_tokens"] == (index["splits"]["test"]["num_tokens"] - 1) // 16 * 16
    assert report["num_rows"] == 8
    assert report["data_fingerprint"] == report["trained_on_fingerprint"] == index["fingerprint"]
    assert report["model"]["config"]["kind"] == "gpt"


def test_the_model_is_unpacked_on_the_jobs_volume(tmp_path):
    inputs = tmp_path / "processing" / "input"
    inputs.mkdir(parents=True)
    (tmp_path / "model.json").write_text("{}")
    with tarfile.open(inputs / "model.tar.gz", "w:gz") as tar:
        tar.add(tmp_path / "model.json", arcname="model.json")

    with evaluate.opened(
        inputs, Ranks(device=torch.device("cpu")), volume=tmp_path / "processing"
    ) as folder:
        assert folder.is_relative_to(tmp_path / "processing")
        assert (folder / "model.json").read_text() == "{}"


# 41 samples in batches of 2: rank 0 has 11 batches, rank 1 has 10 and runs a spare one with shards.
WAYS = {
    "one process": (1, []),
    "each rank its samples": (2, ["--layout=whole"]),
    "shards": (2, ["--layout=shards"]),
}


@pytest.mark.parametrize(
    ("precision", "tolerance"),
    [
        pytest.param("fp32", 1e-5, id="fp32"),
        pytest.param("bf16", 2e-3, id="bf16", marks=pytest.mark.slow),
    ],
)
def test_every_way_to_measure_gives_the_same_metrics(
    make_job, evaluation, tmp_path, token_data, precision, tolerance
):
    job = make_job()
    assert job.run(max_steps=20, eval_interval=0, precision=precision) == [0], job.log()
    reports = {}
    for way, (world_size, argv) in WAYS.items():
        base_dir = processing_folder(
            tmp_path / way.replace(" ", "-"), token_data, job.base_dir / "model"
        )
        options = [*argv, "--tokens-per-batch=32", "--max-samples=41"]
        code = evaluation(base_dir, options, world_size=world_size)
        assert code == 0, (base_dir / "evaluate.log").read_text()
        reports[way] = read_report(base_dir)

    one = reports.pop("one process")
    assert one["measured"] == {
        "place": "processing", "num_ranks": 1, "layout": "whole", "precision": precision,
    }  # fmt: skip
    for way, report in reports.items():
        assert report["measured"]["num_ranks"] == 2, way
        assert report["num_tokens"] == one["num_tokens"] == 41 * 16, way
        loss = report["metrics"]["test_loss"]
        assert loss == pytest.approx(one["metrics"]["test_loss"], rel=tolerance), way


def test_the_loss_of_many_logits_is_that_of_all_at_once(monkeypatch):
    task = tasks.LanguageTask(model_config={"sequence_length": 8})
    logits, targets = torch.randn(3, 8, 50), torch.randint(50, (3, 8))
    whole = task.loss_sum(logits, (targets, targets))
    monkeypatch.setattr(tasks, "LOSS_VALUES", 7 * 50)

    with torch.no_grad():
        parts = task.loss_sum(logits, (targets, targets))

    assert parts.item() == pytest.approx(whole.item(), rel=1e-6)


def test_evaluation_without_an_archive_says_what_is_missing(evaluation, tmp_path):
    (tmp_path / "processing/input/model").mkdir(parents=True)

    assert evaluation(tmp_path) == 1
    reasons = [(tmp_path / "output" / name).read_text() for name in ("failure", "message")]
    assert "model.tar.gz is missing" in reasons[0]
    assert reasons[1] == reasons[0]


def test_model_of_another_vocabulary_is_refused(make_job, evaluation, tmp_path, token_data):
    job = make_job()
    job.run(max_steps=2)
    base_dir = processing_folder(tmp_path / "evaluation", token_data, job.base_dir / "model")
    index = base_dir / "processing/input/index"
    content = json.loads((index / "index.json").read_text())
    content["tokenizer"]["vocab_size"] = 300
    index.unlink()
    index.mkdir()
    (index / "index.json").write_text(json.dumps(content))

    assert evaluation(base_dir) == 1
    assert "the model has vocab_size 257" in (base_dir / "output/failure").read_text()


TABLE = {
    "model": "mlp", "hidden_size": 32, "global_batch_size": 40, "max_steps": 150,
    "learning_rate": 0.02, "eval_interval": 50, "eval_batches": 0, "warmup_steps": 5,
}  # fmt: skip


def test_table_is_classified_and_measured(make_job, evaluation, tmp_path, table_data):
    job = make_job(data=table_data)

    assert job.run(world_size=2, **TABLE) == [0, 0], job.log()

    assert "samples_per_second=" in job.log()
    assert job.events("eval")[-1]["validation_accuracy"] > 0.9
    base_dir = processing_folder(tmp_path / "evaluation", table_data, job.base_dir / "model")
    assert evaluation(base_dir) == 0, (base_dir / "evaluate.log").read_text()
    metrics = read_report(base_dir)["metrics"]
    assert tuple(metrics) == TEST_METRICS["mlp"]
    assert metrics["test_accuracy"] > 0.9
    assert read_report(base_dir)["num_rows"] == 100


@pytest.mark.slow
def test_table_regression_beats_the_mean(make_job, table_data):
    job = make_job(data=table_data)

    assert job.run(**TABLE | {"target_column": "z"}) == [0], job.log()

    assert job.events("eval")[-1]["validation_loss"] < 0.1
    assert "validation_accuracy" not in job.log()


def test_ranks_do_not_change_the_loss_curve_of_a_table(make_job, table_data):
    settings = TABLE | {"max_steps": 10}
    one, two = make_job("one", table_data), make_job("two", table_data)
    one.run(**settings)

    two.run(world_size=2, micro_batch_size=10, **settings)

    assert two.losses() == pytest.approx(one.losses(), rel=2e-5)


@pytest.mark.parametrize(
    ("model", "said"),
    [("gpt", "model gpt needs token shards"), ("mlp", "model mlp needs column shards")],
)
def test_model_of_the_wrong_kind_for_the_data_is_refused(
    make_job, token_data, table_data, model, said
):
    job = make_job(data=table_data if model == "gpt" else token_data)

    assert job.run(model=model) == [1]

    assert said in job.failure


def test_the_plan_of_an_evaluation_knows_the_scripts_numbers():
    assert evaluation_plan.TOKENS_PER_BATCH == evaluate.TOKENS_PER_BATCH
    assert evaluation_plan.LOSS_VALUES == tasks.LOSS_VALUES


@pytest.mark.parametrize("main", ["train_ddp", "train_fsdp"])
def test_a_training_measures_its_test_split_as_an_evaluation_does(
    make_job, evaluation, tmp_path, token_data, main
):
    job = make_job()

    codes = job.run(main=main, world_size=2, max_steps=6, eval_interval=0, test_samples=41)

    assert codes == [0, 0], job.log()
    own = json.loads((job.base_dir / "output" / "data" / "evaluation.json").read_text())
    assert own["measured"]["place"] == "training"
    base_dir = processing_folder(tmp_path / "evaluation", token_data, job.base_dir / "model")
    assert evaluation(base_dir, ["--max-samples=41"]) == 0, (base_dir / "evaluate.log").read_text()
    other = read_report(base_dir)
    assert own["num_samples"] == other["num_samples"] == 41
    assert own["num_split_samples"] == other["num_split_samples"] > 41
    assert own["metrics"]["test_loss"] == pytest.approx(other["metrics"]["test_loss"], rel=1e-5)
    assert own["trained_on_fingerprint"] == other["trained_on_fingerprint"]
    assert own["model"]["num_parameters"] == other["model"]["num_parameters"]


def test_a_training_that_is_not_asked_leaves_no_evaluation(make_job):
    job = make_job()

    assert job.run(max_steps=2) == [0], job.log()

    assert not (job.base_dir / "output" / "data" / "evaluation.json").exists()


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_training_that_is_stopped_while_it_measures_leaves_its_model(make_job, world_size):
    job = make_job()
    asked = {"world_size": world_size, "max_steps": 2, "eval_interval": 0, "test_samples": 41}

    stopped = {rank: {"STOPPED_IN": "test"} for rank in range(world_size)}
    codes = job.run(main="stopped_rank", environ=stopped, **asked)

    assert codes == [143] * world_size, job.log()
    assert "MODEL IS WRITTEN: True" in job.log()
    assert "the test split is NOT MEASURED (it was stopped after 1 batches per rank)" in job.log()
    evaluation_file = job.base_dir / "output" / "data" / "evaluation.json"
    assert not evaluation_file.exists()
    (done,) = job.events("done")
    assert done["weights_sha256"]
    assert json.loads((job.base_dir / "model/model.json").read_text())["stopped_by"] == "max_steps"
    assert job.run(**asked) == [0] * world_size, job.log()
    assert json.loads(evaluation_file.read_text())["num_samples"] == 41
