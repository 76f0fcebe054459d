"""Training by DeepSpeed's ZeRO: its configuration, its state, and what a step is under it.

Imports DeepSpeed where it is first used, so that everything else can be read and tested without.
"""
