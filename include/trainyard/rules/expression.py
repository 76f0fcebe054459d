"""A rule as one short expression, such as `gradient_norm > 5 * median(gradient_norm, 100) and step > 200`.

A name stands for the observation at the step that is evaluated. A window function takes a name and a number
of steps: `median(loss, 100)` covers the observations of the last 100 steps, including the current one.
`previous(loss, 5)` is the newest loss that is at least 5 steps old. Attributes, subscripts, strings and
calls of unknown functions are rejected.

The expression is not evaluated at a step if an operand was not observed, or if `previous` reaches back
beyond the first observation.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import fmean, median, pstdev
from typing import TYPE_CHECKING, NoReturn

from trainyard.errors import Finding, SpecError, did_you_mean, near_matches
from trainyard.rules.records import Facts, Record, StepRecord, Validation
from trainyard.rules.rule import Judgement, Origin, Rule, RuleState
from trainyard.rules.series import History

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_CHARACTERS = 500
STEP_NAMES = (
    "step", "epoch", "loss", "learning_rate", "gradient_norm", "units_per_second", "step_seconds", "data_wait_seconds",
    "forward_seconds", "backward_seconds", "optimizer_seconds", "local_seconds",
)  # fmt: skip
VALIDATION_NAMES = ("validation_loss", "validation_accuracy")
NAMES = (*STEP_NAMES, *VALIDATION_NAMES)
SHARED_NAMES = frozenset(
    {
        "step",
        "epoch",
        "loss",
        "learning_rate",
        "gradient_norm",
        "units_per_second",
        *VALIDATION_NAMES,
    }
)
"""Names of values that are the same on all ranks."""
PLAIN: Mapping[str, Callable[..., float]] = {
    "abs": abs, "min": min, "max": max, "sqrt": math.sqrt, "log": math.log, "exp": math.exp,
    "isfinite": math.isfinite, "isnan": math.isnan,
}  # fmt: skip
WINDOWS: Mapping[str, Callable[[list[float]], float]] = {
    "mean": fmean, "median": median, "std": pstdev, "lowest": min, "highest": max,
}  # fmt: skip
BACK = ("previous", "first", "best")
_BINARY: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.Mod: operator.mod, ast.Pow: math.pow,
}  # fmt: skip
_COMPARE: Mapping[type[ast.cmpop], Callable[[float, float], bool]] = {
    ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt, ast.GtE: operator.ge,
    ast.Eq: operator.eq, ast.NotEq: operator.ne,
}  # fmt: skip
_UNARY: Mapping[type[ast.unaryop], Callable[[float], float]] = {
    ast.USub: operator.neg, ast.UAdd: operator.pos, ast.Not: operator.not_,
}  # fmt: skip

Series = dict[str, History]
Compiled = Callable[[Series], float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Expression(Rule):
    """A user's condition. Each step at which it is true is a violation."""

    ORIGIN = Origin.AUTHOR
    READS = (StepRecord, Validation)
    NEEDS = "the observations that the expression names"
    expression: str

    @property
    def shared(self) -> tuple[str, ...]:
        """The fields that the expression reads, if they have the same values on all ranks; otherwise empty."""
        _, names = compile_expression(self.expression)
        return tuple(map(_field, names)) if names <= SHARED_NAMES else ()

    def __post_init__(self) -> None:
        """Check the expression.

        Raises:
            SpecError: the expression is invalid; the finding has the position and the allowed forms.
        """
        compile_expression(self.expression)

    def watch(self, facts: Facts) -> RuleState[Record]:  # noqa: ARG002  # the interface
        """Return the state of this rule before the first record of a training."""
        return _Expression(self.expression)


class _Unknown(Exception):  # noqa: N818  # no error: it is only not known yet
    """An operand was not observed, or not for long enough."""


class _Expression(RuleState[Record]):
    def __init__(self, text: str) -> None:
        self._text = text
        self._judge, names = compile_expression(text)
        self._names = sorted(names)
        self._is_validation = any(name in VALIDATION_NAMES for name in names)
        self._series: Series = {name: History() for name in names}

    def see(self, record: Record) -> Iterator[Judgement]:
        names = VALIDATION_NAMES if isinstance(record, Validation) else STEP_NAMES
        observed = {name: getattr(record, _field(name)) for name in names}
        for name, value in observed.items():
            if value is not None and name in self._series:
                self._series[name].add(record.step, value)
        if isinstance(record, Validation) is self._is_validation:
            yield from self._judged(record.step, observed)

    def _judged(self, step: int, observed: Mapping[str, float | None]) -> Iterator[Judgement]:
        missing = [name for name in self._names if name in observed and observed[name] is None]
        if missing:
            self.why_not = f"{', '.join(missing)} was not observed"
            return
        try:
            is_true = bool(self._judge(self._series))
        except _Unknown as unknown:
            self.why_not = str(unknown)
            return
        except (ArithmeticError, ValueError) as error:
            self.why_not = f"at step {step}: {error}"
            return
        numbers = {n: self._series[n].values[-1] for n in self._names if self._series[n].values}
        values_text = ", ".join(f"{name} {value:.6g}" for name, value in numbers.items())
        yield Judgement(is_violated=is_true, text=f"{self._text}: {values_text}", numbers=numbers)

    def roll_back(self, step: int) -> None:
        for each in self._series.values():
            each.roll_back(step)


def _field(name: str) -> str:
    """Return the name of the record's field with the values of `name`, which is a name in an expression.

    The result is `name` without the prefix `validation_`, if it has this prefix. For example, the values of
    `validation_loss` are in the field `loss`.
    """
    return name.removeprefix("validation_")


def compile_expression(text: str) -> tuple[Compiled, frozenset[str]]:
    """Return the expression as a function of the series so far, and the names in it.

    Raises:
        SpecError: the expression is invalid.
    """
    if len(text) > MOST_CHARACTERS:
        limit = f"{MOST_CHARACTERS} characters"
        _refuse(text, None, f"is longer than {limit}", known=(f"at most {limit}",))
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        _refuse(text, None, f"is not an expression: {getattr(error, 'msg', error)}")
    names: set[str] = set()
    return _Compiler(text, names).compiled(tree.body), frozenset(names)


class _Compiler:
    """Compiler of the allowed syntax nodes into functions. The error for any other node names its kind."""

    def __init__(self, text: str, names: set[str]) -> None:
        self._text, self._names = text, names

    def compiled(self, node: ast.expr) -> Compiled:
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return lambda _: value
            case ast.Name(id=name):
                return self._name(name, node)
            case ast.UnaryOp(op=op, operand=operand):
                act, of = _UNARY.get(type(op)), self.compiled(operand)
                return self._known(act, node, lambda do: lambda series: do(of(series)))
            case ast.BinOp(left=left, op=op, right=right):
                return self._both(_BINARY.get(type(op)), node, left, right)
            case ast.BoolOp(op=op, values=values):
                parts = [self.compiled(each) for each in values]
                holds = all if isinstance(op, ast.And) else any
                return lambda series: holds(part(series) for part in parts)
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                return self._comparison(node, [left, *comparators], ops)
            case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
                return self._call(node, name, args)
            case _:
                return _refuse(
                    self._text, node, f"has the syntax {type(node).__name__}, which is not allowed"
                )

    def _name(self, name: str, node: ast.expr) -> Compiled:
        if name not in NAMES:
            _refuse(self._text, node, f"has the unknown name {name!r}", known=NAMES, word=name)
        self._names.add(name)

        def value(series: Series) -> float:
            if not series[name].values:
                raise _Unknown(f"{name} was not observed")
            return series[name].values[-1]

        return value

    def _both(
        self,
        act: Callable[[float, float], float] | None,
        node: ast.expr,
        left: ast.expr,
        right: ast.expr,
    ) -> Compiled:
        one, other = self.compiled(left), self.compiled(right)
        return self._known(act, node, lambda do: lambda series: do(one(series), other(series)))

    def _comparison(self, node: ast.expr, sides: list[ast.expr], ops: list[ast.cmpop]) -> Compiled:
        acts = [_COMPARE.get(type(op)) for op in ops]
        if None in acts:
            _refuse(
                self._text,
                node,
                "compares in a way that is not allowed",
                known=("<", "<=", ">", ">=", "==", "!="),
            )
        values = [self.compiled(side) for side in sides]
        parts = list(zip(acts, values, values[1:], strict=False))
        return lambda series: all(act(one(series), two(series)) for act, one, two in parts if act)

    def _call(self, node: ast.expr, name: str, args: list[ast.expr]) -> Compiled:
        if name in WINDOWS or name in BACK:
            return self._window(node, name, args)
        if name not in PLAIN:
            known = (*PLAIN, *WINDOWS, *BACK)
            _refuse(
                self._text, node, f"calls the unknown function {name!r}", known=known, word=name
            )
        if not args or (name not in {"min", "max"} and len(args) != 1):
            usage = f"{name}(loss, 1)" if name in {"min", "max"} else f"{name}(loss)"
            _refuse(
                self._text, node, f"calls {name} with the wrong number of operands", known=(usage,)
            )
        act, values = PLAIN[name], [self.compiled(each) for each in args]
        if name in {"min", "max"}:
            return lambda series: act([value(series) for value in values])
        return lambda series: act(values[0](series))

    def _window(self, node: ast.expr, name: str, args: list[ast.expr]) -> Compiled:
        wanted = 1 if name in {"first", "best"} else 2
        is_right = len(args) == wanted and isinstance(args[0], ast.Name)
        num_steps = (
            args[1].value if wanted == 2 and is_right and isinstance(args[1], ast.Constant) else 1
        )
        if not is_right or type(num_steps) is not int or num_steps < 1:
            usage = (
                f"{name}(loss)"
                if wanted == 1
                else f"{name}(loss, 100), with a whole number of steps"
            )
            _refuse(self._text, node, f"calls {name} with wrong operands", known=(usage,))
        assert isinstance(args[0], ast.Name)  # noqa: S101  # asked above
        self._name(args[0].id, args[0])
        return _looked_back(name, args[0].id, num_steps)

    def _known(
        self, act: Callable[..., float] | None, node: ast.expr, make: Callable[..., Compiled]
    ) -> Compiled:
        return (
            make(act) if act else _refuse(self._text, node, "has an operator that is not allowed")
        )


def _looked_back(name: str, of: str, num_steps: int) -> Compiled:
    """Return the function that calculates a value from the past of a series, such as a window's mean."""

    def value(series: Series) -> float:
        own = series[of]
        if not own.values:
            raise _Unknown(f"{of} was not observed")
        if name == "first":
            return own.values[0]
        if name == "best":
            return min(own.values)
        if name == "previous":
            before = own.at(own.steps[-1] - num_steps)
            if before is None:
                raise _Unknown(f"{of} has no value that is at least {num_steps} steps old")
            return before
        return WINDOWS[name](own.last(num_steps))

    return value


def _refuse(
    text: str, node: ast.expr | None, what: str, *, known: tuple[str, ...] = (), word: str = ""
) -> NoReturn:
    near = near_matches(word, known) if word else []
    raise SpecError(
        Finding(
            where="expression",
            what=f"{what}, at column {node.col_offset + 1}" if node is not None else what,
            got=repr(text[:MOST_CHARACTERS]),
            allowed=None
            if near
            else ", ".join(known)
            or "names, numbers, comparisons, the operators + - * / % ** and, or, not, "
            f"and the functions {', '.join((*PLAIN, *WINDOWS, *BACK))}",
            next_step=did_you_mean(near),
        )
    )
