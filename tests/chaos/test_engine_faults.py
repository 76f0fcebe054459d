"""A strike in the engine's words, as the engine itself reads them."""

from __future__ import annotations

import pytest

from chaos.engine_faults import WHAT, fault_of
from chaos.schedule import PROCESSES, StrikeKind, draw
from sagemaker_engine.faults.model import Moment as EngineMoment
from sagemaker_engine.faults.reader import read_fault
from trainyard.sagemaker_api.names import job_name

SEEDS = range(50)
STRIKES = [strike for seed in SEEDS for strike in draw(seed, max_steps=600)]


@pytest.mark.parametrize("kind", [kind for kind in StrikeKind if kind not in PROCESSES], ids=str)
def test_the_engine_takes_every_strike_of_a_kind(kind: StrikeKind) -> None:
    strikes = [strike for strike in STRIKES if strike.kind is kind]
    assert {str(read_fault(fault_of(strike)).what) for strike in strikes} == {WHAT[kind]}


def test_a_strike_on_the_training_meets_each_of_its_attempts_and_no_other_job() -> None:
    strike = next(each for each in STRIKES if each.kind is StrikeKind.KILLED_RANK)
    fault = read_fault(fault_of(strike))

    def name(task_id: str, *, attempt: int = 1) -> str:
        return job_name(
            dag_id="train_end_to_end", run_id="manual__1", task_id=task_id, attempt=attempt
        )

    assert fault.hits_job(name("train"), 1)
    assert fault.hits_job(name("train", attempt=2), 3)
    assert not fault.hits_job(name("evaluate"), 1)
    assert fault.at == EngineMoment(step=strike.moment.step)
    assert fault.hosts == (strike.host,)
