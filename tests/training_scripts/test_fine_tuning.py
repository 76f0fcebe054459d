"""Laws of train_sft.py and evaluate_sft.py, on a small chat model: by the engine image with PEFT and TRL beside it."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
import venv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.limits import EVENT_LIMIT_S
from tests.sagemaker_engine.images.built import has_index, need_image
from tests.training_scripts.conftest import RankServer, unused_port
from tests.training_scripts.inference_client import answers_of
from trainyard_watch.stopping import GRACE_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
SCRIPTS = HERE.parents[1] / "training_scripts"
FOLDER = SCRIPTS / "fine_tuning"
INCLUDE = HERE.parents[1] / "include"
"""For `trainyard.sharding.row_rules`, which is uploaded with the scripts."""
LORA = {"max_steps": 12, "save_steps": 5, "learning_rate": 1e-3}
TWO_HOSTS = {"num_ranks": 2, "num_hosts": 2}
ZERO = {
    stage: {"strategy": "deepspeed", "ds_config": f'{{"zero_optimization": {{"stage": {stage}}}}}'}
    for stage in (1, 2, 3)
}
STRATEGIES: dict[str, dict[str, Any]] = {
    "lora": {},
    "fsdp": {"strategy": "fsdp", **TWO_HOSTS},
    "zero_3": {**ZERO[3], **TWO_HOSTS},
    "qlora": {"adapter": "qlora"},
    "qlora_8bit": {"adapter": "qlora", "load_in_8bit": True},
    "fsdp_qlora": {"adapter": "qlora", "strategy": "fsdp", **TWO_HOSTS},
    "zero_3_qlora": {"adapter": "qlora", **ZERO[3], **TWO_HOSTS},
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter with the engine image's packages and the folder's requirements."""
    layers = need_image("huggingface").glob("lib/*/site-packages")
    place = tmp_path_factory.mktemp("fine_tuning") / "environment"
    (layer,) = layers
    above = [str(layer), (layer / "trainyard-environment.pth").read_text().strip()]
    return installed(place, "requirements.txt", above=above)


@pytest.fixture(scope="module")
def zero_python(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return an interpreter that also has DeepSpeed."""
    (packages,) = python.parents[1].glob("lib/*/site-packages")
    above = [str(packages), *(packages / "image.pth").read_text().splitlines()]
    place = tmp_path_factory.mktemp("deepspeed") / "environment"
    return installed(place, "requirements_deepspeed.txt", above=above)


def installed(place: Path, requirements: str, *, above: list[str]) -> Path:
    """Return the interpreter of a new environment with a file's packages, above folders of other packages."""
    venv.create(place, with_pip=False)
    (packages,) = place.glob("lib/*/site-packages")
    (packages / "image.pth").write_text("\n".join(above) + "\n")
    interpreter = place / "bin" / "python"
    install = ["-m", "pip", "--python", interpreter, "install", "-q", "-r"]
    done = subprocess.run(
        [sys.executable, *install, FOLDER / requirements],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode and not has_index():
        pytest.skip(f"{requirements} cannot be installed, no package index can be reached")
    assert done.returncode == 0, done.stderr
    return interpreter


@pytest.fixture(scope="module")
def folder(python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the small chat model and its data."""
    made = tmp_path_factory.mktemp("model")
    subprocess.run([python, HERE / "make_chat_model.py", made], check=True, capture_output=True)
    return made


@pytest.fixture(scope="module")
def server(python: Path) -> Iterator[RankServer]:
    """Yield the parent of all ranks without DeepSpeed."""
    server = RankServer(
        python=python, preload=("train_sft", "sft.training"), path=(SCRIPTS, FOLDER, INCLUDE)
    )
    yield server
    server.close()


@pytest.fixture(scope="module")
def zero_server(zero_python: Path) -> Iterator[RankServer]:
    """Yield the parent of ranks with DeepSpeed."""
    server = RankServer(
        python=zero_python,
        preload=("train_sft", "sft.training", "deepspeed"),
        path=(SCRIPTS, FOLDER, INCLUDE),
    )
    yield server
    server.close()


@pytest.fixture
def server_of(request: pytest.FixtureRequest) -> Callable[[str], RankServer]:
    """Return the function from a kind of job to the parent of its ranks."""

    def chosen(kind: str) -> RankServer:
        server: RankServer = request.getfixturevalue("zero_server" if "zero" in kind else "server")
        return server

    return chosen


class TuningContainer:
    """A training job without an engine: the containers' folders below one of its own, and forked ranks."""

    def __init__(
        self,
        server: RankServer,
        folder: Path,
        name: str,
        *,
        data: str,
        num_ranks: int = 1,
        num_hosts: int = 1,
        **options: Any,
    ) -> None:
        self.server, self.options, self.num_ranks = server, options, num_ranks
        self.hosts = [folder / "jobs" / f"{name}{'-2' * number}" for number in range(num_hosts)]
        self.place = self.hosts[0]
        self.environ: dict[str, str] = {}
        self.main = ["train_sft"]
        for host in self.hosts:
            channels = host / "input" / "data"
            channels.mkdir(parents=True)
            (channels / "model").symlink_to(folder / "base")
            (channels / "train").symlink_to(folder / data / "train")

    def start(self) -> list[int]:
        """Start the ranks; return their process ids."""
        per_host = self.num_ranks // len(self.hosts)
        port = unused_port()
        pids = []
        for rank in range(self.num_ranks):
            host = self.hosts[rank // per_host]
            launch = {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank % per_host),
                "WORLD_SIZE": str(self.num_ranks),
                "LOCAL_WORLD_SIZE": str(per_host),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            environ = {**os.environ, "SAGEMAKER_BASE_DIR": str(host), "OMP_NUM_THREADS": "1"}
            pids.append(
                self.server.start(
                    main=self.main[0],
                    argv=[
                        *self.main[1:],
                        *(f"--{name}={value}" for name, value in self.options.items()),
                    ],
                    environ=environ | (launch if self.num_ranks > 1 else {}) | self.environ,
                    log=str(self.place / f"rank-{rank}.log"),
                )
            )
        return pids

    def run(self) -> int:
        """Run the script to its end; return the exit code of the first rank that fails, or 0."""
        codes = [self.server.wait(pid) for pid in self.start()]
        return next((code for code in codes if code), 0)

    def interrupt(self, number: signal.Signals) -> int:
        """Run the script, send each rank a signal after the first checkpoint; return rank 0's exit code."""
        pids = self.start()
        self.wait_for_checkpoint()
        for pid in pids:
            os.kill(pid, number)
        codes = [self.server.wait(pid) for pid in pids]
        return codes[0]

    def wait_for_checkpoint(self) -> None:
        """Wait until the checkpoint of step 5 is written."""
        deadline = time.monotonic() + EVENT_LIMIT_S
        while "trainyard durable step=5 " not in self.log:
            assert time.monotonic() < deadline, self.log
            time.sleep(0.01)

    def restore(self) -> None:
        """Give each host the checkpoints of all hosts, as the platform does before a restart."""
        for source in self.hosts:
            for target in self.hosts:
                if source != target:
                    shutil.copytree(
                        source / "checkpoints", target / "checkpoints", dirs_exist_ok=True
                    )

    def checkpoints(self) -> list[list[str]]:
        """Return the names of the checkpoints on each host."""
        return [
            sorted(each.name for each in (host / "checkpoints").glob("checkpoint-*"))
            for host in self.hosts
        ]

    @property
    def log(self) -> str:
        """The output of rank 0."""
        path = self.place / "rank-0.log"
        return path.read_text() if path.exists() else ""

    @property
    def weights(self) -> bytes:
        """The model that it left."""
        found: list[Path] = list((self.place / "model").glob("*.safetensors"))
        return found[0].read_bytes()

    @property
    def losses(self) -> dict[int, float]:
        """The loss of each step that was logged."""
        return {each["step"]: each["loss"] for each in self.events("step")}

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the metrics of a kind."""
        lines = (
            (self.place / "output" / "data" / "trainyard" / "metrics.jsonl")
            .read_text()
            .splitlines()
        )
        return [each for each in map(json.loads, lines) if each["event"] == kind]


def check(python: Path, folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    """Return what a check of fine_tuning_checks.py found."""
    done = subprocess.run(
        [python, "-W", "ignore", HERE / "fine_tuning_checks.py", name, folder, *arguments],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, FOLDER, INCLUDE))),
            "OMP_NUM_THREADS": "1",
        },
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


@pytest.fixture(scope="module")
def errors(python: Path, folder: Path) -> dict[str, str]:
    """Return the errors of rows that the job refuses."""
    return check(python, folder, "row_errors")


def test_row_errors_name_the_type_of_each_key(errors: dict[str, str]) -> None:
    assert "prompt: a text, chosen: a text, rejected: a list;" in errors["mixed pair"]
    assert "prompt: a text, chosen: a text, rejected: missing;" in errors["half a pair"]
    assert "prompt: a text, completion: a list;" in errors["mixed completion"]
    assert "question: a text;" in errors["unknown"]
    for name in ("mixed pair", "half a pair", "mixed completion", "unknown"):
        assert "allowed: " in errors[name]
        assert "; correct the row" in errors[name]


def test_rows_that_cannot_be_learned_are_refused_by_number(errors: dict[str, str]) -> None:
    assert "a.jsonl row 2 has a lone surrogate" in errors["surrogate"]
    assert "a.jsonl row 2 is not valid JSON" in errors["latin"]
    assert "a.jsonl row 2 has tools as a text that is not JSON" in errors["tools text"]
    assert "a.jsonl row 2 has the key system" in errors["system"]
    assert (
        "row 1 has tools, which the base model's chat template leaves out" in errors["lost tools"]
    )
    assert "row 1 has tool_calls in a message of role assistant, which" in errors["lost calls"]
    assert "row 1 is rejected by the chat template" in errors["rejected"]


def test_marked_answers_are_learned_whole_and_alone(python: Path, folder: Path) -> None:
    assert check(python, folder, "marked_answers") == {
        "trimmed offsets": ["one<|im_end|>\n", " two<|im_end|>\n", "three<|im_end|>\n"],
        "characters of many bytes": ["fine \U0001f44d", "\u597d"],
        "normalizer": ["caf\u00e9", "ok"],
        "weight": ["one<|im_end|>\n", "three<|im_end|>\n"],
        "weight by rendering": ["one<|im_end|>\n", "three<|im_end|>\n"],
    }


def test_pairs_are_trained_and_measured_as_the_template_renders_them(
    python: Path, folder: Path
) -> None:
    found = check(python, folder, "pair_texts")

    assert found["trained"] == found["measured"] == found["whole"]
    assert found["answers"] == found["measured_answers"]
    assert sum("sun" in each for each in found["answers"]) == 0
    assert found["loss"] == pytest.approx(math.log(2), abs=1e-5)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_adapters_leave_the_base_bit_equal(
    request: pytest.FixtureRequest, folder: Path, kind: str
) -> None:
    interpreter = request.getfixturevalue("zero_python" if "zero" in kind else "python")

    found = check(interpreter, folder, "frozen_base", kind, str(unused_port()))

    assert found["weights"] > 30
    assert found["is_quantized"] == ("qlora" in kind)
    assert found["changed"] == []
    assert found["adapter_moved"]


def test_packing_equals_no_packing(python: Path, folder: Path) -> None:
    found = check(python, folder, "packed_losses")

    packed, plain = found["sequences"]
    assert packed < plain / 2
    assert found["loss_difference"] < 1e-5
    assert found["gradient_difference"] < 1e-5


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_recomputed_layers_have_the_same_dropout(python: Path, folder: Path, strategy: str) -> None:
    kept, recomputed = (
        check(python, folder, "dropped_losses", strategy, how, str(unused_port()))
        for how in ("kept", "recomputed")
    )

    assert len(kept["losses"]) == 6
    assert recomputed["losses"] == pytest.approx(kept["losses"], abs=1e-6)
    assert (kept["recomputes"], recomputed["recomputes"]) == (False, True)


@pytest.mark.parametrize("kind", STRATEGIES)
def test_merged_equals_adapter(
    server_of: Callable[[str], RankServer], python: Path, folder: Path, kind: str
) -> None:
    for artifact in ("merged", "adapter"):
        options = {"data": "chat", "artifact": artifact, **LORA, **STRATEGIES[kind]}
        job = TuningContainer(server_of(kind), folder, f"{kind}-{artifact}", **options)
        assert job.run() == 0, job.log

    found = check(python, folder, "merged_logits", kind)

    assert found["dtype"] == "torch.float32"
    assert found["learned"] > 0.1
    assert found["difference"] < 1e-5


@pytest.mark.parametrize("kind", ["fsdp", "qlora"])
def test_adapter_is_written_without_reading_its_base_again(
    server: RankServer, folder: Path, kind: str
) -> None:
    options = {"data": "chat", "artifact": "adapter", **LORA, **STRATEGIES[kind], "max_steps": 60}
    job = TuningContainer(server, folder, f"{kind}-once", **options)
    pids = job.start()

    job.wait_for_checkpoint()
    for host in job.hosts:
        (host / "input" / "data" / "model").unlink()

    assert [server.wait(pid) for pid in pids] == [0] * job.num_ranks, job.log
    assert job.weights


def test_merged_model_answers_by_the_inference_contract(
    server: RankServer, python: Path, folder: Path
) -> None:
    job = TuningContainer(server, folder, "served", data="chat", **{**LORA, "max_steps": 60})
    assert job.run() == 0, job.log
    question = "The red cat sees a dog. What color has the cat?"
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
    assert "the request has unknown keys: 'question'; allowed: messages" in unknown["error"]
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
RESUMED = {
    **KINDS,
    "fsdp_lora": {**KINDS["lora"], **STRATEGIES["fsdp"]},
    "fsdp_full": {**KINDS["full"], **STRATEGIES["fsdp"]},
    "qlora": {**KINDS["lora"], **STRATEGIES["qlora"]},
    "qlora_8bit": {**KINDS["lora"], **STRATEGIES["qlora_8bit"]},
    "fsdp_qlora": {**KINDS["lora"], **STRATEGIES["fsdp_qlora"]},
    "zero_2_full": {**KINDS["full"], **ZERO[2], **TWO_HOSTS},
    "zero_3_lora": {**KINDS["lora"], **ZERO[3], **TWO_HOSTS},
    "zero_3_qlora": {**KINDS["lora"], **STRATEGIES["zero_3_qlora"]},
}


@pytest.mark.parametrize("kind", RESUMED)
def test_interrupted_equals_uninterrupted(
    server_of: Callable[[str], RankServer], folder: Path, kind: str
) -> None:
    whole, killed, stopped = (
        TuningContainer(server_of(kind), folder, f"{kind}-{name}", **RESUMED[kind])
        for name in ("whole", "killed", "stopped")
    )
    assert whole.run() == 0, whole.log

    assert killed.interrupt(signal.SIGKILL) == -signal.SIGKILL
    assert stopped.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM

    for job in (killed, stopped):
        job.restore()
        assert job.run() == 0, job.log
        assert 5 <= job.events("start")[-1]["step"] < 12
        assert job.weights == whole.weights
        both = whole.losses.keys() & job.losses.keys()
        assert {1, 12} <= both
        assert all(whole.losses[step] == job.losses[step] for step in both)


def test_model_without_time_after_a_stop_is_left_out(server: RankServer, folder: Path) -> None:
    job = TuningContainer(server, folder, "no-time", data="chat", **LORA)
    job.environ = {GRACE_VARIABLE: "0.001"}

    assert job.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM

    assert "IS NOT WRITTEN" in job.log
    assert not list((job.place / "model").glob("*"))
    assert job.run() == 0, job.log
    assert job.weights


@pytest.mark.parametrize("kind", ["lora", "dpo", "fsdp_full"])
def test_a_stop_of_one_rank_ends_an_evaluation(server: RankServer, folder: Path, kind: str) -> None:
    options = {**RESUMED[kind], "num_ranks": 2, "batch_size": 2, "eval_steps": 3}
    job = TuningContainer(server, folder, f"{kind}-evaluation", **options)
    job.main = ["stopped_evaluation", "fine_tuning"]
    for host in job.hosts:
        (host / "input/data/validation").symlink_to(folder / RESUMED[kind]["data"] / "test")

    assert job.run() == 128 + signal.SIGTERM, job.log

    assert "SIGTERM: the validation after step 3 is NOT MEASURED" in job.log
    assert "trainyard durable step=3 " in job.log
    assert job.events("eval") == []
    job.main = ["train_sft"]
    job.restore()
    assert job.run() == 0, job.log
    assert [each["step"] for each in job.events("eval")] == [6, 9, 12]


@pytest.mark.parametrize("strategy", ["ddp", "fsdp"])
def test_ranks_of_a_stopped_run_end_after_the_model_is_written(
    server: RankServer, folder: Path, strategy: str
) -> None:
    options = {"data": "chat", "strategy": strategy, **LORA, "num_ranks": 2}
    job = TuningContainer(server, folder, f"slow-{strategy}", **options)
    job.main = ["slow_writer", "train_sft"]

    assert job.interrupt(signal.SIGTERM) == 128 + signal.SIGTERM

    # torchrun would kill rank 0 soon after the end of rank 1.
    last = (job.place / "rank-1.log").read_text().splitlines()[-1]
    assert "'model.safetensors'" in last


def test_two_ranks_train_one_model(server: RankServer, folder: Path) -> None:
    options = {"data": "chat", "adapter": "none", **LORA}
    alone = TuningContainer(server, folder, "one-rank", **options, batch_size=8)
    both = TuningContainer(server, folder, "two-ranks", **options, batch_size=4, num_ranks=2)

    assert alone.run() == 0, alone.log
    assert both.run() == 0, both.log

    assert abs(alone.losses[12] - both.losses[12]) < 2e-4


@pytest.mark.parametrize("kind", [*KINDS, "qlora"])
def test_sharded_equals_ddp(server: RankServer, folder: Path, kind: str) -> None:
    options = {**RESUMED[kind], "max_steps": 6, "num_ranks": 2}
    replicated, sharded = (
        TuningContainer(server, folder, f"{kind}-{strategy}", **options, strategy=strategy)
        for strategy in ("ddp", "fsdp")
    )

    for job in (replicated, sharded):
        assert job.run() == 0, job.log

    assert {1, 6} <= replicated.losses.keys() & sharded.losses.keys()
    for step in replicated.losses.keys() & sharded.losses.keys():
        assert sharded.losses[step] == pytest.approx(replicated.losses[step], abs=1e-5)
    assert len(sharded.weights) == len(replicated.weights)


@pytest.mark.parametrize(
    ("kind", "stage"),
    [
        *(("full", 2), ("full", 3), ("lora", 3), ("packed", 1)),
        *(("dpo", 3), ("dpo_full", 2), ("dpo_full", 3), ("qlora", 2), ("qlora", 3)),
    ],
)
def test_zero_equals_ddp(zero_server: RankServer, folder: Path, kind: str, stage: int) -> None:
    options = {**RESUMED[kind], "max_steps": 6, "num_ranks": 2}
    replicated, sharded = (
        TuningContainer(zero_server, folder, f"{kind}-{stage}-{name}", **{**options, **strategy})
        for name, strategy in (("replicated", {}), ("sharded", ZERO[stage]))
    )

    for job in (replicated, sharded):
        assert job.run() == 0, job.log

    assert {1, 6} <= replicated.losses.keys() & sharded.losses.keys()
    for step in replicated.losses.keys() & sharded.losses.keys():
        assert sharded.losses[step] == pytest.approx(replicated.losses[step], abs=1e-5)
    assert len(sharded.weights) == len(replicated.weights)


def test_every_host_deletes_old_checkpoints(server: RankServer, folder: Path) -> None:
    options = {**LORA, **STRATEGIES["fsdp"], "max_steps": 5, "save_steps": 1}
    job = TuningContainer(server, folder, "rotated", data="chat", **options)

    assert job.run() == 0, job.log

    assert job.checkpoints() == [["checkpoint-3", "checkpoint-4", "checkpoint-5"]] * 2


@pytest.mark.parametrize(("strategy", "kind"), [("fsdp", ""), ("deepspeed", "zero")])
def test_sharding_without_ranks_is_refused(
    server_of: Callable[[str], RankServer], folder: Path, strategy: str, kind: str
) -> None:
    options = {**LORA, "strategy": strategy}
    job = TuningContainer(server_of(kind), folder, f"no-ranks-{strategy}", data="chat", **options)

    assert job.run() == 1

    assert "start it with torchrun" in (job.place / "output" / "failure").read_text()


@pytest.mark.parametrize("artifact", ["merged", "adapter"])
def test_training_goes_on_from_an_earlier_model(
    server: RankServer, folder: Path, artifact: str
) -> None:
    first = TuningContainer(
        server, folder, f"first-{artifact}", data="chat", artifact=artifact, **LORA
    )
    assert first.run() == 0
    second = TuningContainer(
        server, folder, f"second-{artifact}", data="chat", artifact=artifact, **LORA
    )
    start = second.place / "input" / "data" / "init"
    start.mkdir()
    with tarfile.open(start / "model.tar.gz", "w:gz") as archive:
        archive.add(first.place / "model", arcname=".")

    assert second.run() == 0, second.log

    losses = [[each["loss"] for each in job.events("step")] for job in (first, second)]
    assert losses[1][0] < losses[0][0] - 0.5


def test_adapter_over_an_earlier_whole_model_is_refused(server: RankServer, folder: Path) -> None:
    job = TuningContainer(server, folder, "other-base", data="chat", artifact="adapter", **LORA)
    (job.place / "input" / "data" / "init").symlink_to(folder / "base")

    assert job.run() == 1

    failure = (job.place / "output" / "failure").read_text()
    assert "channel 'init' has a whole model" in failure
    assert "set artifact to 'merged'" in failure


def test_dpo_over_a_quantized_base_starts_from_its_reference(
    server: RankServer, folder: Path
) -> None:
    options = {**LORA, "max_steps": 2, "artifact": "adapter"}
    first = TuningContainer(server, folder, "reference", data="chat", **options)
    assert first.run() == 0, first.log
    second = TuningContainer(
        server, folder, "preferred", data="pairs", method="dpo", adapter="qlora", **options
    )
    (second.place / "input" / "data" / "init").symlink_to(first.place / "model")

    assert second.run() == 0, second.log

    assert second.losses[1] == pytest.approx(math.log(2), abs=1e-6)


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
            "PYTHONPATH": os.pathsep.join(map(str, (SCRIPTS, INCLUDE))),
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    written = job.place / "processing" / "output" / "evaluation" / "evaluation.json"
    metrics: dict[str, float] = json.loads(written.read_bytes())["metrics"]
    return metrics


def test_evaluation_measures_answers_against_the_base(
    server: RankServer, python: Path, folder: Path
) -> None:
    options = {**LORA, "max_steps": 60, "artifact": "adapter"}
    job = TuningContainer(server, folder, "measured", data="chat", **options)
    assert job.run() == 0

    metrics = measured(python, folder, job, data="chat")

    assert metrics["gain"] == pytest.approx(metrics["base_loss"] - metrics["test_loss"])
    assert metrics["gain"] > 1


def test_dpo_prefers_the_chosen_answers(server: RankServer, python: Path, folder: Path) -> None:
    options = {**LORA, "max_steps": 40, "method": "dpo"}
    job = TuningContainer(server, folder, "preferring", data="pairs", **options)
    assert job.run() == 0

    metrics = measured(python, folder, job, data="pairs")

    assert metrics["test_preferred"] > metrics["base_preferred"] + 0.1
    assert metrics["reward_accuracy"] > 0.7


def test_weights_that_became_nan_are_no_model(server: RankServer, folder: Path) -> None:
    job = TuningContainer(server, folder, "nan", data="chat", max_steps=10, learning_rate=1e4)

    assert job.run() == 1

    assert (
        "trained tensors have NaN or infinite values"
        in (job.place / "output" / "failure").read_text()
    )
    assert list((job.place / "model").glob("*")) == []
