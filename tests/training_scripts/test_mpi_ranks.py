"""A rank of mpirun knows who it is, as one of torchrun does."""

from __future__ import annotations

from trainyard_watch.distributed import rank_variables

OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "3",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_RANK": "1",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
    "SM_HOSTS": '["algo-10", "algo-2", "algo-1"]',
    "SM_CURRENT_HOST": "algo-1",
}
TOLD = {
    "RANK": "3",
    "WORLD_SIZE": "4",
    "LOCAL_RANK": "1",
    "LOCAL_WORLD_SIZE": "2",
    "MASTER_ADDR": "algo-1",
    "MASTER_PORT": "7777",
    "SM_CURRENT_HOST": "algo-2",
}


def test_open_mpis_words_become_torchs():
    assert rank_variables(OPEN_MPI, host="algo-2") == TOLD


def test_what_the_launcher_has_said_stays():
    told = OPEN_MPI | {"RANK": "7", "MASTER_PORT": "29500"}

    assert rank_variables(told, host="algo-2") == {
        name: value for name, value in TOLD.items() if name not in {"RANK", "MASTER_PORT"}
    }


def test_a_host_outside_of_the_job_is_no_current_host():
    assert "SM_CURRENT_HOST" not in rank_variables(OPEN_MPI, host="laptop")


def test_without_hosts_the_ranks_meet_on_this_machine():
    alone = {name: value for name, value in OPEN_MPI.items() if name.startswith("OMPI")}

    assert rank_variables(alone, host="laptop")["MASTER_ADDR"] == "127.0.0.1"


def test_outside_of_mpirun_nothing_is_said():
    assert rank_variables({"RANK": "0", "SM_HOSTS": '["algo-1"]'}, host="algo-1") == {}
