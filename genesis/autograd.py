"""Gradients as the user asks for them. Recording a gradient is one node; the autodiff pass
expands it when the plan is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import TYPE_CHECKING, Any

from genesis.capture import computed
from genesis.gradmode import enable_grad, no_grad, set_grad_enabled
from genesis.ir.errors import failure
from genesis.ir.node import Node, make
from genesis.ir.ops import control, leaves
from genesis.recording import FREED, TensorBase, crossings, emit, read, watched, wrap

if TYPE_CHECKING:
    from genesis.tensor import Tensor

_FREED_MESSAGE = "Trying to backward through the graph a second time"


def watches_below(nodes: Sequence[Node]) -> dict[int, list[Node]]:
    """The `watch` nodes that gradients of these nodes reach, by leaf number, in order.

    A leaf has several when it was written to (under no_grad) between reads. Capture makes those
    over one memory one node, so only one of them counts.
    """
    found: dict[int, dict[Any, Node]] = {}
    seen: set[Node] = set()
    stack = list(nodes)
    watch = control.watch
    while stack:
        node = stack.pop()
        if node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node.op is watch:
            value = node.inputs[0]
            found.setdefault(node.attrs[0], {})[value.buffer if computed(value) else value] = node
        else:
            stack.extend(node.inputs)
    return {leaf: list(nodes.values()) for leaf, nodes in sorted(found.items())}


def backward(tensor: Tensor, gradient: Tensor | None, retain_graph: bool | None, create_graph: bool,
             inputs: Sequence[Tensor] | Tensor | None) -> None:
    """What `Tensor.backward` does."""
    if not tensor.requires_grad:
        raise failure("backward", "element 0 of tensors does not require grad and does not have a grad_fn",
                      [("tensor", tensor)], hint="set requires_grad on what it is computed from, outside no_grad()")
    with enable_grad():
        root = read(tensor)
    leaves_below = watches_below([root])
    if FREED in leaves_below:
        raise failure("backward", _FREED_MESSAGE, [("tensor", tensor)],
                      hint="specify retain_graph=True when calling backward the first time")
    wanted = {number: watched[number] for number in leaves_below if number in watched}
    if inputs is not None:
        chosen = {id(x) for x in ([inputs] if isinstance(inputs, TensorBase) else inputs)}
        wanted = {number: leaf for number, leaf in wanted.items() if id(leaf) in chosen}
    seed = _seed(tensor, gradient)
    arrived = [number for number in leaves_below if number in crossings]
    if not wanted and not arrived:
        return
    found = _record_grad([root], [seed], [leaves_below[n] for n in (*wanted, *arrived)], create_graph)
    for leaf, node in zip(wanted.values(), found, strict=False):
        _accumulate(leaf, node, create_graph)
    for number, node in zip(arrived, found[len(wanted):], strict=True):  # goes on where the tensor was moved from
        origin = crossings[number]
        backward(origin, wrap(node).to(origin.device), retain_graph, create_graph, inputs)
    if not (create_graph if retain_graph is None else retain_graph):
        _free(tensor)


def _seed(tensor: Tensor, gradient: Tensor | None) -> Node:
    kind = tensor.type
    if gradient is None:
        if kind.numel != 1:
            raise failure("backward", "grad can be implicitly created only for scalar outputs", [("tensor", tensor)],
                          hint="reduce it with sum() or mean(), or pass gradient")
        return leaves.full(kind.shape, 1, kind.dtype, kind.device)
    if gradient.type.shape != kind.shape:
        raise failure("backward", f"mismatch in shape: gradient {list(gradient.type.shape)}, tensor {list(kind.shape)}",
                      [("tensor", tensor), ("gradient", gradient)])
    from genesis.ops.common import cast
    return cast(read(gradient), kind.dtype)


def _record_grad(outputs: Sequence[Node], seeds: Sequence[Node], wrt: Sequence[Sequence[Node]],
                 create_graph: bool) -> list[Node]:
    """A gradient for each list of nodes: the sum of those with respect to each."""
    nodes = list(chain.from_iterable(wrt))
    found = emit(control.grad, (*outputs, *seeds, *nodes), (len(outputs), create_graph))
    items = iter([make(control.item, (found,), (i,), found.source) for i in range(len(nodes))])
    results = [reduce(add, islice(items, len(several))) for several in wrt]
    return results if create_graph else [make(control.stop_gradient, (node,)) for node in results]


def _accumulate(leaf: Any, node: Node, create_graph: bool) -> None:
    before = leaf.grad
    if before is None or create_graph:
        leaf.grad = wrap(node if before is None else read(before) + node)
        leaf._grad.storage.persistent = True
    else:
        with no_grad():
            total = read(before) + node
        before.storage.write(total)


def _free(tensor: Any) -> None:
    """After backward the graph is gone: keep the value, and a mark that says why a second backward fails."""
    storage = tensor.storage
    node = storage._node
    if tensor.part is not None or node is None or not node.needs_grad or node.op is control.watch:
        return
    tensor.leaf = FREED
    if storage.cell is not None and node.buffer is storage.cell:  # in memory: forget how it came to be
        storage.settle(storage.cell)
        return
    value = make(control.stop_gradient, (node,))
    if node.buffer is not None:
        value.buffer = node.buffer
    storage._node = value


def grad(outputs: Any, inputs: Any = None, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, allow_unused: bool = False) -> Any:
    """Gradients of outputs with respect to inputs, as torch.autograd.grad; nothing is accumulated.

    With a function as the only argument, as `genesis.grad(fn)`: the function that returns the
    gradient of fn's scalar result with respect to its first argument.

    >>> import genesis
    >>> x = genesis.tensor(3.0, requires_grad=True)
    >>> genesis.autograd.grad(x * x, x)
    (tensor(6.),)
    >>> genesis.grad(lambda x: (x**3).sum())(genesis.tensor([2.0]))
    tensor([12.])
    """
    if callable(outputs) and not isinstance(outputs, TensorBase):
        return _gradient_function(outputs, 0 if inputs is None else inputs)
    ys: list[Any] = [outputs] if isinstance(outputs, TensorBase) else list(outputs)
    xs: list[Any] = [inputs] if isinstance(inputs, TensorBase) else list(inputs)
    weights = [None] * len(ys) if grad_outputs is None else (
        [grad_outputs] if isinstance(grad_outputs, TensorBase) else list(grad_outputs))
    with enable_grad():
        roots = [read(y) for y in ys]
    for x in xs:
        if not x.requires_grad:
            raise failure("grad", "one of the differentiated tensors does not require grad", [("input", x)],
                          hint="create it with requires_grad=True")
    leaves_below = watches_below(roots)
    if FREED in leaves_below:
        raise failure("grad", _FREED_MESSAGE, hint="specify retain_graph=True the first time")
    seeds = [_seed(y, w) for y, w in zip(ys, weights, strict=True)]
    reached = _reached(roots)
    with enable_grad():
        wrt = [leaves_below.get(x.leaf, []) if x.is_leaf else [n for n in [read(x)] if n in reached] for x in xs]
    used = [len(nodes) > 0 for nodes in wrt]
    if not all(used) and not allow_unused:
        raise failure("grad", "One of the differentiated Tensors appears to not have been used in the graph",
                      hint="set allow_unused=True if this is the desired behavior")
    found = iter(_record_grad(roots, seeds, [nodes for nodes in wrt if nodes], create_graph))
    return tuple(wrap(next(found)) if use else None for use in used)


def _reached(roots: Sequence[Node]) -> set[Node]:
    seen: set[Node] = set()
    stack = [node for node in roots if node.needs_grad]
    while stack:
        node = stack.pop()
        if node not in seen:
            seen.add(node)
            stack.extend(x for x in node.inputs if x.needs_grad)
    return seen


def _gradient_function(function: Callable[..., Any], argnums: int | Sequence[int]) -> Callable[..., Any]:
    def gradient(*args: Any, **kwargs: Any) -> Any:
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        given = list(args)
        own: set[int] = set()
        with set_grad_enabled(True):
            for i in positions:
                x = given[i]
                given[i] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                if not x.requires_grad:
                    own.add(given[i].leaf)
            result = function(*given, **kwargs)
            found = grad(result, [given[i] for i in positions], create_graph=True)
        found = tuple(g if watches_below([read(g)]).keys() - own else wrap(make(control.stop_gradient, (read(g),)))
                      for g in found)
        return found[0] if isinstance(argnums, int) else found
    return gradient


def value_and_grad(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The function that returns (fn's result, its gradient with respect to one argument)."""
    def both(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        with set_grad_enabled(True):
            given[argnums] = given[argnums].detach().requires_grad_()
            result = function(*given, **kwargs)
            (found,) = grad(result, given[argnums])
        return result.detach(), found
    return both
