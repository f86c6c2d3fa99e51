"""`genesis.testing`: comparing tensors in tests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ops.comparison import allclose, isclose
from genesis.ops.creation import as_tensor

__all__ = ["assert_close"]

_TOLERANCES = {"float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}
"""(relative, absolute) by dtype, torch's."""


def assert_close(actual: Any, expected: Any, *, allow_subclasses: bool = True, rtol: float | None = None,
                 atol: float | None = None, equal_nan: bool = False, check_device: bool = True,
                 check_dtype: bool = True,
                 check_layout: bool = True, check_stride: bool = False,
                 msg: str | Callable[[str], str] | None = None) -> None:
    """AssertionError unless |actual - expected| ≤ atol + rtol · |expected| everywhere.

    Args:
        actual, expected: tensors, numbers, or lists and dictionaries of them.
        rtol, atol: both or none; by default those of the dtype, 0 for integers.
        equal_nan: NaN equals NaN.
        check_device, check_dtype, check_stride: must these be equal, too?
        msg: another message, or a function of the message.

    >>> import genesis
    >>> assert_close(genesis.tensor([1.0]), genesis.tensor([1.0 + 1e-7]))
    """
    if (rtol is None) != (atol is None):
        raise ValueError("rtol and atol must both be specified or both be unspecified, "
                         f"but got rtol={rtol} and atol={atol}")
    problem = _difference(actual, expected, rtol, atol, equal_nan, (check_device, check_dtype, check_stride), "")
    if problem:
        raise AssertionError(msg(problem) if callable(msg) else msg or problem)


def _difference(actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool,
                checks: tuple[bool, bool, bool], where: str) -> str:
    """What differs first, "" where nothing does."""
    if isinstance(expected, Mapping) and isinstance(actual, Mapping):
        if set(actual) != set(expected):
            return f"The keys of the mappings do not match: {sorted(actual)} != {sorted(expected)}{where}"
        pairs = [(actual[key], expected[key], f" (in {key!r}{where})") for key in expected]
    elif isinstance(expected, Sequence) and not isinstance(expected, str) and isinstance(actual, Sequence):
        if len(actual) != len(expected):
            return f"The length of the sequences mismatch: {len(actual)} != {len(expected)}{where}"
        pairs = [(a, b, f" (at {i}{where})") for i, (a, b) in enumerate(zip(actual, expected, strict=True))]
    else:
        return _of_tensors(actual, expected, rtol, atol, equal_nan, checks, where)
    return next(filter(None, (_difference(a, b, rtol, atol, equal_nan, checks, at) for a, b, at in pairs)), "")


def _of_tensors(actual: Any, expected: Any, rtol: float | None, atol: float | None, equal_nan: bool,
                checks: tuple[bool, bool, bool], where: str) -> str:
    both = isinstance(actual, Tensor) and isinstance(expected, Tensor)
    a, b = as_tensor(actual), as_tensor(expected)
    if a.shape != b.shape:
        return f"The values for attribute 'shape' do not match: {a.shape} != {b.shape}.{where}"
    for checked, name in zip(checks, ("device", "dtype", "stride"), strict=True):
        x, y = getattr(a, name), getattr(b, name)
        if both and checked and (x() != y() if name == "stride" else x != y):
            return f"The values for attribute '{name}' do not match: {x} != {y}.{where}"
    loose = max((_TOLERANCES.get(repr(x.dtype).split(".")[-1], (0.0, 0.0)) for x in (a, b)), key=lambda pair: pair[0])
    rtol, atol = (loose[0] if rtol is None else rtol), (loose[1] if atol is None else atol)
    a, b = a.detach().double().cpu(), b.detach().double().cpu()
    if allclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan):
        return ""
    wrong = isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan).logical_not()
    return (f"Tensor-likes are not close!\n\nMismatched elements: {wrong.sum().item()} / {a.numel()}\n"
            f"Greatest absolute difference: {(a - b).abs().max().item()} (up to {atol} allowed)\n"
            f"Greatest relative difference: {((a - b).abs() / b.abs()).max().item()} (up to {rtol} allowed){where}")
