"""A small evaluator: a DAG of nodes, node by node, through the CPU's lowerings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import torch

from genesis.codegen.cpu.lowerings import fold_numbers, lowering_for, torch_dtype
from genesis.ir import Node
from genesis.ir.graph import topological
from genesis.ir.types import float32, float64, int64, tensor_type
from genesis.runtime.cpu.number_tensors import operand_tensor


def to_torch(x: np.ndarray) -> torch.Tensor:
    """The array's values as a tensor, bfloat16 included."""
    if x.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(np.array(x).view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(np.array(x))


def to_numpy(x: torch.Tensor) -> np.ndarray:
    """The tensor's values as an array, bfloat16 included."""
    if x.dtype is torch.bfloat16:
        return x.contiguous().view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return x.numpy()


def evaluate(nodes: Sequence[Node], feeds: Mapping[Node, Any], decompose: frozenset[str] = frozenset()) -> list[Any]:
    """The nodes' values, given arrays (or Python numbers) for the input nodes.

    Ops that have no lowering, and those named in `decompose`, are decomposed. An op with several
    results gives a list.
    """
    values: dict[Node, Any] = {n: to_torch(x) if isinstance(x, np.ndarray) else x for n, x in feeds.items()}
    with torch.no_grad():
        for node in topological(nodes, values):
            _compute(node, values, decompose)
    found = [values[node] for node in nodes]
    return [[to_numpy(y) for y in x] if isinstance(x, tuple) else to_numpy(x) if isinstance(x, torch.Tensor) else x
            for x in found]


def _compute(node: Node, values: dict[Node, Any], decompose: frozenset[str]) -> None:
    if node in values:
        return
    operands = [values[x] for x in node.inputs]
    if node.op.name == "item":
        values[node] = operands[0][node["index"]]
    elif not isinstance(node.type, tuple) and node.type.weak:
        values[node] = node["value"] if node.op.name == "const" else fold_numbers(node.op, *operands,
                                                                                 **node.attributes)
    else:
        lowering = lowering_for(node.op.name, tuple(x.type for x in node.inputs), node.attributes)
        if lowering is None or node.op.name in decompose:
            values[node] = _decomposed(node, values, decompose - {node.op.name})
        else:
            values[node] = _call(lowering, node, operands)
    _check(node, values[node])


def _call(lowering: Any, node: Node, operands: list[Any]) -> Any:
    if lowering.kind != "out":
        return lowering.function(*operands, **node.attributes)
    types = node.type if isinstance(node.type, tuple) else (node.type,)
    outs = tuple(torch.empty(t.shape, dtype=torch_dtype(t.dtype)) for t in types)
    lowering.function(outs, *operands, **node.attributes)
    if lowering.allocates and all(x.is_contiguous() for x in operands if isinstance(x, torch.Tensor)):
        _check_allocated(lowering.function((None,) * len(outs), *operands, **node.attributes), outs, operands)
    if lowering.direct is not None:
        _check_direct(lowering, node, operands, outs[0])
    return outs if isinstance(node.type, tuple) else outs[0]


def _check_direct(lowering: Any, node: Node, operands: list[Any], expected: torch.Tensor) -> None:
    """The call that a plan makes once it has run a few times has the same bits, numbers given as tensors or not."""
    computed_in = node.type.dtype if node.type.dtype.kind == "float" else next(
        (x.type.dtype for x in node.inputs if not x.type.weak), None)
    types = [x.type for x in node.inputs]
    for i in lowering.as_tensors if computed_in in (float32, float64) else (
            lowering.integers_as_tensors if computed_in is int64 else ()):
        if not isinstance(operands[i], torch.Tensor) and (computed_in is not int64 or type(operands[i]) is int):
            operands, types[i] = operands.copy(), tensor_type((), computed_in)
            operands[i] = operand_tensor(operands[i], torch_dtype(computed_in))
            out = torch.empty_like(expected)
            lowering.function((out,), *operands, **node.attributes)
            assert same_bits(out, expected), f"{node!r} of a number as a tensor"
    if lowering.direct_for is not None and not lowering.direct_for(tuple(types), node.attributes):
        return
    function, _, keyword = lowering.direct
    given = [*operands, *lowering.direct.arguments(node.attributes)]
    out = torch.empty_like(expected)
    if keyword:
        function(*given, **{keyword: out})
    else:
        function(out, *given)
    assert same_bits(out, expected), f"{node!r} called directly"
    if lowering.allocates and keyword and all(x.is_contiguous() for x in operands if isinstance(x, torch.Tensor)):
        made = function(*given)
        assert made.dtype is out.dtype and same_bits(made, expected), f"{node!r} called directly, in new memory"


_WORDS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
"""Whole numbers of as many bytes as an element."""


def same_bits(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Are the elements those of the other tensor, byte by byte? Both zeros and all NaNs differ."""
    if x.is_complex():
        x, y = torch.view_as_real(x), torch.view_as_real(y)
    words = _WORDS[x.element_size()]
    return x.element_size() == y.element_size() and torch.equal(x.view(words), y.view(words))


def _check_allocated(made: Any, outs: tuple[torch.Tensor, ...], operands: list[Any]) -> None:
    """Without tensors to write to, a lowering gives the same in memory of its own."""
    memories = [x.untyped_storage().data_ptr() for x in operands if isinstance(x, torch.Tensor) and x.numel()]
    for x, expected in zip(made if isinstance(made, tuple) else (made,), outs, strict=True):
        if x.dtype is not expected.dtype or not torch.equal(x, expected):  # NaN is not equal
            torch.testing.assert_close(x, expected, rtol=0, atol=0, equal_nan=True)
        assert x.untyped_storage().data_ptr() not in memories
        assert x.untyped_storage().nbytes() == x.numel() * x.element_size()


def _decomposed(node: Node, values: dict[Node, Any], decompose: frozenset[str]) -> Any:
    assert node.op.decompose is not None, f"{node.op.name} has neither a lowering nor a decomposition"
    parts = node.op.decompose(*node.inputs, **node.attributes)
    for part in topological(parts if isinstance(parts, tuple) else (parts,), values):
        _compute(part, values, decompose)
    return tuple(values[p] for p in parts) if isinstance(parts, tuple) else values[parts]


def _check(node: Node, value: Any) -> None:
    """The value has the type that the node says."""
    pairs = zip(node.type, value, strict=True) if isinstance(node.type, tuple) else [(node.type, value)]
    for kind, x in pairs:
        if isinstance(x, torch.Tensor):
            assert tuple(x.shape) == kind.shape, f"{node!r} gave shape {tuple(x.shape)}"
            assert x.dtype is torch_dtype(kind.dtype), f"{node!r} gave {x.dtype}"
