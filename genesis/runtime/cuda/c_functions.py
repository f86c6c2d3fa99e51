"""CUDA's functions as objects of C: who calls one runs no line of Python.

A step's writes are started, and its storages told of them, in one loop of C (`frontend/at_once.py`), so that no signal
comes between. cuda-python's functions are of C as well, but from 13.0 on the status that they give is made by a
function of Python, behind CUDA's own return: Python looks for signals there. So what such a loop calls is CUDA's
function itself, through ctypes, and its status is looked up in a dictionary that only has success.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Final, NoReturn, TypeAlias

SUCCESS: Final = 0
"""CUDA_SUCCESS."""

CFunction: TypeAlias = Callable[..., None]
"""A function of CUDA's. It takes objects of ctypes, bytes, and None for a null pointer; a number is a C int."""


class _Statuses(dict[int, None]):
    """The statuses with which a call has done its work; looking up another one raises the error."""

    def __init__(self, failed: Callable[[int], NoReturn]):
        super().__init__({SUCCESS: None})
        self._failed = failed

    def __missing__(self, status: int) -> NoReturn:
        self._failed(status)


def c_function(address: int, failed: Callable[[int], NoReturn]) -> CFunction:
    """The function at this address, which returns a status.

    Args:
        failed: is called with a status that is not `SUCCESS`, and raises.

    >>> def failed(status: int) -> NoReturn:
    ...     raise RuntimeError(f"status {status}")
    >>> says = [0, 700]
    >>> at = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)(lambda stream: says.pop(0))
    >>> launch = c_function(address_of_function(at), failed)
    >>> launch(ctypes.c_void_p(5))
    >>> launch(ctypes.c_void_p(5))
    Traceback (most recent call last):
    RuntimeError: status 700
    """
    found = ctypes.CFUNCTYPE(ctypes.c_int)(address)
    found.restype = _Statuses(failed).__getitem__
    return found


def address_of_function(function: object) -> int:
    """Where a function that ctypes knows begins."""
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
