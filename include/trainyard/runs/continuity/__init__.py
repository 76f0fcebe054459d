"""Continuity of a run: the cost of its interruptions, and proof that each sample was used once.

Pure, except that `log_lines` reads and writes the log file.

    document    the classes of the measured values, and a description of continuity.json, field by field
    log_lines   the lines of a training log, and the file with the lines of all attempts
    starts      the starts of the training processes with their steps, from the lines
    spans       the lifetimes of a job's instances, from its secondary statuses
    attempts    the attempts of a run, from starts and spans
    bills       the jobs' bills, and each attempt's share of them
    measure     measurement of each attempt's surviving steps and samples; the result is a `Continuity`

`make verify` calculates the same numbers in another way and imports nothing from this package.
"""

from trainyard.runs.continuity.document import Attempt, Bill, Continuity
from trainyard.runs.continuity.log_lines import LogLine
from trainyard.runs.continuity.measure import measure_continuity

__all__ = ["Attempt", "Bill", "Continuity", "LogLine", "measure_continuity"]
