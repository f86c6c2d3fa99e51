"""Writing results into a tensor: the in-place forms of the pointwise ops.

An in-place op computes as the op does and writes the result through the tensor into its storage, so
every view of that memory sees it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from genesis.ir.errors import failure
from genesis.ir.ops import pointwise as p
from genesis.ops.common import cast, operands
from genesis.ops.math import addcdiv, addcmul, clamp, lerp, mul
from genesis.recording import TensorBase, assign, emit, read

if TYPE_CHECKING:
    from genesis.tensor import Tensor

    Value: TypeAlias = Tensor | bool | int | float


def _write(tensor: Tensor, op: Any, *others: Any, floating: bool = False) -> Tensor:
    """Compute op(tensor, others) and write it to the tensor, in its dtype."""
    result = emit(op, operands(op.name + "_", (tensor, *others), floating))
    return write_back(op.name + "_", tensor, result)


def write_back(name: str, tensor: Tensor, result: Any) -> Tensor:
    """Write a computed node to the tensor, if torch would let it: same shape, no higher category."""
    kinds = ("bool", "int", "float")
    if result.type.shape != tensor.type.shape:
        raise failure(name, f"output with shape {list(tensor.type.shape)} doesn't match the broadcast shape "
                            f"{list(result.type.shape)}", [("tensor", tensor)])
    if kinds.index(result.type.dtype.kind) > kinds.index(tensor.type.dtype.kind):
        raise failure(name, f"result type {result.type.dtype!r} can't be cast to the desired output type "
                            f"{tensor.type.dtype!r}", [("tensor", tensor)], hint="use the out-of-place op")
    assign(tensor, cast(result, tensor.type.dtype))
    return tensor


class InPlaceMethods(TensorBase):
    """The in-place pointwise methods of a tensor."""

    __slots__ = ()

    def exp_(self: Any) -> Tensor:
        """`exp` in place."""
        return _write(self, p.exp, floating=True)

    def exp2_(self: Any) -> Tensor:
        """`exp2` in place."""
        return _write(self, p.exp2, floating=True)

    def expm1_(self: Any) -> Tensor:
        """`expm1` in place."""
        return _write(self, p.expm1, floating=True)

    def log_(self: Any) -> Tensor:
        """`log` in place."""
        return _write(self, p.log, floating=True)

    def log2_(self: Any) -> Tensor:
        """`log2` in place."""
        return _write(self, p.log2, floating=True)

    def log10_(self: Any) -> Tensor:
        """`log10` in place."""
        return _write(self, p.log10, floating=True)

    def log1p_(self: Any) -> Tensor:
        """`log1p` in place."""
        return _write(self, p.log1p, floating=True)

    def sin_(self: Any) -> Tensor:
        """`sin` in place."""
        return _write(self, p.sin, floating=True)

    def cos_(self: Any) -> Tensor:
        """`cos` in place."""
        return _write(self, p.cos, floating=True)

    def tan_(self: Any) -> Tensor:
        """`tan` in place."""
        return _write(self, p.tan, floating=True)

    def asin_(self: Any) -> Tensor:
        """`asin` in place."""
        return _write(self, p.asin, floating=True)

    def acos_(self: Any) -> Tensor:
        """`acos` in place."""
        return _write(self, p.acos, floating=True)

    def atan_(self: Any) -> Tensor:
        """`atan` in place."""
        return _write(self, p.atan, floating=True)

    def sinh_(self: Any) -> Tensor:
        """`sinh` in place."""
        return _write(self, p.sinh, floating=True)

    def cosh_(self: Any) -> Tensor:
        """`cosh` in place."""
        return _write(self, p.cosh, floating=True)

    def tanh_(self: Any) -> Tensor:
        """`tanh` in place."""
        return _write(self, p.tanh, floating=True)

    def asinh_(self: Any) -> Tensor:
        """`asinh` in place."""
        return _write(self, p.asinh, floating=True)

    def acosh_(self: Any) -> Tensor:
        """`acosh` in place."""
        return _write(self, p.acosh, floating=True)

    def atanh_(self: Any) -> Tensor:
        """`atanh` in place."""
        return _write(self, p.atanh, floating=True)

    def sqrt_(self: Any) -> Tensor:
        """`sqrt` in place."""
        return _write(self, p.sqrt, floating=True)

    def rsqrt_(self: Any) -> Tensor:
        """`rsqrt` in place."""
        return _write(self, p.rsqrt, floating=True)

    def reciprocal_(self: Any) -> Tensor:
        """`reciprocal` in place."""
        return _write(self, p.reciprocal, floating=True)

    def sigmoid_(self: Any) -> Tensor:
        """`sigmoid` in place."""
        return _write(self, p.sigmoid, floating=True)

    def erf_(self: Any) -> Tensor:
        """`erf` in place."""
        return _write(self, p.erf, floating=True)

    def erfc_(self: Any) -> Tensor:
        """`erfc` in place."""
        return _write(self, p.erfc, floating=True)

    def neg_(self: Any) -> Tensor:
        """`neg` in place."""
        return _write(self, p.neg)

    def sign_(self: Any) -> Tensor:
        """`sign` in place."""
        return _write(self, p.sign)

    def floor_(self: Any) -> Tensor:
        """`floor` in place."""
        return _write(self, p.floor)

    def ceil_(self: Any) -> Tensor:
        """`ceil` in place."""
        return _write(self, p.ceil)

    def trunc_(self: Any) -> Tensor:
        """`trunc` in place."""
        return _write(self, p.trunc)

    def relu_(self: Any) -> Tensor:
        """`relu` in place."""
        return _write(self, p.relu)

    def abs_(self: Any) -> Tensor:
        """`abs` in place."""
        return _write(self, p.abs)

    def round_(self: Any) -> Tensor:
        """`round` in place."""
        return _write(self, p.round)

    def mul_(self: Any, other: Value) -> Tensor:
        """`mul` in place."""
        return _write(self, p.mul, other)

    def fmod_(self: Any, other: Value) -> Tensor:
        """`fmod` in place."""
        return _write(self, p.fmod, other)

    def remainder_(self: Any, other: Value) -> Tensor:
        """`remainder` in place."""
        return _write(self, p.remainder, other)

    def floor_divide_(self: Any, other: Value) -> Tensor:
        """`floor_divide` in place."""
        return _write(self, p.floor_divide, other)

    def pow_(self: Any, other: Value) -> Tensor:
        """`pow` in place."""
        return _write(self, p.pow, other)

    def bitwise_and_(self: Any, other: Value) -> Tensor:
        """`bitwise_and` in place."""
        return _write(self, p.bitwise_and, other)

    def bitwise_or_(self: Any, other: Value) -> Tensor:
        """`bitwise_or` in place."""
        return _write(self, p.bitwise_or, other)

    def bitwise_xor_(self: Any, other: Value) -> Tensor:
        """`bitwise_xor` in place."""
        return _write(self, p.bitwise_xor, other)

    def add_(self: Any, other: Value, *, alpha: float = 1) -> Tensor:
        """`add` in place."""
        return _write(self, p.add, other if alpha == 1 else mul(other, alpha))

    def sub_(self: Any, other: Value, *, alpha: float = 1) -> Tensor:
        """`sub` in place."""
        return _write(self, p.sub, other if alpha == 1 else mul(other, alpha))

    def div_(self: Any, other: Value) -> Tensor:
        """`div` in place."""
        return _write(self, p.div, other, floating=True)

    def lerp_(self: Any, end: Tensor, weight: Value) -> Tensor:
        """`lerp` in place."""
        return write_back("lerp_", self, read(lerp(self, end, weight)))

    def addcmul_(self: Any, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """`addcmul` in place."""
        return write_back("addcmul_", self, read(addcmul(self, tensor1, tensor2, value=value)))

    def addcdiv_(self: Any, tensor1: Tensor, tensor2: Tensor, *, value: float = 1) -> Tensor:
        """`addcdiv` in place."""
        return write_back("addcdiv_", self, read(addcdiv(self, tensor1, tensor2, value=value)))

    def clamp_(self: Any, min: Value | None = None, max: Value | None = None) -> Tensor:
        """`clamp` in place."""
        return write_back("clamp_", self, read(clamp(self, min, max)))

    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    __ifloordiv__, __imod__, __ipow__ = floor_divide_, remainder_, pow_
    __iand__, __ior__, __ixor__ = bitwise_and_, bitwise_or_, bitwise_xor_
