"""Writes a small Llama with a trained tokenizer, and JSONL, to a folder: run by an image with transformers."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

UNKNOWN, PADDING, END = "<unk>", "<pad>", "</s>"
WORDS = [
    "the",
    "a",
    "red",
    "blue",
    "old",
    "new",
    "cat",
    "dog",
    "bird",
    "house",
    "river",
    "tree",
    "sees",
    "likes",
    "finds",
    "near",
    "under",
    "over",
]


def main() -> None:
    folder = Path(sys.argv[1])
    chosen = random.Random(0)  # noqa: S311  # no secret
    texts = [" ".join(chosen.choices(WORDS, k=20)) for _ in range(400)]
    tuned = [
        " ".join(WORDS[(start + 3 * n) % len(WORDS)] for n in range(20))
        for start in range(len(WORDS))
    ] * 12
    tokenizer = Tokenizer(models.BPE(unk_token=UNKNOWN))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.train_from_iterator(
        texts, trainers.BpeTrainer(vocab_size=300, special_tokens=[UNKNOWN, PADDING, END])
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, unk_token=UNKNOWN, pad_token=PADDING, eos_token=END
    )
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=300,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=128,
    )
    LlamaForCausalLM(config).save_pretrained(folder / "base")
    fast.save_pretrained(folder / "base")
    for split, lines in {"train": tuned[36:], "test": tuned[:36]}.items():
        (folder / split).mkdir()
        text = "".join(json.dumps({"text": line}) + "\n" for line in lines)
        (folder / split / f"{split}.jsonl").write_text(text)


if __name__ == "__main__":
    main()
