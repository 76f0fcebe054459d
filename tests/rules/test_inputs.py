"""Each rule on inputs, predictions, trees and other runs fires at its step, and spares its neighbor."""

from __future__ import annotations

import math

import pytest

from tests.rules.judged import JudgedCase, check_case, judged
from tests.rules.series import jump, noisy, steps, tensor_steps
from trainyard.errors import SpecError
from trainyard.rules.configuration import make_rule
from trainyard.rules.records import WEIGHTS, Facts, Inputs, Predictions, Record, Trees
from trainyard.rules.rule import RuleProfile

DOCUMENTED = RuleProfile.DOCUMENTED
NONE = steps(50, loss=1.0)
GOOD_RUN = tuple(steps(60, loss=lambda step: 3.0 - step / 100))


def predictions(
    count: int, *matrices: tuple[tuple[int, ...], ...], every: int = 100
) -> list[Record]:
    """Return confusion matrices, the last one repeated to the end."""
    return [
        Predictions(step=every * n, confusion=matrices[min(n, len(matrices)) - 1])
        for n in range(1, count + 1)
    ]


def inputs(count: int, **fields: object) -> list[Record]:
    """Return what was fed at each of `count` steps; a field is a value, or a function of the step."""
    return [
        Inputs(step=step, **{k: v(step) if callable(v) else v for k, v in fields.items()})  # type: ignore[arg-type]
        for step in range(1, count + 1)
    ]


IMPORTANCE = {"a": 0.5, "b": 0.2, "c": 0.12, "d": 0.18}
EVEN = ((90, 10), (10, 90))
CASES = [
    JudgedCase(
        name="ClassImbalance: documented",
        rule="ClassImbalance",
        profile=DOCUMENTED,
        faulty=predictions(4, ((460, 0), (0, 45)), ((460, 0), (0, 45))),
        healthy=predictions(4, ((450, 0), (0, 50))),
        without=predictions(1, ((400, 0), (0, 50))),
        fires=100, onset=0, says="occurs 460 times, the rarest 45 times", needs="450 labels; needs 500",
    ),
    JudgedCase(
        name="ClassImbalance: robust, mispredicted",
        rule="ClassImbalance",
        parameters={"samples": 200},
        faulty=predictions(12, EVEN, EVEN, EVEN, EVEN, EVEN, EVEN, ((90, 10), (71, 29))),
        healthy=predictions(12, ((90, 10), (70, 30))),
        without=predictions(4, ((0, 100), (100, 0))),
        fires=900, onset=700, says="71% of its 100 samples were mispredicted", needs="after the warm-up of 500 steps",
    ),
    JudgedCase(
        rule="Confusion",
        faulty=predictions(5, EVEN, EVEN, ((89, 11), (10, 90))),
        healthy=predictions(5, EVEN),
        without=NONE,
        fires=300, onset=300, says="89% of its samples were recognized", needs="counts of labels against predictions",
    ),
    JudgedCase(
        rule="NLPSequenceRatio",
        profile=DOCUMENTED,
        parameters={"token_values": "0, 7", "token_thresholds_percent": "50,10"},
        faulty=inputs(20, token_shares=lambda step: {"0": 0.4, "7": 0.11 if step >= 9 else 0.1}),
        healthy=inputs(20, token_shares={"0": 0.5, "7": 0.1}),
        without=inputs(20, token_shares={"pad": 0.9}),
        fires=9, onset=9, says="makes up 11.0% of the input, more than 10 %", needs="shares of tokens",
    ),
    JudgedCase(
        rule="CheckInputImages",
        faulty=inputs(20, num_samples=100, channel_means=(0.0, 0.21)),
        healthy=inputs(20, num_samples=100, channel_means=(0.0, -0.2)),
        without=inputs(4, num_samples=100, channel_means=(0.0, 0.5)),
        fires=5, onset=0, says="the mean over 500 images is 0.21", needs="400 images; needs 500",
    ),
    JudgedCase(
        name="CheckInputImages: not finite",
        rule="CheckInputImages",
        faulty=inputs(5, num_samples=500, channel_means=lambda step: (0.0 if step < 3 else math.nan,)),
        healthy=inputs(20, num_samples=100, channel_means=(0.0, 0.2)),
        without=inputs(4, num_samples=100, channel_means=(math.nan,)),
        fires=3, onset=3, says="the mean over 1500 images is nan", needs="400 images; needs 500",
    ),
    JudgedCase(
        rule="TokenStats",
        faulty=inputs(20, token_shares=lambda step: {"pad": 0.6 if step >= 8 else 0.1, "unk": 0.0}),
        healthy=inputs(20, token_shares={"pad": 0.5, "unk": 0.05, "masked": 0.9, "17": 0.5}),
        without=inputs(20, num_samples=3),
        fires=10, onset=8, says="60.0% of the tokens, more than 50%", needs="shares of tokens",
    ),
    JudgedCase(
        rule="SimilarAcrossRuns",
        parameters={"other_trial_0": "good"},
        facts=Facts(other_runs={"good": GOOD_RUN}),  # type: ignore[arg-type]  # they are steps
        faulty=steps(60, loss=lambda step: 3.0 - step / 100 + (0.01 if step >= 44 else 0.0)),
        healthy=steps(60, loss=lambda step: 3.0 - step / 100 + 1e-3),
        without=steps(10, learning_rate=0.1),
        fires=44, onset=44, says="2.57 in this run, 2.56 in the other", needs="another run to compare with",
    ),
    JudgedCase(
        rule="FeatureImportanceOverweight",
        faulty=[Trees(step=n, feature_importance={**IMPORTANCE, "e": 0.0 if n > 3 else 0.3}) for n in range(1, 9)],
        healthy=[Trees(step=1, feature_importance={"a": 0.5, "b": 0.2, "c": 0.1, "d": 0.2, "e": 0.2})],
        without=[Trees(step=1, feature_importance={"a": 0.9, "b": 0.05, "c": 0.05})],
        fires=4, onset=4, says="a, b, d make up 88% of the importance", needs="more of them than nfeatures",
    ),
    JudgedCase(
        rule="TreeDepth",
        faulty=[Trees(step=step, largest_node_id=31 * step) for step in range(1, 9)],
        healthy=[Trees(step=1, largest_node_id=31)],
        without=[Trees(step=1)],
        fires=2, onset=2, says="a tree is 5 deep, deeper than 4", needs="the largest node id",
    ),
]  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_rule_fires_at_its_step(case: JudgedCase) -> None:
    check_case(case)


def test_token_lists_of_different_length_are_refused() -> None:
    with pytest.raises(SpecError, match="must have one percentage for each token in token_values"):
        make_rule("NLPSequenceRatio", {"token_values": "0,1"}, profile=DOCUMENTED)


def test_runs_are_compared_by_tensors_where_these_are_chosen() -> None:
    other = tuple(tensor_steps(10, collection=WEIGHTS, l2=2.0))
    facts = Facts(other_runs={"x": other})  # type: ignore[arg-type]  # they are steps
    parameters = {"other_trials": "x", "collection_names": "weights"}

    same = judged(
        "SimilarAcrossRuns", tensor_steps(10, collection=WEIGHTS, l2=2.001), parameters, facts=facts
    )
    far = judged(
        "SimilarAcrossRuns",
        tensor_steps(10, collection=WEIGHTS, l2=jump(2.0, 2.1, at=6)),
        parameters,
        facts=facts,
    )

    assert (same.num_judged, same.issues) == (10, ())
    assert [(issue.step, issue.key) for issue in far.issues] == [(6, "weights/0.weight")]


def test_another_run_that_is_not_known_is_said() -> None:
    verdict = judged("SimilarAcrossRuns", NONE, {"other_trial_0": "runs/gone"})

    assert verdict.not_evaluated == "there are no steps of the other run runs/gone"
    assert judged("SimilarAcrossRuns", steps(5, loss=noisy(1.0, 0.1))).not_evaluated == (
        "needs another run to compare with (other_trial_0)"
    )
