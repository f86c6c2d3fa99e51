"""The registry drives these tests: every op × dtypes × samples × layouts.

Forward: the CPU's lowering and the op's decomposition, each against a float64 reference. The bound
is ulp·eps(dtype), relative to the exact result, or to `samples.scale` where the result is smaller.
For ops that combine many elements (all but pointwise) it is relative to the largest result.

Gradient: the vjp against central differences in float64, along one random direction an operand:
with h = 1e-6, curvature and rounding leave errors near 1e-9; 1e-6 is asked for.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from genesis.codegen.cpu.lowerings import LOWERINGS
from genesis.ir import OPS, Node, Op, literal, make, tensor_type
from genesis.ir.graph import topological
from genesis.ir.ops.samples import Array, Case, Literal, Operand
from genesis.ir.types import DTYPES, DType, bool_, float32, float64, int64
from genesis.passes.graph.autodiff import gradients
from tests.evaluate import evaluate

LEAVES = {name for name, op in OPS.items() if op.kind == "leaf"} - {"const", "iota"}
CONTROL = {name for name, op in OPS.items() if op.kind == "control"}
RANDOM = {"random_bits", "uniform", "normal", "integers", "dropout", "dropout_of_part"}
"""Their values are tested in tests/codegen/cpu/test_random.py: no formula gives the expected ones."""

THROUGH_FORWARD = {"sdpa_backward", "max_pool_backward", "adaptive_max_pool_backward", "recurrent_saving",
                   "recurrent_from_saved", "layer_norm_saving", "layer_norm_from_saved", "group_norm_saving",
                   "group_norm_from_saved", "sdpa_saving", "sdpa_from_saved"}
"""One of their operands is the forward's result, or what it kept, so they are tested as the op's gradient: sdpa's, in
tests/nn/test_recurrent.py and in tests/passes/graph/test_save_statistics.py."""

LINALG = {name for name, op in OPS.items() if op.kind == "linalg"}
"""Decompositions of matrices: tests/opinfo has samples that have one."""

COLLECTIVES = {name for name, op in OPS.items() if op.kind == "collective"}
"""What they give depends on other processes: tests/distributed."""

TESTED = [name for name in OPS if name not in LEAVES | CONTROL | RANDOM | THROUGH_FORWARD | LINALG | COLLECTIVES]
LAYOUTS = ("contiguous", "permuted", "expanded")


def rng(*key: Any) -> np.random.Generator:
    """A generator that gives the same numbers in every process."""
    return np.random.default_rng(zlib.crc32(repr(key).encode()))


@dataclass
class Built:
    """A case with a dtype and a layout: nodes for the operands, and what to feed their inputs.

    Attributes:
        values: the operands' values, as the op is to see them.
        plain: no operand lies in the layout that was asked for: they have one element, or one axis.
    """

    operands: tuple[Node, ...]
    feeds: dict[Node, np.ndarray]
    values: tuple[Any, ...]
    plain: bool


def build(case: Case, dtype: DType, layout: str, seed: Any) -> Built:
    """Draw the operands; `permuted` and `expanded` ones reach the op as views."""
    random = rng(seed, dtype.name)
    operands, feeds, values, plain = [], {}, [], True
    for position, spec in enumerate(case.operands):
        if isinstance(spec, Literal):
            value = number(spec, dtype)
            operands.append(literal(value))
            values.append(value)
            continue
        value = drawn(spec, dtype, random)
        own = DTYPES_OF_NUMPY[value.dtype]
        axes = tuple(reversed(range(value.ndim)))
        if layout == "permuted" and value.ndim > 1:
            node = leaf(position, value.shape[::-1], own)
            feeds[node] = np.ascontiguousarray(value.transpose(axes))
            operands.append(OPS["permute"](node, axes=axes))
            plain = False
        elif layout == "expanded" and value.ndim and value.shape[0] > 1 and own.kind != "int" and not (
                isinstance(spec, Operand) and spec.values.distinct):
            value = np.broadcast_to(value[:1], value.shape)
            node = leaf(position, (1, *value.shape[1:]), own)
            feeds[node] = np.array(value[:1])
            operands.append(OPS["expand"](node, shape=value.shape))
            plain = False
        else:
            node = leaf(position, value.shape, own)
            feeds[node] = value
            operands.append(node)
        values.append(value)
    return Built(tuple(operands), feeds, tuple(values), plain)


DTYPES_OF_NUMPY = {d.numpy: d for d in DTYPES}


def leaf(index: int, shape: tuple[int, ...], dtype: DType) -> Node:
    """An input node."""
    return OPS["input"](index=index, type=tensor_type(tuple(shape), dtype))


def number(spec: Literal, dtype: DType) -> bool | int | float:
    """The literal, in the category of the dtype under test unless it is fixed."""
    kind = float if spec.fixed or dtype.kind == "float" else int if dtype.kind == "int" else bool
    return kind(spec.value)


def drawn(spec: Operand | Array, dtype: DType, random: np.random.Generator) -> np.ndarray:
    """The operand's values, rounded to its dtype."""
    if isinstance(spec, Array):
        return np.array(spec.values).astype(dtype.numpy)
    return np.asarray(spec.values.draw(random, spec.shape, dtype))


def wide(x: Any) -> Any:
    """What a reference gets: float64, int64 or bool arrays of the same values."""
    if not isinstance(x, np.ndarray):
        return x
    kind = DTYPES_OF_NUMPY[x.dtype].kind
    return x.astype({"float": np.float64, "int": np.int64, "bool": np.bool_}[kind])


def dtypes(op: Op, *, fast: bool = False) -> list[DType]:
    """The dtypes that the op's samples are for."""
    chosen = [d for d in DTYPES if d.kind in op.samples.kinds]
    return [d for d in chosen if d in (float32, float64, int64, bool_) or d.name == "bfloat16"] if fast else chosen


def runs(op: Op, *, fast: bool = False) -> Iterator[tuple[Case, DType, str, Built]]:
    """Every case in every dtype and each layout that its operands can have; NaN and Inf only in floating dtypes."""
    for position, case in enumerate(op.samples.cases):
        special = any(isinstance(x, Array) for x in case.operands)
        for dtype in dtypes(op, fast=fast):
            if special and dtype.kind != "float":
                continue
            for layout in LAYOUTS if not special and not fast else LAYOUTS[:1]:
                built = build(case, dtype, layout, (op.name, position))
                if layout == "contiguous" or not built.plain:
                    yield case, dtype, layout, built


def apply(op: Op, built: Built, case: Case) -> Node:
    """The op on these operands."""
    return op(*built.operands, **case.attributes)


def expected(op: Op, built: Built, case: Case, node: Node) -> list[np.ndarray]:
    """The reference's results, unrounded."""
    with np.errstate(all="ignore"):
        found = op.reference(*map(wide, built.values), **node.attributes)
    return [np.asarray(x) for x in (found if isinstance(found, tuple) else (found,))]


def check(op: Op, node: Node, got: Any, want: list[np.ndarray], about: str) -> None:
    """The results are within the op's bound of the expected ones."""
    several = isinstance(node.type, tuple)
    for kind, x, y in zip(node.type if several else (node.type,), got if several else (got,), want, strict=True):
        assert x.shape == y.shape, f"{about}: shape {x.shape}, not {y.shape}"
        if kind.dtype.kind != "float":
            with np.errstate(invalid="ignore"):
                np.testing.assert_array_equal(x, y.astype(kind.dtype.numpy), err_msg=about)
            continue
        check_close(op, x.astype(np.float64), y.astype(np.float64), kind.dtype, about)


def check_close(op: Op, x: np.ndarray, y: np.ndarray, dtype: DType, about: str) -> None:
    """|x - y| ≤ ulp·eps·scale, NaN and infinite in the same places."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(y) & (np.abs(y) <= dtype.max)
        top = np.abs(y[finite]).max(initial=0.0) if op.kind != "pointwise" else 0.0
        scale = np.maximum(np.abs(y), max(top, op.samples.scale, SMALLEST[dtype]))
        bound = op.ulp * dtype.eps * scale
        wrong = np.where(finite, ~(np.abs(x - y) <= bound), ~same_special(x, y))
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        excess = np.nanmax(np.where(finite, np.abs(x - y) / bound, 0)) * op.ulp
        raise AssertionError(f"{about}: {x[at]} at {at}, not {y[at]}; worst error {excess:.3g} eps, allowed {op.ulp}")


def same_special(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Both NaN, or both infinite (or too large) with one sign."""
    return np.where(np.isnan(y), np.isnan(x), np.isinf(x) & (np.sign(x) == np.sign(y)) | (x == y))


SMALLEST = {d: {"float16": 2.0**-14}.get(d.name, 2.0**-126 if d is not float64 else 2.0**-1022) for d in DTYPES}


def test_every_op_has_samples_and_a_reference():
    for name in TESTED:
        op = OPS[name]
        assert op.samples is not None, f"{name} has no samples"
        assert op.reference is not None or name.endswith("_backward"), f"{name} has no reference"


def test_every_op_has_a_doc():
    assert not [name for name, op in OPS.items() if not op.doc.endswith(".")]


def test_the_cpu_runs_every_op():
    """A lowering, or a decomposition; control ops and leaves are resolved before, and so are a step's gradients,
    whose buckets a pass makes, and changes of layout, of which a pass makes collectives. Messages are recorded for NCCL
    alone: gloo's go beside the program (`distributed/messages.py`)."""
    for name, op in OPS.items():
        if name not in CONTROL | LEAVES | {"reduce_gradients", "redistribute", "messages"}:
            assert name in LOWERINGS or op.decompose is not None, f"{name} has no way to run on the CPU"


def test_lowerings_name_registered_ops():
    assert set(LOWERINGS) <= set(OPS)


@pytest.mark.parametrize("name", [n for n in TESTED if OPS[n].reference is not None])
def test_forward(name):
    """Operands that lie in another order have the same values, and are held against what these give."""
    op, of, want = OPS[name], None, []
    for case, dtype, layout, built in runs(op):
        node = apply(op, built, case)
        [got] = evaluate([node], built.feeds)
        if layout != "permuted" or of != (case, dtype):
            of, want = (case, dtype), expected(op, built, case, node)
        check(op, node, got, want, f"{name} {dtype.short} {layout} {shapes(built)} {case.attributes}")


@pytest.mark.parametrize("name", [n for n in TESTED if OPS[n].decompose is not None])
def test_decomposition(name):
    """Against the reference, or the lowering's value in float64 for ops that have none."""
    op = OPS[name]
    for case, dtype, layout, built in runs(op, fast=True):
        node = apply(op, built, case)
        [got] = evaluate([node], built.feeds, decompose=frozenset({name}))
        if op.reference is not None:
            want = expected(op, built, case, node)
        elif name in LOWERINGS:
            [value] = evaluate([node], built.feeds)
            want = [np.asarray(x) for x in (value if isinstance(value, list) else [value])]
        else:
            continue
        check(op, node, got, want, f"{name} {dtype.short} {layout} {shapes(built)} {case.attributes}")


@pytest.mark.parametrize("name", [n for n in TESTED if f"{n}_backward" in OPS])
def test_backward_decomposition(name):
    """The gradient by the backward op's kernel and by its decomposition, in float32 and bfloat16."""
    op, backward = OPS[name], frozenset({f"{name}_backward"})
    for case, dtype, _, built in runs(op, fast=True):
        if not case.gradient:
            continue
        outputs = parts(apply(op, built, case))
        wrt = floating(built)
        found = gradients(outputs, seeds(outputs), wrt)
        feeds = {**built.feeds, **{s: rng(name).uniform(-1, 1, s.type.shape).astype(s.type.dtype.numpy)
                                   for s in seeds(outputs)}}
        for x, got, want in zip(wrt, evaluate(found, feeds), evaluate(found, feeds, backward), strict=True):
            bound = 2 * op.ulp * x.type.dtype.eps * max(1.0, np.abs(want.astype(float)).max(initial=0))
            np.testing.assert_allclose(got.astype(float), want.astype(float), rtol=0, atol=bound,
                                       err_msg=f"{name} {dtype.short}")


def shapes(built: Built) -> str:
    """The operands' shapes, for a message."""
    return " ".join(str(getattr(v, "shape", v)) for v in built.values)


DIFFERENTIABLE = [n for n in TESTED if OPS[n].differentiable and "float" in OPS[n].samples.kinds]


def gradient_runs(op: Op) -> Iterator[tuple[Case, Built, Node]]:
    for position, case in enumerate(op.samples.cases):
        if any(isinstance(x, Array) for x in case.operands) or not case.gradient:
            continue
        built = build(case, float64, "contiguous", (op.name, position))
        node = apply(op, built, case)
        if isinstance(node.type, tuple) or node.type.dtype is float64:
            yield case, built, node


def parts(node: Node) -> list[Node]:
    """Each result of an op as a node of its own."""
    if not isinstance(node.type, tuple):
        return [node]
    return [OPS["item"](node, index=i) for i in range(len(node.type))]


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient(name):
    op = OPS[name]
    for case, built, node in gradient_runs(op):
        check_gradient(parts(node), built, f"{name} {shapes(built)} {case.attributes}")


@pytest.mark.parametrize("name", DIFFERENTIABLE)
def test_gradient_has_the_operands_types(name):
    """In bfloat16 too, where formulas widen and must come back."""
    op = OPS[name]
    for case in op.samples.cases[:6]:
        for dtype in dtypes(op, fast=True):
            if dtype.kind == "float":
                built = build(case, dtype, "contiguous", name)
                outputs = parts(apply(op, built, case))
                wrt = floating(built)
                found = gradients(outputs, seeds(outputs), wrt)
                assert [g.type for g in found] == [x.type for x in wrt]


SECOND = ["mul", "div", "pow", "exp", "tanh", "sigmoid", "rsqrt", "silu", "gelu", "prod", "cumprod", "matmul", "linear",
          "convolution", "convolution_input", "convolution_weight",
          "max_pool", "avg_pool", "adaptive_avg_pool", "adaptive_max_pool",
          "batch_norm", "batch_norm_eval", "group_norm", "im2col", "col2im", "resample", "elu", "mish",
          "softplus", "prelu", "huber_loss", "binary_cross_entropy",
          "softmax", "log_softmax", "layer_norm", "rms_norm", "cross_entropy", "sdpa", "take", "scatter_add", "where"]


@pytest.mark.parametrize("name", SECOND)
def test_second_order(name):
    """The gradient of (gradient · a fixed vector) is again right."""
    op = OPS[name]
    for case, built, node in list(gradient_runs(op))[:6]:
        outputs = parts(node)
        first = gradients(outputs, seeds(outputs), floating(built))
        check_gradient(first, built, f"{name} {shapes(built)} {case.attributes}", among=first)


def floating(built: Built) -> list[Node]:
    """The operands that a gradient can be taken by."""
    return [x for x in built.operands if x in built.feeds and x.type.dtype.kind == "float"]


def seeds(outputs: list[Node]) -> list[Node]:
    """Inputs for the gradients of the results."""
    return [leaf(100 + i, y.type.shape, y.type.dtype) for i, y in enumerate(outputs)]


def check_gradient(outputs: list[Node], built: Built, about: str, among: list[Node] | None = None) -> None:
    """Σ seed·output, differentiated, against its central differences."""
    wrt = floating(built)
    given = [OPS["input"](index=200 + i, type=y.type) for i, y in enumerate(outputs)]
    random = rng(about)
    feeds: dict[Node, Any] = dict(built.feeds)
    for node in [n for n in topological([*outputs, *given]) if n.op.name == "input" and n not in feeds]:
        feeds[node] = np.asarray(random.uniform(0.5, 1.5, node.type.shape))
    found = evaluate(gradients(outputs, given, wrt), feeds)

    def value(moved: dict[Node, Any]) -> float:
        results = evaluate(outputs, {**feeds, **moved})
        return math.fsum(float(np.sum(feeds[g] * y)) for g, y in zip(given, results, strict=True))

    step = 1e-6
    for position, (x, gradient) in enumerate(zip(wrt, found, strict=True)):
        direction = random.uniform(-1, 1, x.type.shape)
        ahead, behind = (value({x: np.asarray(feeds[x] + sign * step * direction)}) for sign in (1, -1))
        slope, claimed = (ahead - behind) / (2 * step), float(np.sum(gradient * direction))
        scale = 1 + abs(slope) + float(np.abs(gradient).sum())
        assert abs(slope - claimed) <= 1e-6 * scale, \
            f"{about}: operand {position}: {claimed} but differences give {slope}"


def test_wrong_dtypes_are_refused():
    """A pointwise op says which dtypes it is for."""
    for name in TESTED:
        op = OPS[name]
        if op.kind == "pointwise" and name not in ("cast", "bitcast", "where", "row_number", "in_range"):
            count = len(op.samples.cases[0].operands)
            for dtype in DTYPES:
                if dtype.kind not in op.samples.kinds:
                    operands = tuple(leaf(i, (2,), dtype) for i in range(count))
                    with pytest.raises(RuntimeError, match="not defined for"):
                        make(op, operands, tuple(op.samples.cases[0].attributes.values()))
