"""Evaluation script of a fine-tuned model and its base model on held-out rows, for a processing job.

- Input: `<base>/processing/input/{model/model.tar.gz,base/,test/*.jsonl}`. `<base>` is SAGEMAKER_BASE_DIR, by default
  /opt/ml. If the input folder `base/` is missing, the training's hub model is downloaded.
- Output: `<base>/processing/output/evaluation/evaluation.json`.
- Exit codes: `0`: the models are evaluated. `1`: the evaluation failed; the reason is on stderr and in
  `<base>/output/message`.
"""

from __future__ import annotations

import gc
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

from sft.artifact import read_options
from sft.errors import FineTuningError
from sft.likelihood import HeldOut, answer_metrics, log_likelihoods, pair_metrics
from sft.models import has_bf16, is_adapter, unpacked

if TYPE_CHECKING:
    from transformers import PreTrainedModel

log = logging.getLogger("evaluate_sft")

BASE_DIR = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
INPUT = BASE_DIR / "processing" / "input"
OUTPUT = BASE_DIR / "processing" / "output" / "evaluation"


def main() -> int:
    """Evaluate both models; return the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    try:
        metrics = measure()
    except FineTuningError as error:
        log.error("%s", error)  # noqa: TRY400  # the message has the reason
        message = BASE_DIR / "output" / "message"
        message.parent.mkdir(parents=True, exist_ok=True)
        message.write_text(str(error)[:1024], encoding="utf-8")
        return 1
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "evaluation.json").write_text(json.dumps({"metrics": metrics}), encoding="utf-8")
    log.info("%s", json.dumps(metrics))
    return 0


def measure() -> dict[str, float]:
    """Return the metrics of the tuned model and of its base, by name.

    `answer_metrics` defines their names; for pairs of answers, `pair_metrics` does.

    Raises:
        FineTuningError: a model or the rows cannot be used.
    """
    tuned = unpacked(INPUT / "model")
    options = read_options(tuned)
    data = HeldOut.read(
        INPUT / "test",
        AutoTokenizer.from_pretrained(tuned),
        method=options.method,
        max_length=options.max_length,
    )
    base = load(_base_place(options.hub_model))
    base_values = log_likelihoods(base, data.samples)
    if is_adapter(tuned):
        model = PeftModel.from_pretrained(base, tuned).eval()
    else:
        del base
        gc.collect()  # the hooks of a model on several GPUs refer to the model
        torch.cuda.empty_cache()  # the next model is placed by the free memory
        model = load(str(tuned))
    values = log_likelihoods(model, data.samples)
    if data.is_pairs:
        return pair_metrics(base=base_values, tuned=values)
    return answer_metrics(data, base=base_values, tuned=values)


def load(place: str) -> PreTrainedModel:
    """Return the model at a folder or hub id, in evaluation mode, divided among the GPUs if there are any.

    Layers that the GPUs cannot hold stay on the host, which is slow.
    """
    dtype = torch.bfloat16 if has_bf16() else torch.float32
    devices = "auto" if torch.cuda.is_available() else None
    return AutoModelForCausalLM.from_pretrained(place, dtype=dtype, device_map=devices).eval()


def _base_place(hub_model: str | None) -> str:
    """Return the folder of the base model, or its id on the hub.

    Raises:
        FineTuningError: the job has neither an input `base` nor a hub model.
    """
    folder = INPUT / "base"
    if folder.is_dir():
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
        return str(unpacked(folder))
    if hub_model:
        return hub_model
    raise FineTuningError("the job has no base model; add the input `base` with its S3 prefix")


if __name__ == "__main__":
    sys.exit(main())
