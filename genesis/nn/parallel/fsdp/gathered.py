"""Whole parameters of a group, as one forward reads them: gathered, and for a backward gathered again."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from genesis.config import config
from genesis.frontend.boundaries import Boundary, Gradients, Renewal, insert_boundary
from genesis.frontend.grad_mode import mode, no_grad
from genesis.frontend.recording import read, wrap
from genesis.frontend.state import state
from genesis.ir.node import Node, make
from genesis.ir.ops import control
from genesis.ir.sym_int import hint

if TYPE_CHECKING:
    from genesis.nn.parallel.fsdp.group import ParameterGroup


class Gathered(Renewal):
    """What one forward has gathered.

    Args:
        group: whose parameters.
        values: the whole parameters.
        reshard: nothing keeps them for backward, which gathers them again.
        kept: instead of all parameters these parts are kept (of fewer ranks), and gathered again.

    Attributes:
        tensors: the whole parameters, for forward to read; None once it has ended.
        before: what was gathered before this in the same forward: backward needs it next.
        nbytes: of the whole parameters.
    """

    def __init__(self, group: ParameterGroup, values: Sequence[Node], reshard: bool,
                 kept: Sequence[Node] | None = None):
        self._group = group
        self.reshard = reshard
        self.nbytes = sum(int(hint(x.type.nbytes)) for x in values)
        self.before: weakref.ref[Gathered] | None = None
        with no_grad():
            self._kept = None if kept is None or not reshard else [wrap(x) for x in kept]
        self._ready: list[tuple[Node, Node]] | None = None
        self._begun = False
        with _outside_of_regions():
            self.tensors: list[Any] | None = [
                wrap(make(control.released, (x,), (), x.source) if reshard else x) for x in values]
            if mode.enabled and any(x.requires_grad for x in group.parameters):
                boundary = _Scattered(group, self if reshard else None)
                for at, (tensor, parameter) in enumerate(zip(self.tensors, group.parameters, strict=True)):
                    if parameter.requires_grad:
                        insert_boundary(tensor, boundary, at)
            self._read = [weakref.ref(read(x)) for x in self.tensors]

    def end_forward(self) -> None:
        """Let go of the whole parameters. What backward reads of them it finds this by, however it comes there."""
        self.tensors = None
        if self.reshard:
            state.renewals.update({node: self for x in self._read if (node := x()) is not None})

    def renew(self) -> list[tuple[Node, Node]]:
        """Gather for backward, and what backward needs next, too: that gather comes before this group's gradients."""
        pairs, self._ready = self._ready or self._again(), None
        self._begun = True
        for other in self._next():
            if other._ready is None and not other._begun:
                other._ready = other._again()
        return pairs

    def ended(self) -> None:
        """All gradients of a backward are there: another may come."""
        self._begun = False

    def _next(self) -> list[Gathered]:
        """What to gather ahead, before this group's gradients are reduced.

        It is the group that backward needs next, whatever its size; and one behind that as soon as what lies between is
        smaller than it: kernels take about as long as they have parameters to read, so by the next group's turn there
        would be too few of them left to hide it. All of them together have `config.prefetch_bytes` at most. Sizes and
        settings are equal on all ranks, and so is therefore the order of collectives.
        """
        chosen = self._group.next_in_backward
        if chosen is not None:
            return [found for group in chosen if (found := group.latest()) is not None]
        ahead: list[Gathered] = []
        wanted = between = 0
        other = self._used_before()
        while other is not None and (not ahead or between + other.nbytes <= config.prefetch_bytes):
            ahead.append(other)
            if between < other.nbytes:
                wanted = len(ahead)
            between += other.nbytes
            other = other._used_before()
        return ahead[:wanted] if config.prefetch_bytes else []

    def _used_before(self) -> Gathered | None:
        return None if self.before is None else self.before()

    def _again(self) -> list[tuple[Node, Node]]:
        with _outside_of_regions():
            pairs = zip(self._read, self._group.gather(self._kept), strict=True)
            return [(node, again) for x, again in pairs if (node := x()) is not None]


class _Scattered(Boundary):
    """The boundary of a group's whole parameters: gradients are reduced, and each rank gets those of its parts."""

    records = True
    early = True

    def __init__(self, group: ParameterGroup, renewal: Gathered | None):
        self._group = group
        self.renewal: Gathered | None = renewal
        self.outputs = len(group.parameters)
        self.origins = [x if x.requires_grad else None for x in group.parameters]

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """The gradients of the parts; none yet while gradients are accumulated."""
        if self.renewal is not None:
            self.renewal.ended()
        return self._group.scatter(gradients)


class _outside_of_regions:
    """Inside, what is recorded belongs to no checkpointed region: backward does not compute it again with these."""

    def __enter__(self) -> None:
        self._regions = list(state.regions)
        state.regions.clear()

    def __exit__(self, *error: object) -> None:
        state.regions[:] = self._regions
