"""The share of held-out images that the ResNet names right."""

import json
import tarfile
from pathlib import Path

import torch

from train import ImageFolder, resnet

BASE = Path("/opt/ml/processing")


def evaluate(saved: dict, folder: Path) -> dict[str, float]:
    """Return the metrics of a saved model on folders of images, by the model's own list of classes."""
    model = resnet(len(saved["classes"]))
    model.load_state_dict(saved["weights"])
    model.eval()
    data = ImageFolder(folder, saved["classes"])
    with torch.no_grad():
        right = [int(model(image[None]).argmax()) == label for image, label in data]
    return {"accuracy": sum(right) / len(right)}


def main() -> None:
    with tarfile.open(BASE / "input/model/model.tar.gz") as archive:
        archive.extractall("/tmp/model", filter="data")
    metrics = evaluate(torch.load("/tmp/model/model.pt"), BASE / "input/test")
    output = BASE / "output/evaluation"
    output.mkdir(parents=True, exist_ok=True)
    (output / "evaluation.json").write_text(json.dumps({"metrics": metrics}))


if __name__ == "__main__":
    main()
