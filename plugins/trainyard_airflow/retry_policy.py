"""Retry decision for Airflow, from `trainyard.retry_table`.

Airflow 3.3 evaluates a task's `retry_policy`. Airflow 3.2 has no such policy. There, an error that must not be retried
fails the task without a retry, and all other errors are retried after the task's own `retry_delay`.
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
    """Policy that decides on a retry by the class of the error, within the task's own `retries`.

    Errors without a rule in `trainyard.retry_table`, such as a lost worker or a bug in a library, get
    Airflow's standard retry.
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
"""Operator arguments that make a retry depend on the class of the error.

A mapped operator needs them in `partial` as well."""


def retried_by_error(operator: type[Operator]) -> type[Operator]:
    """Make an operator's tasks fail without a retry after errors that must not be retried.

    This is a class decorator for operators that pass the arguments `RETRIES` to their base class. It applies to
    their subclasses as well. On Airflow 3.3, `RETRIES` alone has this effect; on Airflow 3.2, this decorator
    adds it.
    """
    if not HAS_RETRY_POLICIES:
        end_for_good(operator)
    return operator


def end_for_good(operator: type[Operator]) -> None:
    """Make the tasks of an operator and its subclasses fail without a retry after errors that must not be retried."""

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
    """Return a wrapper of the method that converts each error that must not be retried to `AirflowFailException`.

    Only the outermost method of a task converts errors; inner methods raise the original errors.

    Raises:
        AirflowFailException: the method raised an error that must not be retried; this error becomes the cause.
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
