"""Entry of an installed Trainyard in Airflow's list of providers."""

from __future__ import annotations

from importlib.metadata import metadata


def get_provider_info() -> dict[str, object]:
    """Return the provider's description (entry point `apache_airflow_provider`)."""
    package = metadata("trainyard")
    return {
        "package-name": package["Name"],
        "name": "Trainyard",
        "description": package["Summary"],
        "versions": [package["Version"]],
    }
