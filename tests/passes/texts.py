"""Programs as text: what a pass makes of one, and whether two mean the same bit for bit."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from genesis.ir import Graph, Node
from genesis.ir.parser import parse
from genesis.ir.printer import print_graph
from genesis.ir.verify import verify
from tests.evaluate import evaluate


def assert_text(found: Graph, expected: str) -> None:
    """The graph is the one of the text, node for node, and keeps the IR's rules."""
    verify(found)
    wanted = parse(expected)
    assert print_graph(found, sources=False) == print_graph(wanted, sources=False)
    assert found == wanted


def special(node: Node, seed: int = 0) -> np.ndarray:
    """Data for an input: the values that algebra forgets, at random places."""
    dtype, generator = node.dtype, np.random.default_rng([seed, node["index"]])
    if dtype.kind == "bool":
        return generator.integers(0, 2, node.shape).astype(bool)
    if dtype.kind == "int":
        values = np.array([dtype.min, dtype.max, 0, 1, 2, 3, 100], dtype.numpy)
        return generator.choice(values, node.shape)
    tiny = float(ml_dtypes.finfo(dtype.numpy).smallest_subnormal)
    values = np.array([0.0, -0.0, 1.0, -1.5, np.inf, -np.inf, np.nan, dtype.max, tiny, 3.25, 1 / 3], dtype.numpy)
    return generator.choice(values, node.shape)


def values_of(graph: Graph, seed: int = 0, numbers: tuple[Any, ...] = ()) -> list[np.ndarray]:
    """The values of the graph's roots over special data."""
    feeds: dict[Node, Any] = {x: special(x, seed) for x in graph.inputs}
    feeds |= {x: numbers[x["index"]] for x in graph.nodes if x.op.name == "scalar"}
    return [np.asarray(x) for x in evaluate(graph.roots, feeds)]


def assert_same_bits(one: np.ndarray, other: np.ndarray) -> None:
    """Equal bits, where any NaN is as good as another."""
    assert one.shape == other.shape and one.dtype == other.dtype
    nan, other_nan = one != one, other != other
    np.testing.assert_array_equal(nan, other_nan)
    assert np.where(nan, 0, one).astype(one.dtype).tobytes() == np.where(other_nan, 0, other).astype(
        one.dtype).tobytes()
