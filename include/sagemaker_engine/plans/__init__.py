"""Training plans: offers from a catalogue, reserved windows on a clock that can be moved, and their use by jobs.

Sources: SageMaker developer guide, "Training plans" (creation, details, extension, utilization for training jobs), and
the API reference, November 2026.
"""
