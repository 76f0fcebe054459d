"""The same live stack as the tests of the launcher use."""

from __future__ import annotations

from tests.stack.conftest import stack

__all__ = ["stack"]
