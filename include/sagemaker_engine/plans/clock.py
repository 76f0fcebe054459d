"""Clock and catalogue of the training plans of one engine, stored in a file of the engine's state folder.

The plans' clock can be moved ahead of the machine's clock, so that a window that lasts days passes in a
moment. The times of windows in responses are converted to the machine's clock, which the clients use, too.
Worked example: the plans' clock is one hour ahead of the machine's clock. A window that begins at 15:00 by
the plans' clock begins at 14:00 in responses.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sagemaker_engine.plans.catalogue import (
    DEFAULT_CATALOGUE,
    CatalogueError,
    ReservableType,
    as_json,
    is_amount,
    read_catalogue,
)
from sagemaker_engine.state.whole_file import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FILE = "training_plans.json"
_AHEAD, _ADVANCE, _CATALOGUE = "ahead_s", "advance_s", "catalogue"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanClock:
    """Clock and catalogue of the training plans. The clock is `ahead_s()` seconds ahead of the machine's clock."""

    path: Path
    wall: Callable[[], float] = time.time

    def ahead_s(self) -> float:
        """Return the seconds by which the clock is ahead."""
        return float(self._document().get(_AHEAD, 0.0))

    def now(self) -> float:
        """Return the time on the plans' clock in epoch seconds."""
        return self.wall() + self.ahead_s()

    def catalogue(self) -> tuple[ReservableType, ...]:
        """Return the reservable instances."""
        changed = self._document().get(_CATALOGUE)
        return DEFAULT_CATALOGUE if changed is None else read_catalogue(changed)

    def report(self) -> dict[str, Any]:
        """Return the state of the clock and of the catalogue as JSON-safe data.

        The keys are `ahead_s`, the seconds by which the clock is ahead, and `catalogue`, the reservable instances.
        """
        return {_AHEAD: self.ahead_s(), _CATALOGUE: as_json(self.catalogue())}

    def change(self, document: object) -> None:
        """Change the clock, the catalogue, or both.

        `document` is a JSON object with two optional members. `advance_s` is the number of seconds by which the
        clock is moved ahead. `catalogue` replaces the catalogue.

        Raises:
            CatalogueError: The document is malformed, or would turn the clock back.
        """
        if not isinstance(document, dict) or set(document) - {_ADVANCE, _CATALOGUE}:
            raise CatalogueError(
                f'training plans: got {document!r}; write {{"{_ADVANCE}": <seconds>, "{_CATALOGUE}": [...]}}'
            )
        stored = self._document()
        advance_s = document.get(_ADVANCE, 0)
        if not is_amount(advance_s):
            raise CatalogueError(
                f"{_ADVANCE}: got {advance_s!r}; write the seconds to add to the clock, a finite number of 0 or more"
            )
        if _CATALOGUE in document:
            stored[_CATALOGUE] = as_json(read_catalogue(document[_CATALOGUE]))
        stored[_AHEAD] = float(stored.get(_AHEAD, 0.0)) + advance_s
        write_whole(self.path, json.dumps(stored))

    def reset(self) -> None:
        """Restore the default catalogue. The clock stays: it cannot be turned back."""
        write_whole(self.path, json.dumps({_AHEAD: self.ahead_s()}))

    def _document(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {}
        return found
