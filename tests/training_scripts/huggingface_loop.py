"""A watched training by Hugging Face's Trainer that receives SIGTERM in each evaluation, after steps 2, 4, ...

`python huggingface_loop.py huggingface --max_steps <steps> --is_stoppable <0 | 1>`
"""

from __future__ import annotations

import argparse

import torch
import transformers
from stopped_evaluation import stop_in
from torch import nn
from transformers import TrainingArguments

from trainyard_watch.environment import container_paths
from trainyard_watch.huggingface import StoppableEvaluation, WatchCallback, newest_checkpoint


class StraightLine(nn.Module):
    """A small regression."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Linear(8, 1)

    def forward(self, inputs: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = self.net(inputs)
        return {"loss": (outputs - labels).square().mean(), "logits": outputs}


class StoppableTrainer(StoppableEvaluation, transformers.Trainer):
    """A Trainer whose evaluations a stop ends."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int)
    parser.add_argument("--is_stoppable", type=int)
    options, _ = parser.parse_known_args()
    folder = str(container_paths().default_checkpoint_dir)
    rows = torch.randn(16, 8, generator=torch.Generator().manual_seed(0))
    data = [{"inputs": row, "labels": row.sum(dim=0, keepdim=True)} for row in rows]
    callback = WatchCallback()
    trainer = (StoppableTrainer if options.is_stoppable else transformers.Trainer)(
        model=StraightLine(),
        args=TrainingArguments(
            output_dir=folder,
            max_steps=options.max_steps,
            per_device_train_batch_size=4,
            per_device_eval_batch_size=4,
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=2,
            save_strategy="best",
            metric_for_best_model="loss",
            use_cpu=True,
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=data,
        eval_dataset=data,
        callbacks=[callback],
    )
    stop_in(transformers.Trainer, "prediction_step")
    trainer.train(resume_from_checkpoint=newest_checkpoint(folder))
    return callback.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
