"""Choice of the tensors, statistics and steps to write.

The choice comes from the hyperparameter `statistics`, the job's DebugHookConfig, or the defaults.

A collection is a selection of tensors with its own steps. Its parameters have AWS's names, as in
CollectionConfigurations: `save_interval`, `start_step`, `end_step` (exclusive), `save_steps` and
`include_regex`. The first four can also have the prefix `train.`. HookParameters can set the first four for
all collections that do not set them.

Losses, learning rates and times of every step are always written. The norms of gradients cost nothing
extra, since clipping computes them anyway. The norms of a configured gradient collection are therefore
written at every step, unless `start_step`, `end_step` or `save_steps` is set for it. Its other statistics
are written at the collection's own steps. By default, a model with more than 500 tensors has its gradient
norms written less often (`default_collections`).
"""

from __future__ import annotations

import json
import logging
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainyard_watch.errors import HyperparameterError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

log = logging.getLogger(__name__)

WEIGHTS, GRADIENTS, ACTIVATIONS = "weights", "gradients", "activations"
NORM, CHANGE, SPREAD = "norm", "change", "spread"  # l2; update_l2 or mean_abs; mean to p95
# This trainer's own collections, which have a cadence only.
CHECKSUMS, BATCHES = "checksums", "batches"
ALL_NUMBERS = frozenset({NORM, CHANGE, SPREAD})
EARLY_STEPS = frozenset({1, 5, 10})  # show the beginning of a training
MANY_TENSORS = 500  # with more tensors, norms are not written at every step
CHECKSUM_INTERVAL = 100
INPUTS_INTERVAL = 10
AWS_INTERVAL = 500  # smdebug's default for a configured collection

_ALWAYS_WRITTEN = frozenset({"losses", "metrics", "default"})
_OF_LAYERS = frozenset({"inputs", "outputs", "layers", "activations"})
_ACTIVATION = re.compile(r"([a-z]+\d*)_(?:input|output)")
_CADENCE_KEYS = ("save_interval", "start_step", "end_step", "save_steps")
_WINDOW_KEYS = frozenset(_CADENCE_KEYS[1:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cadence:
    """Steps: the multiples of `interval` in a range, and the steps in `further`.

    The range begins with `start` and ends before `end`. If `end` is None, the range has no limit. If `interval`
    is 0, only the steps in `further` belong to the cadence.
    """

    interval: int = 1
    start: int = 0
    end: int | None = None
    further: frozenset[int] = frozenset()

    def has(self, step: int) -> bool:
        """Return whether the cadence includes the step."""
        if step in self.further:
            return True
        is_within = step >= self.start and (self.end is None or step < self.end)
        return bool(self.interval) and is_within and step % self.interval == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """Selection of tensors, of their statistics, and of the steps at which these are written.

    Attributes:
        kind: weights, gradients or activations.
        cadence: the steps.
        numbers: groups of statistics: NORM (L2 norms), CHANGE (changes of weights, or mean absolute
            gradients), SPREAD (all others: mean, variance, percentiles ...).
        pattern: pattern that is searched in the tensor's name; None for all.
        module_class: text that is searched in the class name of the tensor's module; None for all.
    """

    kind: str
    cadence: Cadence
    numbers: frozenset[str] = ALL_NUMBERS
    pattern: re.Pattern[str] | None = None
    module_class: re.Pattern[str] | None = None

    def has_tensor(self, name: str, module_class: str) -> bool:
        """Return whether a tensor belongs to the collection."""
        is_named = self.pattern is None or bool(self.pattern.search(name))
        return is_named and (
            self.module_class is None or bool(self.module_class.search(module_class))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Choice of statistics.

    Attributes:
        is_on: whether statistics are written.
        collections: collections of tensors.
        checksums: steps after which replicas compare their parameters.
        batches: steps at which statistics of the first micro-batch's inputs are written (`describe_inputs`).
    """

    is_on: bool = True
    collections: tuple[Collection, ...] = field(default_factory=tuple)
    checksums: Cadence = field(default_factory=lambda: Cadence(interval=CHECKSUM_INTERVAL))
    batches: Cadence = field(default_factory=lambda: Cadence(interval=INPUTS_INTERVAL))

    def of(self, kind: str) -> tuple[Collection, ...]:
        """Return the collections of one kind of tensors: weights, gradients or activations."""
        return tuple(each for each in self.collections if each.kind == kind)


def choose(setting: str, hook: Mapping[str, Any] | None, *, num_tensors: int) -> Choice:
    """Return the choice of a job.

    Args:
        setting: the hyperparameter `statistics`: `on`, `off`, or a JSON object that maps the name of each
            collection to its parameters.
        hook: content of debughookconfig.json, used only if the setting is `on`; None if there is no such file.
        num_tensors: number of the model's parameter tensors.

    Raises:
        HyperparameterError: the setting is not `on`, `off` or a JSON object of this form.
        ValueError, TypeError, re.error: a collection of `hook` has a parameter that is not valid.
    """
    if setting == "off":
        return Choice(is_on=False)
    if setting != "on":
        return _configured_choice(read_setting(setting), {})
    given = {
        each.get("CollectionName", ""): each.get("CollectionParameters") or {}
        for each in (hook or {}).get("CollectionConfigurations") or ()
    }
    shared = (hook or {}).get("HookParameters") or {}
    if given:
        return _configured_choice(given, shared)
    if _cadence_values(shared):
        every = {name: {} for name in (WEIGHTS, "biases", GRADIENTS, ACTIVATIONS)}
        return Choice(collections=tuple(_configured(every, shared)))
    return Choice(collections=default_collections(num_tensors))


def default_collections(num_tensors: int) -> tuple[Collection, ...]:
    """Return the default collections.

    - Norms of gradients: at every step (less often with more than 500 tensors). Clipping computes them anyway.
    - Norms of weights, changes of weights and mean absolute gradients: every 10 steps. Weights change slowly, and
      their norms would cost 1 to 4 % of a small step.
    - All other statistics, and activations: at the steps 1, 5 and 10, and every 50 steps.
    """
    norms = Cadence(interval=-(-num_tensors // MANY_TENSORS) or 1)
    spreads = Cadence(interval=50, further=EARLY_STEPS)
    changes = Cadence(interval=10)
    return (
        *(
            Collection(kind=kind, cadence=cadence, numbers=frozenset({number}))
            for kind in (GRADIENTS, WEIGHTS)
            for number, cadence in (
                (NORM, norms if kind == GRADIENTS else changes),
                (CHANGE, changes),
                (SPREAD, spreads),
            )
        ),
        Collection(kind=ACTIVATIONS, cadence=spreads),
    )


def read_setting(setting: str) -> dict[str, dict[str, Any]]:
    """Return the collections of a `statistics` setting in JSON.

    Raises:
        HyperparameterError: the setting is not an object of objects, or a parameter's value is not valid.
    """
    try:
        given = {name: dict(each) for name, each in dict(json.loads(setting)).items()}
        _configured_choice(given, {})
    except (ValueError, TypeError, re.error) as error:
        message = (
            f"hyperparameter 'statistics': got {setting[:200]!r}; allowed: on, off, or a JSON object of collections "
            f'and their parameters, such as {{"gradients": {{"save_interval": 10}}}} ({error})'
        )
        raise HyperparameterError(message) from error
    return given


def _configured_choice(given: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]) -> Choice:
    own = {
        name: _cadence(_cadence_values(given[name]))
        for name in (CHECKSUMS, BATCHES)
        if name in given
    }
    tensors = {name: parameters for name, parameters in given.items() if name not in own}
    return Choice(collections=tuple(_configured(tensors, shared)), **own)


def _configured(
    given: Mapping[str, Mapping[str, Any]], shared: Mapping[str, Any]
) -> Iterator[Collection]:
    for name, parameters in given.items():
        if name in _ALWAYS_WRITTEN:
            continue
        values = _cadence_values(shared) | _cadence_values(parameters)
        cadence = _cadence(values)
        found = list(_collections_of(name, parameters.get("include_regex"), cadence))
        if not found:
            log.warning(
                "the collection %r is not known and has no include_regex: nothing is written for it; known are "
                "losses, weights, biases, gradients, all, relu_output and the like",
                name,
            )
        yield from found
        if not _WINDOW_KEYS & values.keys():
            for each in found:
                if each.kind == GRADIENTS:
                    yield Collection(
                        kind=each.kind,
                        cadence=Cadence(),
                        numbers=frozenset({NORM}),
                        pattern=each.pattern,
                    )


def _collections_of(name: str, include_regex: str | None, cadence: Cadence) -> Iterator[Collection]:
    match = _ACTIVATION.fullmatch(name)
    if include_regex or name == "all":
        pattern = re.compile(include_regex) if include_regex else None
        for kind in (WEIGHTS, GRADIENTS, ACTIVATIONS):
            yield Collection(kind=kind, cadence=cadence, pattern=pattern)
    elif name == WEIGHTS:
        yield Collection(kind=WEIGHTS, cadence=cadence, pattern=re.compile(r"^(?!.*bias$)"))
    elif name == "biases":
        yield Collection(kind=WEIGHTS, cadence=cadence, pattern=re.compile(r"bias$"))
    elif name == GRADIENTS:
        yield Collection(kind=GRADIENTS, cadence=cadence)
    elif name in _OF_LAYERS:
        yield Collection(kind=ACTIVATIONS, cadence=cadence)
    elif match:
        by_class = re.compile(match[1], re.IGNORECASE)
        yield Collection(kind=ACTIVATIONS, cadence=cadence, module_class=by_class)


def _cadence_values(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {
        key: value
        for key in _CADENCE_KEYS
        if (value := parameters.get(f"train.{key}", parameters.get(key))) not in {None, ""}
    }


def _cadence(values: Mapping[str, Any]) -> Cadence:
    further = frozenset(int(each) for each in str(values.get("save_steps", "")).split(",") if each)
    default = 0 if further else AWS_INTERVAL
    return Cadence(
        interval=max(0, int(values.get("save_interval", default))),
        start=int(values.get("start_step", 0)),
        end=int(values["end_step"]) if "end_step" in values else None,
        further=further,
    )
