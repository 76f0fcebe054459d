"""Display of a run: a table that redraws itself, or plain lines if there is no terminal."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trainyard.units import format_duration, format_usd

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainyard.stack.aws import JobView
    from trainyard.stack.following import RunView, TaskView

STYLES = {
    "success": "green",
    "failed": "bold red",
    "upstream_failed": "red",
    "running": "cyan",
    "deferred": "cyan",
    "up_for_retry": "yellow",
    "skipped": "dim",
}
LINE_EVERY_S = 5.0


class Display(Protocol):
    """Shows the current state of a run (`RunView`), and prints single lines."""

    def __enter__(self) -> Self: ...

    def __exit__(self, *_: object) -> None: ...

    def show(self, view: RunView) -> None:
        """Show a view of the run."""

    def print_line(self, line: str) -> None:
        """Print one permanent line."""


def display_for(console: Console) -> Display:
    """Return the display that suits the console."""
    return LiveDisplay(console) if console.is_terminal else LineDisplay(console)


class LiveDisplay:
    """One table that redraws itself in place."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, refresh_per_second=4, transient=False)

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.stop()

    def show(self, view: RunView) -> None:
        """Redraw the table."""
        self._live.update(drawn(view))

    def print_line(self, line: str) -> None:
        """Print a line above the table."""
        self._console.print(line, markup=False, highlight=False)


class LineDisplay:
    """One line for each change, and the training's progress every few seconds."""

    def __init__(self, console: Console, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._states: dict[str, tuple[str, int]] = {}
        self._progress = ""
        self._printed_at = float("-inf")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, view: RunView) -> None:
        """Print the changes since the previous view."""
        for task in view.tasks:
            known = self._states.get(task.task_id)
            if known != (task.state, task.try_number) and task.state != "waiting":
                self._states[task.task_id] = (task.state, task.try_number)
                self.print_line(f"{task.task_id:<12} {described(task)}")
        if view.job is not None and self._clock() - self._printed_at >= LINE_EVERY_S:
            line = f"{view.job_task or '':<12} {job_line(view.job)}{cost_text(view)}"
            if line != self._progress:
                self._progress, self._printed_at = line, self._clock()
                self.print_line(line)

    def print_line(self, line: str) -> None:
        """Print one line of any length."""
        self._console.print(line, markup=False, highlight=False, soft_wrap=True)


def drawn(view: RunView) -> RenderableType:
    """Return the run as a table of its tasks, with the current job below."""
    heading = Text(f"{view.run_id}  {view.state}", style="bold")
    table = Table()
    for column in ("task", "state", "try", "time"):
        table.add_column(column, justify="right" if column in ("try", "time") else "left")
    for task in view.tasks:
        state = Text(task.state, style=STYLES.get(task.state, ""))
        took = "" if task.duration_s is None else format_duration(task.duration_s)
        table.add_row(task.task_id, state, str(task.try_number or ""), took)
    parts: list[RenderableType] = [heading, table]
    if view.job is not None:
        parts.append(Text(f"{view.job_task}: {view.job.name}", style="dim"))
        parts.append(Text(f"{job_line(view.job)}{cost_text(view)}", style="cyan"))
    return Group(*parts)


def described(task: TaskView) -> str:
    """Return a task's state in words."""
    retry = f" (try {task.try_number})" if task.try_number > 1 else ""
    took = (
        f" after {format_duration(task.duration_s)}"
        if task.duration_s and task.state in ("success", "failed")
        else ""
    )
    return f"{task.state}{retry}{took}"


def job_line(job: JobView) -> str:
    """Return a job's status and its last numbers: step, loss, speed, time left; for a search, trials and best value."""
    numbers = job.metrics
    parts = [job.status]
    for noun in ("trials", "candidates"):
        if f"{noun}_ended" in numbers:
            most = f"/{numbers[noun]:.0f}" if noun in numbers else ""
            parts.append(f"{numbers[f'{noun}_ended']:.0f}{most} {noun}")
            parts.append(f"{numbers[f'{noun}_running']:.0f} running")
            parts += [f"best {job.objective} {numbers['best']:.4f}"] if "best" in numbers else []
    if "step" in numbers:
        total = f"/{numbers['max_steps']:.0f}" if "max_steps" in numbers else ""
        parts.append(f"step {numbers['step']:.0f}{total}")
    for key, label in (("loss", "loss"), ("validation_loss", "validation loss")):
        if key in numbers:
            parts.append(f"{label} {numbers[key]:.4f}")
    for key, label in (("tokens_per_second", "tokens/s"), ("samples_per_second", "samples/s")):
        if key in numbers:
            parts.append(f"{numbers[key]:,.0f} {label}")
    if "eta_seconds" in numbers and job.status == "Training":
        parts.append(f"{format_duration(numbers['eta_seconds'])} left")
    return "  ".join(parts)


def cost_text(view: RunView) -> str:
    """Return `  cost so far $x of $y cap` for a run whose jobs have a price; empty before any cost."""
    if not view.cost_usd:
        return ""
    cap = "" if view.max_cost_usd is None else f" of {format_usd(view.max_cost_usd)} cap"
    return f"  cost so far {format_usd(view.cost_usd)}{cap}"
