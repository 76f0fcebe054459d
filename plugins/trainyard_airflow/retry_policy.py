"""Airflow's retry decision, read from `trainyard.retry_table`.

Airflow 3.3 asks a task's `retry_policy`. Airflow 3.2 has none: there an error that must not be retried fails the task
for good, and all others are retried after the task's own `retry_delay`.
"""

from __future__ import annotations

from contextvars import ContextVar
from datetime import timedelta
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.sdk import BaseOperator

from trainyard.errors import TrainingRunError
from trainyard.retry_table import retry_rule

try:
    from airflow.sdk.definitions.retry_policy import RetryDecision, RetryPolicy
except ModuleNotFoundError:  # Airflow 3.2
    RetryDecision, RetryPolicy = None, object  # type: ignore[assignment, misc]
HAS_RETRY_POLICIES = RetryPolicy is not object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from airflow.sdk import Context

Operator = TypeVar("Operator", bound=BaseOperator)


class TrainingRetryPolicy(RetryPolicy):
    """Retries a task by the class of its error; never beyond the task's own `retries`.

    An error that is not ours (a lost worker, a bug in a library) is left to Airflow's standard
    retry.
    """

    def evaluate(
        self,
        exception: BaseException,
        try_number: int,
        max_tries: int,  # noqa: ARG002
        context: Context | None = None,  # noqa: ARG002
    ) -> RetryDecision:
        """Return whether to retry after the error of try `try_number`, and after which delay."""
        rule = retry_rule(exception)
        if rule is None:
            return RetryDecision.default()
        reason = f"{type(exception).__name__}: {rule.reason}"
        if not rule.retry:
            return RetryDecision.fail(reason)
        return RetryDecision.retry(timedelta(seconds=rule.delay_for(try_number)), reason)


RETRIES: Mapping[str, Any] = {"retry_policy": TrainingRetryPolicy()} if HAS_RETRY_POLICIES else {}
"""The arguments of an operator whose tasks are retried by the class of their error; `partial` needs them, too."""


def retried_by_error(operator: type[Operator]) -> type[Operator]:
    """Let the tasks of an operator that takes `RETRIES` fail for good on Airflow 3.2 by what ends them on 3.3.

    A decorator; the tasks of the subclasses do, too.
    """
    if not HAS_RETRY_POLICIES:
        end_for_good(operator)
    return operator


def end_for_good(operator: type[Operator]) -> None:
    """Make an operator and its subclasses end a task by the errors that must not be retried."""

    def of_subclass(cls: type[Operator], /, **kwargs: Any) -> None:
        super(operator, cls).__init_subclass__(**kwargs)
        _wrap_own(cls)

    _wrap_own(operator)
    operator.__init_subclass__ = classmethod(of_subclass)  # type: ignore[assignment]


def _wrap_own(operator: type[Any]) -> None:
    for name in ("execute", "resume_execution"):
        if name in vars(operator):
            setattr(operator, name, final_errors_fail(vars(operator)[name]))


def final_errors_fail(method: Callable[..., Any]) -> Callable[..., Any]:
    """Return the method, with errors that must not be retried as the one that Airflow never retries.

    Only the outermost method of a task does that: what it calls raises what it always does.

    Raises:
        AirflowFailException: in place of such an error, which is its cause.
    """

    @wraps(method)
    def run(*args: Any, **kwargs: Any) -> Any:
        from airflow.sdk.exceptions import AirflowFailException

        if _is_inside.get():
            return method(*args, **kwargs)
        token = _is_inside.set(True)
        try:
            return method(*args, **kwargs)
        except TrainingRunError as error:
            rule = retry_rule(error)
            if rule is None or rule.retry:
                raise
            raise AirflowFailException(f"{type(error).__name__}: {error}") from error
        finally:
            _is_inside.reset(token)

    return run


_is_inside: ContextVar[bool] = ContextVar("is_inside_a_task", default=False)
