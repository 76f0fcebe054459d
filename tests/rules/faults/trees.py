"""Records of a really boosted model. XGBoost is not there: scikit-learn's trees stand in for its."""

from __future__ import annotations

import numpy as np

from tests.rules.faults.running import Observed
from trainyard.rules.records import Record, Trees


def boosted_records() -> Observed:
    """Boost trees that are too deep on rows of which one feature tells nearly everything."""
    from sklearn.ensemble import GradientBoostingClassifier  # takes seconds

    draw = np.random.default_rng(0)
    rows = draw.normal(size=(400, 6))
    labels = rows[:, 0] + 0.1 * rows[:, 1] + 0.05 * draw.normal(size=400) > 0
    model = GradientBoostingClassifier(n_estimators=20, max_depth=7, random_state=0)
    model.fit(rows, labels)
    records: list[Record] = []
    for number in range(1, 21):
        trees = model.estimators_[:number, 0]
        sums = np.sum([tree.feature_importances_ for tree in trees], axis=0)
        shares = sums / sums.sum()
        depth = max(tree.get_depth() for tree in trees)
        records.append(
            Trees(
                step=number,
                feature_importance={
                    f"f{place}": float(share) for place, share in enumerate(shares)
                },
                largest_node_id=2 ** (depth + 1) - 2,
            )
        )
    return Observed(records=records, exit_codes=[0], seconds=0.0, log="")
