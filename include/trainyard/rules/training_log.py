"""Records from the lines of a training's log. Only rank 0 writes these lines."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from trainyard.rules.records import Facts, MarkRecord, Record, Start, StepRecord, Validation
from trainyard.training_line import TrainingLine

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_SIGNS_OF_LIFE = frozenset({"alive", "checkpoint", "durable", "checkpoint_failed", "done"})
# As training_scripts/trainyard_watch/errors.py words it: `NonFiniteError: ... in step 41 (...) the loss is nan; ...`.
_DIVERGED = re.compile(
    r"NonFiniteError\b.*?in step (\d+) .*?(loss|gradient norm) is (nan|-?inf)\b", re.DOTALL
)
_RATES = ("tokens_per_second", "samples_per_second")


class TrainingLogReader:
    """Incremental reader of a log's lines. It numbers the starts of the processes as attempts."""

    def __init__(self, facts: Facts | None = None) -> None:
        self._facts = facts or Facts()
        self._attempt = 0
        self._batch: int | None = None

    def read(self, text: str, *, time: float | None = None) -> Record | None:
        """Return the record of a log line, or None if the line has none.

        `time` is the time of the line in epoch seconds.
        """
        line = TrainingLine.parse(text)
        if line is None or (step := line.step) is None:
            return None
        match line.kind:
            case "step":
                return self._step(line, step, time)
            case "start":
                self._attempt += 1
                self._batch = line.integer("global_batch_size")
                return Start(
                    step=step,
                    time=time,
                    attempt=self._attempt,
                    world_size=line.integer("world_size"),
                    max_steps=line.integer("max_steps"),
                    global_batch_size=self._batch,
                )
            case "eval":
                loss, accuracy = (
                    line.number("validation_loss"),
                    line.number("validation_accuracy"),
                )
                return Validation(step=step, time=time, loss=loss, accuracy=accuracy)
            case kind if kind in _SIGNS_OF_LIFE:
                return MarkRecord(step=step, time=time, kind=kind)
            case _:
                return None

    def _step(self, line: TrainingLine, step: int, time: float | None) -> StepRecord:
        rates = (line.number(key) for key in _RATES)
        rate = next((each for each in rates if each is not None), None)
        units = self._batch if "samples_per_second" in line.values else self._facts.units_per_step
        return StepRecord(
            step=step,
            time=time,
            epoch=line.integer("epoch"),
            loss=line.number("loss"),
            learning_rate=line.number("learning_rate"),
            gradient_norm=line.number("gradient_norm"),
            units_per_second=rate,
            step_seconds=units / rate if units and rate else None,
        )


def read_rows(
    rows: Iterable[Mapping[str, Any]],
    facts: Facts | None = None,
    *,
    ends: Mapping[int, float] | None = None,
    failures: Mapping[str, str | None] | None = None,
) -> Iterator[Record]:
    """Yield the records of a whole log.

    A stream is the log of one host in one attempt. The streams are read one after another, in the order of
    their first lines. The lines of a stream are sorted by time. Lines with the same millisecond are sorted as
    follows: a start comes first, then the other lines by step. Among the lines of one step, `trainyard step=`
    comes first and `trainyard done` last.

    Args:
        rows: the lines, each with time_ms, job, stream and line, in any order.
        facts: values from the conf that records need, such as the number of tokens per step.
        ends: end of each attempt in epoch seconds, by its number (`ends_of`).
        failures: failure reasons by job name. They are needed for a NaN that ended a job, because the job's log
            has no line for it.
    """
    streams: dict[tuple[str, str], list[tuple[int, str]]] = defaultdict(list)
    for row in rows:
        line = int(row["time_ms"]), str(row["line"])
        streams[str(row["job"]), str(row["stream"])].append(line)
    reader = TrainingLogReader(facts)
    ordered = sorted(
        ((job, sorted(lines, key=_place)) for (job, _), lines in streams.items()),
        key=lambda each: each[1][0][0],
    )
    attempt, last = 0, Record()
    for place, (job, lines) in enumerate(ordered):
        for time_ms, text in lines:
            record = reader.read(text, time=time_ms / 1000)
            if isinstance(record, Start):
                yield from _end(attempt, last, ends or {})
                attempt = record.attempt
            if record is not None:
                last = record
                yield record
        if all(later != job for later, _ in ordered[place + 1 :]):
            yield from _divergence((failures or {}).get(job))
    yield from _end(attempt, last, ends or {})


def divergence_of(reason: str | None) -> tuple[int, str] | None:
    """Return the step at which the script's guard against NaN ended a job, and the fault.

    Return None if the job's failure `reason` does not come from this guard. Worked:
    `... NonFiniteError: ... in step 41 (...) the loss is nan; ...` gives `(41, "the loss is nan")`.
    """
    found = _DIVERGED.search(reason or "")
    return (int(found[1]), f"the {found[2]} is {found[3]}") if found else None


def _divergence(reason: str | None) -> Iterator[Record]:
    """Yield the record of the step at which the script's guard against NaN ended the job.

    The record is derived from the job's failure `reason`, because the job ends before it logs this step. Yield
    nothing if the reason does not come from this guard.
    """
    found = _DIVERGED.search(reason or "")
    if found:
        step, value = int(found[1]), float(found[3])
        is_loss = found[2] == "loss"
        yield StepRecord(
            step=step,
            loss=value if is_loss else None,
            gradient_norm=None if is_loss else value,
            ends_run=True,
        )


def ends_of(continuity: Mapping[str, Any]) -> dict[int, float]:
    """Return the end of training in each attempt: attempt number -> epoch seconds.

    The attempts are numbered from 1. Attempts that did not start to train are left out and have no number.

    Args:
        continuity: the content of continuity.json.
    """
    started = [each for each in continuity.get("attempts", ()) if each["started_at"] is not None]
    return {
        number: each["started_at"] + each["training_seconds"]
        for number, each in enumerate(started, 1)
    }


def _end(attempt: int, last: Record, ends: Mapping[int, float]) -> Iterator[Record]:
    """Yield a record of kind `ended` at the end of an attempt.

    Yield nothing if the end is unknown, or not later than the attempt's last record (`last`).
    """
    if attempt in ends and ends[attempt] > (last.time or 0.0):
        yield MarkRecord(kind="ended", step=last.step, time=ends[attempt])


def _place(line: tuple[int, str]) -> tuple[int, bool, int, bool, bool, str]:
    time_ms, text = line
    content = TrainingLine.parse(text)
    kind, step = (content.kind, content.step) if content else ("", None)
    return time_ms, kind != "start", step or 0, kind == "done", kind != "step", text
