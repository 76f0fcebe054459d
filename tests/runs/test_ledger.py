"""The ledger of a run: what it still owes, and what it cost."""

from __future__ import annotations

import pytest

from trainyard.errors import ContractError
from trainyard.runs.ledger import NEVER_CREATED, Ledger, LedgerEntry, PaidKind
from trainyard.sagemaker_api.snapshot import JobSnapshot

INTENT = LedgerEntry(kind=PaidKind.TRAINING, name="job", task_id="train", intended_at=100.0)
ENDED = {
    "status": "Completed",
    "instance_type": "ml.m5.large",
    "instance_count": 2,
    "billable_seconds": 1800,
    "training_seconds": 1800,
}


def test_entry_is_read_back_as_it_was_written() -> None:
    settled = INTENT.settled(ENDED, at=200.0)
    assert LedgerEntry.from_json(INTENT.to_json()) == INTENT
    assert LedgerEntry.from_json(settled.to_json()) == settled
    assert INTENT.file_name == "training-job.json"


@pytest.mark.parametrize("text", ["", "[]", '{"kind": "training"}', '{"kind": "house"}'])
def test_document_that_is_no_entry_is_refused(text: str) -> None:
    with pytest.raises(ContractError, match="the document is not a ledger entry") as raised:
        LedgerEntry.from_json(text, uri="s3://b/ledger/training-job.json")

    assert raised.value.where == "s3://b/ledger/training-job.json"
    assert raised.value.next_step


def test_settled_job_has_its_cost() -> None:
    # 2 x ml.m5.large at 0.115 USD/h for half an hour
    entry = INTENT.settled(ENDED, at=200.0)
    assert entry.is_settled
    assert entry.status == "Completed"
    assert entry.billable_seconds == 1800
    assert entry.cost_usd == pytest.approx(0.115)


def test_settled_job_has_the_cost_of_its_warm_pool() -> None:
    entry = INTENT.settled({**ENDED, "warm_pool_seconds": 600}, at=200.0)
    assert entry.billable_seconds == 2400
    assert entry.cost_usd == pytest.approx(0.115 * 2400 / 1800)


def test_job_that_never_got_instances_costs_nothing() -> None:
    described = {
        "TrainingJobName": "job",
        "TrainingJobStatus": "Failed",
        "FailureReason": "CapacityError: ...",
        "ResourceConfig": {"InstanceType": "ml.m5.large", "InstanceCount": 2},
    }
    entry = INTENT.settled(JobSnapshot.from_describe(described).to_dict(), at=200.0)
    assert (entry.billable_seconds, entry.cost_usd) == (0, 0.0)


def test_intent_that_never_came_to_be_costs_nothing() -> None:
    entry = INTENT.settled(None, at=200.0)
    assert (entry.status, entry.cost_usd, entry.is_settled) == (NEVER_CREATED, 0.0, True)


def test_ledger_is_settled_once_every_entry_is_settled() -> None:
    open_ledger = Ledger.of([INTENT.settled(ENDED, at=200.0), INTENT])
    assert not open_ledger.is_settled
    assert open_ledger.to_dict()["unsettled"] == ["job"]
    assert Ledger.of([INTENT.settled(ENDED, at=200.0)]).is_settled
    assert Ledger.of([]).is_settled


def test_total_is_unknown_when_one_cost_is() -> None:
    unknown = INTENT.settled({**ENDED, "instance_type": "ml.unknown"}, at=200.0)
    assert Ledger.of([INTENT.settled(ENDED, at=1.0)]).total_usd == pytest.approx(0.115)
    assert Ledger.of([INTENT.settled(ENDED, at=1.0), unknown]).total_usd is None
