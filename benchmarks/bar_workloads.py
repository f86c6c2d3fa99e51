"""The memory-bound workloads whose speed is promised: what is computed, the bytes that must move, the bar.

A workload's function is written once and called with `genesis` and with `torch`: both have the names it uses. Least
traffic: forward every input once and every output once; with the backward also what it needs to read again (inputs or
results, as `needs` names them), the incoming gradient, and the gradients that it writes.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

ITEMSIZE = {"float32": 4, "bfloat16": 2, "int64": 8}


@dataclass(frozen=True)
class Operand:
    """An input: its shape, dtype, and whether its gradient is asked for."""

    shape: tuple[int, ...]
    dtype: str = "bfloat16"
    grad: bool = True
    below: int = 0  # of integers: drawn from range(below)

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]


@dataclass(frozen=True)
class Workload:
    """A function of tensors, and the fraction of the copy rate that it should reach.

    `outputs` are the bytes of the results, `needs` those that the backward cannot do without besides the gradients,
    `incoming` those of the result's gradient (0: a scalar's, made on the spot). A bar of None is not promised.
    """

    name: str
    function: Callable[..., Any]  # (library, *tensors) → a tensor or several
    operands: tuple[Operand, ...]
    outputs: int
    needs: int = 0
    incoming: int = 0
    forward_bar: float | None = None
    both_bar: float | None = None
    exact: bool = True  # results are compared with torch's; False: random, compared by what holds for any draw

    @property
    def forward_bytes(self) -> int:
        return sum(x.nbytes for x in self.operands) + self.outputs

    @property
    def both_bytes(self) -> int:
        gradients = sum(x.nbytes for x in self.operands if x.grad)
        return self.forward_bytes + self.needs + self.incoming + gradients


def functional(library: Any) -> Any:
    return library.nn.functional


def gelu_chain(library: Any, x: Any, a: Any, b: Any, c: Any) -> Any:
    return functional(library).gelu(x * a + b) * library.sigmoid(c)


def pointwise(dtype: str) -> Workload:
    full = Operand((8192, 8192), dtype)
    size = full.nbytes
    return Workload(f"gelu chain {dtype}", gelu_chain, (full,) * 4, size, 4 * size, size, 0.97, 0.97)


def broadcasts() -> Workload:
    """x and c are full, a is a row and b a column."""
    full, row, column = Operand((8192, 8192)), Operand((8192,)), Operand((8192, 1))
    return Workload("gelu chain broadcast", gelu_chain, (full, row, column, full), full.nbytes,
                    2 * full.nbytes, full.nbytes, 0.92, 0.92)


def sums(name: str, outputs: int, **dim: int) -> Workload:
    x = Operand((16384, 8192), grad=False)
    return Workload(f"sum {name}", lambda library, x: x.sum(**dim), (x,), outputs * 2, forward_bar=0.95)


def var_mean() -> Workload:
    x = Operand((16384, 8192), grad=False)
    return Workload("var_mean rows", lambda library, x: library.var_mean(x, dim=-1), (x,), 2 * 16384 * 2,
                    forward_bar=0.92)


def softmax(columns: int) -> Workload:
    x = Operand((8192, columns))
    return Workload(f"softmax 8192x{columns}", lambda library, x: library.softmax(x, -1),
                    (x,), x.nbytes, x.nbytes, x.nbytes, 0.90, 0.85)


def layer_norm(columns: int) -> Workload:
    x, row = Operand((8192, columns)), Operand((columns,))
    return Workload(f"layernorm 8192x{columns}",
                    lambda library, x, w, b: functional(library).layer_norm(x, (columns,), w, b),
                    (x, row, row), x.nbytes, x.nbytes, x.nbytes, 0.92, 0.80)


def rms_norm(columns: int) -> Workload:
    x, row = Operand((8192, columns)), Operand((columns,))
    return Workload(f"rmsnorm 8192x{columns}", lambda library, x, w: functional(library).rms_norm(x, (columns,), w),
                    (x, row), x.nbytes, x.nbytes, x.nbytes, 0.92, 0.80)


def cross_entropy() -> Workload:
    logits, target = Operand((8192, 131072)), Operand((8192,), "int64", grad=False, below=131072)
    return Workload("cross-entropy 8192x131072", lambda library, x, y: functional(library).cross_entropy(x, y),
                    (logits, target), 0, logits.nbytes, 0, None, 0.80)


def dropout() -> Workload:
    x = Operand((8192, 8192))
    return Workload("dropout 64M", lambda library, x: functional(library).dropout(x, 0.1), (x,), x.nbytes, 0, x.nbytes,
                    0.92, 0.92, exact=False)


def transposes() -> list[Workload]:
    x, heads = Operand((8192, 8192), grad=False), Operand((16, 4096, 16, 64), grad=False)
    return [
        Workload("transpose 8192x8192", lambda library, x: x.t().contiguous(), (x,), x.nbytes, forward_bar=0.92),
        Workload("bshd to bhsd", lambda library, x: x.transpose(1, 2).contiguous(), (heads,), heads.nbytes,
                 forward_bar=0.92),
    ]


def cumsum() -> Workload:
    x = Operand((8192, 8192))
    return Workload("cumsum rows", lambda library, x: library.cumsum(x, -1), (x,), x.nbytes, 0, x.nbytes, 0.85, 0.75)


WORKLOADS: tuple[Workload, ...] = (
    pointwise("float32"), pointwise("bfloat16"), broadcasts(),
    sums("all", 1), sums("rows", 16384, dim=1), sums("columns", 8192, dim=0), var_mean(),
    *map(softmax, (4096, 16384, 65536)), *map(layer_norm, (4096, 8192)), *map(rms_norm, (4096, 8192)),
    cross_entropy(), dropout(), *transposes(), cumsum(),
)
