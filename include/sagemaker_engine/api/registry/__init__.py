"""Model registry: package groups, packages, models and endpoint configurations in the engine's database.

All of them survive a restart.
"""

from sagemaker_engine.api.registry.endpoints import Endpoints, configs_of
from sagemaker_engine.api.registry.groups import ModelPackageGroups
from sagemaker_engine.api.registry.models import Models, models_of
from sagemaker_engine.api.registry.packages import ModelPackages
from sagemaker_engine.api.registry.tables import RegistryTables

__all__ = [
    "Endpoints",
    "ModelPackageGroups",
    "ModelPackages",
    "Models",
    "RegistryTables",
    "configs_of",
    "models_of",
]
