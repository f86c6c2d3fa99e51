"""Derivatives of functions of tensors. What they return is differentiable again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.autograd.gradients import grad as _grad
from genesis.gradmode import set_grad_enabled
from genesis.ir.errors import failure
from genesis.ops.creation import zeros
from genesis.ops.ranges import eye
from genesis.ops.shape import reshape, stack
from genesis.recording import TensorBase

Function = Callable[..., Any]


def grad(func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that computes the gradient of func's scalar result.

    Args:
        func: of tensors, to a tensor of one element; with `has_aux` to (that, anything).
        argnums: by which arguments; for several the result is a tuple.
        has_aux: the result is then (gradient, what came with the value).

    >>> import genesis
    >>> genesis.func.grad(lambda x: (x**3).sum())(genesis.tensor([2.0]))
    tensor([12.])
    """
    both = grad_and_value(func, argnums, has_aux)

    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found
    return gradient


def grad_and_value(func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that returns (gradient, value), or (gradient, (value, aux)).

    >>> import genesis
    >>> genesis.func.grad_and_value(lambda x: (x**2).sum())(genesis.tensor([3.0]))
    (tensor([6.]), tensor(9.))
    """
    def both(*args: Any, **kwargs: Any) -> Any:
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        given, leaves = _with_leaves(args, positions)
        with set_grad_enabled(True):
            result = func(*given, **kwargs)
            value, aux = result if has_aux else (result, None)
            if not isinstance(value, TensorBase) or value.type.numel != 1:
                raise failure("func.grad", "expected the function to return a scalar tensor",
                              hint="reduce the result with sum()")
            found = _grad(value, leaves, create_graph=True, materialize_grads=True)
        found = tuple(_as_given(g, args) for g in found)
        value = _as_given(value, args)
        return found[0] if isinstance(argnums, int) else found, (value, aux) if has_aux else value
    return both


def value_and_grad(func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """`grad_and_value` with the value first."""
    both = grad_and_value(func, argnums, has_aux)

    def turned(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return value, found
    return turned


def vjp(func: Function, *primals: Any, has_aux: bool = False) -> Any:
    """func's results, and the function that takes their weights back to the arguments.

    Returns:
        (output, vjp_fn), with `has_aux` (output, vjp_fn, aux). vjp_fn returns a tuple, a gradient for each argument.

    >>> import genesis
    >>> y, back = genesis.func.vjp(genesis.sin, genesis.tensor([0.0]))
    >>> back(genesis.tensor([2.0]))
    (tensor([2.]),)
    """
    given, leaves = _with_leaves(primals, range(len(primals)))
    with set_grad_enabled(True):
        result = func(*given)
    output, aux = result if has_aux else (result, None)
    several = isinstance(output, (tuple, list))
    outputs = list(output) if several else [output]

    def back(*weights: Any, retain_graph: bool = True, create_graph: bool = True) -> Any:
        flat = list(weights[0]) if several and len(weights) == 1 else list(weights)
        pairs = [(y, w) for y, w in zip(outputs, flat, strict=True) if y.requires_grad]
        if not pairs:
            return tuple(zeros(x.type.shape, dtype=x.type.dtype, device=x.type.device) for x in leaves)
        with set_grad_enabled(True):
            found = _grad([y for y, _ in pairs], leaves, [w for _, w in pairs], create_graph=create_graph,
                          materialize_grads=True)
        return tuple(_as_given(g, (*primals, *flat)) for g in found)
    shown: Any = type(output)(_as_given(y, primals) for y in outputs) if several else _as_given(output, primals)
    return (shown, back, aux) if has_aux else (shown, back)


def jvp(func: Function, primals: Sequence[Any], tangents: Sequence[Any], *, has_aux: bool = False) -> Any:
    """func's results, and how they move when the arguments move along the tangents.

    Two reverse passes: the gradient is linear in the results' weights, and its derivative by those is what is wanted.

    >>> import genesis
    >>> genesis.func.jvp(genesis.exp, (genesis.tensor([0.0]),), (genesis.tensor([3.0]),))
    (tensor([1.]), tensor([3.]))
    """
    given, leaves = _with_leaves(primals, range(len(primals)))
    with set_grad_enabled(True):
        result = func(*given)
        output, aux = result if has_aux else (result, None)
        several = isinstance(output, (tuple, list))
        outputs = list(output) if several else [output]
        moved = [_moved(y, leaves, tangents) for y in outputs]
    every = (*primals, *tangents)
    values = [_as_given(y, every) for y in outputs]
    found = [_as_given(y, every) for y in moved]
    first, second = (type(output)(values), type(output)(found)) if several else (values[0], found[0])
    return (first, second, aux) if has_aux else (first, second)


def _moved(y: Any, leaves: list[Any], tangents: Sequence[Any]) -> Any:
    """The tangent of one result."""
    weight = zeros(y.type.shape, dtype=y.type.dtype, device=y.type.device).requires_grad_()
    if not y.requires_grad:
        return weight.detach()
    back = _grad(y, leaves, weight, create_graph=True, allow_unused=True)
    pairs = [(g, t) for g, t in zip(back, tangents, strict=True) if g is not None and g.requires_grad]
    if not pairs:
        return weight.detach()
    (found,) = _grad([g for g, _ in pairs], weight, [t for _, t in pairs], create_graph=True, materialize_grads=True)
    return found


def jacrev(func: Function, argnums: int | Sequence[int] = 0, has_aux: bool = False) -> Function:
    """The function that computes the Jacobian: (*output's shape, *argument's shape), a row by a reverse pass.

    >>> import genesis
    >>> genesis.func.jacrev(lambda x: x**2)(genesis.tensor([1.0, 2.0]))
    tensor([[2., 0.],
            [0., 4.]])
    """
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        positions = [argnums] if isinstance(argnums, int) else list(argnums)
        given, leaves = _with_leaves(args, positions)
        with set_grad_enabled(True):
            result = func(*given, **kwargs)
        output, aux = result if has_aux else (result, None)
        several = isinstance(output, (tuple, list))
        rows = [_rows(y, leaves, args, isinstance(argnums, int)) for y in (output if several else [output])]
        found = type(output)(rows) if several else rows[0]
        return (found, aux) if has_aux else found
    return jacobian


jacobian = jacrev


def _rows(y: Any, leaves: list[Any], args: Sequence[Any], single: bool) -> Any:
    """One result's Jacobians by the leaves."""
    count = y.type.numel
    weights = reshape(eye(count, dtype=y.type.dtype, device=y.type.device), (count, *y.type.shape))
    with set_grad_enabled(True):
        if y.requires_grad and count:
            found = _grad(y, leaves, weights, create_graph=True, is_grads_batched=True, materialize_grads=True)
        else:
            found = tuple(zeros((count, *x.type.shape), dtype=x.type.dtype, device=x.type.device) for x in leaves)
    shaped = tuple(_as_given(reshape(g, (*y.type.shape, *x.type.shape)), args)
                   for g, x in zip(found, leaves, strict=True))
    return shaped[0] if single else shaped


def jacfwd(func: Function, argnums: int = 0, has_aux: bool = False) -> Function:
    """`jacrev` a column at a time, by `jvp`: the cheaper way for few arguments and many results."""
    def jacobian(*args: Any) -> Any:
        x = args[argnums]
        directions = reshape(eye(x.type.numel, dtype=x.type.dtype, device=x.type.device),
                             (x.type.numel, *x.type.shape))
        aux: list[Any] = []

        def of_one(value: Any) -> Any:
            result = func(*args[:argnums], value, *args[argnums + 1:])
            if has_aux:
                aux[:] = [result[1]]
            return result[0] if has_aux else result
        columns = [jvp(of_one, (x,), (directions[i],))[1] for i in range(x.type.numel)]
        found = _joined(columns, x)
        return (found, aux[0]) if has_aux else found
    return jacobian


def _joined(columns: list[Any], x: Any) -> Any:
    if isinstance(columns[0], (tuple, list)):
        return type(columns[0])(_joined(list(part), x) for part in zip(*columns, strict=True))
    shape = columns[0].type.shape
    return reshape(stack(columns, len(shape)), (*shape, *x.type.shape))


def hessian(func: Function, argnums: int = 0) -> Function:
    """The function that computes the matrix of second derivatives of a scalar function.

    >>> import genesis
    >>> genesis.func.hessian(lambda x: (x**3).sum())(genesis.tensor([1.0, 2.0]))
    tensor([[ 6.,  0.],
            [ 0., 12.]])
    """
    return jacrev(jacrev(func, argnums), argnums)


def _with_leaves(args: Sequence[Any], positions: Any) -> tuple[list[Any], list[Any]]:
    """The arguments with those at the positions as tensors that gradients are taken by, and these."""
    given = list(args)
    for i in positions:
        x = given[i]
        if not isinstance(x, TensorBase) or x.type.dtype.kind != "float":
            raise failure("func", f"argument {i} should be a floating-point tensor, got {type(x).__name__}")
        with set_grad_enabled(True):
            given[i] = x.view_as(x) if x.requires_grad else x.detach().requires_grad_()  # type: ignore[attr-defined]
    return given, [given[i] for i in positions]


def _as_given(result: Any, args: Sequence[Any]) -> Any:
    """Without gradients, unless an argument had them."""
    if any(isinstance(x, TensorBase) and x.requires_grad for x in args):  # type: ignore[attr-defined]
        return result
    return result.detach() if isinstance(result, TensorBase) else result  # type: ignore[attr-defined]
