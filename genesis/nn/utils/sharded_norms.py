"""Norms of gradients of which each rank has parts: what ranks have different parts of is reduced over them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.frontend.tensor import Tensor


def groups_of(parameter: Tensor) -> tuple[Any, ...]:
    """The process groups whose ranks have different parts of a parameter; none if each has all of it."""
    layout = getattr(parameter, "sharding", None)
    return () if layout is None else tuple([layout.mesh.get_group(dim) for dim in layout.sharded_dims()])


def norms_over_ranks(parameters: Sequence[Tensor], p: float, norm_of: Callable[[Sequence[Tensor]], Tensor]) -> list[
        Tensor]:
    """Norms of the parameters' gradients, whose norm is that of all: one for those that the same ranks have parts of.

    Args:
        parameters: they have gradients.
        p: of the norm.
        norm_of: gives the norm of tensors that are here.
    """
    by_groups: dict[tuple[Any, ...], list[Tensor]] = {}
    for parameter in parameters:
        assert parameter.grad is not None
        by_groups.setdefault(groups_of(parameter), []).append(parameter.grad)
    return [_reduced(norm_of(gradients), groups, p) for groups, gradients in by_groups.items()]


def _reduced(norm: Tensor, groups: Sequence[Any], p: float) -> Tensor:
    if not groups:
        return norm
    from genesis.distributed.collectives import ReduceOp, all_reduce
    most, least = p == float("inf"), p == -float("inf")
    x = norm.clone() if most or least or p == 0 else norm**p
    for group in groups:
        all_reduce(x, ReduceOp.MAX if most else ReduceOp.MIN if least else ReduceOp.SUM, group)
    return x if most or least or p == 0 else x ** (1 / p)
