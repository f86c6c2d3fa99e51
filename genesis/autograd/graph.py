"""The graph behind a tensor, as users of torch look at it: `grad_fn`, and hooks on several gradients."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from functools import lru_cache
from types import MethodType
from typing import Any, Final

from genesis.autograd.backward_engine import at_end, content
from genesis.autograd.hooks import EndHook, register_post_accumulate_grad_hook
from genesis.frontend.boundaries import RemovableHandle
from genesis.frontend.recording import leaf_numbers
from genesis.frontend.state import state
from genesis.ir.errors import failure
from genesis.ir.graph import apply
from genesis.ir.node import Node, Op
from genesis.ir.ops import control, movement
from genesis.ir.suggest import suggesting

_NAMES: Final = {
    "alias": "Clone", "reshape": "View", "matmul": "Mm", "concat": "Cat", "cast": "ToCopy", "where": "Where",
    "take": "IndexSelect", "assign": "CopySlices", "sdpa": "ScaledDotProductAttention", "cross_entropy": "NllLoss",
    "linear": "Addmm", "layer_norm": "NativeLayerNorm", "group_norm": "NativeGroupNorm",
    "batch_norm": "NativeBatchNorm", "batch_norm_eval": "NativeBatchNorm", "vector_norm": "LinalgVectorNorm",
    "pad": "ConstantPadNd", "scale_gradient": "Embedding", "max": "Amax", "min": "Amin",
    "recompute": "Checkpoint", "leave": "Checkpoint", "call": "CompiledFunction",
}
"""Op → torch's name, where it is another. One op here can be several of torch's: a view is a `reshape` or `permute`."""


class GradFn:
    """The op that computed a value: a node of the graph that backward goes through.

    >>> import genesis
    >>> x = genesis.tensor([1.0, 2.0], requires_grad=True)
    >>> made = x.exp().sum().grad_fn
    >>> made, made.next_functions[0][0], made.next_functions[0][0].next_functions[0][0].variable is x
    (<SumBackward0>, <ExpBackward0>, True)
    """

    def __init__(self, node: Node, made_by: Op | None = None):
        """`made_by`: the op of a result whose graph a backward has released."""
        while node.op is control.item or node.op is control.overwritten:
            inner = node.inputs[0]
            node = apply(inner.attrs[0], inner.inputs)[node.attrs[0]] if inner.op is control.call else inner
        self._node, self._op = node, made_by or node.op
        self.__class__ = _class_named(self.name())
        number = next(leaf_numbers)
        state.graphs_shown[number] = weakref.ref(self, MethodType(state.graphs_shown.pop, number))

    @property
    def node(self) -> Node:
        """The node of the graph that it stands for."""
        return self._node

    def name(self) -> str:
        """torch's name of the op, such as MulBackward0, where torch has one op for it."""
        boundary = _boundary(self._node)
        if boundary is not None and self._op is self._node.op:
            function = getattr(boundary, "function", type(boundary))
            return f"{function.__name__}Backward"
        name = self._op.name
        return _NAMES.get(name, "".join(part.capitalize() for part in name.split("_"))) + "Backward0"

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """(the op that computed it, the result's number) of each operand; (None, 0) for one without gradients."""
        boundary = _boundary(self._node)
        operands = (self._node.inputs if boundary is None else
                    [None if x is None else _given(x) for x in boundary.origins])
        return tuple((None, 0) if x is None else (grad_fn_of(x), x.attrs[0] if x.op is control.item else 0)
                     for x in operands)

    @property
    def metadata(self) -> dict[str, Any]:
        """An empty dictionary: nothing is noted."""
        return {}

    def __getattr__(self, name: str) -> Any:
        if name in ("register_hook", "register_prehook"):
            raise AttributeError(f"'{self.name()}' object has no attribute '{name}': hooks are tensors'; register_hook "
                                 "of the result gets its gradient, that of an operand the operand's")
        ctx = getattr(_boundary(self._node), "ctx", None)
        if ctx is None or name.startswith("__"):
            raise AttributeError(f"'{self.name()}' object has no attribute '{name}'")
        return getattr(ctx, name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GradFn) and other._node is self._node

    def __hash__(self) -> int:
        return hash(self._node)

    def __repr__(self) -> str:
        return f"<{self.name()}>"


@lru_cache(512)
def _class_named(name: str) -> type[GradFn]:
    """The class of the ops of this name: who draws a graph asks for its name, as torch has a class for each."""
    return type(name, (GradFn,), {})


class AccumulateGrad:
    """The end of a path that gradients take: a leaf tensor.

    Attributes:
        variable: the tensor.
    """

    next_functions: tuple[tuple[Any, int], ...] = ()

    def __init__(self, variable: Any):
        self.variable = variable

    def name(self) -> str:
        """torch's name of it."""
        return "torch::autograd::AccumulateGrad"

    def register_hook(self, fn: Callable[[tuple[()], tuple[Any]], None]) -> RemovableHandle:
        """Call a function behind each backward that added to the tensor's gradient, with () and the gradient that
        arrived. The tensor keeps the hook; torch wants this end to be kept.

        >>> import genesis
        >>> x = genesis.ones(2, requires_grad=True)
        >>> handle = x.expand_as(x).grad_fn.next_functions[0][0].register_hook(lambda *unused: print(x.grad))
        >>> (x * 3).sum().backward()
        tensor([3., 3.])
        """
        return register_post_accumulate_grad_hook(self.variable, EndHook(fn))

    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Raises: the tensor's own hooks are called before."""
        raise failure("register_prehook", "there are no hooks before a gradient is added",
                      [("variable", self.variable)], hint="variable.register_hook(f), which gets the gradient itself")

    def __repr__(self) -> str:
        return "<AccumulateGrad>"


def grad_fn_of(node: Node) -> Any:
    """The op or leaf that gradients of a node go to next; None for a node without gradients."""
    if not node.needs_grad:
        return None
    if node.op is movement.permute and node.inputs[0].op is movement.permute:  # it reads a result in another order
        inner = node.inputs[0]
        if [inner.attrs[0][i] for i in node.attrs[0]] == list(range(node.type.ndim)):
            return grad_fn_of(inner.inputs[0])
    if node.op is control.watch and node.attrs[0] in state.watched:
        return AccumulateGrad(state.watched[node.attrs[0]])
    return GradFn(node)


def _given(origin: Any) -> Node:
    """The node that a boundary's origin was copied from."""
    node = content(origin)
    return node.inputs[0] if node.op is control.alias else node


def _boundary(node: Node) -> Any:
    known = state.crossing(node.attrs[0]) if node.op is control.watch else None
    return None if known is None else known[0]


class _Handles:
    """The handle of a hook that is registered on several tensors."""

    def __init__(self, handles: list[RemovableHandle]):
        self._handles = handles

    def remove(self) -> None:
        """Take the hook away."""
        for handle in self._handles:
            handle.remove()

    def __enter__(self) -> _Handles:
        return self

    def __exit__(self, *error: object) -> None:
        self.remove()


def register_multi_grad_hook(tensors: Sequence[Any], fn: Callable[..., None], *, mode: str = "all") -> _Handles:
    """Call a function with the gradients of several tensors.

    Args:
        tensors: which require grad.
        fn: with mode="all" called at the end of a backward that reached one of them, with a list, None for those that
            it did not reach; with "any" called with the first gradient that arrives.
        mode: "all" or "any".

    >>> import genesis
    >>> x, y = genesis.ones(1, requires_grad=True), genesis.ones(1, requires_grad=True)
    >>> handle = register_multi_grad_hook((x, y), print)
    >>> (x * 2).sum().backward()
    [tensor([2.]), None]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    arrived: dict[int, Any] = {}

    def finish() -> None:
        found = [arrived.get(i) for i in range(len(tensors))]
        arrived.clear()
        if mode == "all":
            fn(found)

    def hook_of(position: int) -> Callable[[Any], None]:
        def note(gradient: Any) -> None:
            if not arrived:
                at_end.append(finish)
                if mode == "any":
                    fn(gradient)
            arrived[position] = gradient
        return note
    return _Handles([x.register_hook(hook_of(i)) for i, x in enumerate(tensors)])

__getattr__ = suggesting(__name__)
