"""Profile of a training: its time and its hosts' resource use, from a run's statistics.

Pure, except the command (`python -m trainyard.runs.profile runs/<run id>`) and `traces_in`. It may import
`trainyard.rules`, because the profile shows the issues of the rules, with their numbers and a remedy. A part of the
profile without observations states the reason.
"""

from trainyard.runs.profile.document import profile_document, profile_summary
from trainyard.runs.profile.profile import Profile, profile_of

__all__ = ["Profile", "profile_document", "profile_of", "profile_summary"]
