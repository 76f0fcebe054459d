"""Errors in the form in which a service returns them."""

from __future__ import annotations


class ServiceError(Exception):
    """An error response: a code, a message and an HTTP status."""

    def __init__(self, code: str, message: str, *, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status


class ValidationError(ServiceError):
    """The request is invalid or names a resource that does not exist (ValidationException, status 400)."""

    def __init__(self, message: str) -> None:
        super().__init__("ValidationException", message)


class SerializationError(ServiceError):
    """The body is not JSON, or a member has the wrong JSON type."""

    def __init__(self, message: str) -> None:
        super().__init__("SerializationException", message)


class ResourceInUseError(ServiceError):
    """The name is taken, or the resource is busy."""

    def __init__(self, message: str) -> None:
        super().__init__("ResourceInUse", message)


class ResourceNotFoundError(ServiceError):
    """Error for a missing resource, with the code ResourceNotFound and status 400.

    It is raised mainly by operations on tuning jobs, AutoML jobs, training plans and tags. Other operations
    mostly raise `ValidationError` for a missing resource.
    """

    def __init__(self, message: str) -> None:
        super().__init__("ResourceNotFound", message)


class UnknownOperationError(ServiceError):
    """The engine does not support the operation. Status 501, so that no client retries it."""

    def __init__(self, operation: str, *, reason: str) -> None:
        super().__init__(
            "UnknownOperationException",
            f"The local engine does not support the operation {operation}: {reason}. "
            "docs/engine_coverage.md lists the operations that it executes, stores and rejects.",
            status=501,
        )
