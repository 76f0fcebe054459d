"""Faults that the engine lets happen on demand: spot interruptions, lost hosts, slow lines, refusals of its services.

A fault is a value (`model`) that a user writes as JSON (`reader`); the fault store keeps them in the engine's SQLite
file, where the engine and every runner process read and claim them; `schedule` draws interruptions from a seed;
`control` is the HTTP route. What a fault does is done by whom it hits: `jobs` for compute faults, `s3` and `wire` for
the services' ones. Imports the database and the standard library, no part that acts on a fault.
"""

from sagemaker_engine.faults.model import Fault, FaultError, FaultKind, JobState, Moment
from sagemaker_engine.faults.schedule import Schedule
from sagemaker_engine.faults.store import Entry, FaultStore

__all__ = [
    "Entry",
    "Fault",
    "FaultError",
    "FaultKind",
    "FaultStore",
    "JobState",
    "Moment",
    "Schedule",
]
