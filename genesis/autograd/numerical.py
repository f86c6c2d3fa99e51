"""Checking gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from genesis.autograd.gradients import grad
from genesis.frontend.grad_mode import enable_grad, no_grad
from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor


class GradcheckError(RuntimeError):
    """A gradient differs from the numerical one."""


def gradcheck(func: Callable[..., Any], inputs: Any, *, eps: float = 1e-6, atol: float = 1e-5, rtol: float = 1e-3,
              raise_exception: bool = True, nondet_tol: float = 0.0, check_undefined_grad: bool = True,
              check_batched_grad: bool = False, fast_mode: bool = False) -> bool:
    """Compare the gradients of a function with central differences, element by element.

    Args:
        func: of tensors, to a tensor or several.
        inputs: a tensor, or several; float64 ones that require grad are checked.
        eps: the step of the differences.
        atol, rtol: the allowed difference is atol + rtol · |numerical|.
        raise_exception: False returns False instead.
        nondet_tol, check_undefined_grad, check_batched_grad, fast_mode: accepted for torch's sake.

    Returns:
        True when all agree.

    Raises:
        GradcheckError: which input and output differ, and by how much.

    >>> import genesis
    >>> x = genesis.tensor([0.5, 2.0], dtype=genesis.float64, requires_grad=True)
    >>> genesis.autograd.gradcheck(lambda x: (x**3).sum(), x)
    True
    """
    given = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    checked = [i for i, x in enumerate(given) if isinstance(x, TensorBase) and x.requires_grad]  # type: ignore
    if not checked:
        raise failure("gradcheck", "expects at least one input tensor to require gradient, but none of them does",
                      error=ValueError)
    try:
        for number, y in enumerate(_outputs(func, given)):
            if y.requires_grad:
                for i in checked:
                    _compare(func, given, i, number, eps, atol, rtol)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def gradgradcheck(func: Callable[..., Any], inputs: Any, grad_outputs: Any = None, *, eps: float = 1e-6,
                  atol: float = 1e-5, rtol: float = 1e-3, raise_exception: bool = True, **rest: Any) -> bool:
    """`gradcheck` of the gradients of a function, by its inputs and by the weights of its outputs.

    >>> import genesis
    >>> x = genesis.tensor([0.5, 2.0], dtype=genesis.float64, requires_grad=True)
    >>> genesis.autograd.gradgradcheck(lambda x: x**3, x)
    True
    """
    given = (inputs,) if isinstance(inputs, TensorBase) else tuple(inputs)
    outputs = [y for y in _outputs(func, given) if y.requires_grad]
    if grad_outputs is None:
        from genesis.ops.random import randn_like
        weights = [randn_like(y).detach().requires_grad_() for y in outputs]
    else:
        weights = [grad_outputs] if isinstance(grad_outputs, TensorBase) else list(grad_outputs)
    count = len(given)

    def first(*args: Any) -> tuple[Any, ...]:
        xs, ws = args[:count], args[count:]
        ys = [y for y in _outputs(func, xs) if y.requires_grad]
        wanted = [x for x in xs if isinstance(x, TensorBase) and x.requires_grad]  # type: ignore[attr-defined]
        return tuple(g for g in grad(ys, wanted, ws, create_graph=True, allow_unused=True)
                     if g is not None and g.requires_grad)
    return gradcheck(first, (*given, *weights), eps=eps, atol=atol, rtol=rtol, raise_exception=raise_exception)


def _outputs(func: Callable[..., Any], given: Sequence[Any]) -> list[Any]:
    with enable_grad():
        return _floating(func(*given))


def _floating(found: Any) -> list[Any]:
    """The results of a function that can have gradients."""
    return [y for y in (found if isinstance(found, (tuple, list)) else (found,))
            if isinstance(y, TensorBase) and y.spec.dtype.kind == "float"]


def _compare(func: Callable[..., Any], given: Sequence[Any], i: int, number: int, eps: float, atol: float,
             rtol: float) -> None:
    """Compare the gradients of one output by one input: a matrix (elements of the input, elements of the output)."""
    import numpy as np
    numerical = _numerical(func, given, i, number, eps)
    analytical = _analytical(func, given, i, number)
    if not np.allclose(analytical, numerical, rtol, atol, equal_nan=True):
        worst = np.abs(analytical - numerical).max()
        raise GradcheckError(f"Jacobian mismatch for output {number} with respect to input {i}: the largest difference "
                             f"is {worst:.3g},\nnumerical:\n{numerical}\nanalytical:\n{analytical}")


def _numerical(func: Callable[..., Any], given: Sequence[Any], i: int, number: int, eps: float) -> Any:
    import numpy as np

    from genesis.ops.creation import tensor
    base = given[i].detach().cpu().numpy().astype(np.float64)
    rows = []
    for at in np.ndindex(base.shape):
        ends = []
        for sign in (1, -1):
            moved = base.copy()
            moved[at] += sign * eps
            x = tensor(moved, dtype=given[i].spec.dtype, device=given[i].spec.device)
            arguments = [*given[:i], x.requires_grad_(), *given[i + 1:]]
            with no_grad():
                ends.append(_plain(func(*arguments), number))
        rows.append((ends[0] - ends[1]) / (2 * eps))
    return np.array(rows).reshape(base.size, -1)


def _plain(found: Any, number: int) -> Any:
    """The output with this number among the floating ones, flat."""
    import numpy as np
    flat: Any = _floating(found)[number].detach().cpu().numpy().astype(np.float64).reshape(-1)
    return flat


def _analytical(func: Callable[..., Any], given: Sequence[Any], i: int, number: int) -> Any:
    import numpy as np

    from genesis.ops.creation import zeros
    y: Tensor = _outputs(func, given)[number]
    columns = []
    for at in range(y.spec.numel):
        weight = zeros(y.spec.numel, dtype=y.spec.dtype, device=y.spec.device)
        weight[at] = 1
        (found,) = grad(y, given[i], weight.reshape(y.spec.shape), retain_graph=True, allow_unused=True)
        size = given[i].spec.numel
        columns.append(np.zeros(size) if found is None else
                       found.detach().cpu().numpy().astype(np.float64).reshape(-1))
    return np.array(columns).T.reshape(given[i].spec.numel, -1)
