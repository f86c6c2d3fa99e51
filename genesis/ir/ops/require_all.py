"""A value whose condition has to hold: what a library looks at before it computes, such as probabilities."""

from __future__ import annotations

from genesis.ir.node import Op
from genesis.ir.ops.samples import case, cases, chosen, reals
from genesis.ir.types import TensorType, bool_


def _type(x: TensorType, condition: TensorType, name: str, problem: str) -> TensorType:
    if condition.dtype is not bool_:
        raise RuntimeError(f"a condition is bool, not {condition.dtype!r}")
    return x


require_all = Op("require_all", "index", _type, attrs=("name", "problem"),
                 decompose=lambda x, condition, name, problem: x,
                 vjp=lambda g, x, condition, y, name, problem: (g, None), raises=(RuntimeError, ValueError),
                 doc="x. The CPU raises RuntimeError unless the condition, a tensor of any shape, is true everywhere: "
                     "`name` (the op that wants it) and `problem`. A GPU does not look.",
                 samples=cases(case(reals().of(3, 4), chosen(2).of(2), name="op", problem="it is false"),
                               case(reals().of(5), chosen(0).of(0), name="op", problem="it is false")),
                 reference=lambda x, condition, name, problem: x)
