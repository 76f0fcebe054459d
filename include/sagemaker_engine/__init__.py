"""A SageMaker endpoint that executes jobs: one port, one state folder, real training.

Start it with `python -m sagemaker_engine --port 4566 --root DIR`. No production code imports this
package, and it imports none of Trainyard's other packages: it follows botocore's service model and
AWS's own container code.

Promises:

- Every response has the service's shape. An error has the service's code, and its wording if that is known.
- All state under the root survives `kill -9` at any moment.
"""

from __future__ import annotations

from pathlib import Path

SOURCE_FOLDER = Path(__file__).resolve().parents[1]
"""Folder that a process needs on its import path to run a program of this package."""
_INSTALLED = Path(__file__).with_name("images_inside")
IMAGES_FOLDER = _INSTALLED if _INSTALLED.is_dir() else SOURCE_FOLDER.parent / "images"
"""Files for the containers: one folder per engine image, with its pinned requirements, packages and programs.

In a wheel this folder is inside the package, in a checkout it is beside `include`.
"""
