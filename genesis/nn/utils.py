"""Utilities over parameters: gradient clipping, and all parameters as one vector."""

from __future__ import annotations

import math
from collections.abc import Iterable

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import assign, emit, operand, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import make
from genesis.ir.ops.clipping import clip_gradients
from genesis.ir.ops.control import item
from genesis.ops.creation import zeros
from genesis.ops.shape import cat


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else parameters
    return [p.grad for p in listed if p.grad is not None]


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scale the gradients in place so that their norm, as one vector, is at most max_norm.

    One recorded op; the norm is not read on the host (but with `error_if_nonfinite`).

    Args:
        parameters: those without a gradient are skipped.
        max_norm: the largest norm allowed; an input of the plan.
        norm_type: the p of the norm; inf for the largest element.
        error_if_nonfinite: read the norm and raise, before writing, when it is NaN or infinite.
        foreach: accepted for torch's sake; the update is one op in any case.

    Returns:
        The norm before clipping, a scalar, float32 at least.

    Raises:
        RuntimeError: a norm that is not finite, when asked to check; gradients on two devices.

    >>> import genesis
    >>> w = genesis.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()  # the gradient is (6, 8)
    >>> clip_grad_norm_([w], 1.0).item()
    10.0
    >>> [round(g, 4) for g in w.grad.tolist()]
    [0.6, 0.8]
    """
    gradients = _gradients(parameters)
    if not gradients:
        return zeros(())
    with no_grad():
        node = emit(clip_gradients, tuple([operand(x) for x in (float(max_norm), *gradients)]), (float(norm_type),))
        norm = wrap(make(item, (node,), (0,)))
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise failure("clip_grad_norm_", f"the gradients' norm is {norm.item()}", [("norm", norm)],
                          hint="error_if_nonfinite=False to scale them anyway")
        for index, gradient in enumerate(gradients, start=1):
            assign(gradient, make(item, (node,), (index,)))
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients, in place, to [-clip_value, clip_value]."""
    with no_grad():
        for gradient in _gradients(parameters):
            gradient.clamp_(-float(clip_value), float(clip_value))


def parameters_to_vector(parameters: Iterable[Tensor]) -> Tensor:
    """All elements, parameter after parameter, as one vector.

    >>> import genesis
    >>> parameters_to_vector([genesis.ones(2, 2), genesis.zeros(1)]).tolist()
    [1.0, 1.0, 1.0, 1.0, 0.0]
    """
    return cat([p.reshape(-1) for p in parameters])


def vector_to_parameters(vec: Tensor, parameters: Iterable[Tensor]) -> None:
    """The inverse of `parameters_to_vector`: write the elements into the parameters.

    Raises:
        RuntimeError: the vector has not as many elements as the parameters together.
    """
    listed = list(parameters)
    total = sum(p.numel() for p in listed)
    if vec.numel() != total:
        raise failure("vector_to_parameters", f"the parameters have {total} elements", [("vec", vec)])
    position = 0
    with no_grad():
        for p in listed:
            p.copy_(vec[position:position + p.numel()].reshape(p.shape))
            position += p.numel()
