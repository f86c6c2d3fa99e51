"""Derivatives of functions of nests of tensors. What they return is differentiable again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from genesis.autograd.backward_engine import reaches_outside
from genesis.autograd.gradients import grad as _grad
from genesis.frontend.grad_mode import tracking
from genesis.frontend.recording import TensorBase, read
from genesis.func.tree import flatten
from genesis.func.vectorize import vmap
from genesis.ir.errors import failure
from genesis.ops.creation import zeros
from genesis.ops.ranges import eye
from genesis.ops.shape import movedim, reshape

Function = Callable[..., Any]
Argnums = int | Sequence[int]


class _Inputs:
    """The inputs that a function is differentiated by: the tensors in its arguments at some positions.

    Attributes:
        args: all arguments, with leaves in place of those tensors.
        leaves: these.
    """

    def __init__(self, name: str, args: Sequence[Any], argnums: Argnums):
        self.single = isinstance(argnums, int)
        chosen = [argnums] if isinstance(argnums, int) else list(argnums)
        for i in chosen:
            if not -len(args) <= i < len(args):
                raise failure(name, f"Got argnum={i}, but only {len(args)} positional inputs")
        self.args, self.leaves = list(args), []
        self._shapes: list[tuple[int, Any]] = []
        self._own: set[int] = set()  # leaves that only this derivative knows
        for i in chosen:
            found, build = flatten(args[i])
            mine = [_leaf(name, x) for x in found]
            self.args[i] = build(mine)
            self.hide(leaf for leaf, x in zip(mine, found, strict=True) if not x.requires_grad)
            self.leaves += mine
            self._shapes.append((len(mine), build))

    def hide(self, leaves: Iterable[Any]) -> None:
        """Gradients by these leaves are not seen from outside."""
        self._own.update(x.leaf for x in leaves)

    def nest(self, values: Sequence[Any]) -> Any:
        """A value for each tensor, in the form of the argument, or of a tuple of the arguments."""
        rest = iter(values)
        found = tuple(build([next(rest) for _ in range(count)]) for count, build in self._shapes)
        return found[0] if self.single else found

    def seen_from_outside(self, tree: Any) -> Any:
        """Tensors without the gradients by hidden leaves; other gradients stay."""
        found, build = flatten(tree)
        return build([x.detach() if isinstance(x, TensorBase) and x.requires_grad  # type: ignore[attr-defined]
                      and not reaches_outside(read(x), self._own) else x for x in found])


def _leaf(name: str, x: Any) -> Any:
    if not isinstance(x, TensorBase) or x.spec.dtype.kind != "float":
        raise failure(name, f"an argument to differentiate by should be a floating-point tensor, got "
                      f"{type(x).__name__ if not isinstance(x, TensorBase) else repr(x.spec.dtype)}")
    with tracking(True):
        return x.view_as(x) if x.requires_grad else x.detach().requires_grad_()  # type: ignore[attr-defined]


def _called(func: Function, args: Sequence[Any], kwargs: dict[str, Any], has_aux: bool) -> tuple[Any, Any]:
    """The function's result, and what came with it."""
    with tracking(True):
        result = func(*args, **kwargs)
    if not has_aux:
        return result, None
    if not isinstance(result, tuple) or len(result) != 2:
        raise failure("func", "the output of a function with has_aux=True should be a tuple: (output, aux)")
    return result


def grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that computes the gradient of func's scalar result.

    Args:
        func: of nests of tensors, to a 0-d tensor; with `has_aux` to (that, anything).
        argnums: by which arguments; for several the result is a tuple.
        has_aux: the result is then (gradient, what came with the value).

    >>> import genesis
    >>> genesis.func.grad(lambda x: (x**3).sum())(genesis.tensor([2.0]))
    tensor([12.])
    >>> genesis.func.grad(lambda p: (p["w"] * 2).sum())({"w": genesis.ones(2)})
    {'w': tensor([2., 2.])}
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found
    return gradient


def grad_and_value(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """The function that returns (gradient, value), or (gradient, (value, aux)).

    Raises:
        RuntimeError: func does not return a 0-d tensor, or there is no argument with that number.

    >>> import genesis
    >>> genesis.func.grad_and_value(lambda x: (x**2).sum())(genesis.tensor([3.0]))
    (tensor([6.]), tensor(9.))
    """
    def both(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs("grad_and_value", args, argnums)
        value, aux = _called(func, inputs.args, kwargs, has_aux)
        if not isinstance(value, TensorBase):
            raise failure("grad_and_value", f"Expected f(*args) to return a Tensor, got {type(value)}")
        if value.spec.ndim:
            raise failure("grad_and_value", "Expected f(*args) to return a scalar Tensor, got tensor with "
                          f"{value.spec.ndim} dims. Maybe you wanted to use the vjp or jacrev APIs instead?")
        found = inputs.nest(_vjp([value], inputs.leaves, [None]))
        found, value, aux = inputs.seen_from_outside((found, value, aux))
        return found, (value, aux) if has_aux else value
    return both


def value_and_grad(func: Function, argnums: Argnums = 0, has_aux: bool = False) -> Function:
    """`grad_and_value` with the value first."""
    both = grad_and_value(func, argnums, has_aux)

    def turned(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return value, found
    return turned


def _vjp(outputs: Sequence[Any], leaves: list[Any], weights: Sequence[Any]) -> list[Any]:
    """The gradients of the outputs by the leaves; zeros where there is no way."""
    pairs = [(y, w) for y, w in zip(outputs, weights, strict=True) if y.requires_grad]
    if not pairs:
        return [zeros(x.spec.shape, dtype=x.spec.dtype, device=x.spec.device) for x in leaves]
    with tracking(True):
        return list(_grad([y for y, _ in pairs], leaves, [w for _, w in pairs], create_graph=True,
                          materialize_grads=True))


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """func's results, and the function that takes their weights back to the arguments.

    Returns:
        (output, vjp_fn), with `has_aux` (output, vjp_fn, aux). vjp_fn takes weights in the form of the output and
        returns a tuple, a gradient for each argument.

    >>> import genesis
    >>> y, back = genesis.func.vjp(genesis.sin, genesis.tensor([0.0]))
    >>> back(genesis.tensor([2.0]))
    (tensor([2.]),)
    """
    inputs = _Inputs("vjp", primals, range(len(primals)))
    output, aux = _called(func, inputs.args, {}, has_aux)
    outputs, _ = flatten(output)

    def back(*weights: Any, retain_graph: bool = True, create_graph: bool = True) -> Any:
        given, _ = flatten(weights)
        if len(given) != len(outputs):
            raise failure("vjp", f"Expected pytree structure of cotangents to be the same as that of the output: "
                          f"{len(outputs)} tensors, got {len(given)}")
        return inputs.seen_from_outside(inputs.nest(_vjp(outputs, inputs.leaves, given)))
    output, aux = inputs.seen_from_outside((output, aux))
    return (output, back, aux) if has_aux else (output, back)


class _Tangents:
    """The tangents of a function's results, given those of its arguments.

    The gradient is linear in the results' weights, and its derivative by those, along the arguments' tangents, is the
    results' tangent: two reverse passes instead of a forward one.
    """

    def __init__(self, outputs: Sequence[Any], inputs: _Inputs):
        self._outputs, leaves = outputs, inputs.leaves
        self._weights = [zeros(y.spec.shape, dtype=y.spec.dtype, device=y.spec.device).requires_grad_()
                         if y.spec.dtype.kind == "float" else None for y in outputs]
        inputs.hide(w for w in self._weights if w is not None)
        self._back = [[None] * len(leaves) if w is None or not y.requires_grad else _grad(
            y, leaves, w, create_graph=True, allow_unused=True) for y, w in zip(outputs, self._weights, strict=True)]

    def along(self, tangents: Sequence[Any], output: int) -> Any:
        """The tangent of one result. A tangent that is None is zero."""
        y, weight = self._outputs[output], self._weights[output]
        pairs = [(g, t) for g, t in zip(self._back[output], tangents, strict=True)
                 if t is not None and g is not None and g.requires_grad]
        if not pairs:
            return zeros(y.spec.shape, dtype=y.spec.dtype, device=y.spec.device)
        with tracking(True):
            return _grad([g for g, _ in pairs], weight, [t for _, t in pairs], create_graph=True,
                         materialize_grads=True)[0]


def jvp(func: Function, primals: Sequence[Any], tangents: Sequence[Any], *, strict: bool = False,
        has_aux: bool = False) -> Any:
    """func's results, and how they move when the arguments move along the tangents.

    Returns:
        (output, tangent of the output), with `has_aux` also what came with the output.

    >>> import genesis
    >>> genesis.func.jvp(genesis.exp, (genesis.tensor([0.0]),), (genesis.tensor([3.0]),))
    (tensor([1.]), tensor([3.]))
    """
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise failure("jvp", "Expected primals and tangents to be tuples", hint="jvp(f, (x,), (t,))")
    inputs = _Inputs("jvp", primals, range(len(primals)))
    moves = _fitting(inputs.leaves, flatten(tangents)[0])
    output, aux = _called(func, inputs.args, {}, has_aux)
    outputs, build = flatten(output)
    with tracking(True):
        rule = _Tangents(outputs, inputs)
        moved = build([rule.along(moves, i) for i in range(len(outputs))])
    output, moved, aux = inputs.seen_from_outside((output, moved, aux))
    return (output, moved, aux) if has_aux else (output, moved)


def _fitting(leaves: list[Any], tangents: list[Any]) -> list[Any]:
    if len(leaves) != len(tangents):
        raise failure("jvp", f"Expected as many tangents as primals: {len(leaves)}, got {len(tangents)}")
    for x, t in zip(leaves, tangents, strict=True):
        if x.spec.shape != t.spec.shape:
            raise failure("jvp", "Trying to set a forward gradient that has a different size than that of the original "
                          f"Tensor, this is not supported. Tensor is of size {list(x.spec.shape)} while the given "
                          f"forward gradient is of size {list(t.spec.shape)}")
    return tangents


def linearize(func: Function, *primals: Any) -> tuple[Any, Function]:
    """func's results, and the function of tangents that gives the results' tangents, without calling func again.

    >>> import genesis
    >>> y, push = genesis.func.linearize(genesis.sin, genesis.tensor([0.0, 0.0]))
    >>> push(genesis.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    inputs = _Inputs("linearize", primals, range(len(primals)))
    output, _ = _called(func, inputs.args, {}, False)
    outputs, build = flatten(output)
    with tracking(True):
        rule = _Tangents(outputs, inputs)

    def push(*tangents: Any) -> Any:
        moves = _fitting(inputs.leaves, flatten(tangents)[0])
        return inputs.seen_from_outside(build([rule.along(moves, i) for i in range(len(outputs))]))
    return inputs.seen_from_outside(output), push


def jacrev(func: Function, argnums: Argnums = 0, has_aux: bool = False, *, chunk_size: int | None = None) -> Function:
    """The function that computes the Jacobian: (*output's shape, *argument's shape), a row by a reverse pass.

    Args:
        func: of nests of tensors, to a nest of them; the Jacobians are in a nest of the output's form, each in the
            form of the argument.
        argnums: by which arguments.
        has_aux: func returns (output, aux), the result is (Jacobian, aux).
        chunk_size: rows to compute at a time.

    >>> import genesis
    >>> genesis.func.jacrev(lambda x: x**2)(genesis.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs("jacrev", args, argnums)
        output, aux = _called(func, inputs.args, kwargs, has_aux)
        outputs, build = flatten(output)
        found = build([inputs.nest(_rows(y, inputs.leaves, chunk_size)) for y in outputs])
        found, aux = inputs.seen_from_outside((found, aux))
        return (found, aux) if has_aux else found
    return jacobian


jacobian = jacrev


def _rows(y: Any, leaves: list[Any], chunk_size: int | None) -> list[Any]:
    """One result's Jacobians by the leaves."""
    count = y.spec.numel
    if count and y.requires_grad:
        basis = reshape(eye(count, dtype=y.spec.dtype, device=y.spec.device), (count, *y.spec.shape))
        found = vmap(lambda weight: _vjp([y], leaves, [weight]), chunk_size=chunk_size)(basis)
    else:
        found = [zeros((count, *x.spec.shape), dtype=x.spec.dtype, device=x.spec.device) for x in leaves]
    return [reshape(g, (*y.spec.shape, *x.spec.shape)) for g, x in zip(found, leaves, strict=True)]


def jacfwd(func: Function, argnums: Argnums = 0, has_aux: bool = False, *, randomness: str = "error") -> Function:
    """`jacrev` a column at a time, by tangents: the cheaper way for few arguments and many results.

    func is called once; `randomness` is accepted for torch's sake.

    >>> import genesis
    >>> genesis.func.jacfwd(lambda x: x**2)(genesis.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inputs = _Inputs("jacfwd", args, argnums)
        output, aux = _called(func, inputs.args, kwargs, has_aux)
        outputs, build = flatten(output)
        with tracking(True):
            rule = _Tangents(outputs, inputs)
            found = build([inputs.nest([_columns(rule, i, y, inputs.leaves, k) for k in range(len(inputs.leaves))])
                           for i, y in enumerate(outputs)])
        found, aux = inputs.seen_from_outside((found, aux))
        return (found, aux) if has_aux else found
    return jacobian


def _columns(rule: _Tangents, output: int, y: Any, leaves: list[Any], k: int) -> Any:
    """One result's Jacobian by one leaf."""
    x = leaves[k]
    count = x.spec.numel
    if not count:
        return zeros((*y.spec.shape, *x.spec.shape), dtype=y.spec.dtype, device=y.spec.device)
    basis = reshape(eye(count, dtype=x.spec.dtype, device=x.spec.device), (count, *x.spec.shape))
    found = vmap(lambda t: rule.along([t if i == k else None for i in range(len(leaves))], output))(basis)
    return reshape(movedim(found, 0, -1), (*y.spec.shape, *x.spec.shape))


def hessian(func: Function, argnums: Argnums = 0) -> Function:
    """The function that computes the second derivatives of func's results.

    >>> import genesis
    >>> genesis.func.hessian(lambda x: (x**3).sum())(genesis.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)
