"""From torch's samples to Genesis's arguments, and from two results to one verdict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import torch

import genesis
from genesis.frontend.host_values import host_copy
from genesis.ir.types import DTYPES

DTYPE = {getattr(torch, d.name): d for d in DTYPES}
"""torch's dtype → Genesis's: all real ones that both have."""


class Untranslatable(Exception):
    """A sample of what Genesis leaves out: complex numbers, sparse tensors, quantised dtypes."""


def array(x: torch.Tensor) -> np.ndarray:
    """A torch tensor's values, bfloat16 included."""
    x = x.detach().cpu()
    if x.dtype is torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy(force=True)


def host(x: Any) -> np.ndarray:
    """A Genesis tensor's values."""
    return np.asarray(host_copy(x.detach()))


class Translation:
    """Torch's arguments as Genesis's, each tensor once.

    Attributes:
        leaves: (torch tensor, Genesis tensor) of those that require grad, in order.
    """

    def __init__(self, device: str = "cpu", grad: bool = False):
        self.device, self.grad = device, grad
        self.leaves: list[tuple[torch.Tensor, Any]] = []
        self._seen: dict[int, Any] = {}

    def __call__(self, x: Any) -> Any:
        if isinstance(x, torch.Tensor):
            if id(x) not in self._seen:
                self._seen[id(x)] = self.tensor(x)
            return self._seen[id(x)]
        if isinstance(x, torch.dtype):
            if x not in DTYPE:
                raise Untranslatable(x)
            return DTYPE[x]
        if isinstance(x, complex) or (isinstance(x, torch.device) and x.type != "cpu"):
            raise Untranslatable(x)
        if isinstance(x, torch.device) or (isinstance(x, str) and x == "cpu"):
            return self.device
        if isinstance(x, (torch.layout, torch.memory_format)):
            if x not in (torch.strided, torch.contiguous_format, torch.preserve_format):
                raise Untranslatable(x)
            return x
        if isinstance(x, dict):
            made = {k: self(v) for k, v in x.items() if (k, v) != ("pin_memory", False)}
            return {k: v for k, v in made.items() if not isinstance(v, (torch.layout, torch.memory_format))}
        if isinstance(x, (list, tuple)):
            made = [self(v) for v in x]
            return made if isinstance(x, list) else tuple(made)
        return x

    def tensor(self, x: torch.Tensor) -> Any:
        """The tensor with equal values; a view with gaps of a larger one where torch's is no contiguous memory."""
        left_out = x.layout is not torch.strided or x.device.type == "meta" or x.dtype not in DTYPE
        if left_out or x.ndim > 64:  # numpy has 64 dimensions at most
            raise Untranslatable(x.dtype)
        made = genesis.tensor(array(x), device=self.device)
        if not x.is_contiguous() and x.ndim and x.numel() > 1:
            wide = genesis.zeros(*x.shape[:-1], 2 * x.shape[-1], dtype=DTYPE[x.dtype], device=self.device)
            wide[..., ::2] = made
            made = wide[..., ::2]
        if x.requires_grad and self.grad:
            made = made.detach().requires_grad_()
            self.leaves.append((x, made))
        return made


def parts(result: Any) -> Iterator[Any]:
    """The tensors and numbers of a result, in order."""
    if isinstance(result, (list, tuple)) and not isinstance(result, torch.Size):
        for part in result:
            yield from parts(part)
    else:
        yield result


TOLERANCE = {"float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float16": (1e-3, 1e-5)}
"""Relative and absolute: what torch's own tests allow between two of its implementations."""


def differs(ours: Any, theirs: Any, exact: Any = None, values: bool = True, loose: float = 1.0,
            size: Any = None) -> str:
    """Why two results are not the same, '' when they are.

    Args:
        ours, theirs: a tensor of each framework, or equal Python values.
        exact: torch's result in float64 from the same inputs, infinite where the dtype ends: as good a reason to be
            right.
        values: False compares shapes and dtypes only.
        loose: factor on the tolerance.
        size: the elements that the tolerance is relative to, where those are larger than the results.
    """
    if not isinstance(theirs, torch.Tensor):
        if isinstance(theirs, torch.dtype):
            theirs = DTYPE.get(theirs, theirs)
        same = ours == theirs or (ours != ours and theirs != theirs)
        return "" if same else f"{ours!r}, not {theirs!r}"
    if not isinstance(ours, genesis.Tensor):
        return f"{type(ours).__name__} {ours!r}, not a tensor"
    if theirs.dtype not in DTYPE:
        raise Untranslatable(theirs.dtype)
    if ours.dtype is not DTYPE[theirs.dtype]:
        return f"dtype {ours.dtype!r}, not {theirs.dtype}"
    if tuple(ours.shape) != tuple(theirs.shape):
        return f"shape {tuple(ours.shape)}, not {tuple(theirs.shape)}"
    if not values:
        return ""
    got, want = host(ours), array(theirs)
    if ours.dtype.kind != "float":
        wrong = got != want
    else:
        rtol, atol = (loose * x for x in TOLERANCE[ours.dtype.name])
        got, want = got.astype(np.float64), want.astype(np.float64)
        atol = atol if size is None else atol + rtol * array(size)
        wrong = ~np.isclose(got, want, rtol, atol, equal_nan=True)
        if exact is not None and wrong.any():
            limit = torch.finfo(theirs.dtype).max
            wrong &= ~np.isclose(got, array(exact.where(exact.abs() <= limit, exact * np.inf)), rtol, atol,
                                 equal_nan=True)
    if not wrong.any():
        return ""
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return f"{got[at]} at {at}, not {want[at]} ({int(wrong.sum())} of {wrong.size} elements differ)"


def shown(x: Any) -> str:
    """A sample's arguments in a line: tensors as dtype and shape."""
    if isinstance(x, torch.Tensor):
        return f"{str(x.dtype).removeprefix('torch.')}{list(x.shape)}" + ("" if x.is_contiguous() else "ⁿ")
    if isinstance(x, dict):
        return ", ".join(f"{k}={shown(v)}" for k, v in x.items())
    if isinstance(x, (list, tuple)):
        inner = ", ".join(map(shown, x))
        return f"[{inner}]" if isinstance(x, list) else f"({inner})"
    return repr(x)
