"""Rules from a user's Python file: a function that is called at each step, or a subclass of `Rule`.

    def too_hot(record, history, *, limit=10.0):
        if record.gradient_norm > limit:
            return f"norm {record.gradient_norm}"

`record` is the `StepRecord` of the step. `history` has the newest `StepRecord`s up to and including it, the
newest last. The function returns None or False if the step is healthy. It returns a text or True if the
rule is violated.

The file's code runs in the process that evaluates the rules. Therefore only
`python -m trainyard.rules --rules ...` loads such files; a run's conf may not name one.
"""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass, field, is_dataclass
from typing import TYPE_CHECKING, Any

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.rules.records import Facts, StepRecord
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.specs.reading import read_spec

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType

MOST_HISTORY = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionRule(Rule):
    """A user's function, called at each step.

    Attributes:
        parameters: keyword arguments of the function.
    """

    ORIGIN = Origin.AUTHOR
    READS = (StepRecord,)
    NEEDS = "steps"
    function: Callable[..., Any]
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The function's name."""
        return str(getattr(self.function, "__name__", "function"))

    def settings(self) -> dict[str, Any]:
        """Return the function's keyword arguments, and the rule's `warm_up` and `persistence`."""
        counts = {"warm_up": self.warm_up, "persistence": self.persistence}
        return counts | {key: str(value) for key, value in self.parameters.items()}

    def watch(self, facts: Facts) -> RuleState[StepRecord]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _FunctionWatch(self)


class _FunctionWatch(RuleState[StepRecord]):
    def __init__(self, rule: FunctionRule) -> None:
        self._rule = rule
        self._history: list[StepRecord] = []

    def see(self, record: StepRecord) -> Iterator[Judgement]:
        self._history.append(record)
        del self._history[:-MOST_HISTORY]
        returned = self._rule.function(record, tuple(self._history), **self._rule.parameters)
        yield Judgement(
            is_violated=bool(returned),
            text=returned
            if isinstance(returned, str)
            else f"{self._rule.name} returned {returned!r}",
        )

    def roll_back(self, step: int) -> None:
        self._history = [each for each in self._history if each.step <= step]


def load_rule(place: str, parameters: Mapping[str, Any], *, folder: Path, where: str) -> Rule:
    """Return the rule that `place` names as `file.py:name`; the file is relative to `folder`.

    Raises:
        SpecError: the file or the name does not exist, the file raises, the name is not a rule, or its parameters are
            wrong.
    """
    file, _, name = place.rpartition(":")
    if not file or not name.isidentifier():
        allowed = "file.py:name, such as my_rules.py:too_hot"
        raise SpecError(
            Finding(
                where=f"{where}.file",
                what="does not name a rule in a file",
                got=repr(place),
                allowed=allowed,
            )
        )
    module = _module(folder / file, where=f"{where}.file")
    found = getattr(module, name, None)
    if isinstance(found, type) and issubclass(found, Rule) and is_dataclass(found):
        if found.watch is Rule.watch and found.judge is Rule.judge:
            raise SpecError(
                Finding(
                    where=f"{where}.file",
                    what=f"class {name} defines neither judge() nor watch()",
                    next_step="define judge(self, record), or watch(self, facts) for a rule with a state",
                )
            )
        return read_spec(found, parameters, where=where)
    if inspect.isfunction(found):
        return _function_rule(found, parameters, where=where)
    own = [key for key, value in vars(module).items() if _is_rule(value, module)]
    near = near_matches(name, own)
    raise SpecError(
        Finding(
            where=f"{where}.file",
            what=f"{file} has no function and no Rule dataclass named {name}",
            got=None
            if found is None
            else "a class with this name that is not a Rule dataclass"
            if isinstance(found, type)
            else f"an object with this name, of type {type(found).__name__!r}",
            allowed=", ".join(own) or "def name(record, history): ...",
            next_step=did_you_mean(near),
        )
    )


def _function_rule(
    function: Callable[..., Any], parameters: Mapping[str, Any], *, where: str
) -> Rule:
    own = {key: parameters[key] for key in ("warm_up", "persistence") if key in parameters}
    rest = {key: value for key, value in parameters.items() if key not in own}
    try:
        inspect.signature(function).bind(None, (), **rest)
    except TypeError as error:
        name = function.__name__
        raise SpecError(
            Finding(
                where=f"{where}.parameters",
                what=f"do not fit the signature of {name}",
                got=f"the call {name}(record, history{''.join(f', {key}=...' for key in rest)}), "
                f"which Python rejects with {str(error)!r}",
                allowed=f"{name}{inspect.signature(function)}",
            )
        ) from error
    counts = read_spec(Rule, own, where=where)
    return FunctionRule(
        function=function,
        parameters=rest,
        warm_up=counts.warm_up,
        persistence=counts.persistence,
    )


def _module(path: Path, *, where: str) -> ModuleType:
    if not path.is_file():
        raise SpecError(
            Finding(
                where=where,
                what="does not exist or is a folder",
                got=str(path),
                allowed="the path of a Python file, relative to the folder of the rules file",
                next_step="correct the path",
            )
        )
    spec = importlib.util.spec_from_file_location(f"trainyard_rules_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise SpecError(
            Finding(
                where=where,
                what="is not a Python file",
                got=str(path),
                allowed="a file ending in .py",
            )
        )
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise SpecError(
            Finding(
                where=where,
                what=f"{path.name} raises an error when it is imported",
                got=f"{type(error).__name__}: {error}",
                next_step="correct the file",
            )
        ) from error
    return module


def _is_rule(value: object, module: ModuleType) -> bool:
    if getattr(value, "__module__", None) != module.__name__:
        return False
    return inspect.isfunction(value) or (isinstance(value, type) and issubclass(value, Rule))
