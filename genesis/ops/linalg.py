"""Matrix products."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.autocast_policy import low_precision
from genesis.frontend.recording import TensorBase, emit, read, require_tensors, wrap
from genesis.ir.errors import NotAnOperand, failure, not_a_tensor
from genesis.ir.node import Node, broadcast_shapes, make
from genesis.ir.ops import contraction, movement
from genesis.ops.common import device_of, expand
from genesis.ops.foreign import reflected
from genesis.ops.inplace import write_back
from genesis.ops.out import into

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["addmm", "bmm", "dot", "matmul", "mm", "mv", "outer"]


def _shaped(node: Node, shape: tuple[int, ...]) -> Node:
    return node if node.type.shape == shape else make(movement.reshape, (node,), (shape,))


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Matrix product with torch's rules: vectors are rows or columns, leading dimensions broadcast.

    >>> import genesis
    >>> genesis.matmul(genesis.ones(2, 3), genesis.ones(3))
    tensor([3., 3.])
    """
    try:
        input, other = low_precision(input, other)
        a, b = read(input), read(other)
    except NotAnOperand:
        return into(out, _sparse_or_refused(input, other))
    shape_a, shape_b = a.type.shape, b.type.shape
    named = [("input", input), ("other", other)]
    device_of("matmul", (input, other))
    if not shape_a or not shape_b:
        raise failure("matmul", "both arguments to matmul need to be at least 1D", named, hint="use * for numbers")
    if a.type.dtype is not b.type.dtype:
        raise failure("matmul", f"expected both to have one dtype, but got {a.type.dtype!r} and {b.type.dtype!r}",
                      named, hint="cast one with .to(dtype)")
    rows_a = shape_a if len(shape_a) > 1 else (1, *shape_a)
    rows_b = shape_b if len(shape_b) > 1 else (*shape_b, 1)
    if rows_a[-1] != rows_b[-2]:
        raise failure("matmul", f"inner sizes {rows_a[-1]} and {rows_b[-2]} differ: shapes {shape_a} and {shape_b} "
                                "cannot be multiplied", named, hint="transpose one operand")
    try:
        batch = broadcast_shapes(rows_a[:-2], rows_b[:-2])
    except RuntimeError as error:
        raise failure("matmul", str(error), named) from None
    result = (*batch, *((rows_a[-2],) if len(shape_a) > 1 else ()), *((rows_b[-1],) if len(shape_b) > 1 else ()))
    if len(rows_b) == 2 and len(rows_a) > 2:  # one matrix for all batches: rows of a long matrix
        count = 1
        for size in rows_a[:-1]:
            count *= size
        product = emit(contraction.matmul, (_shaped(a, (count, rows_a[-1])), _shaped(b, rows_b)))
    else:
        left, right = _shaped(a, rows_a), _shaped(b, rows_b)
        left, right = expand(left, (*batch, *rows_a[-2:])), expand(right, (*batch, *rows_b[-2:]))
        product = emit(contraction.matmul, (left, right))
    return into(out, wrap(_shaped(product, result)))


def _ranked(name: str, ndim_a: int, ndim_b: int, input: Tensor, other: Tensor) -> Tensor:
    if not (isinstance(input, TensorBase) and isinstance(other, TensorBase)):
        return _sparse_or_refused(input, other)
    if input.spec.ndim != ndim_a or other.spec.ndim != ndim_b:
        raise failure(name, f"expected {ndim_a}-D and {ndim_b}-D tensors", [("input", input), ("other", other)],
                      hint="use matmul, which broadcasts")
    return matmul(input, other)


def _sparse_or_refused(input: Any, other: Any) -> Tensor:
    """The product where one is a matrix of another kind, which knows it (`genesis.sparse`)."""
    for x in (input, other):
        if hasattr(type(x), "product_of"):
            return type(x).product_of(input, other)
    raise not_a_tensor(other if isinstance(input, TensorBase) else input)


def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Product of two matrices."""
    return into(out, _ranked("mm", 2, 2, input, mat2))


def bmm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Products of two batches of matrices."""
    return into(out, _ranked("bmm", 3, 3, input, mat2))


def mv(input: Tensor, vec: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Product of a matrix and a vector."""
    return into(out, _ranked("mv", 2, 1, input, vec))


def dot(input: Tensor, tensor: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Sum of the products of two vectors."""
    return into(out, _ranked("dot", 1, 1, input, tensor))


def outer(input: Tensor, vec2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """All products of two vectors' elements, as a matrix."""
    require_tensors(input, vec2)
    if input.spec.ndim != 1 or vec2.spec.ndim != 1:
        raise failure("outer", "expected 1-D and 1-D tensors", [("input", input), ("vec2", vec2)],
                      hint="x.unsqueeze(-1) * y.unsqueeze(-2), which takes any leading dimensions")
    return into(out, input.unsqueeze(1) * vec2.unsqueeze(0))


def addmm(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1,
          out: Tensor | None = None) -> Tensor:
    """beta · input + alpha · mat1 @ mat2."""
    product = mm(mat1, mat2)
    product = product if alpha == 1 else product * alpha
    return into(out, (input + product if beta == 1 else input * beta + product).contiguous())


class LinalgMethods(TensorBase):
    """The matrix methods of a tensor."""

    __slots__ = ()

    matmul = matmul
    mm = mm
    bmm = bmm
    mv = mv
    dot = dot
    outer = outer
    addmm = addmm

    def addmm_(self: Any, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> Tensor:
        """`addmm` in place."""
        return write_back("addmm_", self, lambda: read(addmm(self, mat1, mat2, beta=beta, alpha=alpha)))

    def __matmul__(self: Any, other: Any) -> Any:
        try:
            return matmul(self, other)
        except NotAnOperand as error:
            return reflected(error, other, "__rmatmul__")

    def __rmatmul__(self: Any, other: Any) -> Tensor:
        return matmul(other, self)
