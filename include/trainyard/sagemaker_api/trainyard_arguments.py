"""Program in a job's container that starts the user's script with the job's `arguments` as they are.

On a script's command line, AWS's framework toolkit can pass only hyperparameters, as `--name value` in
alphabetical order. A script may need positional arguments, flags without a value, or `--name=value`. The
hyperparameter `sagemaker_program` therefore names this program, not the script. This program reads the
script and its arguments from the hyperparameter `trainyard_arguments`. On the script's command line, the
other hyperparameters follow the arguments.

This program imports the standard library only, because it is uploaded alone.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
from pathlib import Path

NAME = "trainyard_arguments"


def main() -> None:
    """Run the script as `__main__` in this process, as `python script arguments` would."""
    program, *arguments = json.loads(os.environ["SM_HPS"])[NAME]
    own = sys.argv.index(f"--{NAME}")
    sys.argv = [program, *arguments, *sys.argv[1:own], *sys.argv[own + 2 :]]
    sys.path[0] = str(Path(program).resolve().parent)
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
