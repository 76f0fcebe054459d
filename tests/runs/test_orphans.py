"""What may be stopped: only an old thing of this deployment whose run is over."""

from __future__ import annotations

import pytest

from trainyard.runs.orphans import OrphanVerdict, PaidThing, ThingKind, judge
from trainyard.runs.run_tags import KEEP, RUN_ID, Owner

OURS = Owner(dag_id="dag", run_id="run", task_id="train", deployment="here").tags()
UNTRACED = {key: value for key, value in OURS.items() if key != RUN_ID}


@pytest.mark.parametrize(
    ("tags", "age_s", "is_live", "verdict"),
    [
        (OURS, 600, False, OrphanVerdict.ORPHAN),
        (OURS, 600, True, OrphanVerdict.OWNED),
        (OURS, 299, False, OrphanVerdict.YOUNG),
        ({**OURS, KEEP: ""}, 600, False, OrphanVerdict.KEPT),
        (UNTRACED, 600, False, OrphanVerdict.UNTRACED),
        ({**OURS, "trainyard:deployment": "there"}, 600, False, OrphanVerdict.FOREIGN),
        ({"trainyard:dag": "dag"}, 600, False, OrphanVerdict.FOREIGN),
        ({}, 600, False, OrphanVerdict.FOREIGN),
    ],
    ids=["orphan", "live", "young", "kept", "no run", "another's", "no deployment", "no tags"],
)
def test_verdict(tags: dict[str, str], age_s: float, is_live: bool, verdict: OrphanVerdict) -> None:
    thing = PaidThing(kind=ThingKind.TRAINING, name="job", arn="arn", since=1000.0, tags=tags)

    def run_is_live(owner: Owner) -> bool:
        assert (owner.dag_id, owner.run_id, owner.deployment) == ("dag", "run", "here")
        return is_live

    assert (
        judge(thing, deployment="here", now=1000.0 + age_s, grace_s=300, is_live=run_is_live)
        is verdict
    )
