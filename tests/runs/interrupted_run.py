"""A training run with interruptions, played through in miniature: its log, its jobs, and the truth.

The truth comes from what really happened here: every state (a checkpoint, the weights) is the list of
the (attempt, step) pairs that made it, so what survived is read off the last state.
"""

from __future__ import annotations

import json
import math
import random
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tests.runs.sample_run import BEGIN, built_record, sample_arguments, training_snapshot
from trainer.data.sample_digest import digest_of
from trainer.data.sample_order import SampleOrder
from trainyard.runs.builder import job_record
from trainyard.runs.continuity import LogLine, measure_continuity
from trainyard.runs.continuity.log_lines import write_log

if TYPE_CHECKING:
    from pathlib import Path

    from trainyard.runs.continuity import Continuity
    from trainyard.runs.record import JobRecord, RunRecord

_STEP = re.compile(r"trainyard step=(\d+) ")
State = tuple[tuple[int, int], ...]  # the (attempt, step) pairs that made it


def loss_of(step: int) -> float:
    """Return the loss of a step: whoever takes it, and however often, it is the same."""
    noise = random.Random(step).gauss(0, 0.035)  # noqa: S311  # a picture, not a secret
    return round(1.6 + 3.9 * math.exp(-step / 60) + noise, 6)


@dataclass(frozen=True, slots=True, kw_only=True)
class Break:
    """How one attempt ends before its time.

    Attributes:
        after_steps: steps it still takes; more than are left means all of them.
        ended_by: `interrupted`: the service takes the instances; `failed`: the job fails and another
            is made; `restarted`: only the processes start again.
        has_notice: a last checkpoint is written in time.
        is_before_the_first_line: the instances go before the processes came to print anything.
        num_damaged: so many of the newest checkpoints cannot be read afterwards.
        num_lines_lost: so many of its last lines never reach the log; its `start` line always does.
        next_world_size: ranks of the next attempt.
    """

    after_steps: int = 10
    ended_by: str = "interrupted"
    has_notice: bool = False
    is_before_the_first_line: bool = False
    num_damaged: int = 0
    num_lines_lost: int = 0
    next_world_size: int = 2


@dataclass(slots=True, kw_only=True)
class InterruptedRun:
    """Plays a run through at once; `jobs`, `lines` and the truth are there afterwards."""

    breaks: tuple[Break, ...] = ()
    num_steps: int = 60
    num_samples: int = 211
    global_batch_size: int = 4
    seed: int = 1
    log_interval: int = 10
    checkpoint_interval: int = 8
    logs_checkpoints: bool = False
    step_seconds: float = 0.5
    now: float = BEGIN + 30
    attempt: int = 0
    world_size: int = 2
    state: State = ()
    checkpoints: list[State] = field(default_factory=list)
    executed: dict[int, list[int]] = field(default_factory=dict)
    lines: list[LogLine] = field(default_factory=list)
    snapshots: list[dict[str, Any]] = field(default_factory=list)
    stream: str = ""
    is_new_stream: bool = True
    training_since: float = 0.0
    kept_lines: int = 0
    order: SampleOrder = field(init=False)

    def __post_init__(self) -> None:
        self.order = SampleOrder(num_samples=self.num_samples, seed=self.seed)
        self._new_job()
        self._instances_come()
        for each in self.breaks:
            self._attempt(each)
            self.world_size = each.next_world_size
        self._attempt(None)
        self._transition("Uploading", 4)
        self._end_job("Completed")

    @property
    def jobs(self) -> list[JobRecord]:
        """The training task's jobs, oldest first."""
        return [
            job_record("train", snapshot, attempts=number)
            for number, snapshot in enumerate(self.snapshots, 1)
        ]

    def kept(self, attempt: int) -> set[int]:
        """Return the steps of an attempt that are in the final weights."""
        return {step for made_by, step in self.state if made_by == attempt}

    def index(self) -> dict[str, Any]:
        """Return the shard index of a table with as many rows as there are samples."""
        shard = {"file": "train/shard-00000.bin", "rows": self.num_samples, "bytes": 8}
        train = {"num_rows": self.num_samples, "shards": [{**shard, "sha256": "ab" * 32}]}
        return {"kind": "columns", "fingerprint": "9f" * 32, "splits": {"train": train}}

    def history(self) -> list[str]:
        """Return metrics.jsonl: the steps that survived, as the checkpoints carried them on."""
        steps = [int(found[1]) for line in self.lines if (found := _STEP.match(line.text))]
        return [
            json.dumps({"event": "step", "time": BEGIN, "step": step, "loss": loss_of(step)})
            for step in sorted(set(steps))
        ]

    def record(self, **changes: Any) -> RunRecord:
        """Return the run's record, continuity included."""
        arguments = {
            **sample_arguments(),
            "shard_index": self.index(),
            "jobs": self.jobs,
            "metric_lines": self.history(),
            "continuity": measure_continuity(self.lines, self.jobs).to_dict(),
        }
        return built_record(**{**arguments, **changes})

    def write(self, folder: Path) -> Path:
        """Write what `make run` leaves in the run's folder."""
        record = self.record()
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "report.json").write_text(record.to_json())
        (folder / "continuity.json").write_text(json.dumps(record.continuity))
        (folder / "index.json").write_text(json.dumps(self.index()))
        write_log(folder / "training_log.jsonl.gz", self.lines)
        return folder

    def _attempt(self, broken: Break | None) -> None:
        self.attempt += 1
        self.kept_lines = len(self.lines)
        if broken and broken.is_before_the_first_line:
            self.now += 1.5
        else:
            self._train(broken)
        if broken is None:
            self._transition("Training", None)
            return
        if broken.num_lines_lost:
            del self.lines[max(self.kept_lines, len(self.lines) - broken.num_lines_lost) :]
        self.checkpoints = self.checkpoints[: max(0, len(self.checkpoints) - broken.num_damaged)]
        self._end(broken)

    def _train(self, broken: Break | None) -> None:
        self.state = self.checkpoints[-1] if self.checkpoints else ()
        resumed_at = reported = len(self.state)
        self.now += 2.25
        self.stream = f"algo-1-{round(self.now * 1000)}" if self.is_new_stream else self.stream
        self.is_new_stream = False
        if resumed_at:
            self._print(f"resume step={resumed_at} checkpoint=/opt/ml/checkpoints/{resumed_at}")
        self.kept_lines = len(self.lines) + 1
        self._print(
            f"start step={resumed_at} world_size={self.world_size} "
            f"global_batch_size={self.global_batch_size} num_samples={self.num_samples} "
            f"seed={self.seed} max_steps={self.num_steps} attempt_id={self.attempt:08x}"
        )
        last = min(self.num_steps, resumed_at + broken.after_steps if broken else self.num_steps)
        self.executed[self.attempt] = list(range(resumed_at + 1, last + 1))
        for step in self.executed[self.attempt]:
            self.now += self.step_seconds
            self.state = (*self.state, (self.attempt, step))
            saves = step % self.checkpoint_interval == 0 and step < last
            is_logged = step % self.log_interval == 0 or step in {1, self.num_steps}
            if is_logged or (saves and self.logs_checkpoints):
                self._print_step(step, reported)
                reported = step
            if saves:
                self._checkpoint(step)
        if broken is None or broken.has_notice:
            self._checkpoint(last)
            self._print(f"done step={last} weights_sha256={'c0' * 32}")

    def _print_step(self, step: int, reported: int) -> None:
        first, end = reported * self.global_batch_size, step * self.global_batch_size
        digest = digest_of(self.order.samples(first, end))
        self._print(
            f"step={step} epoch={(end - 1) // self.num_samples} loss={loss_of(step):.6f} "
            f"max_steps={self.num_steps} samples={first}:{end} digest={digest:016x}"
        )

    def _checkpoint(self, step: int) -> None:
        self.now += 0.02
        self._print(f"checkpoint step={step} stall_seconds=0.02")
        self.checkpoints.append(self.state)
        self._print(f"durable step={step} seconds=0.3 bytes=1000")

    def _end(self, broken: Break) -> None:
        self.now += 0.4
        if broken.ended_by == "restarted" and not broken.is_before_the_first_line:
            return
        self._transition("Training", None)
        self.is_new_stream = True
        if broken.ended_by == "failed":
            self._end_job("Failed")
            self.now += 7
            self._new_job()
        else:
            self._transition("Interrupted", 12)
        self._instances_come()

    def _instances_come(self) -> None:
        self._transition("Starting", 6)
        self._transition("Downloading", 3)
        self.training_since = self.now

    def _new_job(self) -> None:
        self.is_new_stream = True
        self.snapshots.append(
            training_snapshot(
                name=f"train-{len(self.snapshots) + 1}", transitions=[], created_at=self.now
            )
        )

    def _transition(self, status: str, seconds: float | None) -> None:
        """Add a status that lasts from now on; `Training` (None) lasted until now."""
        start = self.training_since if seconds is None else self.now
        self.now += seconds or 0
        row = {"status": status, "start": start, "end": self.now, "message": None}
        self.snapshots[-1]["transitions"].append(row)

    def _end_job(self, status: str) -> None:
        job = self.snapshots[-1]
        rows = job["transitions"]
        on_instances = sum(
            row["end"] - row["start"]
            for row in rows
            if row["status"] in {"Downloading", "Training", "Uploading"}
        )
        job.update(
            status=status,
            secondary_status=status,
            started_at=job["created_at"] + 6,
            ended_at=self.now,
            interruptions=sum(row["status"] == "Interrupted" for row in rows),
            training_seconds=round(on_instances),
            billable_seconds=round(on_instances * 0.3),
        )

    def _print(self, text: str) -> None:
        job = self.snapshots[-1]["name"]
        self.lines.append(
            LogLine(
                job=job,
                stream=f"{job}/{self.stream}",
                time_ms=round(self.now * 1000),
                text=f"trainyard {text}",
            )
        )


def has_every_sample_once(found: Continuity) -> bool:
    """Return whether step lines cover each position of the surviving lineage exactly once."""
    return not (found.samples_repeated or found.samples_missed or found.samples_without_line)
