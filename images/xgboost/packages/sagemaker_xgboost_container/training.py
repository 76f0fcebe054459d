"""The entry of AWS's toolkit into the XGBoost image: a script if there is one, else the algorithm."""

from __future__ import annotations

import logging

from sagemaker_training import entry_point, environment

from sagemaker_xgboost_container import algorithm

log = logging.getLogger(__name__)


def main() -> None:
    """Train as the container's hyperparameters and channels say. Fails with what the toolkit reports."""
    env = environment.Environment()
    if env.user_entry_point is None:
        log.info("Running XGBoost Sagemaker in algorithm mode")
        algorithm.train(env)
        return
    log.info("Invoking user training script.")
    entry_point.run(
        env.module_dir,
        env.user_entry_point,
        env.to_cmd_args(),
        env.to_env_vars(),
        capture_error=True,
    )
