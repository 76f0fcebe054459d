"""Measures the digits model, without DeepSpeed."""

import json
import tarfile
from pathlib import Path

import numpy as np
import torch
from torch import nn

BASE = Path("/opt/ml/processing")


def main() -> None:
    with tarfile.open(BASE / "input/model/model.tar.gz") as archive:
        archive.extractall("/tmp/model", filter="data")
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 10))
    model.load_state_dict(torch.load("/tmp/model/model.pt"))
    table = np.loadtxt(BASE / "input/test/digits.csv", delimiter=",", dtype=np.float32)
    with torch.no_grad():
        predicted = model(torch.from_numpy(table[:, :-1] / 16)).argmax(dim=1).numpy()
    metrics = {"accuracy": float((predicted == table[:, -1]).mean())}
    output = BASE / "output/evaluation"
    output.mkdir(parents=True, exist_ok=True)
    (output / "evaluation.json").write_text(json.dumps({"metrics": metrics}))


if __name__ == "__main__":
    main()
