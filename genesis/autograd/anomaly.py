"""Anomaly mode, which finds where a NaN comes from: `detect_anomaly`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.ir.errors import failure
from genesis.ir.graph import topological
from genesis.ir.node import Node
from genesis.runtime.contexts import Switched, Temporary

enabled = False
"""Whether backward looks for NaNs; `detect_anomaly` sets it."""


class detect_anomaly(Temporary):
    """A context: inside, backward checks every value it computes with, and raises at the first NaN that no operand had.

    All values are computed and kept, one by one: only for finding an error.

    Args:
        check_nan: False only sets the mode.

    Raises:
        RuntimeError: from backward: the op, its operands' shapes and dtypes, and the user's line.

    >>> import genesis
    >>> x = genesis.tensor([-1.0], requires_grad=True)
    >>> with genesis.autograd.detect_anomaly():
    ...     try:
    ...         genesis.sqrt(x).sum().backward()
    ...     except RuntimeError as error:
    ...         print(str(error).splitlines()[0].split(";")[0])
    sqrt: Function 'SqrtBackward0' returned nan values, in the forward or the backward
    """

    def __init__(self, check_nan: bool = True):
        put = globals().__setitem__
        super().__init__(lambda: Switched([(put, "enabled", check_nan)], [(put, "enabled", enabled)]))


class set_detect_anomaly(detect_anomaly):
    """`detect_anomaly` that is set at once; as a context it ends with the block."""

    def __init__(self, mode: bool, check_nan: bool = True):
        global enabled
        super().__init__(check_nan)
        before, put = enabled, globals().__setitem__
        self._look = lambda: Switched((), [(put, "enabled", before)])
        enabled = mode and check_nan


def is_anomaly_enabled() -> bool:
    """Whether backward looks for NaNs now."""
    return enabled


def check(roots: Sequence[Node]) -> None:
    """Compute every node that the roots come from; raise at the first NaN that comes from no NaN."""
    from genesis.autograd.graph import GradFn
    order = [node for node in topological(_expanded(roots)) if _looked_at(node)]
    tensors = _values(order)
    wrong = {node for node, x in zip(order, tensors, strict=True) if x.isnan().any().item()}
    for node in order:
        if node in wrong and not any(x in wrong for x in node.inputs):
            raise failure(node.op.name, f"Function '{GradFn(node).name()}' returned nan values, in the forward or the "
                          "backward",
                          [(f"operand {i}", x) for i, x in enumerate(node.inputs)],
                          hint=f"recorded at {node.source}" if node.source is not None else "")


def _expanded(roots: Sequence[Node]) -> list[Node]:
    """The roots with their gradients written out."""
    from genesis.ir.graph import Graph
    from genesis.passes.graph.autodiff import autodiff
    return list(autodiff(Graph((), tuple(roots))).roots)


def _looked_at(node: Node) -> bool:
    return type(node.type) is not tuple and node.type.dtype.kind == "float" and not node.type.weak


def _values(nodes: Sequence[Node]) -> list[Any]:
    from genesis.frontend.engine_protocol import engine
    from genesis.frontend.grad_mode import no_grad
    from genesis.frontend.recording import wrap
    from genesis.ir.node import make
    from genesis.ir.ops import control
    with no_grad():
        found = [wrap(make(control.stop_gradient, (node,)) if node.needs_grad else node) for node in nodes]
        engine.materialize(*found)
    return found
