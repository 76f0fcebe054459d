"""The params of `compare_strategies`: the training fields of `train_end_to_end`'s form, and the comparison's fields."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from trainyard.specs.comparison_conf import (
    ENTRY_POINT,
    NAME,
    ComparedStrategy,
    Comparison,
    is_of_other_runs,
)
from trainyard_airflow.tasks.end_to_end.params import FORM as RUN_FORM
from trainyard_airflow.tasks.shared.form_schema import (
    Form,
    Sections,
    conf_defaults,
    exactly,
    named,
)

_RANKS = {"type": "array", "items": {"type": "integer", "minimum": 1}}
_SHARE = {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 1}
_STRATEGIES = {
    "type": "array",
    "minItems": 1,
    "items": {
        "type": "object",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "pattern": exactly(NAME)},
            "distribution": {"type": "object"},
            "entry_point": {"type": "string", "pattern": exactly(ENTRY_POINT)},
            "hyperparameters": {"type": "object"},
            "ranks": _RANKS,
            "image_uri": named("image_uri", or_none=True),
        },
    },
}
_STRATEGIES_HELP = (
    "Each has a name, and optionally distribution (as in the SDK; default torchrun), entry_point (default "
    "train_ddp.py), hyperparameters, its own ranks and image_uri."
)
_AT_ONCE_HELP = (
    "1: each is measured alone. 0: as many as the pool has instances for. Without a training pool it has no effect: "
    "trainings may run at the same time."
)
_COMPARED: Sections = {
    "Comparison": {
        "strategies": ("Strategies", _STRATEGIES_HELP, _STRATEGIES),
        "ranks": (
            "Ranks",
            "Numbers of ranks to try each strategy with.",
            {**_RANKS, "minItems": 1},
        ),
        "loss_tolerance": (
            "Loss tolerance",
            "Largest relative difference from the reference cell, of any step's loss and of the last validation loss.",
            _SHARE,
        ),
        "worthwhile_efficiency": (
            "Worthwhile efficiency",
            "Least speed-up of an added rank, relative to one rank of the smallest cluster, at which it pays.",
            _SHARE,
        ),
        "cells_at_once": (
            "Trainings at a time",
            _AT_ONCE_HELP,
            {"type": "integer", "minimum": 0},
        ),
    }
}
TINY: dict[str, Any] = {
    "max_source_bytes": 4_000_000,
    "max_steps": 40,
    "learning_rate": 1e-3,
    "warmup_steps": 5,
    "eval_interval": 0,
    "checkpoint_interval": -1,
    "max_run_s": 600,
    "hyperparameters": {
        "num_threads": 1,
        "log_interval": 4,
        "eval_batches": 4,
        "profile_steps": 4,
        "statistics": "off",
    },
}
"""Defaults of a training that takes minutes on a laptop. A rank has one thread, so two ranks have twice the compute.

The learning rate is below train_end_to_end's. At 4e-3 after 5 steps of warm-up, rounding differences grow above the
loss tolerance (docs/comparison.md), and losses could not be compared.
"""


def _form() -> Form:
    """Return the form, without the fields that have no meaning in a comparison."""
    own = set(Comparison.__dataclass_fields__)  # the ranks of an instance are among them
    shared = {
        section: {n: each for n, each in entries.items() if n in own or not is_of_other_runs(n)}
        for section, entries in RUN_FORM.sections.items()
    }
    sections = {**_COMPARED, **{name: each for name, each in shared.items() if each}}
    defaults = {**RUN_FORM.defaults, **TINY, **_compared_defaults()}
    names = [name for entries in sections.values() for name in entries]
    return Form(sections, {name: defaults[name] for name in names if name in defaults})


def _compared_defaults() -> dict[str, Any]:
    defaults = conf_defaults(Comparison)
    return {**defaults, "strategies": [_as_json(each) for each in defaults["strategies"]]}


def _as_json(strategy: ComparedStrategy) -> dict[str, Any]:
    """Return a strategy as JSON-safe data, without empty fields."""
    given = {name: value for name, value in asdict(strategy).items() if value}
    return {
        name: list(value) if isinstance(value, tuple) else value for name, value in given.items()
    }


FORM = _form()
