"""An op's contract as the registry has it: operands, dtypes, gradient, meaning, and how each backend runs it.

Everything is asked of the op itself, on its own samples: what it infers, what its vjp and its decomposition emit, what
the backends say to its nodes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from genesis.codegen.cuda import lower
from genesis.codegen.cuda.lowerings import POINTWISE
from genesis.ir.graph import Graph, topological
from genesis.ir.node import OPS, Node, Op, literal, make
from genesis.ir.ops import control, leaves
from genesis.ir.ops.samples import Array, Case, Literal, Operand
from genesis.ir.printer import print_graph, value_text
from genesis.ir.types import Device, DType, bool_, cpu, float32, int64, tensor_type

_GPU = Device("cuda", 0)
_KINDS = {"bool": "bool", "int": "integers", "float": "floating-point"}


@dataclass(frozen=True)
class Contract:
    """The contract of an op, as `genesis ops NAME` prints it.

    Attributes:
        op: the op.
        example: types of the operands and the result of a sample: "f32[3,4], f32[3,4] → f32[3,4]".
        dtypes: kinds of dtypes that it takes.
        attributes: "axis, keepdims=False".
        gradient: "by its own rule", "through its decomposition" or "none".
        decomposition: names of the ops it decomposes into, empty for a primitive.
        cpu, cuda: how the backends run it.
    """

    op: Op
    example: str
    dtypes: str
    attributes: str
    gradient: str
    decomposition: tuple[str, ...]
    cpu: str
    cuda: str


def names() -> list[str]:
    """Ops that a program's graph is made of: all but leaves and markers."""
    return sorted(name for name, op in OPS.items() if op.kind not in ("leaf", "control"))


def contract(name: str) -> Contract:
    """The contract of the op with this name."""
    op = OPS[name]
    node = sample(op)
    parts = () if node is None else tuple(dict.fromkeys(x.op.name for x in decomposed(node)))
    rule = "by its own rule" if op.vjp is not None else "through its decomposition"
    return Contract(op, "" if node is None else _example(node), _dtypes(op), _attributes(op),
                    rule if op.differentiable else "none", parts, _on_cpu(op), _on_cuda(op))


def sample(op: Op) -> Node | None:
    """The op on its first sample with an operand of two dimensions or more, else with any operand, else its first."""
    found = list(nodes(op))
    ranked = sorted(found, key=lambda node: -min(max((x.type.ndim for x in node.inputs), default=-1), 2))
    return next((node for node in ranked if all(x.type.numel for x in node.inputs)), next(iter(found), None))


def nodes(op: Op, device: Device = cpu) -> Iterator[Node]:
    """The op on operands like those of its samples: each case in each kind of dtype that it takes."""
    if op.samples is None:
        return
    for case in op.samples.cases:
        for dtype in (float32, int64, bool_):
            if dtype.kind in op.samples.kinds:
                try:
                    yield op(*_operands(case, dtype, device), **_placed(case, device))
                except (RuntimeError, IndexError, TypeError):
                    continue


def _operands(case: Case, dtype: DType, device: Device) -> list[Node]:
    found: list[Node] = []
    for spec in case.operands:
        if isinstance(spec, Literal):
            kind = float if spec.fixed or dtype.kind == "float" else int if dtype.kind == "int" else bool
            found.append(literal(kind(spec.value)))
            continue
        shape = (len(spec.values),) if isinstance(spec, Array) else spec.shape
        own = spec.values.dtype if isinstance(spec, Operand) and spec.values.dtype is not None else dtype
        index = sum(x.op is leaves.input for x in found)
        found.append(make(leaves.input, (), (index, tensor_type(shape, own, device))))
    return found


def _placed(case: Case, device: Device) -> dict[str, Any]:
    return {name: device if isinstance(value, Device) else value for name, value in case.attributes.items()}


def _example(node: Node) -> str:
    results = node.types
    operands = ", ".join(value_text(x["value"]) if x.op is leaves.const else str(x.type) for x in node.inputs)
    return f"{operands or 'nothing'} → {', '.join(map(str, results))}"


def _dtypes(op: Op) -> str:
    if op.samples is None:
        return ""
    kinds = op.samples.kinds
    return "any" if len(kinds) == 3 else " and ".join(_KINDS[kind] for kind in kinds)


def _attributes(op: Op) -> str:
    return ", ".join(f"{name}={value_text(op.defaults[name])}" if name in op.defaults else name for name in op.attrs)


def decomposed(node: Node) -> list[Node]:
    """The nodes that the op decomposes into, one step, in order; none for a primitive."""
    if node.op.decompose is None:
        return []
    found = node.op.decompose(*node.inputs, **node.attributes)
    roots = found if isinstance(found, tuple) else (found,)
    return [x for x in topological(roots) if x not in node.inputs and x.op.kind != "leaf"]


def decomposition_text(node: Node) -> str:
    """The decomposition of one sample as a graph's text."""
    assert node.op.decompose is not None
    found = node.op.decompose(*node.inputs, **node.attributes)
    return _text(node, found if isinstance(found, tuple) else (found,))


def gradient_text(node: Node) -> str:
    """What the gradient of one sample is, as a graph's text: its last inputs are the results' gradients."""
    from genesis.passes.graph.autodiff import gradients
    several = isinstance(node.type, tuple)
    outputs = [control.item(node, index=i) for i in range(len(node.types))] if several else [node]
    count = sum(x.op is leaves.input for x in node.inputs)
    seeds = [make(leaves.input, (), (count + i, y.type)) for i, y in enumerate(outputs)]
    wrt = [x for x in node.inputs if x.op is leaves.input and x.type.dtype.kind == "float"]
    return _text(node, tuple(gradients(outputs, seeds, wrt)), seeds)


def _text(node: Node, roots: tuple[Node, ...], more: Any = ()) -> str:
    return print_graph(Graph((*(x for x in node.inputs if x.op is leaves.input), *more), roots), sources=False)


_CALLS = {"out": "one torch call", "view": "a torch view", "fresh": "one torch call, in memory of torch's"}


def _on_cpu(op: Op) -> str:
    from genesis.codegen.cpu.lowerings import LOWERINGS  # imports torch, which other commands need not
    lowering = LOWERINGS.get(op.name)
    if lowering is None:
        return "its decomposition" if op.decompose is not None else "none"
    how = _CALLS[lowering.kind]
    return f"{how}, or its decomposition" if lowering.supports is not None and op.decompose is not None else how


def _on_cuda(op: Op) -> str:
    """The CUDA support of an op: a kernel for all samples in all dtypes, for some, or for none."""
    answers = {lower.supports(node) for node in nodes(op, _GPU)} or {op.name in lower.LOWERED}
    if True not in answers:
        return "its decomposition" if op.decompose is not None else "through the host"
    own = f"a {op.opaque.kernel.replace('_', ' ')} kernel" if op.opaque is not None else "in a loop kernel"
    return f"{own}, or its decomposition" if False in answers else own


def expressions(op: Op) -> dict[str, str]:
    """How a loop kernel computes a pointwise op, by the kind of dtype, as Triton text."""
    found = {kind: text for kind, text in POINTWISE.get(op.name, {}).items() if text}
    return {"any": next(iter(found.values()))} if len(set(found.values())) == 1 else found


READ_BY_SHAPE = ("nonzero", "argwhere", "masked_select", "x[mask]", "unique", "unique_consecutive", "item", "tolist",
                 "numpy")
"""Functions whose result, or its shape, depends on values: those are read, which waits for the GPU."""


def through_the_host() -> list[str]:
    """Ops that CUDA tensors leave the GPU for."""
    return [name for name in names() if contract(name).cuda == "through the host"]

