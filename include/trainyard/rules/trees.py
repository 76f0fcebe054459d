"""Rules on boosted trees (XGBoost)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.rules.records import Trees
from trainyard.rules.rule import Judgement, Origin, Rule

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureImportanceOverweight(Rule):
    """The `nfeatures` most important features make up more than `threshold` of all importance.

    Source: SageMaker Developer Guide, FeatureImportanceOverweight (`threshold` 0.8, `nfeatures` 3).
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Trees,)
    NEEDS = "the importance of features (kind `trees`), more of them than nfeatures"
    threshold: float = 0.8
    nfeatures: int = 3
    tensor_regex: str = ".*feature_importance/weight"

    def judge(self, record: Trees) -> Iterator[Judgement]:
        """Yield the result for one record; nothing if it has at most `nfeatures` features."""
        ranked = sorted(record.feature_importance.items(), key=lambda pair: -pair[1])
        if len(ranked) <= self.nfeatures:
            return
        top = ranked[: self.nfeatures]
        share = sum(value for _, value in top) / max(sum(value for _, value in ranked), 1e-12)
        yield Judgement(
            is_violated=share > self.threshold,
            text=f"{', '.join(name for name, _ in top)} make up {share:.0%} of the importance",
            numbers={"share": share},
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TreeDepth(Rule):
    """A tree is deeper than `depth`. The depth of the deepest tree is log2 of the largest node id, rounded down.

    Source: SageMaker Developer Guide, TreeDepth (default depth 4). Worked: the largest ids 31 and 63 give the
    depths 4 and 5.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Trees,)
    NEEDS = "the largest node id of the trees (kind `trees`)"
    ON_REQUEST = (
        "XGBoost's own default depth is 6, the rule's 4: the allowed depth is the author's choice"
    )
    depth: int = 4

    def judge(self, record: Trees) -> Iterator[Judgement]:
        """Yield the result for one record; nothing if its largest node id is unknown."""
        if record.largest_node_id is not None:
            deepest = int(math.log2(max(1, record.largest_node_id)))
            yield Judgement(
                is_violated=deepest > self.depth,
                text=f"a tree is {deepest} deep, deeper than {self.depth}",
                numbers={"depth": deepest},
            )


RULES: tuple[type[Rule], ...] = (FeatureImportanceOverweight, TreeDepth)
