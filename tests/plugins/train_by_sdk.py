"""Calls `ModelTrainer.train()` for each case of `trainers`, as an outside client would, and prints what it sent.

Started by test_model_trainer with the folder of the code as its argument; the environment leads to an engine.
"""

from __future__ import annotations

import json
import sys
from contextlib import nullcontext, suppress

from botocore.exceptions import ClientError
from sagemaker.core.helper.session_helper import Session
from sagemaker.train import ModelTrainer
from trainers import BUCKET, CASES, ROLE, arguments, with_builder_methods


def main() -> None:
    """Start one job for each case."""
    bucket = BUCKET.removeprefix("s3://")
    session, sent = Session(default_bucket=bucket, default_bucket_prefix="trainyard"), []
    session.boto_session.events.register(
        "provide-client-params.sagemaker.CreateTrainingJob", lambda params, **_: sent.append(params)
    )
    for folder in ("plain", "sharded", "train"):
        session.upload_string_as_file_body("data", session.default_bucket(), f"{folder}/data.txt")
    for case in CASES:
        trainer = ModelTrainer(sagemaker_session=session, role=ROLE, **arguments(case, sys.argv[1]))
        if case == "everything":
            trainer = with_builder_methods(trainer)
        # The engine has no model parallel library without an image that is built for it.
        with suppress(ClientError) if case == "smp" else nullcontext():
            trainer.train(wait=False, logs=False)
    sys.stdout.write("\nSENT " + json.dumps(dict(zip(CASES, sent, strict=True))) + "\n")


if __name__ == "__main__":
    main()
