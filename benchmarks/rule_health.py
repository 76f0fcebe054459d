"""Rates of stops and warnings by the default rules in healthy trainings.

    python benchmarks/rule_health.py [--seeds 20] [--families lora grpo] [--no-curves] [--no-trainings]

There are two tables. The first has curves with published shapes (tests/rules/health/curves.py). Each is evaluated four
times: with a line per step or per tenth step, in each case complete and without the steps of an earlier job. The second
has small networks that are actually trained (tests/rules/health/trainings.py). Rules and reactions are the defaults.
The exit status is 1 if a rule stopped a training.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter, defaultdict
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

import checkout  # noqa: F401  # finds the imports below

# isort: split
from tests.rules.health.blame import Blame, blame
from tests.rules.health.curves import FAMILIES, draw_curve

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

STEPS = {1: 1000, 10: 4000}
"""Steps between two lines of a curve -> number of steps of the curve."""
NEW_JOB_AT = 0.6
"""Share of the steps that an earlier job took; the rules of the new job do not get their lines."""

Row = tuple[str, Blame]


def main() -> int:
    """Run the requested families; return 0 if no healthy training was stopped."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=20, help="number of seeds of each family")
    parser.add_argument(
        "--families",
        nargs="+",
        default=[],
        help="only families with one of these words in their name",
    )
    parser.add_argument("--no-curves", action="store_true")
    parser.add_argument("--no-trainings", action="store_true")
    parser.add_argument("--processes", type=int, default=2)
    options = parser.parse_args()
    num_stopped = 0 if options.no_curves else judge_curves(options)
    if not options.no_trainings:
        num_stopped += judge_trainings(options)
    return 1 if num_stopped else 0


def judge_curves(options: argparse.Namespace) -> int:
    """Print the table of curves; return the number of stopped ones."""
    cases = [
        (name, seed, every, is_whole)
        for name in _chosen(FAMILIES, options.families)
        for seed in range(options.seeds)
        for every in STEPS
        for is_whole in (True, False)
    ]
    return print_table("curves", _run(judge_curve, cases, options.processes))


def judge_trainings(options: argparse.Namespace) -> int:
    """Print the table of real trainings; return the number of stopped ones."""
    from tests.rules.health.trainings import TRAININGS, Trainings  # torch

    names = _chosen(TRAININGS, options.families)
    cases = [(name, seed) for name in names for seed in range(options.seeds)]
    with tempfile.TemporaryDirectory(prefix="rule-health-") as folder:
        rows = _run(Trainings(Path(folder)).judge, cases, options.processes)
        return print_table("real trainings", rows)


def judge_curve(family: str, seed: int, every: int, is_whole: bool) -> Row:
    """Return the name of one reading of a curve, and the issues that rules find in it."""
    curve = draw_curve(family, seed, max_steps=STEPS[every])
    begin = 0 if is_whole else int(NEW_JOB_AT * curve.max_steps)
    reading = f"{'whole' if is_whole else 'new job'}, line every {curve.every or every}"
    return f"{family} | {reading}", blame(curve.records(every=every, begin=begin), curve.facts)


def _chosen(names: Iterable[str], wanted: Sequence[str]) -> list[str]:
    return [name for name in names if not wanted or any(each in name for each in wanted)]


def _run(judge: object, cases: Sequence[tuple[object, ...]], processes: int) -> Iterable[Row]:
    with get_context("fork").Pool(processes) as pool:
        yield from pool.starmap(judge, cases, chunksize=4)  # type: ignore[arg-type]


def print_table(title: str, rows: Iterable[Row]) -> int:
    """Print the shares of stops and warnings by case; return the number of stopped ones."""
    found: dict[str, list[Blame]] = defaultdict(list)
    for name, each in rows:
        found[name].append(each)
    print(
        f"\n{title}: percent of the seeds\n| case | seeds | stopped by | warned by |\n|---|---|---|---|"
    )
    stopped = {name: sum(bool(each.stops) for each in several) for name, several in found.items()}
    for name, several in found.items():
        stops = _shares([each.stops for each in several])
        warnings = _shares([each.warnings for each in several])
        print(f"| {name} | {len(several)} | {stops} | {warnings} |")
        for rule, error in {k: v for each in several for k, v in each.errors.items()}.items():
            print(f"  {rule} FAILED: {error}")
    num_stopped, total = sum(stopped.values()), sum(map(len, found.values()))
    print(f"\n{title}: {num_stopped} of {total} stopped")
    return num_stopped


def _shares(found: Sequence[Mapping[str, object]]) -> str:
    counts = Counter(rule for each in found for rule in each)
    said = [f"{rule} {round(100 * n / len(found))}" for rule, n in counts.most_common()]
    return ", ".join(said) or "-"


if __name__ == "__main__":
    sys.exit(main())
