"""The share of held-out images that the ResNet names right."""

import json
import tarfile
from pathlib import Path

import torch

from train import ImageFolder, resnet

BASE = Path("/opt/ml/processing")


def main() -> None:
    with tarfile.open(BASE / "input/model/model.tar.gz") as archive:
        archive.extractall("/tmp/model", filter="data")
    saved = torch.load("/tmp/model/model.pt")
    model = resnet(len(saved["classes"]))
    model.load_state_dict(saved["weights"])
    model.eval()
    data = ImageFolder(BASE / "input/test")
    with torch.no_grad():
        right = [int(model(image[None]).argmax()) == label for image, label in data]
    output = BASE / "output/evaluation"
    output.mkdir(parents=True, exist_ok=True)
    (output / "evaluation.json").write_text(json.dumps({"metrics": {"accuracy": sum(right) / len(right)}}))


if __name__ == "__main__":
    main()
