"""Utilities over parameters: gradient clipping, and all parameters as one vector."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import emit, operand, read, wrap
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.ir.ops.clipping import clip_by_norm, clip_by_value
from genesis.ir.ops.clipping import total_norm as norm_of_all
from genesis.ir.ops.control import results_of
from genesis.ir.suggest import suggesting
from genesis.nn.utils.sharded_norms import by_groups, norm_over_ranks
from genesis.ops.conversion import copied
from genesis.ops.creation import zeros
from genesis.ops.norms import vector_norm
from genesis.ops.parts import cat, stack


def _gradients(parameters: Tensor | Iterable[Tensor]) -> list[Tensor]:
    listed = [parameters] if isinstance(parameters, Tensor) else parameters
    return [grad for p in listed if (grad := p.grad) is not None]


def _turns(gradients: list[Tensor]) -> Iterable[list[Tensor]]:
    """The gradients of one device; one that is listed again, as modules share its parameter, is in a turn of its own:
    it is scaled again, as in torch."""
    if len(set(map(id, gradients))) == len(gradients):
        return (gradients,)
    turns: dict[int, list[Tensor]] = {}
    times: Counter[int] = Counter()
    for x in gradients:
        turns.setdefault(times[id(x)], []).append(x)
        times[id(x)] += 1
    return turns.values()


def get_total_norm(tensors: Tensor | Iterable[Tensor], norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of all tensors as one vector.

    One recorded op a device, whatever the number of tensors. Of parameters that are sharded over ranks, and of their
    gradients, it is the norm of the whole: all of these ranks call this.

    Args:
        tensors: floating-point tensors of any dtypes and devices.
        norm_type: the p of the norm; inf for the largest element.
        error_if_nonfinite: read the norm and raise when it is NaN or infinite.
        foreach: accepted for torch's sake; the norm is one op in any case.

    Returns:
        A scalar on the first tensor's device, float32 at least.

    Raises:
        RuntimeError: a norm that is not finite, when asked to check.

    >>> import genesis
    >>> get_total_norm([genesis.tensor([3.0]), genesis.tensor([4.0])]).item()
    5.0
    """
    listed, p = [tensors] if isinstance(tensors, Tensor) else list(tensors), float(norm_type)
    if not listed:
        return zeros(())
    with no_grad():
        here = {groups: _together([_norm(alike, p) for alike in _by_device(found).values()], p)
                for groups, found in by_groups(listed).items()}
        norm = _together([norm_over_ranks(x, groups, p) for groups, x in here.items()], p)
        if error_if_nonfinite and not math.isfinite(norm.item()):
            raise failure("get_total_norm", f"the {p} norm is {norm.item()}: it cannot be clipped", [("norm", norm)],
                          hint="error_if_nonfinite=False to go on anyway")
    return norm


def _together(norms: Sequence[Tensor], p: float) -> Tensor:
    """The norm of the vectors with these norms, on the first one's device."""
    return norms[0] if len(norms) == 1 else _norm([x.to(norms[0].device) for x in norms], p)


def _norm(tensors: Sequence[Tensor], p: float) -> Tensor:
    """The norm of tensors on one device."""
    if p > 0:
        return wrap(emit(norm_of_all, tuple(map(read, tensors)), (p,)))
    return vector_norm(stack([vector_norm(x, p) for x in tensors]), p)


def _by_device(tensors: Sequence[Tensor]) -> dict[Any, list[Tensor]]:
    devices = {x.spec.device for x in tensors}
    if len(devices) == 1:
        return {devices.pop(): list(tensors)}
    found: dict[Any, list[Tensor]] = {}
    for x in tensors:
        found.setdefault(x.device, []).append(x)
    return found


def clip_grads_with_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, total_norm: Tensor,
                          foreach: bool | None = None) -> None:
    """Scale the gradients in place by max_norm / (total_norm + 1e-6), where that is less than 1.

    Args:
        parameters: those without a gradient are skipped.
        max_norm: the largest norm allowed; an input of the plan.
        total_norm: the gradients' norm, a scalar, as of `get_total_norm`.
        foreach: accepted for torch's sake; the update is one op for all gradients of a device.

    >>> import genesis
    >>> w = genesis.zeros(2, requires_grad=True)
    >>> w.grad = genesis.tensor([6.0, 8.0])
    >>> clip_grads_with_norm_(w, 5.0, genesis.tensor(10.0))
    >>> [round(g, 4) for g in w.grad.tolist()]
    [3.0, 4.0]
    """
    _scale(_gradients(parameters), float(max_norm), total_norm)


def _scale(found: Sequence[Tensor], most: float, total_norm: Tensor) -> None:
    """Scale these gradients, whose norm is given, to a norm of `most`."""
    with no_grad():
        for device, gradients in _by_device(found).items():
            bound, norm = operand(most), read(total_norm.to(device))
            for turn in _turns(gradients):
                node = emit(clip_by_norm, (bound, norm, *map(read, turn)), ())
                assign_all(turn, results_of(node))


def clip_grad_norm_(parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0,
                    error_if_nonfinite: bool = False, foreach: bool | None = None) -> Tensor:
    """Scale the gradients in place so that their norm, as one vector, is at most max_norm.

    Two recorded ops; the norm is not read on the host (but with `error_if_nonfinite`). On a GPU they take two launches,
    and the scaling is done where the optimizer's step reads the gradients. Of parameters that are sharded over ranks
    the norm is that of the whole gradients: all of these ranks call this.

    Args:
        parameters: those without a gradient are skipped.
        max_norm: the largest norm allowed; an input of the plan.
        norm_type: the p of the norm; inf for the largest element.
        error_if_nonfinite: read the norm and raise, before writing, when it is NaN or infinite.
        foreach: accepted for torch's sake; the update is one op in any case.

    Returns:
        The norm before clipping, a scalar, float32 at least.

    Raises:
        RuntimeError: a norm that is not finite, when asked to check.

    >>> import genesis
    >>> w = genesis.tensor([3.0, 4.0], requires_grad=True)
    >>> (w * w).sum().backward()  # the gradient is (6, 8)
    >>> clip_grad_norm_([w], 1.0).item()
    10.0
    >>> [round(g, 4) for g in w.grad.tolist()]
    [0.6, 0.8]
    """
    gradients = _gradients(parameters)
    norm = get_total_norm(gradients, norm_type, error_if_nonfinite, foreach)
    _scale(gradients, float(max_norm), norm)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamp every element of the gradients, in place, to [-clip_value, clip_value]: one op for all of a device."""
    bound = float(clip_value)
    with no_grad():
        listed = {id(gradient): gradient for gradient in _gradients(parameters)}
        for gradients in _by_device(list(listed.values())).values():
            node = emit(clip_by_value, (operand(-bound), operand(bound), *map(read, gradients)), ())
            assign_all(gradients, results_of(node))


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
        nodes = []
        for p in listed:
            nodes.append(copied(p, vec[position:position + p.numel()].reshape(p.shape)))
            position += p.numel()
        assign_all(listed, nodes)

__getattr__ = suggesting(__name__)
