"""Training plans: offers from a catalogue, reserved windows of time, and the use of plans by jobs.

The windows follow the plans' own clock, which can be moved ahead of the machine's clock.

Sources: SageMaker developer guide, "Training plans" (creation, details, extension, utilization for training jobs), and
the API reference, November 2026.
"""
