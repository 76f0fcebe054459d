"""Profile of a training: its time and its hosts' capacity, from a run's statistics.

Pure, but for the command (`python -m trainyard.runs.profile runs/<run id>`). It may import `trainyard.rules`: what the
rules find is named with its numbers and a remedy, and nothing is evaluated a second time. A part without observations
gives the reason.
"""

from trainyard.runs.profile.document import profile_document, profile_summary
from trainyard.runs.profile.profile import Profile, profile_of

__all__ = ["Profile", "profile_document", "profile_of", "profile_summary"]
