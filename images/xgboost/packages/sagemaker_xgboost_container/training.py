"""Entry point of AWS's toolkit in the XGBoost image: runs the user's script, or the algorithm if there is no script."""

from __future__ import annotations

import logging

from sagemaker_training import entry_point, environment

from sagemaker_xgboost_container import algorithm

log = logging.getLogger(__name__)


def main() -> None:
    """Train with the container's hyperparameters and channels. The toolkit reports any exception."""
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
