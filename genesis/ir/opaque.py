"""What fusion knows of an op with a kernel of its own, which computes nothing else and wants operands in memory."""

from __future__ import annotations

from typing import NamedTuple


class Opaque(NamedTuple):
    """A field of such an op's entry.

    Attributes:
        kernel: the kind of kernel, as `Group.kind` names it; several ops may share one.
        views: positions of the operands that the kernel reads through views; the others lie in memory as they are.
        elementwise: how many of its first operands (behind the base, with `over_base`) the kernel reads once, element
            by element: it computes what is cheaper to compute than to load.
        constant_base: the kernel writes a constant first operand itself; it need not be in memory.
        partial: the kernel writes only a part of its result: the rest is what is in its first operand's memory.
        over_base: a program reads of its first operand what it writes, and so may write the result over it.
    """

    kernel: str
    views: tuple[int, ...] = ()
    elementwise: int = 0
    constant_base: bool = False
    partial: bool = False
    over_base: bool = False
