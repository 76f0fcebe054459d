"""Sphinx's settings for the documentation site: `make docs` builds it into `dist/docs`."""

from __future__ import annotations

project = "Trainyard"
html_title = project
html_theme = "furo"
html_copy_source = False
extensions = ["myst_parser"]
# The repository is the source folder, so that its pages link to each other as they do on GitHub.
root_doc = "docs/site/index"
include_patterns = [
    "README.md",
    "CONTRIBUTING.md",
    "CHANGELOG.md",
    "benchmarks/RESULTS.md",
    "include/sagemaker_engine/README.md",
    "training_scripts/README.md",
    "docs/**.md",
]
exclude_patterns = ["docs/examples/**"]
myst_heading_anchors = 4
