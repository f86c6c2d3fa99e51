"""Norms of tensors of which each rank has parts: what ranks have different parts of is reduced over them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from genesis.frontend.draw_parts import sharded
from genesis.frontend.tensor import Tensor


def by_groups(tensors: Sequence[Tensor]) -> dict[tuple[Any, ...], list[Tensor]]:
    """The tensors by the process groups whose ranks have different parts of them: parameters, and their gradients;
    () has those of which each rank has all."""
    if not sharded:
        return {(): list(tensors)}
    owners = {id(p._grad): p for p in sharded.values() if p._grad is not None}
    found: dict[tuple[Any, ...], list[Tensor]] = {}
    for x in tensors:
        layout = getattr(owners.get(id(x), x), "sharding", None)
        groups = () if layout is None else tuple([layout.mesh.get_group(dim) for dim in layout.sharded_dims()])
        found.setdefault(groups, []).append(x)
    return found


def norm_over_ranks(norm: Tensor, groups: Sequence[Any], p: float) -> Tensor:
    """The p-norm of a vector of which the groups' ranks have parts with these norms."""
    if not groups:
        return norm
    from genesis.distributed.collectives import ReduceOp, all_reduce
    most, least = p == float("inf"), p == -float("inf")
    x = norm.clone() if most or least or p == 0 else norm**p
    for group in groups:
        all_reduce(x, ReduceOp.MAX if most else ReduceOp.MIN if least else ReduceOp.SUM, group)
    return x if most or least or p == 0 else x ** (1 / p)
