"""Whether recording tracks gradients: per thread, as contexts and decorators."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, TypeVar

Function = TypeVar("Function", bound=Callable[..., Any])


class _Mode(threading.local):
    enabled = True
    inference = False


mode = _Mode()


class set_grad_enabled:
    """Sets gradient tracking, at once and, as a context, until the block ends.

    >>> import genesis
    >>> with genesis.set_grad_enabled(False):
    ...     genesis.is_grad_enabled()
    False
    """

    def __init__(self, enabled: bool):
        self._before = mode.enabled
        self._enabled = enabled
        mode.enabled = enabled

    def __enter__(self) -> None:
        mode.enabled = self._enabled

    def __exit__(self, *error: object) -> None:
        mode.enabled = self._before


class _Switch:
    """A context and decorator that sets gradient tracking inside."""

    _enabled = True

    def __init__(self) -> None:
        self._before: list[bool] = []

    def __enter__(self) -> None:
        self._before.append(mode.enabled)
        mode.enabled = self._enabled

    def __exit__(self, *error: object) -> None:
        mode.enabled = self._before.pop()

    def __call__(self, function: Function) -> Function:
        """The function with tracking set for the duration of each call."""
        switch = type(self)

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with switch():
                return function(*args, **kwargs)
        return inside  # type: ignore[return-value]


class no_grad(_Switch):
    """Inside, results do not require grad.

    >>> import genesis
    >>> x = genesis.ones(2, requires_grad=True)
    >>> with genesis.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    _enabled = False

    def __new__(cls, function: Callable[..., Any] | None = None) -> Any:
        self = super().__new__(cls)
        if function is None:
            return self
        cls.__init__(self)
        return self(function)

    def __init__(self, function: Callable[..., Any] | None = None):
        super().__init__()


class enable_grad(_Switch):
    """Inside, gradients are tracked again."""


class inference_mode(_Switch):
    """As `no_grad`."""

    _enabled = False

    def __init__(self, mode: bool = True):
        super().__init__()
        self._enabled = not mode


def is_grad_enabled() -> bool:
    """True where recording tracks gradients."""
    return mode.enabled
