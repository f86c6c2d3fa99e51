"""How often functions are called and how long they take: `profile`, a decorator of functions and classes.

    from genesis.utils import profile

    @profile
    def work(x): ...

At the program's end a line is printed for each. `profile()` without an argument is `genesis.profiler.profile`, as a
context: kernels, lines and memory. The module itself can be called, so that `genesis.utils.profile` is both.
"""

from __future__ import annotations

import atexit
import functools
import sys
import time
from collections.abc import Callable
from types import FunctionType, ModuleType
from typing import Any, TypeVar

T = TypeVar("T", bound=Callable[..., Any])

profile_data: dict[str, dict[str, Any]] = {}
"""The function's name → {"calls": how often, "total_time": seconds, of calls inside of calls too}."""

_began = time.perf_counter()


def profile(target: Any = None, **options: Any) -> Any:
    """Count the calls of a function, or of all methods that a class defines, and their time; or, without one, profile
    what runs inside of a context.

    Args:
        target: the function or class, which is returned; None for `genesis.profiler.profile(**options)`.

    Raises:
        TypeError: it is neither.

    >>> @profile
    ... def double(x):
    ...     return x * 2
    >>> double(3), double.__wrapped__(4)
    (6, 8)
    >>> profile_data[f"{double.__module__}.double"]["calls"]
    1
    >>> del profile_data[f"{double.__module__}.double"]
    """
    if target is None:
        from genesis.profiler import profile as profiler
        return profiler(**options)
    if options or not callable(target):
        raise TypeError(f"profile: expected a function or a class, got a {type(target).__name__}")
    if not profile_data:
        atexit.register(_print_at_exit)
    if not isinstance(target, type):
        return _counted(target, f"{target.__module__}.{target.__qualname__}")
    for name, method in list(vars(target).items()):
        if isinstance(method, FunctionType):
            setattr(target, name, _counted(method, f"{target.__module__}.{target.__qualname__}.{name}"))
    return target


def _counted(function: T, name: str) -> T:
    entry = profile_data.setdefault(name, {"calls": 0, "total_time": 0.0})

    @functools.wraps(function)
    def counted(*args: Any, **options: Any) -> Any:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            entry["calls"] += 1
            entry["total_time"] += time.perf_counter() - start
    return counted  # type: ignore[return-value]


def print_profile_data() -> None:
    """Print a line for the program, and one for each function that was called, the longest first."""
    print(f"Program cost {time.perf_counter() - _began:.4f} seconds!")
    for name, entry in sorted(profile_data.items(), key=lambda item: -item[1]["total_time"]):
        if entry["calls"]:
            print(f"{name}: {entry['calls']} calls, {entry['total_time']:.4f} total seconds")


def _print_at_exit() -> None:
    if any(entry["calls"] for entry in profile_data.values()):
        print_profile_data()


class _Callable(ModuleType):
    """The module, which is the decorator too: whichever of the two `genesis.utils.profile` was asked for."""

    def __call__(self, target: Any = None, **options: Any) -> Any:
        return profile(target, **options)


sys.modules[__name__].__class__ = _Callable
