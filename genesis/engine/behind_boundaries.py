"""Values that only boundaries of autograd hold, and whether a backward can still come to them.

A boundary (a collective that gradients flow through, a function of the user's) holds the values that it was made from,
so that a backward can go on there. It lives as long as the value that is read through it, which a pending program may
hold long after the last backward: a loss whose graph was released is still computed from there. What nobody can
differentiate any more is no live tensor of that program: it is not computed for itself, and nothing that the step
overwrites is copied for its sake.
"""

from __future__ import annotations

from sys import getrefcount
from typing import TYPE_CHECKING

from genesis.frontend.boundaries import Boundary
from genesis.frontend.detached import live_histories
from genesis.frontend.grad_mode import enable_grad
from genesis.frontend.pending import live_differentiable
from genesis.frontend.recording import TensorBase, read
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.node import Node
from genesis.ir.ops import control
from genesis.ir.ops.control import gradient_inputs
from genesis.runtime.references import HELD_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from genesis.frontend.tensor import Tensor


def that_can_be_asked_for(live: Sequence[Storage], wanted: Sequence[Storage]) -> list[Storage]:
    """The live storages without those that only boundaries hold which no backward comes to any more."""
    held = _held_alone(live)
    for storage in wanted:
        held.pop(storage, None)
    if held:
        with enable_grad():
            reached = _reached([s for s in live if s not in held])
        held = {s: boundaries for s, boundaries in held.items() if reached.isdisjoint(boundaries)}
    return [s for s in live if s not in held]


def _held_alone(live: Sequence[Storage]) -> dict[Storage, list[Boundary]]:
    """The storages of tensors that boundaries have made or saved for themselves, and nobody else has got hold of, with
    these boundaries."""
    crossings = [known for number in list(state.crossings) if (known := state.crossing(number)) is not None]
    boundaries = [*{id(boundary): boundary for boundary, _ in crossings}.values()]
    found = _saved_alone(boundaries, live)
    for boundary in boundaries:
        if boundary.owns_origins:
            for origin, count in zip(boundary.origins, list(map(getrefcount, boundary.origins)), strict=True):
                if origin is not None and count == HELD_ONCE:
                    found.setdefault(origin.storage, []).append(boundary)
    return found


def _saved_alone(boundaries: Sequence[Boundary], live: Sequence[Storage]) -> dict[Storage, list[Boundary]]:
    """`_held_alone` of what is saved. Two boundaries may have saved one tensor, or two views of a memory."""
    pending = set(live)
    tensors, savers = _saved(boundaries)
    counts = list(map(getrefcount, tensors))  # beside the list, each boundary that saved a tensor holds it
    alone = [at for at, count in enumerate(counts) if count == HELD_ONCE + len(savers[at])]
    at_storage: dict[int, list[int]] = {}
    for at in alone:
        at_storage.setdefault(id(tensors[at].storage), []).append(at)
    storages = [tensors[shown[0]].storage for shown in at_storage.values()]
    references = list(map(getrefcount, storages))  # beside the list: its tensors, `live` and `pending`
    return {storage: [boundary for at in shown for boundary in savers[at]]
            for storage, count, shown in zip(storages, references, at_storage.values(), strict=True)
            if storage in pending and count == HELD_ONCE + len(shown) + 2}


def _saved(boundaries: Sequence[Boundary]) -> tuple[list[Tensor], list[list[Boundary]]]:
    """(the tensors that these have saved, each once; the boundaries that have saved it, one for each time)."""
    savers: dict[int, list[Boundary]] = {}
    tensors: dict[int, Tensor] = {}
    for boundary in boundaries:
        for x in (*boundary.saved, *_set_on(boundary)):
            tensors[id(x)] = x
            savers.setdefault(id(x), []).append(boundary)
    return list(tensors.values()), list(savers.values())


def _set_on(boundary: Boundary) -> list[Tensor]:
    """The tensors that are attributes of a boundary's `ctx`, or in containers that are held by these alone; none where
    somebody else holds the `ctx`."""
    if boundary.ctx is None or next(map(getrefcount, [boundary.ctx])) != HELD_ONCE + 1:
        return []
    attributes = vars(boundary.ctx).values()
    containers = [x for x in attributes if type(x) in (list, tuple, dict)]
    found = [x for x in attributes if isinstance(x, TensorBase)]
    for container, count in zip(containers, list(map(getrefcount, containers)), strict=True):
        if count == HELD_ONCE + 1:  # by `containers` and the `ctx`
            found += [x for x in (container.values() if isinstance(container, dict) else container)
                      if isinstance(x, TensorBase)]
    return found  # type: ignore[return-value]


def _reached(live: Sequence[Storage]) -> set[Boundary]:
    """The boundaries that a backward of these, or of any value in memory, can come to, or who holds a `grad_fn`."""
    stack: list[Node] = [node for s in (*live, *live_differentiable()) if (node := s.node).needs_grad]
    stack += live_histories()
    stack += [shown.node for reference in list(state.graphs_shown.values()) if (shown := reference()) is not None]
    seen: set[Node] = set()
    found: set[Boundary] = set()
    while stack:
        node = stack.pop()
        if node in seen or not node.needs_grad:
            continue
        seen.add(node)
        if node.op is not control.watch:
            stack += gradient_inputs(node)
            continue
        boundary, _ = state.crossing(node.attrs[0]) or (None, 0)
        if boundary is not None and boundary not in found:
            found.add(boundary)
            stack += [read(x) for x in boundary.origins if x is not None]
    return found
