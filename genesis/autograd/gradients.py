"""Gradients as the user asks for them. Recording a gradient is one node; the autodiff pass
expands it when the plan is made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from itertools import chain, islice
from operator import add
from typing import TYPE_CHECKING, Any

from genesis.autograd import anomaly
from genesis.autograd.borders import Border, run_hooks
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
    chosen = None if inputs is None else {id(x) for x in ([inputs] if isinstance(inputs, TensorBase) else inputs)}
    found = _gradients([(root, _seed(tensor, gradient))], create_graph,
                       lambda number: number in watched and (chosen is None or id(watched[number]) in chosen))
    if anomaly.enabled:
        anomaly.check([root, *found.leaves.values()])
    for number, node in found.leaves.items():
        leaf = watched.get(number)
        if leaf is not None:
            _accumulate(leaf, node, create_graph)
    if not (create_graph if retain_graph is None else retain_graph):
        _free(tensor)


def backward_of(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                inputs: Any = None) -> None:
    """Accumulate the gradients of one tensor or the sum over several, as torch.autograd.backward.

    Args:
        tensors: a tensor, or several.
        grad_tensors: their weights.
        retain_graph, create_graph, inputs: as for `Tensor.backward`.
    """
    ys = [tensors] if isinstance(tensors, TensorBase) else list(tensors)
    weights = [None] * len(ys) if grad_tensors is None else (
        [grad_tensors] if isinstance(grad_tensors, TensorBase) else list(grad_tensors))
    for number, (y, weight) in enumerate(zip(ys, weights, strict=True)):
        last = number == len(ys) - 1
        backward(y, weight, retain_graph if last else True, create_graph, inputs)  # type: ignore[arg-type]


@dataclass
class _Found:
    """Gradients by the number of the leaf tensor, and by the node of another value."""

    leaves: dict[int, Node] = field(default_factory=dict)
    nodes: dict[Node, Node] = field(default_factory=dict)


Pairs = list[tuple[Node, Node]]
"""(value, the gradient that arrives there)."""


def _gradients(roots: Pairs, create_graph: bool, wanted: Callable[[int], bool],
               others: Sequence[Node] = ()) -> _Found:
    """Gradients of leaf tensors and of other nodes, through all borders on the way."""
    found = _Found()
    arrived: dict[Border, list[Node | None]] = {}
    while True:
        _one_stage(roots, create_graph, wanted, others, found, arrived)
        if not arrived:
            return found
        border = max(arrived, key=lambda b: b.latest)
        gradients = [None if g is None else wrap(g) for g in arrived.pop(border)]
        with set_grad_enabled(create_graph):
            pairs = border.pull(gradients)
        with enable_grad():
            roots = [(read(origin), read(g)) for origin, g in pairs]


def _one_stage(roots: Pairs, create_graph: bool, wanted: Callable[[int], bool], others: Sequence[Node],
               found: _Found, arrived: dict[Border, list[Node | None]]) -> None:
    """Gradients inside one recorded program: of leaves, of nodes and at its borders."""
    nodes = [node for node, _ in roots]
    watches = watches_below(nodes)
    if FREED in watches:
        raise failure("backward", _FREED_MESSAGE, hint="specify retain_graph=True when calling backward the first time")
    below = {number: several for number, several in watches.items() if number in crossings or wanted(number)}
    reached = _reached(nodes) if others else set()
    inside = [node for node in others if node in reached]
    if not below and not inside:
        return
    gradients = _record_grad(nodes, [seed for _, seed in roots], [*below.values(), *([n] for n in inside)],
                             create_graph)
    for number, g in zip(below, gradients, strict=False):
        if number in crossings:
            border, output = crossings[number]
            slots = arrived.setdefault(border, [None] * border.outputs)
            slots[output] = _sum(slots[output], g)
        else:
            found.leaves[number] = _sum(found.leaves.get(number), g)
    for node, g in zip(inside, gradients[len(below):], strict=True):
        found.nodes[node] = _sum(found.nodes.get(node), g)


def _sum(before: Node | None, more: Node) -> Node:
    return more if before is None else before + more


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
    found.needs_grad = create_graph
    items = iter([make(control.item, (found,), (i,), found.source) for i in range(len(nodes))])
    return [reduce(add, islice(items, len(several))) for several in wrt]


def _accumulate(leaf: Any, node: Node, create_graph: bool) -> None:
    hooks = leaf.__dict__.get("_hooks")
    if hooks:
        with set_grad_enabled(create_graph):
            node = read(run_hooks(hooks, wrap(node)))
    before = leaf.grad
    if before is None or create_graph:
        leaf.grad = wrap(node if before is None else read(before) + node)
        leaf._grad.storage.persistent = True
    else:
        with no_grad():
            total = read(before) + node
        before.storage.write(total)
    for hook in list(leaf.__dict__.get("_after_hooks", {}).values()):
        hook(leaf)


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
         create_graph: bool = False, allow_unused: bool | None = None, is_grads_batched: bool = False,
         materialize_grads: bool = False) -> Any:
    """Gradients of outputs with respect to inputs, as torch.autograd.grad; nothing is accumulated.

    With a function as the only argument, as `genesis.grad(fn)`: the function that returns the
    gradient of fn's scalar result with respect to its first argument.

    Args:
        outputs: a tensor, or several.
        inputs: what to differentiate by, a tensor or several.
        grad_outputs: weights of the outputs' elements.
        retain_graph: accepted; the graph is kept.
        create_graph: make the gradients differentiable.
        allow_unused: give None for an input without influence, instead of an error.
        is_grads_batched: grad_outputs have a leading dimension, and so have the results: one gradient for each.
        materialize_grads: give zeros for an input without influence.

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
    if is_grads_batched:
        return _batched(ys, xs, weights, create_graph, allow_unused, materialize_grads)
    with enable_grad():
        roots = [read(y) for y in ys]
    for y in ys:
        if not y.requires_grad:
            raise failure("grad", "element 0 of tensors does not require grad and does not have a grad_fn",
                          [("output", y)], hint="compute it outside no_grad()")
    for x in xs:
        if not x.requires_grad:
            raise failure("grad", "one of the differentiated tensors does not require grad", [("input", x)],
                          hint="create it with requires_grad=True")
    seeds = [_seed(y, w) for y, w in zip(ys, weights, strict=True)]
    with enable_grad():
        others = {id(x): read(x) for x in xs if not x.is_leaf}
    numbers = {x.leaf for x in xs if x.is_leaf}
    found = _gradients(list(zip(roots, seeds, strict=True)), create_graph, numbers.__contains__,
                       list(dict.fromkeys(others.values())))
    gradients = [found.leaves.get(x.leaf) if x.is_leaf else found.nodes.get(others[id(x)]) for x in xs]
    if None in gradients and not (allow_unused or materialize_grads):
        raise failure("grad", "One of the differentiated Tensors appears to not have been used in the graph",
                      hint="set allow_unused=True if this is the desired behavior")
    if anomaly.enabled:
        anomaly.check([*roots, *(g for g in gradients if g is not None)])
    return tuple(_or_zeros(g, x, materialize_grads) for g, x in zip(gradients, xs, strict=True))


def _or_zeros(g: Node | None, x: Any, materialize: bool) -> Any:
    if g is not None:
        return wrap(g)
    return wrap(leaves.zeros_like(read(x))) if materialize else None


def _batched(ys: list[Any], xs: list[Any], weights: list[Any], create_graph: bool, allow_unused: bool | None,
             materialize: bool) -> tuple[Any, ...]:
    """The gradients for each of a batch of weights, stacked."""
    from genesis.ops.shape import stack
    count = next(w.type.shape[0] for w in weights if w is not None)
    rows = [grad(ys, xs, [None if w is None else w[i] for w in weights], True, create_graph, allow_unused, False,
                 materialize) for i in range(count)]
    return tuple(None if column[0] is None else stack(column) for column in zip(*rows, strict=True))


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
