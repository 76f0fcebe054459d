"""Laws of train_sft.py and evaluate_sft.py, on a small chat model: by the engine image with PEFT and TRL beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tarfile
import venv
from pathlib import Path
from typing import Any

import pytest

from sagemaker_engine.images.image_file import read_image_files
from sagemaker_engine.images.image_store import ImageStore, default_folder
from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import has_index, need_built
from tests.training_scripts.inference_client import answers_of
from trainyard_watch.stopping import GRACE_VARIABLE

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "training_scripts"
FOLDER = SCRIPTS / "fine_tuning"
LORA = {"max_steps": 12, "save_steps": 5, "learning_rate": 1e-3}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with the engine image's packages and the folder's requirements."""
    image = next(each for each in read_image_files() if each.name == "huggingface")
    layers = need_built(ImageStore(folder=default_folder()), image).glob("lib/*/site-packages")
    place = tmp_path_factory.mktemp("fine_tuning") / "environment"
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/*/site-packages")
    (layer,) = layers
    lines = [str(layer), (layer / "trainyard-environment.pth").read_text().strip()]
    (packages / "image.pth").write_text("\n".join(lines) + "\n")
    interpreter = place / "bin" / "python"
    install = ["-m", "pip", "--python", interpreter, "install", "-q", "-r"]
    done = subprocess.run(
        [sys.executable, *install, FOLDER / "requirements.txt"],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not has_index():
        pytest.skip("PEFT and TRL cannot be installed, no package index can be reached")
    assert done.returncode == 0, done.stderr
    return interpreter


@pytest.fixture(scope="module")
def folder(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the small chat model and its data."""
    made = tmp_path_factory.mktemp("model")
    subprocess.run([python, HERE / "make_chat_model.py", made], check=True, capture_output=True)
    return made


class TuningContainer:
    """A training job without an engine: the container's folders below one of its own."""

    def __init__(self, python: Path, folder: Path, name: str, *, data: str, **options: Any) -> None:
        self.python, self.place, self.options = python, folder / "jobs" / name, options
        self.environ: dict[str, str] = {}
        channels = self.place / "input" / "data"
        channels.mkdir(parents=True)
        (channels / "model").symlink_to(folder / "base")
        (channels / "train").symlink_to(folder / data / "train")

    def start(self, *, num_ranks: int = 1) -> subprocess.Popen[str]:
        """Start the script."""
        arguments = [f"--{name}={value}" for name, value in self.options.items()]
        torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={num_ranks}"]
        launcher = torchrun if num_ranks > 1 else []
        with (self.place / "stderr.txt").open("a") as errors:
            return subprocess.Popen(
                [self.python, *launcher, FOLDER / "train_sft.py", *arguments],
                env={
                    **os.environ,
                    "SAGEMAKER_BASE_DIR": str(self.place),
                    "PYTHONPATH": str(SCRIPTS),
                    "OMP_NUM_THREADS": "1",
                    **self.environ,
                },
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )

    def run(self, *, num_ranks: int = 1) -> int:
        """Run the script to its end; return the exit code."""
        with self.start(num_ranks=num_ranks) as process:
            process.communicate(timeout=EVENT_LIMIT_S)
        return process.returncode

    def interrupt(self, number: signal.Signals) -> int:
        """Run the script, send it a signal after its first checkpoint; return the exit code."""
        with self.start() as process:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("trainyard durable step=5 "):
                    process.send_signal(number)
        return process.returncode

    @property
    def errors(self) -> str:
        """The end of what it wrote to stderr."""
        return (self.place / "stderr.txt").read_text()[-2000:]

    @property
    def weights(self) -> bytes:
        """The model that it left."""
        found: list[Path] = list((self.place / "model").glob("*.safetensors"))
        return found[0].read_bytes()

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the metrics of a kind."""
        lines = (
            (self.place / "output" / "data" / "trainyard" / "metrics.jsonl")
            .read_text()
            .splitlines()
        )
        return [each for each in map(json.loads, lines) if each["event"] == kind]


def check(python: Path, folder: Path, name: str) -> dict[str, Any]:
    """Return what a check of fine_tuning_checks.py found."""
    done = subprocess.run(
        [python, "-W", "ignore", HERE / "fine_tuning_checks.py", name, folder],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, FOLDER)))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_only_answers_have_labels(python: Path, folder: Path) -> None:
    found = check(python, folder, "trained_texts")

    answers = [each["content"] for each in found["chat"]["row"]["messages"][2::2]]
    assert found["chat"]["trained"] == "".join(f"{each}<|im_end|>\n" for each in answers)
    prompts, texts = found["prompts"], found["texts"]
    assert prompts["trained"].lstrip() == f"{prompts['row']['completion']}<|im_end|>"
    assert texts["trained"] == f"{texts['row']['text']}<|im_end|>"
    assert found["markers_agree"]
    assert "renders message 3 differently" in found["errors"]["changing"]
    assert "train.jsonl row 1 is a conversation" in found["errors"]["absent"]


def test_row_errors_name_the_type_of_each_key(python: Path, folder: Path) -> None:
    errors = check(python, folder, "row_errors")

    assert "prompt: a text, chosen: a text, rejected: a list;" in errors["mixed pair"]
    assert "prompt: a text, chosen: a text, rejected: missing;" in errors["half a pair"]
    assert "prompt: a text, completion: a list;" in errors["mixed completion"]
    assert "question: a text;" in errors["unknown"]
    assert all("allowed: " in each and "; correct the row" in each for each in errors.values())


def test_lora_leaves_the_base_bit_equal(python: Path, folder: Path) -> None:
    found = check(python, folder, "frozen_base")

    assert found["weights"] > 30
    assert found["changed"] == []
    assert found["adapter_moved"]


def test_packing_equals_no_packing(python: Path, folder: Path) -> None:
    found = check(python, folder, "packed_losses")

    packed, plain = found["sequences"]
    assert packed < plain / 2
    assert found["loss_difference"] < 1e-5
    assert found["gradient_difference"] < 1e-5


def test_merged_equals_adapter(python: Path, folder: Path) -> None:
    for artifact in ("merged", "adapter"):
        job = TuningContainer(python, folder, artifact, data="chat", artifact=artifact, **LORA)
        assert job.run() == 0, job.errors

    found = check(python, folder, "merged_logits")

    assert found["dtype"] == "torch.float32"
    assert found["learned"] > 0.1
    assert found["difference"] < 1e-5


def test_merged_model_answers_by_the_inference_contract(python: Path, folder: Path) -> None:
    job = TuningContainer(python, folder, "served", data="chat", **{**LORA, "max_steps": 60})
    assert job.run() == 0, job.errors
    question = "The red cat sees a dog. What colour has the cat?"
    messages = [
        {"role": "system", "content": "Answer in one sentence."},
        {"role": "user", "content": question},
    ]

    chat, prompt, drawn, both, unknown, *wrong = answers_of(
        job.place / "model",
        {"messages": messages, "max_new_tokens": 12},
        {"prompt": question, "max_new_tokens": 4},
        {"prompt": question, "max_new_tokens": 4, "temperature": 0.7},
        {"prompt": question, "messages": messages},
        {"question": question},
        {"prompt": question, "max_new_tokens": 0},
        {"prompt": question, "max_new_tokens": True},
        {"prompt": 5},
        {"prompt": question, "temperature": -1},
        {"prompt": question, "temperature": "0.5"},
        python=python,
    )

    assert chat["text"].startswith("The ")
    assert " is " in chat["text"]
    assert prompt["text"]
    assert "text" in drawn
    assert "either messages or a prompt" in both["error"]
    assert "the request must be a JSON object with the keys messages" in unknown["error"]
    assert [each["error"].partition(";")[0] for each in wrong] == [
        "max_new_tokens is 0",
        "max_new_tokens is True",
        "prompt is 5",
        "temperature is -1",
        "temperature is '0.5'",
    ]


KINDS: dict[str, dict[str, Any]] = {
    "lora": {"data": "chat", **LORA, "gradient_accumulation_steps": 2, "lora_dropout": 0.1},
    "full": {"data": "prompts", **LORA, "adapter": "none"},
    "packed": {"data": "texts", **LORA, "packing": True, "max_length": 128},
    "dpo": {"data": "pairs", **LORA, "method": "dpo"},
    "dpo_full": {"data": "pairs", **LORA, "method": "dpo", "adapter": "none"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_interrupted_equals_uninterrupted(python: Path, folder: Path, kind: str) -> None:
    whole, killed, stopped = (
        TuningContainer(python, folder, f"{kind}-{name}", **KINDS[kind])
        for name in ("whole", "killed", "stopped")
    )
    assert whole.run() == 0, whole.errors

    assert killed.interrupt(signal.SIGKILL) == -signal.SIGKILL
    assert stopped.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM

    for job in (killed, stopped):
        assert job.run() == 0, job.errors
        assert 5 <= job.events("start")[-1]["step"] < 12
        assert job.weights == whole.weights
        losses = [{e["step"]: e["loss"] for e in each.events("step")} for each in (whole, job)]
        both = losses[0].keys() & losses[1].keys()
        assert {1, 12} <= both
        assert all(losses[0][step] == losses[1][step] for step in both)


def test_model_without_time_after_a_stop_is_left_out(python: Path, folder: Path) -> None:
    job = TuningContainer(python, folder, "no-time", data="chat", **LORA)
    job.environ = {GRACE_VARIABLE: "0.001"}

    assert job.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM

    assert "IS NOT WRITTEN" in job.errors
    assert not list((job.place / "model").glob("*"))
    assert job.run() == 0, job.errors
    assert job.weights


def test_two_ranks_train_one_model(python: Path, folder: Path) -> None:
    alone = TuningContainer(
        python, folder, "one-rank", data="chat", adapter="none", **LORA, batch_size=8
    )
    both = TuningContainer(
        python, folder, "two-ranks", data="chat", adapter="none", **LORA, batch_size=4
    )

    assert alone.run() == 0
    assert both.run(num_ranks=2) == 0, both.errors

    losses = [job.events("step")[-1]["loss"] for job in (alone, both)]
    assert abs(losses[0] - losses[1]) < 2e-4


@pytest.mark.parametrize("artifact", ["merged", "adapter"])
def test_training_goes_on_from_an_earlier_model(python: Path, folder: Path, artifact: str) -> None:
    first = TuningContainer(
        python, folder, f"first-{artifact}", data="chat", artifact=artifact, **LORA
    )
    assert first.run() == 0
    second = TuningContainer(
        python, folder, f"second-{artifact}", data="chat", artifact=artifact, **LORA
    )
    start = second.place / "input" / "data" / "init"
    start.mkdir()
    with tarfile.open(start / "model.tar.gz", "w:gz") as archive:
        archive.add(first.place / "model", arcname=".")

    assert second.run() == 0, second.errors

    losses = [[each["loss"] for each in job.events("step")] for job in (first, second)]
    assert losses[1][0] < losses[0][0] - 0.5


def measured(python: Path, folder: Path, job: TuningContainer, *, data: str) -> dict[str, float]:
    """Return what evaluate_sft.py measures of a job's model."""
    inputs = job.place / "processing" / "input"
    (inputs / "model").mkdir(parents=True)
    with tarfile.open(inputs / "model" / "model.tar.gz", "w:gz") as archive:
        archive.add(job.place / "model", arcname=".")
    (inputs / "base").symlink_to(folder / "base")
    (inputs / "test").symlink_to(folder / data / "test")
    done = subprocess.run(
        [python, FOLDER / "evaluate_sft.py"],
        env={
            **os.environ,
            "SAGEMAKER_BASE_DIR": str(job.place),
            "PYTHONPATH": str(SCRIPTS),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = job.place / "processing" / "output" / "evaluation" / "evaluation.json"
    metrics: dict[str, float] = json.loads(written.read_bytes())["metrics"]
    return metrics


def test_evaluation_measures_answers_against_the_base(python: Path, folder: Path) -> None:
    options = {**LORA, "max_steps": 60, "artifact": "adapter"}
    job = TuningContainer(python, folder, "measured", data="chat", **options)
    assert job.run() == 0

    metrics = measured(python, folder, job, data="chat")

    assert metrics["gain"] == pytest.approx(metrics["base_loss"] - metrics["test_loss"])
    assert metrics["gain"] > 1


def test_dpo_prefers_the_chosen_answers(python: Path, folder: Path) -> None:
    options = {**LORA, "max_steps": 40, "method": "dpo"}
    job = TuningContainer(python, folder, "preferring", data="pairs", **options)
    assert job.run() == 0

    metrics = measured(python, folder, job, data="pairs")

    assert metrics["test_preferred"] > metrics["base_preferred"] + 0.1
    assert metrics["reward_accuracy"] > 0.7


def test_options_that_cannot_be_are_refused_before_anything_is_loaded(
    python: Path, folder: Path
) -> None:
    job = TuningContainer(
        python, folder, "refused", data="chat", adapter="none", artifact="adapter", rank=0
    )

    assert job.run() == 1

    reason = (job.place / "output" / "failure").read_text()
    assert "rank is 0; allowed: at least 1" in reason
    assert "artifact is 'adapter', but adapter is 'none'" in reason


def test_weights_that_became_nan_are_no_model(python: Path, folder: Path) -> None:
    job = TuningContainer(python, folder, "nan", data="chat", max_steps=10, learning_rate=1e4)

    assert job.run() == 1

    assert "trained weights are NaN or infinite" in (job.place / "output" / "failure").read_text()
    assert list((job.place / "model").glob("*")) == []


def test_an_unknown_option_is_refused(python: Path, folder: Path) -> None:
    job = TuningContainer(python, folder, "unknown", data="chat", learning_rat=1)

    assert job.run() == 2
    assert "--learning_rat" in job.errors
