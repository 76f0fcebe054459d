"""Faults that each rule finds in real trainings, after how many steps, and false alarms in healthy trainings.

    python benchmarks/rule_faults.py [--only NonFinite LossSpike] [--healthy 20] [--no-faults]

The figures are entered by hand into docs/rules.md ("Measured detection"). Each line is a training, in its own
processes, by a subclass of `trainer.training.Training` in tests/rules/faults/ that does one thing wrong; the rule reads
the files that the training wrote. Rules have the robust profile, except for parameters that are named. `--healthy`
trains both default models, each with this number of seeds, and evaluates all rules on them.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import checkout  # noqa: F401  # finds the imports below

# isort: split
from tests.rules.faults import data_sets
from tests.rules.faults.matrix import CASES, RUNS, Case, Matrix
from tests.rules.faults.running import run_training
from trainer.training import Training
from trainyard.rules.configuration import default_rules
from trainyard.rules.evaluation import evaluate
from trainyard.rules.records import Facts

if TYPE_CHECKING:
    from collections.abc import Sequence

HEALTHY = {"gpt": {}, "mlp": {"model": "mlp"}}
DEFAULTS = Facts(
    max_steps=400,
    precision="fp32",
    peak_learning_rate=4e-3,
    warmup_steps=40,
    min_learning_rate_ratio=0.1,
)


def main() -> int:
    """Run the requested cases; return 0 if every fault was found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="+", default=[], help="names of rules (default: all)")
    parser.add_argument("--healthy", type=int, default=0, help="seeds of each default model")
    parser.add_argument("--no-faults", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rule-faults-") as folder:
        is_good = options.no_faults or print_faults(Matrix(Path(folder)), options.only)
        if options.healthy:
            print_healthy(Path(folder), options.healthy)
    return 0 if is_good else 1


def print_faults(matrix: Matrix, only: Sequence[str]) -> bool:
    """Print the table; return whether every fault was found in time."""
    print("| rule | fault | steps until found | not as in production |\n|---|---|---|---|")
    is_good = True
    for case in CASES:
        if not only or case.rule in only:
            is_good &= print_case(matrix, case)
    return is_good


def print_case(matrix: Matrix, case: Case) -> bool:
    """Print one line of the table; return whether the fault was found in time."""
    observed = matrix.observe(case.run)
    latency = case.latency(observed)
    is_found = latency is not None and latency <= case.within
    fault = RUNS[case.run].fault if case.run in RUNS else "one feature, deep trees"
    own = ", ".join(f"{key} {value}" for key, value in case.parameters.items())
    said = "; ".join(each for each in (own, case.stands_in) if each)
    found = "a report" if case.report and is_found else latency
    print(
        f"| {case.rule} | {fault} | {found if is_found else f'NOT FOUND ({latency})'} | {said} |",
        flush=True,
    )
    if not is_found:
        verdict = case.verdict(observed)
        print(
            f"  {verdict.not_evaluated} {verdict.error} {verdict.issues[:2]} {observed.exit_codes}",
            file=sys.stderr,
        )
    return is_found


def print_healthy(folder: Path, seeds: int) -> None:
    """Print the issues that rules find in healthy trainings."""
    data = {"gpt": data_sets.source_tokens(folder / "tokens", megabytes=1.5)}
    data["mlp"] = data_sets.table(folder / "table", rows=8000)
    for name, hyperparameters in HEALTHY.items():
        for seed in range(seeds):
            values = {**hyperparameters, "seed": seed, "checkpoint_interval": -1}
            observed = run_training(folder / f"{name}-{seed}", Training, values, data[name])
            verdicts = evaluate(default_rules(), observed.records, DEFAULTS)
            blamed = [f"{each.rule}: {each.issues[0].text}" for each in verdicts if each.issues]
            print(
                f"{name}, seed {seed}: exit {observed.exit_codes}; {'; '.join(blamed) or 'nothing'}",
                flush=True,
            )


if __name__ == "__main__":
    sys.exit(main())
