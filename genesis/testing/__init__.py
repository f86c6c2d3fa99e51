"""`genesis.testing`: comparing tensors in tests.

In: two tensors, or structures of them; or a shape. Out: an AssertionError where they differ; or random values.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import suggesting
from genesis.ir.types import Device, DType, bool_
from genesis.ops.comparison import allclose, isclose
from genesis.ops.creation import as_tensor, empty

__all__ = ["assert_close", "make_tensor"]

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


def make_tensor(*shape: Any, dtype: DType, device: Device | str, low: float | None = None, high: float | None = None,
                requires_grad: bool = False, noncontiguous: bool = False, exclude_zero: bool = False) -> Tensor:
    """Random numbers from low (included) to high: by default -9 to 9, of uint8 0 to 9, of bools 0 to 2.

    Args:
        shape: sizes, or one sequence of them.
        noncontiguous: a view of every second element of the last dimension.
        exclude_zero: what is 0 becomes the dtype's smallest step.

    >>> import genesis
    >>> x = make_tensor(2, 3, dtype=genesis.int64, device="cpu", low=1, high=4)
    >>> x.shape, bool(((x >= 1) & (x < 4)).all())
    (genesis.Size([2, 3]), True)
    """
    sizes = list(shape[0]) if len(shape) == 1 and isinstance(shape[0], Sequence) else list(shape)
    spread = noncontiguous and sizes and sizes[-1] > 1
    if spread:
        sizes[-1] *= 2
    least = low if low is not None else 0 if dtype.kind == "bool" or dtype.name == "uint8" else -9
    most = high if high is not None else 2 if dtype is bool_ else 9 if dtype.is_floating_point else 10
    if dtype.is_floating_point:
        made = empty(sizes, dtype=dtype, device=device).uniform_(least, most)
    else:
        made = empty(sizes, dtype=dtype, device=device).random_(int(least), int(most))
    if exclude_zero:
        made = made.masked_fill(made == 0, dtype.eps or 1)
    if spread:
        made = made[..., ::2]
    return made.requires_grad_(requires_grad)


__getattr__ = suggesting(__name__)
