"""What a program's own use of torch has switched on in this thread, and how a plan's calls are made without it.

A program may use both libraries, and torch keeps modes for all that a thread calls: `set_default_device` and
`with torch.device(...)` (a mode that hands factories a device), other function modes, dispatch modes (a counter of
operations, fake tensors), autocast, inference mode, and transformations of `torch.func` whose function is running. They
are about the program's calls of torch, not about Genesis' values. Where one is on, a plan runs under `Without`.

`torch.set_default_dtype` and `torch.set_default_tensor_type` are no modes: each factory that Genesis calls names dtype
and device (`tests/runtime/cpu/test_thread_modes.py` reads all of them), and no call leaves its result's dtype to them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Final

import numpy as np
import torch

in_inference: Final[Callable[[], bool]] = torch.is_inference_mode_enabled
"""Whether what torch makes can be written to in inference mode only."""

in_autocast: Final[Callable[[], bool]] = torch._C._is_any_autocast_enabled
"""Whether some of torch's ops round their operands."""

function_modes: Final[Callable[[], int]] = torch._C._len_torch_function_stack
"""How many `TorchFunctionMode`s are on; a default device is one."""

dispatch_modes: Final[Callable[[], int]] = torch._C._len_torch_dispatch_stack
"""How many `TorchDispatchMode`s are on."""

level: Final[Callable[[], int | None]] = torch._C._functorch.maybe_current_level
"""How many transformations of `torch.func` are in the middle of their function; None: none."""

_GUARDS: Final[tuple[Callable[[], AbstractContextManager[object]], ...]] = (
    torch._C.DisableTorchFunction, torch._C._DisableTorchDispatch, torch._C._DisableFuncTorch,
    torch._C._DisableAutocast, partial(torch._C._InferenceMode, False))
"""torch's guards of C, each of which leaves out one kind; the functions above may still count them inside."""


def any_on() -> bool:
    """Whether a mode is on. What runs plans asks the same in line, as a call takes as long as two of these functions
    (30 to 60 ns each)."""
    return bool(in_inference() or function_modes() or in_autocast() or dispatch_modes()) or level() is not None


class Without:
    """A context in which torch's calls are made as if no mode were on.

    >>> with torch.device("meta"):
    ...     with Without():
    ...         print(torch.zeros(()).device)
    cpu
    """

    __slots__ = ("_guards",)

    def __enter__(self) -> None:
        self._guards = [guard() for guard in _GUARDS]
        for guard in self._guards:
            guard.__enter__()

    def __exit__(self, *error: object) -> None:
        for guard in reversed(self._guards):
            guard.__exit__(None, None, None)


def bytes_of(tensor: torch.Tensor) -> np.ndarray:
    """The memory of a contiguous tensor as an array uint8[nbytes]."""
    if any_on():
        with Without():
            return _bytes_of(tensor)
    return _bytes_of(tensor)


def _bytes_of(tensor: torch.Tensor) -> np.ndarray:
    # A single element may come with any stride, by which torch would not view it as bytes.
    return tensor.as_strided((tensor.numel(),), (1,)).view(torch.uint8).numpy()


def without(writes: Sequence[Callable[[], object]]) -> list[Callable[[], object]]:
    """Calls into C, to be made in order, between those that begin and end what `Without` is.

    They may be made later and in any mode; no line of Python runs between them.
    """
    if not writes:
        return []
    guards = [guard() for guard in _GUARDS]
    return [*[guard.__enter__ for guard in guards], *writes,
            *[partial(guard.__exit__, None, None, None) for guard in reversed(guards)]]
