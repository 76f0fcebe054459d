"""The model registry: model package groups and model packages, kept in the engine's database.

Everything here survives a restart. Models, endpoints and cards are not here; moto answers for them.
"""

from include.local_engine.registry.groups import ModelPackageGroups
from include.local_engine.registry.packages import ModelPackages
from include.local_engine.registry.tables import RegistryTables

__all__ = ["ModelPackageGroups", "ModelPackages", "RegistryTables"]
