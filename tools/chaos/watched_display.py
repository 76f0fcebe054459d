"""A display that also reports what is shown to the fault injector, and remembers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from chaos.fault_injector import FaultInjector
    from trainyard.stack.display import Display
    from trainyard.stack.following import RunView


class WatchedDisplay:
    """Shows through another display; `last` is the view shown last."""

    def __init__(self, display: Display, fault_injector: FaultInjector) -> None:
        self._display = display
        self.fault_injector = fault_injector
        self.last: RunView | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    def show(self, view: RunView) -> None:
        """Show the run as it is now."""
        self.last = view
        self.fault_injector.note(view)
        self._display.show(view)

    def say(self, line: str) -> None:
        """Print one line that stays."""
        self._display.say(line)
