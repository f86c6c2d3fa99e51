"""Derivatives of functions, by torch.autograd.functional's names: results and inputs are a tensor, or a tuple of them.

`genesis.func` has the same for nests of tensors, and composes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.autograd.gradients import grad
from genesis.frontend.grad_mode import enable_grad
from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure

Function = Callable[..., Any]


class _LeafCall:
    """One call of a function on leaves of its own.

    Attributes:
        inputs: the leaves.
        outputs: the function's results.
        single_input, single_output: whether each was a tensor, not a tuple.
    """

    def __init__(self, name: str, func: Function, inputs: Any, create_graph: bool, strict: bool):
        self.single_input = isinstance(inputs, TensorBase)
        self.create_graph = create_graph
        given = _tuple(name, "inputs", inputs)
        with enable_grad():
            self.inputs = [x.view_as(x) if create_graph and x.requires_grad else x.detach().requires_grad_()
                           for x in given]
            found = func(*self.inputs)
        self.single_output = isinstance(found, TensorBase)
        self.outputs = list(_tuple(name, "outputs of the user-provided function", found))
        if strict:
            self._check(name)

    def _check(self, name: str) -> None:
        for i, y in enumerate(self.outputs):
            if not y.requires_grad:
                raise failure(name, f"Output {i} of the user-provided function does not require gradients. The outputs "
                              "must be computed in a differentiable manner from the input when running in strict mode")
            for j, g in enumerate(grad(y, self.inputs, _ones(y), retain_graph=True, allow_unused=True)):
                if g is None:
                    raise failure(name, f"Output {i} of the user-provided function is independent of input {j}. This "
                                  "is not allowed in strict mode")

    def vjp(self, weights: Sequence[Any], create_graph: bool | None = None) -> list[Any]:
        """The gradients of the outputs, with these weights, by the inputs."""
        pairs = [(y, w) for y, w in zip(self.outputs, weights, strict=True) if y.requires_grad]
        if not pairs:
            return [_zeros(x) for x in self.inputs]
        create = self.create_graph if create_graph is None else create_graph
        with enable_grad():
            return list(grad([y for y, _ in pairs], self.inputs, [w for _, w in pairs], retain_graph=True,
                             create_graph=create, materialize_grads=True))

    def shown(self, values: Sequence[Any], single: bool) -> Any:
        """The values as the user gets them: a tensor or a tuple, without a graph unless it was asked for."""
        found = tuple(x if self.create_graph else x.detach() for x in values)
        return found[0] if single else found


def _tuple(name: str, what: str, given: Any) -> tuple[Any, ...]:
    found = (given,) if isinstance(given, TensorBase) else tuple(given) if isinstance(given, (tuple, list)) else ()
    if not found or not all(isinstance(x, TensorBase) for x in found):
        raise failure(name, f"The {what} given to {name} must be either a Tensor or a tuple of Tensors",
                      error=TypeError)
    return found


def _ones(x: Any) -> Any:
    from genesis.ops.creation import ones
    return ones(x.spec.shape, dtype=x.spec.dtype, device=x.spec.device)


def _zeros(x: Any) -> Any:
    from genesis.ops.creation import zeros
    return zeros(x.spec.shape, dtype=x.spec.dtype, device=x.spec.device)


def _vectors(name: str, v: Any, beside: Sequence[Any], whose: str) -> list[Any]:
    """The vector as a list with one tensor for each of the tensors beside it."""
    if v is None:
        if len(beside) != 1 or beside[0].spec.numel != 1:
            raise failure(name, f"The vector v can only be None if {whose} a single Tensor with a single element")
        return [_ones(beside[0])]
    found = _tuple(name, "vector v", v)
    if len(found) != len(beside):
        raise failure(name, f"v is a tuple of invalid length: should be {len(beside)} but got {len(found)}")
    for x, y in zip(found, beside, strict=True):
        if x.spec.shape != y.spec.shape:
            raise failure(name, f"v has invalid size: should be {list(y.spec.shape)} but got {list(x.spec.shape)}")
    return list(found)


def vjp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func's outputs, vᵀ · Jacobian). v has the form of the outputs; None for 1 where there is one element.

    >>> import genesis
    >>> genesis.autograd.functional.vjp(lambda x: x**2, genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 1.0]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    run = _LeafCall("vjp", func, inputs, create_graph, strict)
    weights = _vectors("vjp", v, run.outputs, "the user-provided function returns")
    return run.shown(run.outputs, run.single_output), run.shown(run.vjp(weights), run.single_input)


def jvp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func's outputs, Jacobian · v). v has the form of the inputs.

    >>> import genesis
    >>> genesis.autograd.functional.jvp(lambda x: x**2, genesis.tensor([1.0, 2.0]), genesis.tensor([1.0, 1.0]))
    (tensor([1., 4.]), tensor([2., 4.]))
    """
    run = _LeafCall("jvp", func, inputs, create_graph, strict)
    moves = _vectors("jvp", v, run.inputs, "the input to the user-provided function is")
    weights = [_zeros(y).requires_grad_() for y in run.outputs]
    back = run.vjp(weights, create_graph=True)  # linear in the weights, so its derivative by them is what is wanted
    moved = _along(back, moves, weights, create_graph)
    return run.shown(run.outputs, run.single_output), run.shown(moved, run.single_output)


def _along(values: Sequence[Any], moves: Sequence[Any], inputs: Sequence[Any], create_graph: bool) -> list[Any]:
    """The gradients of values · moves by the inputs."""
    pairs = [(g, t) for g, t in zip(values, moves, strict=True) if g.requires_grad]
    if not pairs:
        return [_zeros(x) for x in inputs]
    with enable_grad():
        return list(grad([g for g, _ in pairs], inputs, [t for _, t in pairs], create_graph=create_graph,
                         materialize_grads=True))


def jacobian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
             strategy: str = "reverse-mode") -> Any:
    """The Jacobian: (*output's shape, *input's shape); a tuple for several inputs, of such for several outputs.

    Args:
        func: of tensors, to a tensor or a tuple.
        inputs: a tensor, or a tuple.
        create_graph: make the result differentiable.
        strict: raise for an output that does not depend on an input.
        vectorize, strategy: accepted for torch's sake; rows are recorded one by one and computed together.

    >>> import genesis
    >>> genesis.autograd.functional.jacobian(lambda x: x**2, genesis.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    run = _LeafCall("jacobian", func, inputs, create_graph, strict)
    rows = [run.shown(_rows(run, i), run.single_input) for i in range(len(run.outputs))]
    return rows[0] if run.single_output else tuple(rows)


def _rows(run: _LeafCall, i: int) -> list[Any]:
    from genesis.ops.ranges import eye
    y = run.outputs[i]
    count, shape = y.spec.numel, y.spec.shape
    if not y.requires_grad or not count:
        return [_zeros(x).expand((*shape, *x.spec.shape)).clone() for x in run.inputs]
    basis = eye(count, dtype=y.spec.dtype, device=y.spec.device).reshape((count, *shape))
    with enable_grad():
        found = grad(y, run.inputs, basis, retain_graph=True, create_graph=run.create_graph, is_grads_batched=True,
                     materialize_grads=True)
    return [g.reshape((*shape, *x.spec.shape)) for g, x in zip(found, run.inputs, strict=True)]


def hessian(func: Function, inputs: Any, create_graph: bool = False, strict: bool = False, vectorize: bool = False,
            outer_jacobian_strategy: str = "reverse-mode") -> Any:
    """The second derivatives of a function to one element: (*input's shape, *input's shape), or a tuple of tuples.

    >>> import genesis
    >>> genesis.autograd.functional.hessian(lambda x: (x**3).sum(), genesis.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    def gradients(*xs: Any) -> Any:
        return _gradient("hessian", _LeafCall("hessian", func, xs, True, strict))
    given = (inputs,) if isinstance(inputs, TensorBase) else inputs
    found = jacobian(gradients, given, create_graph, strict)
    return found[0][0] if isinstance(inputs, TensorBase) else found


def _gradient(name: str, run: _LeafCall) -> tuple[Any, ...]:
    """The gradient of the one element that the function returned."""
    if not run.single_output:
        raise failure(name, f"The function given to {name} should return a single Tensor")
    if run.outputs[0].spec.numel != 1:
        raise failure(name, f"The Tensor returned by the function given to {name} should contain a single element")
    return tuple(run.vjp([_ones(run.outputs[0])], create_graph=True))


def vhp(func: Function, inputs: Any, v: Any = None, create_graph: bool = False, strict: bool = False) -> Any:
    """(func's output, vᵀ · Hessian).

    >>> import genesis
    >>> x = genesis.tensor([1.0, 2.0])
    >>> genesis.autograd.functional.vhp(lambda x: (x**3).sum(), x, genesis.tensor([1.0, 0.0]))
    (tensor(9.), tensor([6., 0.]))
    """
    run = _LeafCall("vhp", func, inputs, create_graph, strict)
    moves = _vectors("vhp", v, run.inputs, "the input to the user-provided function is")
    found = _along(_gradient("vhp", run), moves, run.inputs, create_graph)
    return run.shown(run.outputs, True), run.shown(found, run.single_input)


hvp = vhp
"""The Hessian is symmetric, so its product with a vector is the same from both sides."""
