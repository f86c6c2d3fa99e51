"""What a graph means, said with torch one node at a time: the oracle of the code generation tests."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from genesis.ir import Graph, Node, rewrite
from genesis.ir.types import DType

LOW = (torch.float16, torch.bfloat16)


def torch_dtype(dtype: DType) -> torch.dtype:
    """torch's dtype of the same name."""
    return getattr(torch, dtype.name)


def decomposed(graph: Graph, keep: Sequence[str] = ()) -> Graph:
    """The graph without composites (and without relu, silu and gelu)."""
    def rule(node: Node) -> Node | None:
        again = node.op.kind == "composite" or node.op.name in ("silu", "gelu")
        return node.op.decompose(*node.inputs, **node.attributes) if again and node.op.name not in keep else None

    while True:
        new = rewrite(graph, rule)
        if new.roots == graph.roots:
            return graph
        graph = new


def evaluate(graph: Graph, inputs: Sequence[torch.Tensor], numbers: Sequence[Any] = ()) -> list[torch.Tensor]:
    """The values of the graph's roots."""
    values: dict[Node, Any] = {}
    for node in graph.nodes:
        if node.op.name == "input":
            values[node] = inputs[node["index"]]
        elif node.op.name == "scalar":
            values[node] = torch.tensor(numbers[node["index"]], dtype=torch_dtype(node.dtype))
        else:
            values[node] = _value(node, [values[x] for x in node.inputs])
    return [values[root] for root in graph.roots]


def philox(seed: int, draw: int, count: int, word: int, words: int = 4) -> np.ndarray:
    """Philox4x32-10 written from the paper, in Python's integers: int32 words for elements 0 … count - 1."""
    mask, found = 0xFFFFFFFF, []
    for element in range(count):
        counter, at = divmod(element * words + word, 4)
        c = [counter & mask, counter >> 32, draw & mask, (draw >> 32) & mask]
        k = [seed & mask, (seed >> 32) & mask]
        for _ in range(10):
            p, q = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [(q >> 32) ^ c[1] ^ k[0], q & mask, (p >> 32) ^ c[3] ^ k[1], p & mask]
            k = [(k[0] + 0x9E3779B9) & mask, (k[1] + 0xBB67AE85) & mask]
        found.append(c[at])
    return np.array(found, dtype=np.uint32).astype(np.int64).astype(np.int32) if found else np.zeros(0, np.int32)


def _value(node: Node, args: list[Any]) -> torch.Tensor:
    name, kind, a = node.op.name, node.op.kind, node.attributes
    if kind == "pointwise":
        return _pointwise(node, args)
    if kind == "movement":
        return _MOVEMENT[name](node, *args)
    if name == "const":
        return torch.full(node.shape, a["value"], dtype=torch_dtype(node.dtype))
    if name == "iota":
        view = [1] * len(node.shape)
        view[a["axis"]] = -1
        return torch.arange(node.shape[a["axis"]]).view(view).expand(node.shape).to(torch_dtype(node.dtype))
    if name == "random_bits":
        bits = philox(int(args[0]), int(args[1]), node.type.numel, a["word"], a["words"])
        return torch.from_numpy(bits.copy()).reshape(node.shape)
    if kind == "reduction":
        return _reduction(node, args[0])
    if name in ("cumsum", "cumprod"):
        x = args[0].double() if args[0].is_floating_point() else args[0]
        return getattr(torch, name)(x, a["axis"]).to(torch_dtype(node.dtype))
    if name == "matmul":
        x, y = (v.double() if v.is_floating_point() else v for v in args)
        return torch.matmul(x, y).to(torch_dtype(node.dtype))
    if name in ("matmul_split_k", "matmul_sum"):
        exact = node.op.reference(*(v.double().numpy() for v in args), **a)
        return torch.from_numpy(exact).to(torch_dtype(node.dtype))
    return _INDEX[name](a["axis"], *args)


def _pointwise(node: Node, args: list[Any]) -> torch.Tensor:
    name, dtype = node.op.name, torch_dtype(node.dtype)
    if name == "cast":
        return args[0].to(dtype)
    types = [x.type for x in node.inputs]
    strong = next((torch_dtype(t.dtype) for t in types[name == "where":] if not t.weak), None)
    if strong is not None:
        args = [v if t.dtype.name == "bool" and name == "where" and i == 0 else v.to(strong)
                for i, (v, t) in enumerate(zip(args, types, strict=True))]
    wide = [v.float() if v.dtype in LOW else v for v in args]
    home = next((x for x in (torch, torch.special) if hasattr(x, name)), torch.nn.functional)
    found = _POINTWISE[name](*wide) if name in _POINTWISE else getattr(home, name)(*wide)
    return found.to(dtype)


def _bool_or(by: Any, for_bool: Any) -> Any:
    return lambda a, b: for_bool(a, b) if a.dtype is torch.bool else by(a, b)


_POINTWISE: dict[str, Any] = {
    "add": _bool_or(torch.add, torch.logical_or), "mul": _bool_or(torch.mul, torch.logical_and),
    "maximum": torch.maximum, "minimum": torch.minimum, "left_shift": torch.bitwise_left_shift,
    "right_shift": torch.bitwise_right_shift, "relu": torch.relu, "div": torch.true_divide,
    "bitwise_not": torch.bitwise_not,
}


def _reduction(node: Node, x: torch.Tensor) -> torch.Tensor:
    name, a, dtype = node.op.name, node.attributes, torch_dtype(node.dtype)
    if name in ("argmax", "argmin"):
        return getattr(torch, name)(x, a["axis"], a["keepdims"])
    axes, keep = a["axes"], a["keepdims"]
    if name in ("max", "min"):
        return getattr(torch, "a" + name)(x, axes, keep)
    wide = x.double() if x.is_floating_point() else x
    for axis in sorted(axes, reverse=True):
        wide = getattr(torch, name)(wide, axis, keepdim=keep)
    return wide.to(dtype)


def _region(node: Node) -> tuple[slice, ...]:
    a = node.attributes
    return tuple(slice(*part) for part in zip(a["starts"], a["stops"], a["steps"], strict=True))


def _pad(node: Node, x: torch.Tensor) -> torch.Tensor:
    found = torch.full(node.shape, node["value"], dtype=x.dtype)
    found[tuple(slice(low, low + n) for low, n in zip(node["low"], x.shape, strict=True))] = x
    return found


def _assign(node: Node, base: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    found = base.clone()
    found[_region(node)] = value
    return found


_MOVEMENT: dict[str, Any] = {
    "reshape": lambda n, x: x.reshape(n.shape),
    "permute": lambda n, x: x.permute(n["axes"]),
    "expand": lambda n, x: x.expand(n.shape),
    "slice": lambda n, x: x[_region(n)],
    "flip": lambda n, x: x.flip(n["axes"]),
    "pad": _pad,
    "concat": lambda n, *xs: torch.cat(xs, n["axis"]),
    "assign": _assign,
}


def _take(axis: int, x: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    found = torch.index_select(x, axis, index.reshape(-1).long())
    return found.reshape(*x.shape[:axis], *index.shape, *x.shape[axis + 1:])


def _rows(axis: int, base: torch.Tensor, index: torch.Tensor, source: torch.Tensor, add: bool) -> torch.Tensor:
    found = base.double().clone() if add and base.is_floating_point() else base.clone()
    flat = source.reshape(*base.shape[:axis], index.numel(), *base.shape[axis + 1:])
    for position, row in enumerate(index.reshape(-1).tolist()):
        here = (slice(None),) * axis
        new = flat[(*here, position)].to(found.dtype)
        found[(*here, row)] = found[(*here, row)] + new if add else new
    return found.to(base.dtype)


def _elements(axis: int, base: torch.Tensor, index: torch.Tensor, source: torch.Tensor, add: bool) -> torch.Tensor:
    found = base.double().clone() if add and base.is_floating_point() else base.clone()
    for point in np.ndindex(*index.shape):
        to = (*point[:axis], int(index[point]), *point[axis + 1:])
        found[to] = found[to] + source[point].to(found.dtype) if add else source[point]
    return found.to(base.dtype)


_INDEX: dict[str, Any] = {
    "take": _take,
    "gather": lambda axis, x, index: torch.gather(x, axis, index.long()),
    "index_add": lambda axis, *args: _rows(axis, *args, add=True),
    "index_copy": lambda axis, *args: _rows(axis, *args, add=False),
    "scatter_add": lambda axis, *args: _elements(axis, *args, add=True),
    "scatter": lambda axis, *args: _elements(axis, *args, add=False),
}
