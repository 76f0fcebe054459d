"""The command line of Open MPI 4 that AWS's toolkit writes becomes one that Open MPI 5 takes."""

from __future__ import annotations

import pytest

from images.mpi.mpirun import for_open_mpi_5

TOOLKIT = (
    "--host algo-1:2,algo-2:2 -np 4 --allow-run-as-root --display-map --tag-output "
    "-mca btl_tcp_if_include eth0 -mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot "
    "-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH"
)
PLACED = "--map-by slot --bind-to none"
RANKS = "/env/python -m mpi4py train.py -x 1 -bind-to core"
"""What follows the options: the script's own arguments, which are nobody else's."""


def translate(line: str, environment: tuple[str, ...] = ("PATH", "LD_LIBRARY_PATH")) -> str:
    return " ".join(for_open_mpi_5(line.split(), dict.fromkeys(environment, "")))


def test_long_options_get_two_dashes_and_the_program_stays_as_it_is() -> None:
    expected = TOOLKIT.replace(" -bind-to", " --bind-to").replace(" -map-by", " --map-by")

    assert translate(f"{TOOLKIT} {RANKS}") == f"{expected} {RANKS}"


def test_a_variable_that_is_not_set_is_not_exported() -> None:
    exports = "-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH"

    assert translate(f"{PLACED} {exports} {RANKS}", ("PATH",)) == (
        f"{PLACED} -x NCCL_DEBUG=INFO -x PATH {RANKS}"
    )


def test_the_library_that_names_the_host_is_not_preloaded() -> None:
    library = "/env/site-packages/gethostname.cpython-311-x86_64-linux-gnu.so"

    other = f"{PLACED} -x LD_PRELOAD=/lib/other.so {RANKS}"

    assert translate(f"{PLACED} -x LD_PRELOAD={library} {RANKS}") == f"{PLACED} {RANKS}"
    assert translate(other) == other


@pytest.mark.parametrize("said", ["--oversubscribe", "-oversubscribe", ""])
def test_ranks_fill_the_slots_of_each_host_and_are_bound_to_nothing(said: str) -> None:
    hosts = "--host algo-1:2,algo-2:2 -np 4"

    assert translate(f"{hosts} {said} {RANKS}") == (
        f"{hosts} --map-by slot:OVERSUBSCRIBE --bind-to none {RANKS}"
    )


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-verbose", "--verbose"),
        ("--mca pml ob1", "--mca pml ob1"),
        ("-report-bindings -n 2", "--report-bindings -n 2"),
        ("-timeout 60", "--timeout 60"),
        ("--output=tag", "--output=tag"),
    ],
)
def test_custom_options_are_translated_too(options: str, expected: str) -> None:
    assert translate(f"{PLACED} {options} {RANKS}") == f"{PLACED} {expected} {RANKS}"
