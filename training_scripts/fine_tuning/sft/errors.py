"""Errors that the user of a fine-tuning can correct."""

from __future__ import annotations


class FineTuningError(Exception):
    """Options, data or a model that cannot be used; the message has the place and the next step."""
