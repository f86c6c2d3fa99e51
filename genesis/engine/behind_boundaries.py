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
from genesis.frontend.recording import read
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.ir.node import Node
from genesis.ir.ops import control
from genesis.ir.ops.control import gradient_inputs
from genesis.runtime.references import HELD_ONCE

if TYPE_CHECKING:
    from collections.abc import Sequence


def that_can_be_asked_for(live: Sequence[Storage], wanted: Sequence[Storage]) -> list[Storage]:
    """The live storages without those that only boundaries hold which no backward comes to any more."""
    held = _held_alone(live)
    for storage in wanted:
        held.pop(storage, None)
    if held:
        with enable_grad():
            reached = _reached([s for s in live if s not in held])
        held = {s: boundary for s, boundary in held.items() if boundary not in reached}
    return [s for s in live if s not in held]


def _held_alone(live: Sequence[Storage]) -> dict[Storage, Boundary]:
    """The storages of tensors that a boundary has made or saved for itself, and nobody else has got hold of."""
    found: dict[Storage, Boundary] = {}
    pending = set(live)
    crossings = [known for number in list(state.crossings) if (known := state.crossing(number)) is not None]
    for boundary in {id(boundary): boundary for boundary, _ in crossings}.values():
        if boundary.owns_origins:
            for origin, count in zip(boundary.origins, list(map(getrefcount, boundary.origins)), strict=True):
                if origin is not None and count == HELD_ONCE:
                    found[origin.storage] = boundary
        saved = boundary.saved
        storages = [x.storage for x in saved]
        for storage, count, references in zip(storages, list(map(getrefcount, saved)),
                                              list(map(getrefcount, storages)), strict=True):
            # beside the list of them, a saved tensor has its boundary, and a storage its tensor, `live` and `pending`
            if storage in pending and count == HELD_ONCE + 1 and references == HELD_ONCE + 3:
                found[storage] = boundary
    return found


def _reached(live: Sequence[Storage]) -> set[Boundary]:
    """The boundaries that a backward of these, or of any value in memory, can come to."""
    stack: list[Node] = [node for s in (*live, *live_differentiable()) if (node := s.node).needs_grad]
    stack += live_histories()
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
