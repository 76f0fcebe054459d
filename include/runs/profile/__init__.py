"""Profile of a training: its time and its hosts' capacity, from a run's statistics.

Pure, but for the command (`python -m include.runs.profile runs/<run id>`). It may import `include.rules`, whose rules
are the judges here: what they find is named with its numbers and a remedy, and nothing is judged a second time.
A part that nothing was observed of says why.
"""

from include.runs.profile.document import profile_document, profile_summary
from include.runs.profile.profile import Profile, profile_of

__all__ = ["Profile", "profile_document", "profile_of", "profile_summary"]
