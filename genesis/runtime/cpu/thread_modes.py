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
from functools import partial
from itertools import starmap
from operator import methodcaller
from typing import Final

import numpy as np
import torch
from torch._C import DispatchKey, DispatchKeySet

from genesis.runtime.contexts import Switched, Temporary, in_order

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

_LEFT_OUT: Final = DispatchKeySet(DispatchKey.Python).add(DispatchKey.PythonTLSSnapshot).add(
    DispatchKey.PreDispatch).add(DispatchKey.FuncTorchDynamicLayerFrontMode).add(
    DispatchKey.FuncTorchDynamicLayerBackMode)
"""The keys by which torch's calls come to dispatch modes and to transformations of `torch.func`."""


def any_on() -> object:
    """True, or what counts as that, where a mode is on. Whatever runs plans asks this first (0.3 µs).

    A run under `Without` is not to ask again: these functions count what is left out, too.
    """
    return in_inference() or function_modes() or in_autocast() or dispatch_modes() or level()


def _switches() -> Switched:
    """The calls into C that leave the modes out, and those that take that back; each can be made once.

    Until then nothing is switched: torch's guard of inference mode works from when it is made, so that one of the calls
    makes it. A list alone holds the guards: where one cannot be entered, or what is left is never called, its end drops
    them, the last one first, which takes back what they did. That of functions does nothing when it is dropped, so it
    comes last.
    """
    guards = [torch._C._ExcludeDispatchKeyGuard(_LEFT_OUT), torch._C._DisableAutocast()]
    functions = torch._C.DisableTorchFunction()
    return Switched([(in_order, map(methodcaller("__enter__"), guards)),
                     (in_order, map(guards.append, starmap(torch._C._InferenceMode, ((False,),)))),
                     (functions.__enter__,)],
                    [(functions.__exit__, None, None, None), (guards.clear,)])


class Without(Temporary):
    """A context in which torch's calls are made as if no mode were on.

    >>> with torch.device("meta"):
    ...     with Without():
    ...         print(torch.zeros(()).device)
    cpu
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_switches)


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

    They may be made later and in any mode, or not at all; no line of Python runs between them.
    """
    if not writes:
        return []
    changes, back, _ = _switches()
    return [*starmap(partial, changes), *writes, *starmap(partial, back)]
