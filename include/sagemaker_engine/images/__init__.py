"""Engine images: what stands in for a container image that Trainyard's own environment cannot stand in for.

An engine image is a virtual environment with pinned packages, described by one file of `images/` and built on first
use into a folder that all engines of a user share. `image_file` reads the files (pure), `image_store` knows what is
built and builds it, once, whoever asks; `python -m sagemaker_engine.images` builds them ahead (`make images`).
`inside/` holds what an image has on its import path in place of a toolkit that cannot be installed.

It imports the standard library alone: runners start without site-packages.
"""
