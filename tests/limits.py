"""The one limit of waiting in tests.

It ends a hang and checks nothing: an event that a busy machine brings late is no failure. It is below pytest's own
limit (`timeout` in pyproject.toml), so that the test can say what did not happen.
"""

from __future__ import annotations

EVENT_LIMIT_S = 1000.0
