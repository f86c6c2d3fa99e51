"""The entry of a pointwise op: what every one of them states beside its type, derivative and samples.

A row that leaves one of these out cannot be written: an op without a weight would silently count as an addition.
`tests/ops/test_entries.py` holds them against what tensors and devices do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Autocast, Op, Types

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import TypedDict, Unpack

    from genesis.ir.node import Attr, Number
    from genesis.ir.opaque import Opaque
    from genesis.ir.ops.samples import Samples

    class Attributes(TypedDict, total=False):
        """The attributes that several ops of a file have."""

        attrs: tuple[str, ...]
        defaults: Mapping[str, Attr]

    class Accurate(Attributes, total=False):
        """Attributes, and how exact the ops are."""

        ulp: float

    class Row(Accurate, total=False):
        """What a family of pointwise ops states row by row."""

        decompose: Callable | None
        commutative: bool
        differentiable: bool | None
        weight: int
        number: Callable[..., Number] | None
        rounds: bool
        autocast: Autocast | None
        in_place: bool

    class SampledRow(Row, total=False):
        """A row with samples."""

        samples: Samples | None
        reference: Callable | None

    class Comparison(Accurate, total=False):
        """A row of a comparison."""

        decompose: Callable | None
        commutative: bool
        number: Callable[..., Number] | None
        samples: Samples | None
        reference: Callable | None

    class OpFields(Accurate, total=False):
        """The keywords of `Op` that say nothing of pointwise ops alone."""

        vjp: Callable | None
        decompose: Callable | None
        doc: str
        samples: Samples | None
        reference: Callable | None
        commutative: bool
        differentiable: bool | None
        opaque: Opaque | None
        associative: bool


def pointwise(name: str, infer: Callable[..., Types], *, weight: int, number: Callable[..., Number] | None,
              rounds: bool, autocast: Autocast | None, in_place: bool, **more: Unpack[OpFields]) -> Op:
    """Register a pointwise op.

    Args:
        weight: what an element costs in a kernel next to an addition; of an op with a decomposition, the sum of that.
        number: (*Python numbers, **attributes) → the number that the op gives. Where it raises, the result is the
            `reference`'s by IEEE arithmetic. None: the op is computed on tensors only.
        rounds: the result is no more exact than its operands need be: where a kernel only ever shows it rounded to
            16 bits, the operands may be in their low-precision forms too.
        autocast: the precision that autocast runs it in; None: that of its operands.
        in_place: tensors have it as a method with an underscore.
        more: what `Op` takes.
    """
    return Op(name, "pointwise", infer, weight=weight, number=number, rounds=rounds, autocast=autocast,
              in_place=in_place, **more)
