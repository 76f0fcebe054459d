"""The mean loss of base and fine-tuned model on held-out JSONL."""

import json
import math
import tarfile
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

INPUT = Path("/opt/ml/processing/input")
OUTPUT = Path("/opt/ml/processing/output/evaluation")


def mean_loss(folder: Path, lines: list[str]) -> float:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder).eval()
    losses = []
    with torch.no_grad():
        for line in lines:
            tokens = tokenizer(json.loads(line)["text"], return_tensors="pt", truncation=True, max_length=128)
            losses.append(model(**tokens, labels=tokens["input_ids"]).loss.item())
    return sum(losses) / len(losses)


def main() -> None:
    with tarfile.open(INPUT / "model/model.tar.gz") as archive:
        archive.extractall("/tmp/model", filter="data")
    lines = (INPUT / "test/test.jsonl").read_text().splitlines()
    tuned, base = mean_loss(Path("/tmp/model"), lines), mean_loss(INPUT / "base", lines)
    metrics = {"test_loss": tuned, "base_loss": base, "test_perplexity": math.exp(tuned), "gain": base - tuned}
    OUTPUT.mkdir(parents=True, exist_ok=True)
    (OUTPUT / "evaluation.json").write_text(json.dumps({"metrics": metrics}))


if __name__ == "__main__":
    main()
