"""`python -m trainyard.runs.profile runs/<run id>`: write a run's profile.html and profile.json again."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainyard.errors import ContractError, SpecError
from trainyard.rules.run_folder import read_conf, read_run
from trainyard.rules.statistics_place import STATISTICS_FOLDER
from trainyard.runs.profile.document import DATA_NAME, PAGE_NAME, profile_document
from trainyard.runs.profile.profile import profile_of
from trainyard.runs.profile.traces import traces_in
from trainyard.runs.report.profile_page import render_profile_html

if TYPE_CHECKING:
    from collections.abc import Sequence

OK, NOTHING_TO_PROFILE = 0, 2


def main(argv: Sequence[str] | None = None) -> int:
    """Write profile.html and profile.json into a run's folder, and print the bottleneck.

    Return 0, or 2 if no profile can be made from the folder's files.
    """
    parser = argparse.ArgumentParser(
        prog="trainyard profile", description="Write the time profile of a finished run's training."
    )
    parser.add_argument("folder", type=Path, help="the run's folder, such as runs/manual__...")
    folder: Path = parser.parse_args(argv).folder
    try:
        records, facts = read_run(folder)
        conf = read_conf(folder)
        traces = traces_in(folder / STATISTICS_FOLDER)
        profile = profile_of(records, facts, rules=conf.get("rules") or (), traces=traces)
    except (ContractError, SpecError) as error:
        sys.stderr.write(f"{error}\n")
        return NOTHING_TO_PROFILE
    (folder / DATA_NAME).write_text(json.dumps(profile_document(profile), indent=1) + "\n")
    (folder / PAGE_NAME).write_text(render_profile_html(profile, run_id=folder.name))
    diagnosis = profile.diagnosis
    sys.stdout.write(f"bottleneck: {diagnosis.title}: {diagnosis.sentence}\n")
    if diagnosis.advice:
        sys.stdout.write(f"advice: {diagnosis.advice}\n")
    sys.stdout.write(f"profile: {folder / PAGE_NAME}, {folder / DATA_NAME}\n")
    return OK


if __name__ == "__main__":
    sys.exit(main())
