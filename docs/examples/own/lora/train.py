"""Fine-tunes a language model with LoRA by Hugging Face's Trainer: the base model and JSONL come from channels."""

import argparse
import json
import os
from pathlib import Path

import torch
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainingArguments,
)

from trainyard_watch.huggingface import WatchCallback, newest_checkpoint

CHECKPOINTS = "/opt/ml/checkpoints"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--max_steps", type=int, default=100)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--rank", type=int, default=8)
    options, _ = parser.parse_known_args()

    base = os.environ["SM_CHANNEL_MODEL"]
    tokenizer = AutoTokenizer.from_pretrained(base)
    lines = (Path(os.environ["SM_CHANNEL_TRAIN"]) / "train.jsonl").read_text().splitlines()
    data = [tokenizer(json.loads(line)["text"], truncation=True, max_length=128) for line in lines]

    torch.manual_seed(0)
    lora = LoraConfig(r=options.rank, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base), lora)
    callback = WatchCallback()
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=CHECKPOINTS,
            max_steps=options.max_steps,
            learning_rate=options.learning_rate,
            per_device_train_batch_size=4,
            logging_steps=1,
            save_steps=10,
            save_total_limit=3,
            use_cpu=not torch.cuda.is_available(),
            report_to=[],
            disable_tqdm=True,
        ),
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[callback],
    )
    trainer.train(resume_from_checkpoint=newest_checkpoint(CHECKPOINTS))
    if trainer.is_world_process_zero():  # the whole model, as any tool reads it
        merged = model.merge_and_unload()
        merged.save_pretrained(os.environ["SM_MODEL_DIR"])
        tokenizer.save_pretrained(os.environ["SM_MODEL_DIR"])
    return callback.exit_code


if __name__ == "__main__":
    raise SystemExit(main())
