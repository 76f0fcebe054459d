"""Writes a small chat model with a trained tokenizer, and data of each format: run by an image with transformers.

`python make_chat_model.py <folder>`: base/ (a Llama of 1.3 million parameters, safetensors, byte-level BPE, a ChatML
template), chat/, prompts/, texts/ and pairs/, each with train.jsonl and test.jsonl.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

PADDING, BEGIN, END = "<|pad|>", "<|im_start|>", "<|im_end|>"
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
COLORS = ("red", "blue", "green", "black", "white", "brown")
ANIMALS = ("cat", "dog", "bird", "fish", "horse", "mouse", "wolf", "bear")
VERBS = ("sees", "likes", "finds", "hears", "follows")


def questions(chosen: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Return questions with the right answer and a wrong one, such as what a red cat of the text likes."""
    made = []
    for _ in range(count):
        color, other = chosen.sample(COLORS, k=2)
        animal, verb, thing = chosen.choice(ANIMALS), chosen.choice(VERBS), chosen.choice(ANIMALS)
        question = f"The {color} {animal} {verb} a {thing}. What color has the {animal}?"
        made.append((question, f"The {animal} is {color}.", f"The {animal} is {other}."))
    return made


def rows(made: list[tuple[str, str, str]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each format."""
    chats = []
    for first, second in zip(made[::2], made[1::2], strict=True):
        messages = [{"role": "system", "content": "Answer in one sentence."}]
        for question, answer, _ in (first, second):
            messages += [
                {"role": "user", "content": question},
                {"role": "assistant", "content": answer},
            ]
        chats.append({"messages": messages})
    return {
        "chat": chats,
        "prompts": [{"prompt": f"{q} ", "completion": right} for q, right, _ in made],
        "texts": [{"text": f"{q} {right}"} for q, right, _ in made],
        "pairs": [{"prompt": f"{q} ", "chosen": a, "rejected": b} for q, a, b in made],
    }


def main() -> None:
    """Write the model and the data."""
    folder = Path(sys.argv[1])
    made = questions(random.Random(0), 400)  # noqa: S311  # no secret
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=600,
        special_tokens=[PADDING, BEGIN, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    texts = (f"{question} {right}\nuser\nassistant\nsystem" for question, right, _ in made)
    tokenizer.train_from_iterator(texts, trainer)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token=PADDING, eos_token=END, chat_template=TEMPLATE
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=160,
        intermediate_size=448,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        eos_token_id=fast.eos_token_id,
        pad_token_id=fast.pad_token_id,
        bos_token_id=None,
    )
    model = LlamaForCausalLM(config)
    model.save_pretrained(folder / "base")
    fast.save_pretrained(folder / "base")
    for split, part in {"train": made[:320], "test": made[320:]}.items():
        for name, lines in rows(part).items():
            place = folder / name / split
            place.mkdir(parents=True)
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (place / f"{split}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
