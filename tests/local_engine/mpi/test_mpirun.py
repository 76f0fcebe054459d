"""The command line of Open MPI 4 that AWS's toolkit writes becomes one that Open MPI 5 takes."""

from __future__ import annotations

import pytest

from include.local_engine.mpi.programs.mpirun import for_open_mpi_5

TOOLKIT = (
    "--host algo-1:2,algo-2:2 -np 4 --allow-run-as-root --display-map --tag-output "
    "-mca btl_tcp_if_include eth0 -mca plm_rsh_no_tree_spawn 1 -bind-to none -map-by slot "
    "-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH"
)
RANKS = "/env/python -m mpi4py train.py -x 1 -bind-to core"
"""What follows the options: the script's own arguments, which are nobody else's."""


def translate(line: str, environment: tuple[str, ...] = ("PATH", "LD_LIBRARY_PATH")) -> str:
    return " ".join(for_open_mpi_5(line.split(), dict.fromkeys(environment, "")))


def test_long_options_get_two_dashes_and_the_program_stays_as_it_is() -> None:
    expected = TOOLKIT.replace(" -bind-to", " --bind-to").replace(" -map-by", " --map-by")

    assert translate(f"{TOOLKIT} {RANKS}") == f"{expected} {RANKS}"


def test_a_variable_that_is_not_set_is_not_exported() -> None:
    expected = "-x NCCL_DEBUG=INFO -x PATH"

    assert translate(f"-x NCCL_DEBUG=INFO -x LD_LIBRARY_PATH -x PATH {RANKS}", ("PATH",)) == (
        f"{expected} {RANKS}"
    )


def test_the_library_that_names_the_host_is_not_preloaded() -> None:
    library = "/env/site-packages/gethostname.cpython-311-x86_64-linux-gnu.so"

    assert translate(f"-np 1 -x LD_PRELOAD={library} {RANKS}") == f"-np 1 {RANKS}"
    assert translate(f"-x LD_PRELOAD=/lib/other.so {RANKS}") == (
        f"-x LD_PRELOAD=/lib/other.so {RANKS}"
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
    assert translate(f"{options} {RANKS}") == f"{expected} {RANKS}"
