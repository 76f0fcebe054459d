"""Which checkpoints stay: S3, which lags behind, has a whole one at any moment."""

from __future__ import annotations

import pytest
from hypothesis import given, settings, strategies as st

from trainer.checkpoint_folder import UPLOAD_S, CheckpointFolder, kept_steps

pytestmark = pytest.mark.torch


@settings(max_examples=200)
@given(
    gaps=st.lists(st.floats(0.01, 3 * UPLOAD_S), min_size=1, max_size=60),
    keep=st.integers(2, 4),
    upload_s=st.floats(0, UPLOAD_S),
)
def test_s3_never_loses_its_last_whole_checkpoint(gaps, keep, upload_s):
    durable_since, now, in_s3 = {}, 0.0, set()
    for step, gap in enumerate(gaps):
        now += gap
        in_s3 |= {old for old, since in durable_since.items() if now - since >= upload_s}
        durable_since[step] = now
        kept = kept_steps(durable_since, keep=keep, now=now)
        had_one = bool(in_s3)
        durable_since = {old: durable_since[old] for old in kept}
        in_s3 &= kept

        assert bool(in_s3) == had_one
        assert kept >= set(range(step + 1)[-keep:])
        assert len(kept) <= keep + 2


def test_slow_checkpoints_leave_only_the_newest():
    durable_since = {step: 1000.0 * step for step in range(4)}

    assert kept_steps(durable_since, keep=2, now=3000.0) == {2, 3}


def test_folder_deletes_what_newer_ones_have_made_superfluous(tmp_path):
    now = [0.0]
    folder = CheckpointFolder(tmp_path / "checkpoints", keep=2, clock=lambda: now[0])
    for step in range(1, 7):
        now[0] += 50
        folder.save(step, objects={"run": {"step": step}}, files={"a": lambda: b"x"}, facts={})

    # At 300 s: 3 has reached S3 (150 s old), 4 is the next to (100 s), 5 and 6 are the newest.
    assert sorted(path.name for path in (tmp_path / "checkpoints").iterdir()) == [
        f"step-{step:08d}" for step in (3, 4, 5, 6)
    ]
    assert folder.newest_good()[0].load("run") == {"step": 6}


def test_what_a_killed_start_had_half_written_is_swept_away(tmp_path):
    half = tmp_path / ".checkpoints-staging" / "step-00000007.123"
    half.mkdir(parents=True)
    (half / "model.pt").write_bytes(b"half")

    CheckpointFolder(tmp_path / "checkpoints", keep=2).save(9, objects={}, files={}, facts={})

    assert list((tmp_path / ".checkpoints-staging").iterdir()) == []
