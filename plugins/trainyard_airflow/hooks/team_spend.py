"""Cost of a team's runs in S3: `<root>/spend/<team>/<month>/`, one JSON object per run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.cost.team_budget import RunSpend, budget_of, month_of, over_budget, unnamed_team
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.objects import S3Address, S3Objects
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from trainyard.errors import Finding
    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.hooks.aws_clients import AwsClients

_READERS = 8


def team_of(clients: AwsClients) -> str | None:
    """Return the team of a connection, from the team tag in its job_defaults; None without that tag.

    Raises:
        SpecError: the connection's defaults or limits are invalid.
    """
    return clients.job_defaults.tags.get(clients.job_limits.team_tag)


def run_spend(clients: AwsClients, dag_run: Any, *, dag_id: str) -> RunSpend | None:
    """Return a run's spend without amounts; None if its connection names no team.

    The run counts in the month of its start.

    Args:
        clients: clients of the run's connection.
        dag_run: Airflow's DAG run.
        dag_id: id of the run's DAG.

    Raises:
        SpecError: the connection's defaults or limits are invalid.
    """
    team = team_of(clients)
    if team is None:
        return None
    began = dag_run.start_date.timestamp() if dag_run.start_date else time.time()
    return RunSpend(
        team=team,
        month=month_of(began),
        dag_id=dag_id,
        run_id=str(dag_run.run_id),
        user=getattr(dag_run, "triggering_user_name", None),
    )


class TeamSpend:
    """Stored costs of the teams of one deployment.

    Each method raises a TrainingRunError if S3 rejects a call, or a SpecError if the connection names no bucket.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._client = clients.client("s3")
        self._objects = S3Objects(self._client)

    def reserve(self, spend: RunSpend | None, *, needed_usd: float | None) -> Iterator[Finding]:
        """Reserve a run's cost in its team's monthly budget; if it does not fit, yield a finding and reserve nothing.

        The reservation is written before the other runs' costs are read. Two runs that start at the same time therefore
        cannot both use the rest of the budget. Without a budget for the team, nothing is reserved.

        Args:
            spend: the run's spend; None, if its connection names no team, yields a finding.
            needed_usd: upper estimate of the run's cost; None if its price is unknown.
        """
        limits = self._clients.job_limits
        if spend is None:
            yield unnamed_team(limits.team_tag)
            return
        budget_usd = budget_of(spend.team, limits.team_month_usd)
        if budget_usd is None:
            return
        self.write(replace(spend, reserved_usd=needed_usd or 0.0))
        others = [each for each in self.of_month(spend.team, spend.month) if not _same(each, spend)]
        found = over_budget(
            others,
            team=spend.team,
            month=spend.month,
            budget_usd=budget_usd,
            needed_usd=needed_usd,
        )
        if found is not None:
            self.write(replace(spend, spent_usd=0.0))
            yield found

    def close(self, spend: RunSpend, ledger: Ledger) -> None:
        """Replace a run's reservation by the cost in its ledger; entries with unknown cost count as 0."""
        spent = sum(each.cost_usd or 0.0 for each in ledger.entries)
        self.write(replace(spend, spent_usd=spent))

    def of_month(self, team: str, month: str) -> list[RunSpend]:
        """Return the spend of all runs of a team that started in a month."""
        uri = f"{self._folder(team, month)}/"
        at = S3Address.parse(uri)
        pages = self._client.get_paginator("list_objects_v2")
        with refusals_typed(uri):
            keys = [
                each["Key"]
                for page in pages.paginate(Bucket=at.bucket, Prefix=at.key)
                for each in page.get("Contents", ())
            ]
        with ThreadPoolExecutor(_READERS) as readers:
            texts = readers.map(self._objects.read, (f"s3://{at.bucket}/{key}" for key in keys))
            return [RunSpend.from_json(each) for each in texts]

    def write(self, spend: RunSpend) -> None:
        """Store a run's spend."""
        name = f"{spend.dag_id}--{run_slug(spend.run_id)}.json"
        self._objects.write(
            f"{self._folder(spend.team, spend.month)}/{name}",
            spend.to_json().encode(),
            content_type="application/json",
        )

    def _folder(self, team: str, month: str) -> str:
        return f"{self._clients.root}/spend/{run_slug(team)}/{month}"


def _same(one: RunSpend, other: RunSpend) -> bool:
    return (one.dag_id, one.run_id) == (other.dag_id, other.run_id)
