"""An op gives the same whatever way its operands lie in memory: values and gradients, beside those of packed operands.

Kernels of torch's read some operands element by element whatever their strides are: attention's a transposed k, batch
norm's gradient a weight. What lies between the elements here is far from all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from genesis.ir import OPS, Node
from genesis.ir.ops.samples import Array, Case
from genesis.ir.types import DType, bool_, float32, float64, int64
from genesis.passes.graph.autodiff import gradients
from tests.evaluate import evaluate
from tests.ops.test_registry import (
    DIFFERENTIABLE,
    DTYPES_OF_NUMPY,
    TESTED,
    Built,
    apply,
    build,
    dtypes,
    floating,
    leaf,
    parts,
    rng,
    seeds,
)

BETWEEN = {"float": 1e4, "int": 99, "bool": True}
"""What lies between elements, by the kind of their dtype. An index that large is out of every dimension."""


def spaced(value: np.ndarray, between: Any) -> tuple[np.ndarray, Callable[[Node], Node]]:
    """Every second element of a row, from the second on."""
    stored = np.full((*value.shape[:-1], 2 * value.shape[-1] + 1), between, value.dtype)
    stored[..., 1::2] = value
    sizes = value.shape[:-1]
    attributes = {"starts": (*[0] * len(sizes), 1), "stops": (*sizes, 2 * value.shape[-1] + 1),
                  "steps": (*[1] * len(sizes), 2)}
    return stored, lambda x: OPS["slice"](x, **attributes)


def turned(value: np.ndarray, between: Any) -> tuple[np.ndarray, Callable[[Node], Node]]:
    """The last two axes in the other order."""
    axes = (*range(value.ndim - 2), value.ndim - 1, value.ndim - 2)
    return np.ascontiguousarray(value.transpose(axes)), lambda x: OPS["permute"](x, axes=axes)


def apart(value: np.ndarray, between: Any) -> tuple[np.ndarray, Callable[[Node], Node]]:
    """Rows that are parts of longer ones."""
    stored = np.full((*value.shape[:-1], value.shape[-1] + 3), between, value.dtype)
    stored[..., 2:-1] = value
    ends = tuple(value.shape[:-1])
    attributes = {"starts": (*[0] * len(ends), 2), "stops": (*ends, value.shape[-1] + 2), "steps": (1,) * value.ndim}
    return stored, lambda x: OPS["slice"](x, **attributes)


LAYOUTS = {"spaced": (1, spaced), "turned": (2, turned), "apart": (2, apart)}
"""Name → (the fewest dimensions that have it, what lays an array out: the memory, and the operand of its leaf)."""


def laid_out(packed: Built, layout: str, which: int | None) -> Built:
    """The same operands, one of them, or all, in this layout."""
    fewest, lay = LAYOUTS[layout]
    operands, feeds, plain = list(packed.operands), dict(packed.feeds), True
    for position, (node, value) in enumerate(zip(packed.operands, packed.values, strict=True)):
        if node in packed.feeds and value.ndim >= fewest and value.size > 1 and which in (None, position):
            stored, of = lay(value, BETWEEN[node.type.dtype.kind])
            stands = leaf(position, stored.shape, node.type.dtype)
            del feeds[node]
            feeds[stands] = stored
            operands[position] = of(stands)
            plain = False
    return Built(tuple(operands), feeds, packed.values, plain)


def layouts_of(packed: Built, turn: int | None) -> list[tuple[str, Built]]:
    """Each layout of all operands, and of each by itself: one layout in turn, each where there is no turn."""
    count = len(packed.operands)
    each = [None, *range(count)] if count > 1 else [None]
    found = [(f"{layout} {'all' if which is None else which}", laid_out(packed, layout, which))
             for number, layout in enumerate(LAYOUTS) for which in each
             if turn is None or which is None or (turn + which) % len(LAYOUTS) == number]
    return [(name, built) for name, built in found if not built.plain]


def cases(name: str) -> list[Case]:
    """Cases whose operands are drawn: literal ones are for special values."""
    return [case for case in OPS[name].samples.cases if not any(isinstance(x, Array) for x in case.operands)]


def with_gradients(outputs: list[Node], arriving: list[Node], by: list[Node]) -> list[Node]:
    """The results, whose program keeps for the backward what that reads, and their gradients."""
    return [*outputs, *gradients(outputs, arriving, by)]


def bound_of(op: Any, dtype: DType, wanted: np.ndarray) -> float:
    """How far two orders of one sum may lie apart."""
    finite = wanted[np.isfinite(wanted)]
    return 4 * op.ulp * dtype.eps * max(1.0, float(np.abs(finite).max(initial=0.0)))


def same(op: Any, found: Any, wanted: Any, about: str) -> None:
    """Equal, but for the order of sums."""
    found, wanted = (list(x) if isinstance(x, (list, tuple)) else [np.asarray(x)] for x in (found, wanted))
    for a, b in zip(found, wanted, strict=True):
        dtype = DTYPES_OF_NUMPY[b.dtype]
        if dtype.kind == "float":
            np.testing.assert_allclose(a, b, rtol=0, atol=bound_of(op, dtype, b), equal_nan=True, err_msg=about)
        else:
            np.testing.assert_array_equal(a, b, err_msg=about)


@pytest.mark.parametrize("name", TESTED)
def test_values(name: str) -> None:
    check_values(name, each=False)


@pytest.mark.sweep
@pytest.mark.parametrize("name", TESTED)
def test_values_of_each_operand_in_each_layout(name: str) -> None:
    check_values(name, each=True)


def check_values(name: str, each: bool) -> None:
    op = OPS[name]
    for position, case in enumerate(cases(name)):
        for dtype in [d for d in dtypes(op, fast=True) if d in (float32, int64, bool_)]:
            packed = build(case, dtype, "contiguous", (name, position))
            [wanted] = evaluate([apply(op, packed, case)], packed.feeds)
            for layout, built in layouts_of(packed, None if each else position):
                [found] = evaluate([apply(op, built, case)], built.feeds)
                same(op, found, wanted, f"{name} {dtype.short} {layout} {case.attributes}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients(name: str) -> None:
    check_gradients(name, each=False)


@pytest.mark.sweep
@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradients_by_each_operand_in_each_layout(name: str) -> None:
    check_gradients(name, each=True)


def check_gradients(name: str, each: bool) -> None:
    """By operands that lie so, and of gradients that arrive so: in one layout in turn, unless in each."""
    op = OPS[name]
    for position, case in enumerate([case for case in cases(name) if case.gradient]):
        packed = build(case, float64, "contiguous", (name, position))
        outputs = parts(apply(op, packed, case))
        if any(y.type.dtype.kind != "float" for y in outputs):
            continue
        arriving = seeds(outputs)
        draws = rng(name)
        given = {g: draws.uniform(-1, 1, g.type.shape).astype(g.type.dtype.numpy) for g in arriving}
        wanted = evaluate(with_gradients(outputs, arriving, floating(packed)), {**packed.feeds, **given})
        at = [i for i, x in enumerate(packed.operands) if x in floating(packed)]
        for layout, built in layouts_of(packed, None if each else position):
            outputs = parts(apply(op, built, case))
            by = [built.operands[i] for i in at]
            found = evaluate(with_gradients(outputs, arriving, by), {**built.feeds, **given})
            same(op, found, wanted, f"{name} {layout} {case.attributes}")
        for number, (layout, (fewest, lay)) in enumerate(LAYOUTS.items()):
            if not each and (position + len(name)) % len(LAYOUTS) != number:
                continue
            outputs, memory, seen = parts(apply(op, packed, case)), dict(packed.feeds), []
            for i, g in enumerate(arriving):
                value = given[g]
                if value.ndim < fewest or value.size < 2:
                    memory[g] = value
                    seen.append(g)
                    continue
                stored, of = lay(value, 1e4)
                stands = leaf(100 + i, stored.shape, g.type.dtype)
                memory[stands] = stored
                seen.append(of(stands))
            found = evaluate(with_gradients(outputs, seen, floating(packed)), memory)
            same(op, found, wanted, f"{name} arriving {layout} {case.attributes}")
