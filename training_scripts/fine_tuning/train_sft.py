"""Training script that fine-tunes a causal language model with SFT or DPO, fully or with a LoRA adapter.

For the image `huggingface-pytorch-training`, alone or under torchrun. Channels: `train` and optionally `validation`
with `*.jsonl`, `model` with a folder that `save_pretrained` wrote, `init` with the model of an earlier run.
Hyperparameters: `sft/options.py`. SM_MODEL_DIR gets the model: safetensors, tokenizer, fine_tuning.json.

Exit codes:
- `0`: the training is finished.
- `143`: SIGTERM was received. A checkpoint was saved, and the model too if time allowed.
- `1`: the training failed; the reason is on stderr and in `<base>/output/failure`.
"""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from sft.errors import FineTuningError
from sft.options import Options
from trainyard_watch.environment import ContainerPaths

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("train_sft")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank of the job; return its exit code."""
    logging.basicConfig(level=logging.INFO, format="%(name)s: %(message)s")
    paths = ContainerPaths.from_environment(os.environ)
    try:
        options = Options.read(argv, sm_hps=os.environ.get("SM_HPS", "{}"))
        from sft import training  # noqa: PLC0415  # seconds, and only if the options are right

        return training.train(options, paths)
    except FineTuningError as error:
        paths.failure_file.parent.mkdir(parents=True, exist_ok=True)
        paths.failure_file.write_text(str(error)[:1024], encoding="utf-8")
        log.error("%s", error)  # noqa: TRY400  # the message has the reason
        return 1


if __name__ == "__main__":
    sys.exit(main())
