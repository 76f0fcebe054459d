"""A training whose model takes longer to write than the grace of a stop."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from trainer.process import run_rank
from trainer.training import Training

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class SlowWriterTraining(Training):
    """Writes a part of the model, and then nothing for a minute."""

    def write_whole_model(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Write half a model."""
        if self.ranks.is_main:
            self.paths.model_dir.mkdir(parents=True, exist_ok=True)
            (self.paths.model_dir / "model.safetensors").write_bytes(b"half")
            self.metrics.write("alive", step=self.state.progress.step)
        time.sleep(60)
        return super().write_whole_model(facts)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one rank."""
    return run_rank(SlowWriterTraining, argv)
