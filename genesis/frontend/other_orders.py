"""Orders of arguments that torch takes beside a function's own: those of old, and dimensions one by one.

`p.add_(-lr, gradient)`, `squared.addcmul_(1 - beta, g, g)` as optimizers of 2019 have them, `x.squeeze(0, 1)`,
`torch.arange(end=3)`. They are looked up only where a call does not fit (`public_functions`), so one that does pays
nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from genesis.frontend.recording import TensorBase


class Given(NamedTuple):
    """Arguments in the function's own order: those with a place, and those by name alone."""

    placed: tuple[Any, ...]
    named: dict[str, Any]


def _is_number(x: object) -> bool:
    return not isinstance(x, (TensorBase, str, list, tuple)) and x is not None


def _alpha(input: Any, first: Any, second: Any) -> Given | None:
    """`add(input, alpha, other)`; and `add(input, number, alpha)`, of numbers alone."""
    if not _is_number(first):
        return None
    return Given((input, second), {"alpha": first}) if isinstance(second, TensorBase) else (
        Given((input, first), {"alpha": second}) if _is_number(second) else None)


def _value(input: Any, value: Any, first: Any, second: Any) -> Given | None:
    """`addcmul(input, value, tensor1, tensor2)`."""
    return Given((input, first, second), {"value": value}) if _is_number(value) else None


def _beta(*args: Any) -> Given | None:
    """`addmm(beta, input, alpha, mat1, mat2)`; as a method `input.addmm(beta, alpha, mat1, mat2)`; without alpha."""
    tensors = tuple([x for x in args if isinstance(x, TensorBase)])
    numbers = [x for x in args if _is_number(x)]
    if len(tensors) != 3 or len(args) not in (4, 5) or len(tensors) + len(numbers) != len(args) or not (
            isinstance(args[-1], TensorBase) and isinstance(args[-2], TensorBase)):
        return None
    return Given(tensors, dict(zip(("beta", "alpha"), numbers, strict=False)))


def _sizes(input: Any, *sizes: Any) -> Given | None:
    """`squeeze(0, 1)` for `squeeze((0, 1))`."""
    return Given((input, sizes), {}) if all(map(_is_number, sizes)) else None


ORDERS: Final[Mapping[str, Callable[..., Given | None]]] = {
    **dict.fromkeys(("add", "add_", "sub", "sub_", "subtract", "subtract_", "rsub"), _alpha),
    **dict.fromkeys(("addcmul", "addcmul_", "addcdiv", "addcdiv_"), _value),
    **dict.fromkeys(("addmm", "addmv", "addr", "addbmm", "baddbmm"), _beta),
    **dict.fromkeys(("addmm_", "addmv_", "addr_", "addbmm_", "baddbmm_"), _beta),
    **dict.fromkeys(("squeeze", "squeeze_", "count_nonzero", "broadcast_to", "hsplit", "vsplit", "dsplit"), _sizes),
}
"""Function → what makes its own order of arguments that are too many; None where they are no order of torch's."""

FIRST_OF_RANGE: Final[Mapping[str, tuple[str, str]]] = {
    "arange": ("start", "end"), "randint": ("low", "high"), "randint_like": ("low", "high")}
"""Function → its lower limit, which is 0 where only the upper one, named here too, is given by name."""
