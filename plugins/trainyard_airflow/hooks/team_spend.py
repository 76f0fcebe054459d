"""Cost of a team's runs in S3: `<root>/spend/<team>/<month>/`, one JSON object per run."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from trainyard.cost.team_budget import (
    RunSpend,
    budget_of,
    month_of,
    over_budget,
    unnamed_team,
    unreadable,
)
from trainyard.errors import ContractError, SpecError
from trainyard.sagemaker_api.names import run_slug
from trainyard_airflow.hooks.objects import S3Address, S3Objects, keys_below
from trainyard_airflow.hooks.refusals import refusals_typed

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from airflow.sdk import Context

    from trainyard.errors import Finding
    from trainyard.runs.ledger import Ledger
    from trainyard_airflow.hooks.aws_clients import AwsClients

_READERS = 8


def run_spend(
    clients: AwsClients, context: Context, *, state: Mapping[str, Any] | None = None
) -> RunSpend | None:
    """Return a run's spend record without amounts; None if the run has no team.

    The record's month is the first of these that exists:

    1. The month in `state`.
    2. For a cleared run, the earliest month in which a stored spend record of the run has an amount above 0.
       The run's start is not reliable here, because Airflow resets it.
    3. The month of the run's start.

    Args:
        clients: clients of the run's connection.
        context: Airflow's context of a task of the run.
        state: result of the task `preflight`, which sets the team and the month of the whole run.

    Raises:
        SpecError: the connection's defaults or limits cannot be read.
        TrainingRunError: S3 rejects the search for the stored spend records of a cleared run.
    """
    fixed = state or {}
    team = fixed.get("team") or clients.job_defaults.tags.get(clients.job_limits.team_tag)
    month = fixed.get("team_month")
    if team is None:
        return None
    dag_run: Any = context["dag_run"]
    began = dag_run.start_date.timestamp() if dag_run.start_date else time.time()
    spend = RunSpend(
        team=team,
        month=month or month_of(began),
        dag_id=dag_run.dag_id,
        run_id=str(dag_run.run_id),
        user=getattr(dag_run, "triggering_user_name", None),
    )
    is_reset = month is None and bool(dag_run.clear_number)
    return TeamSpend(clients).in_first_month(spend) if is_reset else spend


class TeamSpend:
    """Stored spend records of the teams of one deployment.

    Each method raises a TrainingRunError if S3 rejects a call, or a SpecError if the connection names no bucket.
    """

    def __init__(self, clients: AwsClients) -> None:
        self._clients = clients
        self._client = clients.client("s3")
        self._objects = S3Objects(self._client)

    def reserve(self, spend: RunSpend | None, *, needed_usd: float | None) -> Iterator[Finding]:
        """Reserve an amount for a run in its team's monthly budget, or yield a finding if the amount does not fit.

        The amount is written to the run's spend record before the records of the other runs are read. Otherwise two
        runs that start at the same time could both reserve the rest of the budget. If the amount does not fit, the
        run's earlier record is restored. If the run was cleared and starts again, the money that it spent before
        counts as well. Nothing is reserved if the team has no budget.

        Args:
            spend: the run's spend record. None if the connection has no team; a finding is then yielded.
            needed_usd: upper estimate of the run's cost; None if its price is unknown.
        """
        limits = self._clients.job_limits
        if spend is None:
            yield unnamed_team(limits.team_tag)
            return
        budget_usd = budget_of(spend.team, limits.team_month_usd)
        if budget_usd is None:
            return
        before = self._recorded(spend)
        self._uris(spend.team, spend.month)  # if S3 rejects the listing, nothing is written
        wanted = before.reserving(needed_usd or 0.0)
        self.write(wanted)
        is_admitted = False
        try:
            found = over_budget(
                [*self._others(spend), replace(before, reserved_usd=0.0)],
                team=spend.team,
                month=spend.month,
                budget_usd=budget_usd,
                needed_usd=None if needed_usd is None else wanted.reserved_usd,
            )
            is_admitted = found is None
        finally:
            if not is_admitted:
                self.write(before)
        if found is not None:
            yield found

    def close(self, spend: RunSpend, ledger: Ledger) -> None:
        """Store a run's cost so far, the sum of the known costs in its ledger, in its spend record.

        The amount by which the run counts against its team's budget may then decrease. It does not decrease if a
        resource of the run still costs money, such as a running job, or if a cost is unknown.
        """
        spent = sum(each.cost_usd or 0.0 for each in ledger.entries)
        is_final = ledger.is_settled and ledger.total_usd is not None
        self.write(self._recorded(spend).closed(spent, is_final=is_final))

    def of_month(self, team: str, month: str) -> list[RunSpend]:
        """Return the spend records of a team's runs that first started in the given month.

        Raises:
            SpecError: some records are invalid; the error names each of them.
        """
        uris = self._uris(team, month)
        with ThreadPoolExecutor(_READERS) as readers:
            return _spends(zip(uris, readers.map(self._objects.read, uris), strict=True))

    def in_first_month(self, spend: RunSpend) -> RunSpend:
        """Return `spend` with the first month in which its run counts against the team's budget.

        If the run counts in no month, `spend` is returned unchanged. This is the case, for example, if the run was
        rejected and has spent nothing.

        Raises:
            SpecError: a stored spend record of the run is invalid.
        """
        at = S3Address.parse(f"{self._folder(spend.team)}/")
        pages = self._client.get_paginator("list_objects_v2")
        with refusals_typed(f"s3://{at.bucket}/{at.key}"):
            months = [
                each["Prefix"].removeprefix(at.key).rstrip("/")
                for page in pages.paginate(Bucket=at.bucket, Prefix=at.key, Delimiter="/")
                for each in page.get("CommonPrefixes", ())
            ]
        dated = (replace(spend, month=month) for month in sorted(months))
        return next((each for each in dated if self._recorded(each).counted_usd), spend)

    def write(self, spend: RunSpend) -> None:
        """Store a run's spend record."""
        self._objects.write_json(self._uri_of(spend), spend.to_json())

    def _recorded(self, spend: RunSpend) -> RunSpend:
        """Return the stored spend record of a run; `spend` itself if none is stored.

        Raises:
            SpecError: its document is invalid.
        """
        uri = self._uri_of(spend)
        content = self._objects.read_or_none(uri)
        return spend if content is None else _spends([(uri, content)])[0]

    def _others(self, spend: RunSpend) -> list[RunSpend]:
        month = self.of_month(spend.team, spend.month)
        return [each for each in month if not each.is_of_same_run(spend)]

    def _uris(self, team: str, month: str) -> list[str]:
        uri = f"{self._folder(team)}/{month}/"
        at = S3Address.parse(uri)
        with refusals_typed(uri):
            return [f"s3://{at.bucket}/{key}" for key in keys_below(self._client, at)]

    def _uri_of(self, spend: RunSpend) -> str:
        name = f"{spend.dag_id}--{run_slug(spend.run_id)}.json"
        return f"{self._folder(spend.team)}/{spend.month}/{name}"

    def _folder(self, team: str) -> str:
        return f"{self._clients.root}/spend/{run_slug(team)}"


def _spends(documents: Iterable[tuple[str, bytes]]) -> list[RunSpend]:
    """Return the spend records in these documents; each document comes with its address.

    Raises:
        SpecError: some documents are invalid; each is named.
    """
    read, faults = [], []
    for uri, content in documents:
        try:
            read.append(RunSpend.from_json(content))
        except ContractError as error:
            faults.append(unreadable(uri, error))
    if faults:
        raise SpecError(faults, subject="the team's spend")
    return read
