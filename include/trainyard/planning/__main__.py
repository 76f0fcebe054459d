"""`make plan CONF=file.json`: ranked plans for a training, without starting anything.

The file has the fields of `trainyard.planning.plan_request`: a model (`{"model": "llama3-8b", ...}`, a
shape, or `num_parameters`), `global_batch_size`, `tokens`, and optionally `deadline_h`, `budget_usd` and
`instance_types`.

The file may instead be the conf of a `train_end_to_end` run that leaves fields to the planner
(`{"strategy": "auto", ...}`). It then has no `tokens`, and the command prints the conf with the planner's
choices as JSON, and the reasons to stderr.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainyard.errors import FindingsError
from trainyard.planning.auto_plan import choose_auto, open_fields
from trainyard.planning.plan_request import PlanRequest
from trainyard.planning.plan_table import plan_table
from trainyard.planning.plans import make_plans

if TYPE_CHECKING:
    from collections.abc import Sequence

PLANNED, NO_PLAN, UNREADABLE = 0, 1, 2
EXAMPLE = {"model": "gpt2-124m", "global_batch_size": 480, "tokens": 9e9}
"""Request that is planned if no file is given: nanoGPT's reproduction of GPT-2."""


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table of plans, or the conf with the planner's choices, and return 0.

    Return 1 if the request is invalid or no plan fits, and 2 if the file is unreadable.
    """
    parser = argparse.ArgumentParser(prog="trainyard plan", description=__doc__)
    parser.add_argument("conf", type=Path, nargs="?", help="a JSON file (default: an example)")
    path: Path | None = parser.parse_args(argv).conf
    try:
        given = json.loads(path.read_text(encoding="utf-8")) if path else EXAMPLE
    except (OSError, ValueError) as error:
        sys.stderr.write(f"{path} cannot be read: {error}\n")
        return UNREADABLE
    try:
        if isinstance(given, dict) and "tokens" not in given and open_fields(given):
            return _print_conf(given)
        request = PlanRequest.from_mapping(given)
        lines = plan_table(request, make_plans(request))
    except FindingsError as error:
        sys.stderr.write(f"{error}\n")
        return NO_PLAN
    sys.stdout.write("\n".join(lines) + "\n")
    return PLANNED


def _print_conf(params: dict[str, Any]) -> int:
    """Print the conf with the planner's choices, and the reasons for them; return 0.

    Raises:
        SpecError: the conf is invalid, or cannot be planned.
        PlanError: no cluster can run the training.
    """
    choice = choose_auto(params)
    chosen, reasons = (choice.chosen, choice.reasons) if choice else ({}, ())
    sys.stdout.write(json.dumps({**params, **chosen}, indent=2) + "\n")
    sys.stderr.write("".join(f"{each}\n" for each in reasons))
    return PLANNED


if __name__ == "__main__":
    sys.exit(main())
