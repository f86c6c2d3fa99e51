"""What a row of the table is: how one op runs as a torch call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genesis.ir.node import Node
from genesis.runtime.plan import Direct

Supports = Callable[[tuple[Any, ...], dict[str, Any]], bool]

Writes = Sequence[Callable[[], Any]]
"""Calls into C that write results. None of them fails: what can be wrong was found out before."""


@dataclass(frozen=True, slots=True)
class Lowering:
    """How one op runs on the CPU.

    Operands are torch tensors, with any strides, or Python numbers. Nothing requires grad.

    Attributes:
        function: the call.
        kind: what it does with memory.
            "out": `function(outs, *operands, **attributes)` writes contiguous tensors it is given. If the row
                `allocates`, each of `outs` may be None: it returns tensors in new memory.
            "view": `function(x, **attributes)` returns a view of x. `reshape` of an operand whose
                strides have no such view returns a copy in memory of its own (`shares_memory` tells).
            "fresh": `function(*operands, **attributes)` returns a tensor, or a tuple of them, in
                memory that torch allocated, with any strides. The executor adopts it; what is
                no row-major tensor with memory to itself is copied if it is an output.
        supports: (operand types, attributes) → whether torch has a kernel for them. The op is
            decomposed where not. None: always.
        in_place: positions of the operands whose memory may also be the result's, pairwise equal
            memory for memory ("out" only). An operand elsewhere must not overlap the result.
        writes_over: of an op with several results: (node, index of a result) → position of the operand whose memory
            may also be that result's ("out" only).
        allocates: it takes None for `outs`; what nothing else needs to be in a place of its own is then
            made by one call of torch instead of two.
        late: `late(outs, *operands, **attributes)` returns the calls into C that write `outs`, ready to be made without
            arguments; it raises and allocates whatever there is to raise and to allocate ("out" only). What
            overwrites a program's memory is called last and without a line of Python between (`Call.late`). None: a
            result that overwrites memory is made elsewhere first, and copied.
        direct: the call of torch's to which `function` passes its operands on; it does nothing else. A plan that runs
            again and again makes this call, without a line of Python between.
        direct_for: (operand types, attributes) → whether that is so for them. None: always.
        as_tensors: positions where a number may come as a tensor without dimensions, of the dtype in which the op
            computes, with the same bits; for float32 and float64 alone: narrower dtypes would round the number.
        integers_as_tensors: positions where an integer may, for int64 alone.
        refuses_far: a number that the dtype does not hold is an error: only literals may come as tensors.
        late_reads: `late` looks at its operands' elements: none of them is made by another call of that kind.
    """

    function: Callable[..., Any]
    kind: str = "out"
    supports: Supports | None = None
    in_place: tuple[int, ...] = ()
    writes_over: Callable[[Node, int], int] | None = None
    allocates: bool = False
    late: Callable[..., Writes] | None = None
    late_reads: bool = False
    direct: Direct | None = None
    direct_for: Supports | None = None
    as_tensors: tuple[int, ...] = ()
    integers_as_tensors: tuple[int, ...] = ()
    refuses_far: bool = False


def smaller(size: Any, than: int) -> bool:
    """Whether a number of elements is known, and less than this. A symbolic one is not asked: that would be a guard."""
    return size.__class__ is int and size < than


def builtin(overload: Any) -> Callable[..., Any]:
    """The function of C that an overload of torch's calls for any arguments, 0.4 µs sooner than the overload itself."""
    found: Callable[..., Any] = getattr(overload, "_op", overload)
    return found


Outs = tuple[Any, ...]
"""Tensors to write to, or None for each."""


def into(outs: Outs, result: Any) -> Any:
    """A result that has memory of its own, or `outs[0]` with the result written to it."""
    return result if outs[0] is None else outs[0].copy_(result)


def pair(outs: Outs) -> Outs | None:
    """`outs` as torch's functions with several results take them."""
    return None if outs[0] is None else outs
