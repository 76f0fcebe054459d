"""Former name of sagemaker-training in AWS's XGBoost images. Public scripts still import this name."""

import sys

from sagemaker_training import entry_point, environment, mapping, params

sys.modules[f"{__name__}.entry_point"] = entry_point
sys.modules[f"{__name__}.environment"] = environment

__all__ = ["entry_point", "environment", "mapping", "params"]
