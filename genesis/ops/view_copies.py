"""Views as copies of their own: torch's `expand_copy` is `expand`, of which the result has memory of its own."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from genesis.frontend.public_functions import bound
from genesis.ops import diagonals, parts, shape
from genesis.ops.formats import contiguous_format
from genesis.ops.out import into
from genesis.ops.shape import clone

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

P = ParamSpec("P")
Views = TypeVar("Views")


def copied(view: Callable[P, Views]) -> Callable[P, Views]:
    """The function that makes the view, or the tuple of views, and copies it.

    >>> import genesis
    >>> x = genesis.zeros(2)
    >>> wide = expand_copy(x, 3, 2)
    >>> _ = x.fill_(1)
    >>> wide.sum().item()
    0.0
    """
    view = bound(view, "genesis", view.__name__)  # type: ignore[arg-type]

    @wraps(view)
    def copy(*args: P.args, **how: P.kwargs) -> Views:
        out = how.pop("out", None)
        found = view(*args, **how)
        return into(out, tuple(map(_row_major, found)) if isinstance(found, tuple) else _row_major(found))  # type: ignore
    copy.__name__ += "_copy"
    copy.__doc__ = f"`{view.__name__}`, with memory of its own."
    return copy


def _row_major(view: Tensor) -> Tensor:
    return clone(view, memory_format=contiguous_format)


def alias_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy, with memory of its own."""
    return into(out, clone(input))


def detach_copy(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """A copy without gradients, with memory of its own."""
    return into(out, clone(input.detach()))


as_strided_copy = copied(diagonals.as_strided)
diagonal_copy = copied(diagonals.diagonal)
expand_copy = copied(shape.expand)
narrow_copy = copied(parts.narrow)
permute_copy = copied(shape.permute)
select_copy = copied(parts.select)
split_copy = copied(parts.split)
squeeze_copy = copied(shape.squeeze)
t_copy = copied(shape.t)
transpose_copy = copied(shape.transpose)
unbind_copy = copied(parts.unbind)
unfold_copy = copied(diagonals.unfold)
unsqueeze_copy = copied(shape.unsqueeze)
view_copy = copied(shape.view)
