"""`out=`: a result written into a tensor that is there already.

A function that takes it says so in its own signature, `out: Tensor | None = None`, and ends in
`return into(out, result)`. A decorator would be shorter, but editors and mypy would not see the keyword (PEP 612 has no
way to add one to a ParamSpec), and its frame would stand between the user's line and the op. Unused it costs one
comparison, about 0.05 µs of the recording; pointwise ops, whose result is nobody's view, compare it themselves.

The result is recorded as without it and then written like `copy_`, so every view of the memory sees it, and an operand
may be the `out` as well. As in torch the result must be of no higher category than `out` (bool, integer, floating) and
carry no gradient, and an `out` without elements takes the result's shape. Torch resizes any other shape too, with a
warning that this will end; here it is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar, overload

from genesis.frontend import recording, session
from genesis.frontend.grad_mode import mode
from genesis.frontend.recording import TensorBase, misplaced, owned, read, wrap_laid_out
from genesis.frontend.writes import assign
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.types import CATEGORIES, DType, as_dtype
from genesis.ops.common import cast

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

Results = TypeVar("Results", bound=tuple)


@overload
def into(out: Tensor | None, result: Tensor) -> Tensor: ...
@overload
def into(out: Sequence[Tensor] | None, result: Results) -> Results: ...
def into(out: Any, result: Any) -> Any:
    """The result, or `out` with the result written to it; of several results each into its own.

    Args:
        out: None, a tensor, or as many tensors as there are results.

    Raises:
        TypeError: `out` is no tensor, or not a tensor for each result.
        RuntimeError: the result requires grad, is of a higher category, on another device, or of another shape.

    >>> import genesis
    >>> total = genesis.zeros(2)
    >>> genesis.add(genesis.ones(2), 1, out=total) is total, total
    (True, tensor([2., 2.]))
    """
    if out is None:
        if result.__class__ is recording._tensor_class:
            return owned(result) if result.is_view else result
        for one in result if isinstance(result, tuple) else (result,):
            try:
                if one.is_view:
                    owned(one)
            except AttributeError as error:
                raise misplaced(error, one) from None
        return result
    if not isinstance(result, tuple):
        return _written(out, result)
    if not isinstance(out, (tuple, list)) or len(out) != len(result):
        raise failure("out", f"expected a tuple of {len(result)} tensors, not {type(out).__name__}", error=TypeError)
    for one, value in zip(out, result, strict=True):
        _written(one, value)
    return type(result)(*out) if hasattr(result, "_fields") else tuple(out)


def _written(out: Any, result: Any) -> Any:
    if is_foreign(out):
        raise not_a_tensor(out)
    if not isinstance(out, TensorBase):
        raise failure("out", f"expected a tensor, not {type(out).__name__}", error=TypeError)
    named: list[tuple[str, Any]] = [("result", result), ("out", out)]
    if result.requires_grad or (out.leaf is not None and result.spec.dtype.kind == "float" and mode.enabled):
        raise failure("out", "functions with out=... arguments don't support automatic differentiation, but one of the "
                      "arguments requires grad.", named, hint="detach() them, or compute under genesis.no_grad()")
    kind, wanted = result.spec, out.spec
    if CATEGORIES[kind.dtype.kind] > CATEGORIES[wanted.dtype.kind]:
        raise failure("out", f"result type {kind.dtype!r} can't be cast to the desired output type {wanted.dtype!r}",
                      named, hint="give an out of a floating-point dtype")
    if kind.device is not wanted.device:
        raise failure("out", f"expected all tensors on one device, but found {kind.device} and {wanted.device}", named,
                      hint="make out on the operands' device")
    node = cast(read(result), wanted.dtype)
    if kind.shape != wanted.shape:
        _resize(out, node, named, None if result.part is None else result.part.strides)
    else:
        assign(out, node, replaces=True)
    return out


def _resize(out: Any, node: Any, named: list[tuple[str, Any]], strides: tuple[int, ...] | None) -> None:
    """Give an empty tensor memory of the result's shape and layout."""
    if out.spec.numel:
        raise failure("out", f"the result has shape {list(node.type.shape)}, but out has {list(out.spec.shape)} (torch "
                      "resizes it with a warning)", named, hint="give an out of that shape, or genesis.empty(0)")
    session.rebound()
    made = wrap_laid_out(node, strides)
    out.storage, out.spec, out.part = made.storage, made.spec, made.part


def made_like(out: Tensor | None, dtype: DType | None, device: Any) -> tuple[DType | None, Any]:
    """(dtype, device) of a new tensor that goes into `out`: its own, unless others were asked for, which is an error.

    >>> import genesis
    >>> genesis.ones(2, out=genesis.zeros(2, dtype=genesis.int64))
    tensor([1, 1])
    """
    if out is None:
        return None if dtype is None else as_dtype(dtype), device
    if dtype is not None and dtype is not out.spec.dtype:
        raise failure("out", f"dtype {dtype!r} does not match dtype of out tensor ({out.spec.dtype!r})", [("out", out)])
    return out.spec.dtype, out.spec.device if device is None else device
