"""Rules on what the model is fed and what it makes of it: classes, tokens, images."""

from __future__ import annotations

from collections.abc import Mapping  # noqa: TC003  # read_spec evaluates the annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from include.errors import Finding, SpecError
from include.rules.records import Facts, Inputs, Predictions
from include.rules.rule import Judgement, Origin, Rule, Stateless, Watch

if TYPE_CHECKING:
    from collections.abc import Iterator

Matrix = tuple[tuple[int, ...], ...]
_COUNTS = "counts of labels against predictions (kind `predictions`)"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassImbalance(Rule):
    """Labels are uneven by more than `threshold_imbalance` to one, or a class is mostly mispredicted.

    Judged each time `samples` labels have come: the ratio of counts is above `threshold_imbalance`, or of some class's
    samples more than `threshold_misprediction` were given another class. Source: SageMaker Developer Guide,
    ClassImbalance. Everything is mispredicted at first: the robust profile judges from step 500 on, three in a row.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Predictions,)
    NEEDS = _COUNTS
    ROBUST: ClassVar[Mapping[str, Any]] = {"warm_up": 500, "persistence": 3}
    threshold_imbalance: float = 10.0
    threshold_misprediction: float = 0.7
    samples: int = 500
    argmax: bool = False
    labels_regex: str = ".*labels"
    predictions_regex: str = ".*predictions"

    def watch(self, facts: Facts) -> Watch[Predictions]:  # noqa: ARG002  # the interface
        """Return a new state."""
        return _ClassImbalance(self)


class _Counted(Watch[Predictions]):
    """Adds up confusion matrices until they hold so many samples, then judges and begins again."""

    def __init__(self, samples: int) -> None:
        self._samples = samples
        self._since: list[tuple[int, Matrix]] = []

    def see(self, record: Predictions) -> Iterator[Judgement]:
        self._since.append((record.step, record.confusion))
        matrix = _added([each for _, each in self._since])
        count = sum(map(sum, matrix))
        if count < self._samples or not count:
            self.why_not = f"{count} labels; needs {self._samples}"
            return
        self._since.clear()
        yield from self.judge(matrix)

    def judge(self, matrix: list[list[int]]) -> Iterator[Judgement]:
        raise NotImplementedError

    def roll_back(self, step: int) -> None:
        self._since = [each for each in self._since if each[0] <= step]


def _added(matrices: list[Matrix]) -> list[list[int]]:
    size = max(len(matrix) for matrix in matrices)
    total = [[0] * size for _ in range(size)]
    for matrix in matrices:
        for label, row in enumerate(matrix):
            for predicted, count in enumerate(row):
                total[label][predicted] += count
    return total


class _ClassImbalance(_Counted):
    def __init__(self, rule: ClassImbalance) -> None:
        super().__init__(rule.samples)
        self._rule = rule

    def judge(self, matrix: list[list[int]]) -> Iterator[Judgement]:
        rule = self._rule
        counts = [sum(row) for row in matrix]
        ratio = max(counts) / max(1, min(counts))
        yield Judgement(
            is_violated=ratio > rule.threshold_imbalance,
            text=f"the most frequent label occurs {max(counts)} times, the rarest {min(counts)} times",
            numbers={"ratio": ratio},
        )
        for label, count in enumerate(counts):
            if count:
                wrong = 1 - matrix[label][label] / count
                yield Judgement(
                    key=f"class {label}",
                    is_violated=wrong > rule.threshold_misprediction,
                    text=f"{wrong:.0%} of its {count} samples were mispredicted",
                    numbers={"misprediction": wrong},
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class Confusion(Rule):
    """A class's share on the diagonal is below `min_diag`, or a share off it above `max_off_diag`.

    Source: SageMaker Developer Guide, Confusion Rule. Its text divides a diagonal element by the sum of the diagonal,
    which several classes can never fulfil; here it is the share of the label's samples: confusion[i][i] / sum_j
    confusion[i][j]. Off the diagonal it is as there: confusion[j][i] / sum_j confusion[j][i].
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Predictions,)
    NEEDS = _COUNTS
    ON_REQUEST = "how good a classifier must be is for its author to say"
    category_no: int | None = None
    labels: str = "labels"
    predictions: str = "predictions"
    labels_collection: str = "labels"
    predictions_collection: str = "predictions"
    min_diag: float = 0.9
    max_off_diag: float = 0.1

    def watch(self, facts: Facts) -> Watch[Predictions]:  # noqa: ARG002
        """Return a new state."""
        return Stateless(self._judge)

    def _judge(self, record: Predictions) -> Iterator[Judgement]:
        matrix = _added([record.confusion])
        size = len(matrix) if self.category_no is None else min(self.category_no, len(matrix))
        for each in range(size):
            row, column = sum(matrix[each]), sum(line[each] for line in matrix)
            right = matrix[each][each] / row if row else 1.0
            others = [matrix[label][each] for label in range(size) if label != each]
            wrong = max(others, default=0) / column if column else 0.0
            yield Judgement(
                key=f"class {each}",
                is_violated=right < self.min_diag or wrong > self.max_off_diag,
                text=f"{right:.0%} of its samples were recognised; another class is {wrong:.0%} of its predictions",
                numbers={"diagonal": right, "off_diagonal": wrong},
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class NLPSequenceRatio(Rule):
    """A token makes up more than its share of the input: padding without end, or words that the tokenizer lacks.

    Source: SageMaker Developer Guide, NLPSequenceRatio: token_values and token_thresholds_percent are lists divided by
    commas, of one length. Worked: values 0,1 and thresholds 50,10 want at most 50 % of token 0 and 10 % of token 1.
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
            SpecError: they differ in length, or a threshold is no number.
        """
        if len(self.token_values.split(",")) != len(_numbers(self.token_thresholds_percent)):
            raise SpecError(
                [
                    Finding(
                        where="token_thresholds_percent",
                        what="must be numbers, one for each of token_values",
                        got=f"{self.token_thresholds_percent!r} for {self.token_values!r}",
                        allowed="such as 50,10 for 0,1",
                    )
                ]
            )

    def watch(self, facts: Facts) -> Watch[Inputs]:  # noqa: ARG002
        """Return a new state."""
        return Stateless(self._judge)

    def _judge(self, record: Inputs) -> Iterator[Judgement]:
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
    """After `threshold_samples` images a channel's mean is further from zero than `threshold_mean`: not normalised.

    Source: SageMaker Developer Guide, CheckInputImages.
    """

    ORIGIN = Origin.DEBUGGER
    READS = (Inputs,)
    NEEDS = "means of the images' channels (kind `inputs`)"
    threshold_mean: float = 0.2
    threshold_samples: int = 500
    regex: str = ".*hybridsequential0_input_0"
    channel: int = 1

    def watch(self, facts: Facts) -> Watch[Inputs]:  # noqa: ARG002
        """Return a new state."""
        return _CheckInputImages(self)


class _CheckInputImages(Watch[Inputs]):
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
                is_violated=abs(mean) > self._rule.threshold_mean,
                text=f"the mean over {count} images is {mean:.3g}, further from 0 than {self._rule.threshold_mean:g}",
                numbers={"mean": mean},
            )

    def roll_back(self, step: int) -> None:
        self._seen = [each for each in self._seen if each[0] <= step]


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenStats(Rule):
    """The input is mostly padding, unknown words or masked, or one token makes up most of it.

    Attributes:
        pad_share, unk_share, masked_share: the most of all tokens that may be such, 0 to 1.
        single_share: the most that any one token may make up.
    """

    READS = (Inputs,)
    NEEDS = "shares of tokens in the input (kind `inputs`): pad, unk, masked, or by token id"
    pad_share: float = 0.5
    unk_share: float = 0.05
    masked_share: float = 0.9
    single_share: float = 0.5
    persistence: int = 3

    def watch(self, facts: Facts) -> Watch[Inputs]:  # noqa: ARG002
        """Return a new state."""
        return Stateless(self._judge)

    def _judge(self, record: Inputs) -> Iterator[Judgement]:
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
    ClassImbalance,
    Confusion,
    NLPSequenceRatio,
    CheckInputImages,
    TokenStats,
)
