"""Continuity of a run: the cost of its interruptions, and proof that each sample was taken once. Pure.

    document    the numbers as frozen values, and continuity.json, field by field
    log_lines   the `trainyard ` lines of a training log
    starts      lines -> the starts of the training processes, each with its steps
    spans       a job's secondary statuses -> the lives of its instances
    attempts    both together -> the attempts of a run
    lineage     which steps of each attempt survived, which samples they took
    measure     all of it -> `Continuity`

`verify` computes the same numbers another way and imports nothing from here.
"""

from trainyard.runs.continuity.document import Attempt, Bill, Continuity
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.continuity.measure import measure_continuity

__all__ = ["Attempt", "Bill", "Continuity", "LogLine", "measure_continuity"]
