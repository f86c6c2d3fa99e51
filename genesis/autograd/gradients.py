"""Gradients as users ask for them: `backward` and `grad`. Recording a gradient is one node, which the autodiff pass
expands when the plan is made."""

from __future__ import annotations

import sys
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from genesis.autograd import anomaly
from genesis.autograd.backward_engine import Pairs, content, gradients, reaches_outside, refuse_python
from genesis.autograd.graph_release import release_graph
from genesis.autograd.hooks import EndHook
from genesis.frontend import session
from genesis.frontend.at_once import Expected, attributes
from genesis.frontend.grad_mode import enable_grad, no_grad, tracking
from genesis.frontend.pending import look_behind
from genesis.frontend.recording import TensorBase, over, read, wrap, wrap_as
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.frontend.threads import unlocked_after_fork
from genesis.frontend.writes import content_of, write_at_once
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.interrupting import from_inside
from genesis.ir.node import Node, make
from genesis.ir.ops import control, leaves

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


def backward(tensor: Tensor, gradient: Tensor | None, retain_graph: bool | None, create_graph: bool,
             inputs: Sequence[Tensor] | Tensor | None) -> None:
    """The function behind `Tensor.backward`."""
    backward_of(tensor, gradient, retain_graph, create_graph, inputs)


def backward_of(tensors: Any, grad_tensors: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                inputs: Any = None) -> None:
    """Accumulate the gradients of one tensor or the sum over several, as torch.autograd.backward.

    Args:
        tensors: a tensor, or several.
        grad_tensors: their weights; None for 1, where a tensor has one element.
        retain_graph: keep the graph for another backward; None keeps it with `create_graph`.
        create_graph: make the gradients differentiable.
        inputs: accumulate into these tensors only, which may be computed ones.

    Raises:
        RuntimeError: a tensor does not require grad, has several elements and no weight, or its graph was freed.

    >>> import genesis
    >>> x = genesis.tensor([2.0, 3.0], requires_grad=True)
    >>> genesis.autograd.backward([x.sum(), x * x], [None, genesis.tensor([1.0, 10.0])])
    >>> x.grad
    tensor([ 5., 61.])
    """
    ys = _listed(tensors)
    weights = _weights(grad_tensors, ys)
    roots = _roots("backward", ys, weights)
    shared: dict[int, Tensor] = {}
    if len(ys) == 1 and weights[0] is not None and inputs is None and not create_graph and not observers:
        from genesis.autograd.shared_gradients import shared_gradients  # few programs give a gradient
        shared = shared_gradients(ys[0], weights[0])
    chosen = None if inputs is None else _listed(inputs)
    if chosen is not None and not chosen:
        raise failure("backward", "`inputs` argument to `backward()` cannot be empty")
    _check_inputs("backward", chosen or ())
    own = {x.leaf for x in chosen or () if x.is_leaf}
    others = {content(x): x for x in chosen or () if not x.is_leaf}
    found = gradients(roots, create_graph, None if chosen is None else own.__contains__, list(others))
    if anomaly.enabled:
        anomaly.check([*(root for root, _ in roots), *found.leaves.values()])
    reached: list[tuple[Any, Node]] = []
    for number, node in found.leaves.items():
        leaf = state.watched.get(number)
        if leaf is not None and leaf.leaf == number:  # otherwise the leaf wants no gradient any more
            reached.append((leaf, node))
    reached += [(others[other], node) for other, node in found.nodes.items()
                if not others[other].retains_grad]  # a retained gradient is in place already
    _accumulate_all(reached, create_graph, found.storages, shared)
    if not (create_graph if retain_graph is None else retain_graph):
        for y in ys:
            release_graph(y)


def _listed(tensors: Any) -> list[Any]:
    if is_foreign(tensors):  # which could be iterated over
        raise not_a_tensor(tensors)
    return [tensors] if isinstance(tensors, TensorBase) else list(tensors)


def _weights(given: Any, ys: list[Any]) -> list[Any]:
    if given is None:
        return [None] * len(ys)
    weights = _listed(given)
    if len(weights) != len(ys):
        raise failure("grad", f"got {len(ys)} tensors and {len(weights)} gradients")
    return weights


def _roots(name: str, ys: list[Any], weights: list[Any]) -> Pairs:
    """The values that backward starts from, with their gradients."""
    for i, y in enumerate(ys):
        if not y.requires_grad:
            raise failure(name, f"element {i} of tensors does not require grad and does not have a grad_fn",
                          [("tensor", y)], hint="set requires_grad on what it is computed from, outside no_grad()")
    with enable_grad():
        return [(read(y), _seed(y, weight)) for y, weight in zip(ys, weights, strict=True)]


def _check_inputs(name: str, xs: Sequence[Any]) -> None:
    for x in xs:
        if not x.requires_grad:
            raise failure(name, "One of the differentiated Tensors does not require grad", [("input", x)],
                          hint="create it with requires_grad=True")


def _seed(tensor: Tensor, gradient: Tensor | None) -> Node:
    kind = tensor.spec
    if gradient is None:
        if kind.numel != 1:
            raise failure("backward", "grad can be implicitly created only for scalar outputs", [("tensor", tensor)],
                          hint="reduce it with sum() or mean(), or pass gradient")
        return leaves.full(kind.shape, 1, kind.dtype, kind.device)
    if gradient.spec.shape != kind.shape:
        raise failure("backward", f"mismatch in shape: gradient {list(gradient.spec.shape)}, tensor {list(kind.shape)}",
                      [("tensor", tensor), ("gradient", gradient)])
    if gradient.spec.device is not kind.device and kind.shape:
        raise failure("backward", f"invalid gradient - expected device {kind.device} but got {gradient.spec.device}",
                      [("tensor", tensor), ("gradient", gradient)], hint="move it with .to(device)")
    from genesis.ops.common import cast, on_device
    return cast(on_device(gradient, kind.device), kind.dtype)


_accumulating = threading.RLock()
"""A lock held while a gradient is read and added to: several threads may go backward to one leaf."""
unlocked_after_fork(sys.modules[__name__], "_accumulating")


def _accumulate_all(reached: Sequence[tuple[Any, Node]], create_graph: bool, storages: dict[Node, Storage],
                    shared: dict[int, Tensor]) -> None:
    """Give tensors their gradients, or add to those that they have: all, or none where an exception comes. Then their
    hooks are called."""
    with _accumulating:
        while not _Gradients(reached, create_graph, storages, shared).accumulated():  # another thread wrote meanwhile
            pass
    for tensor, node in reached:
        if tensor._after_hooks:
            refuse_python()
            for hook in list(tensor._after_hooks.values()):
                if (hook.called(node) if isinstance(hook, EndHook) else hook(tensor)) is not None:
                    raise failure("backward", "post accumulate grad hooks should return None: they write to x.grad",
                                  [("tensor", tensor)])
    for reference in observers:
        observer = reference()
        if observer is not None:
            observer.accumulated([tensor for tensor, _ in reached])


class Observer(Protocol):
    """Who is told of every backward."""

    def accumulated(self, tensors: Sequence[Any]) -> None:
        """A backward has given these tensors gradients, or added to those that they had."""


observers: Final[list[weakref.ref[Observer]]] = []
"""Those who are told of every backward, in the order in which they came: modules whose gradients are reduced over
ranks. That order is the same on all of these."""


def observe_backward(observer: Observer) -> None:
    """Tell it of every backward from now on, while it lives."""
    observers.append(weakref.ref(observer, observers.remove))


class _Gradients:
    """Gradients on their way to their tensors.

    Attributes:
        tensors: those that get new gradients, and `made`, these.
        contents: the storages of gradients that are added to → what they get.
        expected: what these are computed of.

    Args:
        computed: gradients that are in memory → the storages of that, which one tensor may have; those are taken out.
        shared: by the numbers of leaves, their parts of the gradient that backward was given.
    """

    def __init__(self, reached: Sequence[tuple[Any, Node]], create_graph: bool, computed: dict[Node, Storage],
                 shared: dict[int, Tensor]):
        self.tensors: list[Any] = []
        self.made: list[Any] = []
        self.contents: dict[Storage, Node] = {}
        self.expected: list[Expected] = []
        captured = state.session is not None  # which notes each look; without, `accumulated` counts them all
        if not computed:
            look_behind([tensor._grad for tensor, _ in reached].count(None))
        for tensor, node in reached:
            before = tensor.grad if captured else tensor._grad
            storage = computed.pop(node, None) if computed else None
            if before is None and tensor.leaf in shared:
                self._replace(tensor, shared[tensor.leaf])
            elif before is None and storage is not None and tensor.part is None:
                self._replace(tensor, over(storage, node.type, None))
            elif before is None or create_graph:
                self._replace(tensor, wrap_as(tensor, node if before is None else read(before) + node))
            else:
                self._add(before, node)

    def _replace(self, tensor: Any, gradient: Any) -> None:
        gradient.storage.persistent = True
        if state.session is not None and (running := session.active()) is not None:
            running.note_grad_written(tensor)
        self.tensors.append(tensor)
        self.made.append(gradient)

    def _add(self, before: Any, node: Node) -> None:
        part, storage = before.part, before.storage
        summed = self.contents.get(storage)
        if summed is None:
            content, writes = content_of(storage)
            with no_grad():
                total = read(before) + node
            self.contents[storage] = total if part is None else part.write(storage.node, total)
            self.expected += [((getattr, storage, "_node"), content), ((getattr, storage, "writes"), writes)]
        else:  # two tensors have one gradient
            self.contents[storage] = summed + node if part is None else part.write(summed, part.read(summed) + node)

    def accumulated(self) -> bool:
        """Make it so; False, and nothing done, if another thread wrote to a gradient since."""
        held = [tensor._grad for tensor in self.tensors]
        state.grad_looks += 1
        try:
            write_at_once(list(self.contents), list(self.contents.values()),
                          [attributes(self.tensors, "_grad", self.made)], self.expected)
        except from_inside(KeyError):
            return False
        state.grad_looks += 1
        del held
        return True


def grad(outputs: Any, inputs: Any = None, grad_outputs: Any = None, retain_graph: bool | None = None,
         create_graph: bool = False, only_inputs: bool = True, allow_unused: bool | None = None,
         is_grads_batched: bool = False, materialize_grads: bool = False) -> Any:
    """Gradients of outputs with respect to inputs, as torch.autograd.grad; nothing is accumulated.

    With a function as the only argument, as `genesis.grad(fn)`: the function that returns the
    gradient of fn's scalar result with respect to its first argument.

    Args:
        outputs: a tensor, or several.
        inputs: what to differentiate by, a tensor or several.
        grad_outputs: weights of the outputs' elements.
        retain_graph: keep the graph for another backward; None keeps it with `create_graph`.
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
    ys, xs = _listed(outputs), _listed(inputs)
    weights = _weights(grad_outputs, ys)
    if is_grads_batched:
        return _batched(ys, xs, weights, create_graph, allow_unused, materialize_grads)
    if materialize_grads and allow_unused is False:
        raise failure("grad", "Expected allow_unused to be True or not passed when materialize_grads=True, but got "
                      "False", error=ValueError)
    if not xs:
        raise failure("grad", "`inputs` argument to `grad()` cannot be empty")
    roots = _roots("grad", ys, weights)
    _check_inputs("grad", xs)
    others = {id(x): content(x) for x in xs if not x.is_leaf}
    numbers = {x.leaf for x in xs if x.is_leaf}
    found = gradients(roots, create_graph, numbers.__contains__, list(others.values()))
    given = [found.leaves.get(x.leaf) if x.is_leaf else found.nodes.get(others[id(x)]) for x in xs]
    if None in given and not (allow_unused or materialize_grads):
        raise failure("grad", "One of the differentiated Tensors appears to not have been used in the graph",
                      hint="set allow_unused=True if this is the desired behavior")
    if anomaly.enabled:
        anomaly.check([*(root for root, _ in roots), *(g for g in given if g is not None)])
    if not (create_graph if retain_graph is None else retain_graph):
        for y in ys:
            release_graph(y)
    return tuple(_or_zeros(g, x, materialize_grads) for g, x in zip(given, xs, strict=True))


def _or_zeros(g: Node | None, x: Any, materialize: bool) -> Any:
    if g is not None:
        return wrap_as(x, g)
    return wrap_as(x, leaves.zeros_like(read(x))) if materialize else None


def _batched(ys: list[Any], xs: list[Any], weights: list[Any], create_graph: bool, allow_unused: bool | None,
             materialize: bool) -> tuple[Any, ...]:
    """The gradients for each of a batch of weights, stacked."""
    from genesis.ops.parts import stack
    count = next(w.spec.shape[0] for w in weights if w is not None)
    rows = [grad(ys, xs, [None if w is None else w[i] for w in weights], True, create_graph, True, allow_unused, False,
                 materialize) for i in range(count)]
    return tuple(None if column[0] is None else stack(column) for column in zip(*rows, strict=True))


def _gradient_function(function: Callable[..., Any], argnums: int | Sequence[int]) -> Callable[..., Any]:
    def gradient(*args: Any, **kwargs: Any) -> Any:
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        given = list(args)
        own: set[int] = set()
        with tracking(True):
            for i in positions:
                x = given[i]
                given[i] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()
                if not x.requires_grad:
                    own.add(given[i].leaf)
            result = function(*given, **kwargs)
            found = grad(result, [given[i] for i in positions], create_graph=True)
        found = tuple(g if reaches_outside(read(g), own) else wrap(make(control.stop_gradient, (read(g),)))
                      for g in found)
        return found[0] if isinstance(argnums, int) else found
    return gradient


def value_and_grad(function: Callable[..., Any], argnums: int = 0) -> Callable[..., Any]:
    """The function that returns (fn's result, its gradient with respect to one argument)."""
    def both(*args: Any, **kwargs: Any) -> Any:
        given = list(args)
        with tracking(True):
            given[argnums] = given[argnums].detach().requires_grad_()
            result = function(*given, **kwargs)
            (found,) = grad(result, given[argnums])
        return result.detach(), found
    return both
