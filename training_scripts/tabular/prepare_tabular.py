"""Script that splits a table into training, validation and test rows, for a processing job.

Reads a table bundled with scikit-learn (--dataset), or the CSV files below `<base>/processing/input/source`. Writes
CSVs with a header to `<base>/processing/output/{train,validation,test}/rows.csv` and `output/facts/facts.json`; the
validation rows only with --validation-fraction. `<base>` is SAGEMAKER_BASE_DIR, by default /opt/ml. The same table and
--seed give the same rows. Exit codes: `0`: the rows are written. `1`: it failed; `<base>/output/message` has the
reason.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
from sklearn import datasets
from sklearn.model_selection import train_test_split

if TYPE_CHECKING:
    from collections.abc import Sequence

log = logging.getLogger("prepare")

BASE = Path(os.environ.get("SAGEMAKER_BASE_DIR", "/opt/ml"))
BUNDLED = {
    "breast_cancer": datasets.load_breast_cancer,
    "diabetes": datasets.load_diabetes,
    "iris": datasets.load_iris,
    "wine": datasets.load_wine,
}
TARGET = "target"
MOST_CLASSES = 30
MISSING = ("", "NA", "NaN", "null")


class PreparationError(Exception):
    """The table cannot be split; the message has the reason."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program; return the exit code."""
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(message)s")
    options = read_options(argv)
    try:
        table, target = read_table(options)
        parts = split(table, target, options)
        write(parts, target, options)
    except (PreparationError, ValueError, OSError) as error:
        log.error("%s", error)  # noqa: TRY400  # the reason is what the user needs
        (BASE / "output").mkdir(parents=True, exist_ok=True)
        (BASE / "output" / "message").write_text(str(error)[:1024], encoding="utf-8")
        return 1
    return 0


def read_options(argv: Sequence[str] | None) -> argparse.Namespace:
    """Return the command line's options."""
    parser = argparse.ArgumentParser(description="Split a table for AutoML.")
    parser.add_argument("--dataset", choices=sorted(BUNDLED), help="a table of scikit-learn")
    parser.add_argument("--target", default=TARGET, help="the column to predict")
    parser.add_argument("--test-fraction", type=float, default=0.2)
    parser.add_argument("--validation-fraction", type=float, default=0.0, help="0 = none")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args(argv)


def read_table(options: argparse.Namespace) -> tuple[pd.DataFrame, str]:
    """Return the table and the name of its target.

    Raises:
        PreparationError: There is no table, or it has no target column of that name.
    """
    if options.dataset:
        bunch = BUNDLED[options.dataset](as_frame=True)
        table = bunch.frame.copy()
        if "target_names" in bunch:
            table[TARGET] = [str(bunch.target_names[number]) for number in bunch.target]
        return table, TARGET
    paths = sorted(each for each in (BASE / "processing/input/source").rglob("*") if each.is_file())
    if not paths:
        raise PreparationError(
            "--dataset is not set, and the input 'source' has no file; set --dataset, or add a file to the input"
        )
    tables = [
        pd.read_csv(path, dtype=str, keep_default_na=False, na_values=list(MISSING))
        for path in paths
    ]
    table = pd.concat(tables, ignore_index=True)
    if options.target not in table:
        raise PreparationError(
            f"the table has no column {options.target!r}; it has {', '.join(map(repr, table.columns))}; set "
            "--target to one of them"
        )
    return table, options.target


def split(table: pd.DataFrame, target: str, options: argparse.Namespace) -> dict[str, pd.DataFrame]:
    """Return the rows of each split; classes keep their shares if they have enough rows."""
    rest, test = _halves(table, target, options.test_fraction, options.seed)
    parts = {"train": rest, "test": test}
    if options.validation_fraction > 0:
        share = options.validation_fraction / (1 - options.test_fraction)
        parts["train"], parts["validation"] = _halves(rest, target, share, options.seed)
    return parts


def write(parts: dict[str, pd.DataFrame], target: str, options: argparse.Namespace) -> None:
    """Write the splits, and facts about them."""
    output = BASE / "processing" / "output"
    digest = hashlib.sha256()
    for name, rows in sorted(parts.items()):
        folder = output / name
        folder.mkdir(parents=True, exist_ok=True)
        text = rows.to_csv(index=False)
        digest.update(f"{name}\n{text}".encode())
        (folder / "rows.csv").write_text(text, encoding="utf-8")
        log.info("%s: %s rows", name, len(rows))
    facts: dict[str, Any] = {
        "dataset": options.dataset,
        "target": target,
        "num_rows": {name: len(rows) for name, rows in parts.items()},
        "num_columns": len(parts["train"].columns) - 1,
        "fingerprint": digest.hexdigest(),
        "seed": options.seed,
    }
    (output / "facts").mkdir(parents=True, exist_ok=True)
    (output / "facts" / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


def _halves(
    table: pd.DataFrame, target: str, share: float, seed: int
) -> tuple[pd.DataFrame, pd.DataFrame]:
    counts = table[target].value_counts()
    fits = len(counts) <= MOST_CLASSES and counts.min() > 1
    labels = table[target].fillna(MISSING[0]) if fits else None
    kept, taken = train_test_split(table, test_size=share, random_state=seed, stratify=labels)
    return kept.sort_index(), taken.sort_index()


if __name__ == "__main__":
    sys.exit(main())
