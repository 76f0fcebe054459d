"""Request for a plan: a model, its tokens and batch size, and the limits of time and cost."""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, Any

from trainyard.catalog.hardware import hardware
from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.planning.shapes import FLASH, LLAMA, PUBLISHED, ModelShape, shape_of_size
from trainyard.specs.reading import FromMapping

if TYPE_CHECKING:
    from collections.abc import Iterator

PRECISIONS = ("bf16", "fp32")
_OF_SHAPE = (
    "num_layers",
    "hidden_size",
    "num_heads",
    "num_kv_heads",
    "feed_forward_size",
    "family",
    "attention",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRequest(FromMapping):
    """A training to be planned.

    Set the model in exactly one of three ways: `model`, `num_parameters`, or `num_layers` with `hidden_size`
    and `num_heads`.

    Attributes:
        model: `llama3-8b`, `llama3-70b`, `gpt3-175b` or `gpt2-124m`.
        num_parameters: size of the model; the planner takes the llama shape nearest to it.
        sequence_length: tokens per sequence; None = 2048, or the published model's.
        vocab_size: tokens of the vocabulary; None = 50,304, or the published model's.
        global_batch_size: sequences per optimizer step.
        tokens: tokens of the whole training.
        compile: whether the training uses torch.compile. The published speeds are measured with it.
        deadline_h: the most hours that the training may take.
        budget_usd: the most that the training may cost, on demand.
        instance_types: candidates; empty = every NVIDIA type of the catalogue.
        max_instances: largest number of instances that is tried; ignored if `instance_count` is set.
        instance_count: the only number of instances that is tried for each type. None = one instance of each
            type; for the largest type of a family, also the powers of two up to `max_instances`.
    """

    model: str | None = None
    num_parameters: float | None = None
    num_layers: int | None = None
    hidden_size: int | None = None
    num_heads: int | None = None
    num_kv_heads: int | None = None
    feed_forward_size: int | None = None
    family: str = LLAMA
    attention: str = FLASH
    vocab_size: int | None = None
    sequence_length: int | None = None
    global_batch_size: int
    tokens: float
    precision: str = "bf16"
    compile: bool = True
    deadline_h: float | None = None
    budget_usd: float | None = None
    instance_types: tuple[str, ...] = ()
    max_instances: int = 16
    instance_count: int | None = None

    def __post_init__(self) -> None:
        """Check the fields of the request.

        Raises:
            SpecError: fields are invalid; the findings name all of them.
        """
        findings = list(self._findings())
        if findings:
            raise SpecError(findings, subject="plan request")
        self.shape  # noqa: B018  # raises what is wrong with it

    @property
    def shape(self) -> ModelShape:
        """The model's shape. Raises SpecError if the request's fields for the model contradict each other."""
        return _shape(self)

    @property
    def num_steps(self) -> float:
        """Number of optimizer steps for all tokens; may be a fraction."""
        return self.tokens / (self.global_batch_size * self.shape.sequence_length)

    def _findings(self) -> Iterator[Finding]:
        yield from self._model()
        yield from self._limits()
        for index, name in enumerate(self.instance_types):
            if name not in hardware():
                near = near_matches(name, hardware())
                yield Finding(
                    where=f"instance_types[{index}]",
                    what="is not an NVIDIA instance type of the catalogue; the planner supports no others",
                    got=name,
                    next_step=did_you_mean(near),
                )

    def _model(self) -> Iterator[Finding]:
        shape = (self.num_layers, self.hidden_size, self.num_heads)
        ways = {
            "model": self.model is not None,
            "num_parameters": self.num_parameters is not None,
            "num_layers": any(each is not None for each in shape),
        }
        chosen = [name for name, is_set in ways.items() if is_set]
        if len(chosen) != 1:
            yield Finding(
                where="model",
                what="is set in several ways" if chosen else "is not set",
                got=" and ".join(chosen) or "nothing",
                allowed="either model, or num_parameters, or num_layers with hidden_size and num_heads",
            )
        elif chosen == ["num_layers"] and None in shape:
            yield Finding(
                where="num_layers",
                what="needs hidden_size and num_heads too",
                got=", ".join(
                    f"{name} {value}" for name, value in zip(_OF_SHAPE[:3], shape, strict=True)
                ),
                next_step="set all three, or set model or num_parameters instead",
            )
        if self.model is not None and self.model not in PUBLISHED:
            yield Finding(
                where="model",
                what="is not a known model",
                got=self.model,
                allowed=", ".join(PUBLISHED),
            )
        declared = {each.name: each.default for each in fields(self)}
        fixed = (*_OF_SHAPE[3:], "vocab_size", "sequence_length")
        for name in (
            each for each in fixed if self.model and getattr(self, each) != declared[each]
        ):
            yield Finding(
                where=name,
                what="is already defined by the given model",
                next_step=f"remove {name}, or remove model",
            )

    def _limits(self) -> Iterator[Finding]:
        positive = (
            "global_batch_size",
            "tokens",
            "max_instances",
            "instance_count",
            "deadline_h",
            "budget_usd",
        )
        for name in (*positive, "num_parameters", "vocab_size", "sequence_length"):
            value = getattr(self, name)
            if value is not None and value <= 0:
                yield Finding(
                    where=name, what="is too small", got=str(value), allowed="more than 0"
                )
        if self.precision not in PRECISIONS:
            yield Finding(
                where="precision",
                what="is not an allowed value",
                got=self.precision,
                allowed=", ".join(PRECISIONS),
            )


@cache
def _shape(request: PlanRequest) -> ModelShape:
    if request.model is not None:
        return PUBLISHED[request.model]
    vocab_size, sequence_length = request.vocab_size or 50304, request.sequence_length or 2048
    if request.num_parameters is not None:
        return shape_of_size(
            request.num_parameters, vocab_size=vocab_size, sequence_length=sequence_length
        )
    given: dict[str, Any] = {name: getattr(request, name) for name in _OF_SHAPE}
    return ModelShape(vocab_size=vocab_size, sequence_length=sequence_length, **given)
