"""Rules on the model's input: tokens and images."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainyard.errors import Finding, SpecError
from trainyard.rules.records import Facts, Inputs
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass(frozen=True, slots=True, kw_only=True)
class NLPSequenceRatio(Rule):
    """A token, such as padding or an unknown word, makes up more than its allowed share of the input.

    Source: SageMaker Developer Guide, NLPSequenceRatio. token_values and token_thresholds_percent are comma-separated
    lists of equal length. Worked: values 0,1 and thresholds 50,10 allow 50 % of token 0 and 10 % of token 1.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Inputs,)
    NEEDS = "shares of tokens in the input (kind `inputs`)"
    tensor_regex: str = ".*embedding0_input_0"
    token_values: str = "0"  # noqa: S105  # no password
    token_thresholds_percent: str = "50"  # noqa: S105  # no password

    def __post_init__(self) -> None:
        """Check the two lists.

        Raises:
            SpecError: they differ in length, or a threshold is not a number.
        """
        if len(self.token_values.split(",")) != len(_numbers(self.token_thresholds_percent)):
            raise SpecError(
                Finding(
                    where="token_thresholds_percent",
                    what="must have one percentage for each token in token_values",
                    got=f"{self.token_thresholds_percent!r} for token_values {self.token_values!r}",
                    allowed="one percentage per token, such as '50,10' for '0,1'",
                )
            )

    def judge(self, record: Inputs) -> Iterator[Judgement]:
        """Yield a result for each token of `token_values` whose share is known."""
        limits = _numbers(self.token_thresholds_percent)
        for token, limit in zip(self.token_values.split(","), limits, strict=True):
            share = record.token_shares.get(token.strip())
            if share is not None:
                yield Judgement(
                    key=f"token {token.strip()}",
                    is_violated=100 * share > limit,
                    text=f"makes up {share:.1%} of the input, more than {limit:g} %",
                    numbers={"percent": 100 * share},
                )


def _numbers(text: str) -> list[float]:
    try:
        return [float(each) for each in text.split(",")]
    except ValueError:
        return []


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckInputImages(Rule):
    """The images are not normalized: the mean of a color channel is further from 0 than `threshold_mean`.

    The mean is taken over at least `threshold_samples` images. Source: SageMaker Developer Guide,
    CheckInputImages.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Inputs,)
    NEEDS = "means of the images' channels (kind `inputs`)"
    threshold_mean: float = 0.2
    threshold_samples: int = 500
    regex: str = ".*hybridsequential0_input_0"
    channel: int = 1

    def watch(self, facts: Facts) -> RuleState[Inputs]:  # noqa: ARG002
        """Return the state of this rule before the first record of a training."""
        return _CheckInputImages(self)


class _CheckInputImages(RuleState[Inputs]):
    def __init__(self, rule: CheckInputImages) -> None:
        self._rule = rule
        self._seen: list[tuple[int, int, tuple[float, ...]]] = []

    def see(self, record: Inputs) -> Iterator[Judgement]:
        if not record.channel_means:
            return
        self._seen.append((record.step, record.num_samples, record.channel_means))
        count = sum(num for _, num, _ in self._seen)
        if count < self._rule.threshold_samples:
            self.why_not = f"{count} images; needs {self._rule.threshold_samples}"
            return
        for channel in range(len(record.channel_means)):
            mean = sum(num * means[channel] for _, num, means in self._seen) / max(1, count)
            yield Judgement(
                key=f"channel {channel}",
                is_violated=abs(mean) > self._rule.threshold_mean or math.isnan(mean),
                text=f"the mean over {count} images is {mean:.3g}, further from 0 than {self._rule.threshold_mean:g}",
                numbers={"mean": mean},
            )

    def roll_back(self, step: int) -> None:
        self._seen = [each for each in self._seen if each[0] <= step]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats(Rule):
    """Too much of the input is padding, unknown words, masked tokens or a single token.

    Attributes:
        pad_share, unk_share, masked_share: the largest allowed share of these tokens in all tokens, 0 to 1.
        single_share: the largest allowed share of any single token, 0 to 1.
    """

    READS = (Inputs,)
    NEEDS = "shares of tokens in the input (kind `inputs`): pad, unk, masked, or by token id"
    pad_share: float = 0.5
    unk_share: float = 0.05
    masked_share: float = 0.9
    single_share: float = 0.5
    persistence: int = 3

    def judge(self, record: Inputs) -> Iterator[Judgement]:
        """Yield a result for each token whose share is recorded."""
        limits = {"pad": self.pad_share, "unk": self.unk_share, "masked": self.masked_share}
        for token, share in record.token_shares.items():
            limit = limits.get(token, self.single_share)
            yield Judgement(
                key=f"token {token}",
                is_violated=share > limit,
                text=f"{share:.1%} of the tokens, more than {limit:.0%}",
                numbers={"share": share},
            )


RULES: tuple[type[Rule], ...] = (
    NLPSequenceRatio,
    CheckInputImages,
    TokenStats,
)
