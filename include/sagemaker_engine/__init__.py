"""A SageMaker endpoint that executes: one port, one state folder, real training jobs.

Start it with `python -m sagemaker_engine --port 4566 --root DIR`. No production code imports this package, and it
imports nothing of the product: its truth is botocore's service model and AWS's own container code.

Promise: every answer has the service's shape, every error the service's code and wording, and all
state under the root survives `kill -9` at any moment.
"""

from __future__ import annotations

from pathlib import Path

SOURCE_FOLDER = Path(__file__).resolve().parents[1]
"""The folder to put on the import path of a process that runs a program of this package."""
_INSTALLED = Path(__file__).with_name("images_inside")
IMAGES_FOLDER = _INSTALLED if _INSTALLED.is_dir() else SOURCE_FOLDER.parent / "images"
"""What runs inside the containers: a folder for each engine image, with its pins, packages and programs.

A wheel has it within the package, a checkout beside `include`.
"""
