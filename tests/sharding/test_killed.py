"""A sharding process that is killed at any write leaves nothing that a retry does not mend."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

if TYPE_CHECKING:
    from collections.abc import Mapping

ROOT = Path(__file__).parents[2]
SCRIPT = """
import os, signal, sys
from pathlib import Path
from trainyard.sharding import LocalObjects, ShardSettings, Source, shard_dataset, shard_set
source, out, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
if "drafts" in sys.argv:
    shard_set.PARTS_BYTES = 1_000

class Killed(LocalObjects):
    __slots__ = ()
    puts = []
    def put_file(self, path, uri, *, sha256):
        super().put_file(path, uri, sha256=sha256)
        self.puts.append(uri)
        if len(self.puts) == left:
            os.kill(os.getpid(), signal.SIGKILL)

result = shard_dataset(
    Source(uri=str(source)),
    ShardSettings(num_shards=4),
    Killed(out),
    destination="s3://bucket/x",
    work_dir=out / "work",
)
print(result.uploaded, result.reused)
"""


def start(
    source: Path, out: Path, *, left: int = 0, by_drafts: bool = False
) -> subprocess.Popen[str]:
    """Start a run that is killed after `left` puts; with `by_drafts` it takes the source for a large one."""
    how = "drafts" if by_drafts else "pieces"
    command = [sys.executable, "-c", SCRIPT, str(source), str(out), str(left), how]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def tree(out: Path) -> Mapping[str, bytes]:
    paths = (path for path in (out / "bucket").rglob("*") if path.is_file())
    return {str(path.relative_to(out)): path.read_bytes() for path in paths}


@pytest.fixture
def source(tmp_path: Path) -> Path:
    table = {"id": np.arange(4_000), "word": [f"w{at % 9}" for at in range(4_000)]}
    pq.write_table(pa.table(table), tmp_path / "t.parquet")
    return tmp_path / "t.parquet"


@pytest.mark.parametrize(
    ("left", "by_drafts"),
    [
        (1, False),
        pytest.param(3, False, marks=pytest.mark.slow),
        (6, False),
        pytest.param(7, False, marks=pytest.mark.slow),
        pytest.param(2, True, marks=pytest.mark.slow),
        (9, True),
        pytest.param(12, True, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_is_finished_by_the_next_one(
    tmp_path: Path, source: Path, left: int, by_drafts: bool
) -> None:
    start(source, tmp_path / "whole", by_drafts=by_drafts).communicate()
    whole = tree(tmp_path / "whole")
    out = tmp_path / "out"
    killed = start(source, out, left=left, by_drafts=by_drafts)
    killed.communicate()
    assert killed.returncode == -9
    assert list((out / "work").iterdir())
    was_complete = any("index.json" in name for name in tree(out))
    num_puts = 2 * len(whole) - 1 if by_drafts else len(whole)  # all but the index twice
    assert was_complete == (left == num_puts)

    start(source, out, by_drafts=by_drafts).communicate()

    assert tree(out) == whole
    if not was_complete:  # else nothing was to be written
        assert not list((out / "work").iterdir())


def test_two_runs_on_one_target_make_one_data_set(tmp_path: Path, source: Path) -> None:
    start(source, tmp_path / "whole").communicate()
    runs = [start(source, tmp_path / "out") for _ in range(2)]
    assert [run.communicate() and run.returncode for run in runs] == [0, 0]
    assert tree(tmp_path / "out") == tree(tmp_path / "whole")
    assert not list((tmp_path / "out" / "work").iterdir())
