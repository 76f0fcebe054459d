"""Display that also passes each view to the fault injector, and stores the last one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from chaos.fault_injector import FaultInjector
    from trainyard.stack.display import Display
    from trainyard.stack.following import RunView


class WatchedDisplay:
    """Wrapper of another display; `last` is the last shown view, or None."""

    def __init__(self, display: Display, fault_injector: FaultInjector) -> None:
        self._display = display
        self.fault_injector = fault_injector
        self.last: RunView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, view: RunView) -> None:
        """Show a view of the run, and pass it to the fault injector."""
        self.last = view
        self.fault_injector.note(view)
        self._display.show(view)

    def say(self, line: str) -> None:
        """Print a permanent line."""
        self._display.say(line)
