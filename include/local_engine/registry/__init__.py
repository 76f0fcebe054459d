"""The model registry: package groups, packages, models and endpoint configurations in the engine's database.

Everything here survives a restart.
"""

from include.local_engine.registry.endpoints import Endpoints
from include.local_engine.registry.groups import ModelPackageGroups
from include.local_engine.registry.models import Models
from include.local_engine.registry.packages import ModelPackages
from include.local_engine.registry.tables import RegistryTables

__all__ = ["Endpoints", "ModelPackageGroups", "ModelPackages", "Models", "RegistryTables"]
