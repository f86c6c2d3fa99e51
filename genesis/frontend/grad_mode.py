"""Grad mode: whether recording tracks gradients, for each thread, set by contexts and decorators."""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

from genesis.frontend.switching import SPARE, Switch, put, put_back

__all__ = ["enable_grad", "inference_mode", "is_grad_enabled", "is_inference_mode_enabled", "no_grad",
           "set_grad_enabled"]

Function = TypeVar("Function", bound=Callable[..., Any])


class _Mode(threading.local):
    """This thread's mode.

    Attributes:
        flags: bytes: whether gradients are tracked, whether inference mode is on, and spare ones (`switching.py`).
            Recording looks at them; all else at `enabled` and `inference`.
    """

    def __init__(self) -> None:
        self.flags = bytearray((1, 0, *[0] * SPARE))

    @property
    def enabled(self) -> bool:
        """Whether gradients are tracked."""
        return self.flags[0] == 1

    @enabled.setter
    def enabled(self, enabled: bool) -> None:
        self.flags[0] = bool(enabled)

    @property
    def inference(self) -> bool:
        """Whether inference mode is on."""
        return self.flags[1] == 1


mode = _Mode()
_tracking = mode


class _Switch(Switch):
    """A context and decorator that sets gradient tracking inside."""

    _enabled = True

    def _mode(self) -> bytearray:
        return mode.flags

    def _inside(self, flags: bytearray) -> tuple[int, ...]:
        return (self._enabled,)

    def _entering(self) -> Callable[[], None]:  # `Switch`'s in one function: optimizers and backwards enter one often
        flags = mode.flags
        if self._left_first:
            self._left_first = False
        else:
            self._before.append((flags[0], flags[1]))
        return partial(put[1], flags, 0, self._enabled)

    def _leaving(self) -> Callable[..., None]:
        flags = mode.flags
        if not self._before:
            return super()._leaving()
        enabled, inference = self._before.pop()
        return partial(put_back[2], flags, 0, enabled, inference)

    def __call__(self, function: Function) -> Function:
        """The function with tracking set during each of its calls; for a generator, during each of its steps."""
        again = self._again
        if inspect.isgeneratorfunction(function):
            @functools.wraps(function)
            def steps(*args: Any, **kwargs: Any) -> Any:
                return _each_step(function(*args, **kwargs), again)
            return steps  # type: ignore[return-value]

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with again():
                return function(*args, **kwargs)
        return inside  # type: ignore[return-value]

    def _again(self) -> Any:
        """A new switch that sets the same mode."""
        return type(self)()


def _each_step(generator: Any, switch: Callable[[], Any]) -> Any:
    """The generator's values. The mode is set while the generator runs; while its caller runs, it is the caller's."""
    step: Callable[..., Any] = generator.__next__
    given: tuple[Any, ...] = ()
    while True:
        try:
            with switch():
                value = step(*given)
        except StopIteration as end:
            return end.value
        try:
            step, given = generator.send, ((yield value),)
        except GeneratorExit:
            with switch():
                generator.close()
            raise
        except BaseException as error:
            step, given = generator.throw, (error,)


class set_grad_enabled(_Switch):
    """Sets gradient tracking, at once and, as a context, until the block ends. Also a decorator.

    >>> import genesis
    >>> with genesis.set_grad_enabled(False):
    ...     genesis.is_grad_enabled()
    False
    """

    def __init__(self, mode: bool):
        super().__init__()
        self._enabled, self._prior = mode, _tracking.enabled
        _tracking.enabled = mode

    _entering = Switch._entering

    def _outside(self, flags: bytearray) -> tuple[int, ...]:
        return self._prior, flags[1]

    def __call__(self, function: Function) -> Function:
        """The function with tracking set for the duration of each call; the mode outside is that of before."""
        mode.enabled = self._prior
        return super().__call__(function)

    def _again(self) -> Any:
        return set_grad_enabled(self._enabled)


class tracking(_Switch):
    """A context that sets gradient tracking. Unlike `set_grad_enabled`, making it sets nothing, so that no exception
    comes between that and its block."""

    def __init__(self, enabled: bool):
        super().__init__()
        self._enabled = enabled


class _Bare(_Switch):
    """A switch that also decorates without being called: `@no_grad` as well as `@no_grad()`."""

    def __new__(cls, function: Callable[..., Any] | bool | None = None) -> Any:
        self = super().__new__(cls)
        if not callable(function):
            return self
        self.__init__()  # type: ignore[misc]
        return self(function)


class no_grad(_Bare):
    """A context and decorator: inside, results do not require grad.

    >>> import genesis
    >>> x = genesis.ones(2, requires_grad=True)
    >>> with genesis.no_grad():
    ...     (x * 2).requires_grad
    False
    """

    _enabled = False


class enable_grad(_Bare):
    """A context and decorator: inside, gradients are tracked again."""


class inference_mode(_Bare):
    """A context and decorator like `no_grad`; in addition, tensors made inside cannot be written to outside.

    >>> import genesis
    >>> with genesis.inference_mode():
    ...     x = genesis.ones(2)
    >>> x.is_inference(), genesis.is_inference_mode_enabled()
    (True, False)
    """

    def __init__(self, mode: bool = True):
        super().__init__()
        self._inference = mode

    _entering = Switch._entering

    def _inside(self, flags: bytearray) -> tuple[int, ...]:
        return not self._inference, self._inference

    def _again(self) -> Any:
        return inference_mode(self._inference)


def is_grad_enabled() -> bool:
    """True where recording tracks gradients."""
    return mode.enabled


def is_inference_mode_enabled() -> bool:
    """True inside an `inference_mode`."""
    return mode.inference
