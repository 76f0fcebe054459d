"""Public training scripts, unmodified, through the whole pipeline: nanoGPT, PyTorch's imagenet, Hugging Face's run_clm.

Their code is not in this repository. `TRAINYARD_PUBLIC_SCRIPTS` names a folder with
- `nanogpt`: github.com/karpathy/nanoGPT;
- `imagenet`: the folder of that name of github.com/pytorch/examples;
- `run_clm`: examples/pytorch/language-modeling of github.com/huggingface/transformers.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from sagemaker_engine.images.image_file import read_image_files
from sagemaker_engine.images.image_store import ImageStore, default_folder
from sagemaker_engine.testing.running_engine import RunningEngine
from tests.dags.engine_faults import put_quotas
from tests.dags.test_train_end_to_end import result
from tests.plugins.conftest import IMAGE, connection_json
from tests.sagemaker_engine.images.built import need_built, need_image

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FOLDER = os.environ.get("TRAINYARD_PUBLIC_SCRIPTS", "")
pytestmark = [
    pytest.mark.dag_run,
    pytest.mark.engine,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.skipif(
        not FOLDER, reason="TRAINYARD_PUBLIC_SCRIPTS does not name a folder with the public scripts"
    ),
]

OWN_IMAGES = Path(__file__).with_name("public_images")
TORCHVISION = "123456789012.dkr.ecr.us-east-1.amazonaws.com/torchvision-training:1"
TEXT = Path(__file__).read_text(encoding="utf-8")
NANOGPT = {
    "entry_point": "train.py",
    "arguments": [
        "config/train_shakespeare_char.py",
        "--dataset=/opt/ml/input/data/train",
        "--out_dir=/opt/ml/model",
        "--device=cpu",
        "--compile=False",
        *("--n_layer=2", "--n_head=2", "--n_embd=32", "--dropout=0.0"),
        *("--block_size=32", "--batch_size=4", "--eval_iters=2", "--eval_interval=10"),
        *("--log_interval=1", "--max_iters=30", "--lr_decay_iters=30", "--warmup_iters=2"),
    ],
    "metric_definitions": [
        {"name": "train:loss", "regex": "iter [0-9]+: loss ([0-9.]+)"},
        {"name": "validation:loss", "regex": "val loss ([0-9.]+)"},
    ],
    "distribution": {},
    "instance_count": 1,
    "register_when": "validation:loss < 5",
}
IMAGENET = {
    "entry_point": "main.py",
    "arguments": [
        "/opt/ml/input/data/train",
        *("--arch=resnet18", "--epochs=1", "--batch-size=4", "--workers=0", "--print-freq=1"),
        *("--dist-url=env://", "--dist-backend=gloo"),
    ],
    "metric_definitions": [
        {"name": "train:loss", "regex": "Epoch.*Loss [0-9.e+-]+ \\(([0-9.e+-]+)\\)"}
    ],
    "image_uri": TORCHVISION,
}
RUN_CLM = {
    "entry_point": "run_clm.py",
    "framework": "huggingface",  # AWS has its images for GPUs only; on the engine these instances have CPUs
    "instance_type": "ml.g5.2xlarge",
    "hyperparameters": {
        "model_name_or_path": "/opt/ml/input/data/model",
        "train_file": "/opt/ml/input/data/train/train.txt",
        "do_train": True,
        "output_dir": "/opt/ml/model",
        "block_size": 16,
        "max_steps": 20,
        "logging_steps": 1,
        "per_device_train_batch_size": 2,
        "use_cpu": True,
        "report_to": "none",
        "disable_tqdm": True,
    },
    "environment": {"HF_HUB_OFFLINE": "1", "HF_HOME": "/opt/ml/input/huggingface"},
    "metric_definitions": [{"name": "train:loss", "regex": "'loss': '?([0-9.]+)"}],
}


START = "from trainyard_watch import watch; optimizer.run = watch(model, optimizer).start()\n"
TWO_LINES: dict[str, dict[str, str]] = {
    "nanogpt/train.py": {
        "checkpoint = None # free up memory\n": START,
        "    scaler.update()\n": "    optimizer.run.step(loss=loss * gradient_accumulation_steps)\n",
    },
    "imagenet/main.py": {
        "                                weight_decay=args.weight_decay)\n": f"    {START}",
        "        optimizer.step()\n": "        optimizer.run.step(loss=loss)\n",
    },
    "run_clm/run_clm.py": {
        "import datasets\n": "from trainyard_watch.huggingface import WatchCallback\n",
        "        processing_class=tokenizer,\n": "        callbacks=[WatchCallback()],\n",
    },
}
"""Lines of the scripts, and the line that is inserted after each."""


@pytest.fixture
def own_images(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunningEngine]:
    """An engine that also knows the image with torchvision, and the connection to it."""
    need_built(ImageStore(folder=default_folder()), read_image_files(OWN_IMAGES)[0])
    running = RunningEngine(
        root=tmp_path / "engine", warm="never", arguments=("--image-files", str(OWN_IMAGES))
    ).start()
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(running))
    yield running
    running.stop()


@pytest.fixture
def connected(own_engine: RunningEngine, monkeypatch: pytest.MonkeyPatch) -> RunningEngine:
    """An engine of this test, and the connection to it."""
    monkeypatch.setenv("AIRFLOW_CONN_AWS_DEFAULT", connection_json(own_engine))
    return own_engine


def put(engine: RunningEngine, prefix: str, files: dict[str, bytes]) -> str:
    """Write the files below a prefix of the engine's bucket, and return its address."""
    client = engine.client("s3")
    for name, content in files.items():
        client.put_object(Bucket=engine.bucket, Key=f"raw/{prefix}/{name}", Body=content)
    return f"s3://{engine.bucket}/raw/{prefix}/"


@pytest.fixture(params=["unmodified", "two lines"])
def source(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """The folder of the scripts; in its second form each has two lines more."""
    if request.param == "unmodified":
        return Path(FOLDER)
    folder = shutil.copytree(FOLDER, tmp_path / "scripts")
    for name, inserted in TWO_LINES.items():
        text = (folder / name).read_text()
        for line, new in inserted.items():
            assert text.count(line) == 1, f"{name} has changed: {line}"
            text = text.replace(line, line + new)
        (folder / name).write_text(text)
    return folder


def run(database: Callable[[str], Any], folder: Path, settings: dict[str, Any]) -> Any:
    """Return the DAG run of a public script."""
    conf = {"source_dir": str(folder), "instance_count": 2, **settings}
    return database("train_own_script").test(run_conf=conf)


def check_rules(engine: RunningEngine, dag_run: Any, source: Path, *, num_steps: int) -> None:
    """Check that the rules had every step of the watched script, and the unmodified one's log only."""
    uri = result(dag_run, "report")["report_json"]
    bucket, _, key = uri.removeprefix("s3://").partition("/")
    body = engine.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    rules = json.loads(body)["rules"]
    if source == Path(FOLDER):
        assert rules is None or rules["judged"] == "log"
    else:
        assert rules["judged"] == "statistics"
        assert rules["num_records"] >= num_steps


def model_files(engine: RunningEngine, dag_run: Any) -> set[str]:
    """Return the names of the files in the model artifact."""
    bucket, _, key = result(dag_run, "train")["model_artifact"].removeprefix("s3://").partition("/")
    content = engine.client("s3").get_object(Bucket=bucket, Key=key)["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        return {member.name.removeprefix("./") for member in archive if member.isfile()}


def test_nanogpt_trains_and_is_registered(
    database: Callable[[str], Any], connected: RunningEngine, source: Path
) -> None:
    import numpy as np

    letters = sorted(set(TEXT))
    ids = np.array([letters.index(each) for each in TEXT], dtype=np.uint16)
    data = put(
        connected,
        "nanogpt",
        {
            "train.bin": ids[:-500].tobytes(),
            "val.bin": ids[-500:].tobytes(),
            "meta.pkl": pickle.dumps({"vocab_size": len(letters)}),
        },
    )

    dag_run = run(
        database, source / "nanogpt", {**NANOGPT, "image_uri": IMAGE, "inputs": {"train": data}}
    )

    assert str(dag_run.state) == "success"
    assert result(dag_run, "train")["final_metrics"]["train:loss"] < 5
    assert model_files(connected, dag_run) == {"ckpt.pt"}
    check_rules(connected, dag_run, source, num_steps=30)
    assert "register" not in {ti.task_id for ti in dag_run.get_task_instances(state=["skipped"])}


def test_imagenet_trains_on_two_hosts(
    database: Callable[[str], Any], own_images: RunningEngine, source: Path
) -> None:
    import numpy as np
    from PIL import Image

    noise, files = np.random.default_rng(0), {}
    for split, label, number in ((s, c, n) for s in ("train", "val") for c in "ab" for n in "0123"):
        content = io.BytesIO()
        pixels = noise.integers(0, 255, (32, 32, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(content, format="PNG")
        files[f"{split}/{label}/{number}.png"] = content.getvalue()
    data = put(own_images, "imagenet", files)

    dag_run = run(database, source / "imagenet", {**IMAGENET, "inputs": {"train": data}})

    assert str(dag_run.state) == "success"
    training = result(dag_run, "train")
    assert training["instance_count"] == 2
    assert training["final_metrics"]["train:loss"] > 0
    check_rules(own_images, dag_run, source, num_steps=1)


def test_run_clm_trains_on_two_hosts(
    database: Callable[[str], Any], connected: RunningEngine, source: Path, tmp_path: Path
) -> None:
    python = need_image("huggingface") / "bin" / "python"
    maker = Path(__file__).with_name("make_language_model.py")
    subprocess.run([python, maker, tmp_path / "made"], check=True, capture_output=True)
    base = {each.name: each.read_bytes() for each in (tmp_path / "made" / "base").iterdir()}
    lines = (tmp_path / "made" / "train" / "train.jsonl").read_text().splitlines()
    text = "\n".join(json.loads(line)["text"] for line in lines)
    put_quotas(connected, "ml.g5.2xlarge for training job usage")
    inputs = {
        "model": put(connected, "run_clm/model", base),
        "train": put(connected, "run_clm/train", {"train.txt": text.encode()}),
    }

    dag_run = run(database, source / "run_clm", {**RUN_CLM, "inputs": inputs})

    assert str(dag_run.state) == "success"
    training = result(dag_run, "train")
    assert training["instance_count"] == 2
    assert training["final_metrics"]["train:loss"] < 6
    assert {"model.safetensors", "tokenizer.json"} <= model_files(connected, dag_run)
    check_rules(connected, dag_run, source, num_steps=20)
