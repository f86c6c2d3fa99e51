"""Shapes and numbers in Triton's interpreter, made once a launch.

Each step of an interpreted kernel makes tensors and their types, and each of these a tuple of its sizes, a type of that
tuple, and texts of both: half of the time that a kernel took. A number beside a tensor becomes a tensor twice, and then
a block. Kernels have few shapes and numbers, and no operation writes into its operands' arrays: of each there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from triton import language
    from triton.language.semantic import TritonSemantic
    from triton.runtime.interpreter import TensorHandle

    Constant = Callable[..., language.tensor]
    Operands = Callable[..., tuple[language.tensor, language.tensor]]

Init = Callable[..., None]
"""What a class has for `__init__`."""


@dataclass(frozen=True)
class KnownShapes:
    """What one launch has made.

    Attributes:
        types: sizes → the tuple that a type has of them, and how many elements these are.
        tensors: sizes → the same of a tensor.
        numbers: (integer, dtype) → its tensor.
        blocks: (a tensor among the numbers, a type's tuple of sizes), by their addresses → the block of that number,
            and the tuple, so that nothing else gets its address.
        scalars: the addresses of the tensors among the numbers.
        targets: (sizes of a block, of another), by their addresses → those that both get beside each other, and the
            two, so that nothing else gets their addresses.
        beside: (dtype and sizes of a tensor, an integer beside it in an operation of a kind) → the operand it becomes.
    """

    types: dict[tuple[int, ...], tuple[language.tuple, int]] = field(default_factory=dict)
    tensors: dict[tuple[int, ...], tuple[language.tuple, language.constexpr]] = field(default_factory=dict)
    numbers: dict[tuple[int, str], language.tensor] = field(default_factory=dict)
    blocks: dict[tuple[int, int], tuple[language.tensor, language.tuple]] = field(default_factory=dict)
    scalars: set[int] = field(default_factory=set)
    targets: dict[tuple[int, int], tuple[language.tuple, ...]] = field(default_factory=dict)
    beside: dict[tuple[object, ...], language.tensor] = field(default_factory=dict)

    def forget(self) -> None:
        """Begin a launch, or end one."""
        for found in (self.types, self.tensors, self.numbers, self.blocks, self.scalars, self.targets,
                      self.beside):
            found.clear()

    def block_type_init(self, original: Init) -> Init:
        """`block_type.__init__`."""
        import triton.language as tl
        known = self.types

        def init(made: language.block_type, element_ty: language.dtype,
                 shape: Sequence[language.constexpr]) -> None:
            key = tuple([x.value if x.__class__ is tl.constexpr else x for x in shape])
            if key not in known:
                original(made, element_ty, shape)
                known[key] = made.shape, made.numel
                return
            made.element_ty = element_ty
            made.shape, made.numel = known[key]
            made.name = f"<{key}, {element_ty}>"
        return init

    def tensor_init(self, original: Init) -> Init:
        """`tensor.__init__`."""
        known = self.tensors

        def init(made: language.tensor, handle: TensorHandle, type: language.dtype) -> None:
            key = tuple(type.shape.values) if type.is_block() else ()
            if key not in known:
                original(made, handle, type)
                known[key] = made.shape, made.numel
                return
            made.handle, made.type, made.dtype = handle, type, type.scalar
            made.shape, made.numel = known[key]
        return init

    def scalar_constant(self, original: Constant) -> Constant:
        """`TritonSemantic.scalar_constant`, of integers."""
        known, scalars = self.numbers, self.scalars

        def constant(semantic: TritonSemantic, value: float, dtype: language.dtype) -> language.tensor:
            if value.__class__ is not int or dtype.__class__.__name__ != "dtype":
                return original(semantic, value, dtype)
            found = known.get((value, dtype.name))
            if found is None:
                found = known[value, dtype.name] = original(semantic, value, dtype)
                scalars.add(id(found))
            return found
        return constant

    def broadcast_impl_value(self, original: Operands) -> Operands:
        """`TritonSemantic.broadcast_impl_value`: the shape that two blocks have is looked up, not compared anew."""
        import triton.language as tl
        block_type, targets, blocks, scalars = tl.block_type, self.targets, self.blocks, self.scalars

        def broadcast(semantic: TritonSemantic, left: language.tensor,
                      right: language.tensor) -> tuple[language.tensor, language.tensor]:
            a, b = left.type, right.type
            if a.__class__ is not block_type:
                return (left, right) if b.__class__ is not block_type else (_spread(left, b.shape), right)
            if b.__class__ is not block_type:
                if id(right) not in scalars:
                    return left, _spread(right, a.shape)
                key = id(right), id(a.shape)
                if key not in blocks:
                    blocks[key] = _spread(right, a.shape), a.shape
                return left, blocks[key][0]
            if a.shape is b.shape:
                return left, right
            key = id(a.shape), id(b.shape)
            if key not in targets:
                left, right = original(semantic, left, right)
                targets[key] = left.type.shape, a.shape, b.shape
                return left, right
            shape = targets[key][0]
            return (left if a.shape is shape else _spread(left, shape),
                    right if b.shape is shape else _spread(right, shape))
        return broadcast

    def binary_op_type_checking_impl(self, original: Operands) -> Operands:
        """`TritonSemantic.binary_op_type_checking_impl`: two tensors of a dtype, a pointer and integers, and an integer
        beside a tensor whose dtype it takes."""
        import triton.language as tl
        known = self.beside
        divided_as_float32 = tl.float16, tl.bfloat16

        def operands(semantic: TritonSemantic, left: language.tensor, right: language.tensor,
                     allow_lhs_ptr: bool = False, allow_rhs_ptr: bool = False, arithmetic_check: bool = True,
                     div_or_mod: bool = False) -> tuple[language.tensor, language.tensor]:
            how = allow_lhs_ptr, allow_rhs_ptr, arithmetic_check, div_or_mod
            if left.__class__ is not tl.tensor:
                return original(semantic, left, right, *how)
            kind, dtype = left.type, left.dtype
            if right.__class__ is tl.tensor:
                if dtype.is_ptr():
                    fits = allow_lhs_ptr and right.dtype.is_int()
                else:
                    fits = dtype is right.dtype and not (div_or_mod and dtype in divided_as_float32)
                if fits:
                    return semantic.broadcast_impl_value(left, right)
            elif right.__class__ is int:
                key = dtype.name, tuple(kind.shape.values) if kind.is_block() else (), right, how
                if key in known:
                    return left, known[key]
                same, made = original(semantic, left, right, *how)
                if same is left:
                    known[key] = made
                return same, made
            return original(semantic, left, right, *how)
        return operands


def _spread(x: language.tensor, shape: language.tuple) -> language.tensor:
    """The elements of a tensor along the dimensions that it has not. They are written down: numpy's view of them takes
    longer to make than kernels' blocks to fill, and to read."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    data = x.handle.data
    block = np.empty(tuple(shape.values), data.dtype)
    block[...] = data
    return tl.tensor(TensorHandle(block, x.dtype), tl.block_type(x.dtype, shape))
