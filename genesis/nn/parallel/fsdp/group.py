"""The parameters that are gathered together: one collective for all of a module's, forward, backward and reduction."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import new_group
from genesis.distributed.tensor import Layout, Placement, Replicate, Shard
from genesis.distributed.tensor.rows import chunk_rows, padded, rows_of
from genesis.frontend.boundaries import Gradients
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import read, wrap
from genesis.frontend.session import rebound
from genesis.ir.errors import failure
from genesis.ir.node import Node
from genesis.ir.ops import collectives as ops
from genesis.nn.modules.module import Module, changed
from genesis.nn.parallel.fsdp.gathered import Gathered
from genesis.nn.parallel.fsdp.policy import MixedPrecisionPolicy
from genesis.nn.parameter import ShardedParameter
from genesis.ops.common import cast

Slots = list[tuple[Module, str]]
"""The places in modules where one parameter is."""


class ParameterGroup:
    """Parameters of one module, of which each rank keeps the rows of its chunk.

    A chunk that is smaller than others is padded for the collectives; parameters themselves have the rows that they
    have, perhaps none.

    Args:
        found: parameter → where it is; its name.
        mesh: of one dimension, or (replicas, shards). Parameters that tensor parallelism has cut are cut along another
            dimension of the mesh that it is a slice of.
        policy: dtypes.

    Attributes:
        parameters: the parts.
        reshard_after_forward: backward gathers again; None: all but the outermost module do.
        keeps_after_backward: what was gathered is there for the next forward.
        reduces: gradients are reduced; otherwise they are accumulated whole.
        next_in_backward: the groups to be gathered with this one in backward; None: the one used before it.
        held: what was gathered and is not given up yet.
    """

    def __init__(self, found: dict[Any, tuple[Slots, str]], mesh: DeviceMesh, policy: MixedPrecisionPolicy,
                 reshard_after_forward: bool | int | None):
        self.mesh, self.policy = mesh, policy
        self.reshard_after_forward: bool | None = (
            reshard_after_forward if reshard_after_forward is None else bool(reshard_after_forward))
        self.keeps_after_backward, self.reduces = False, True
        self.divide_factor: float | None = None
        self.next_in_backward: list[ParameterGroup] | None = None
        self.held: Gathered | None = None
        self.names = [name for _, name in found.values()]
        self._sizes = [x.shape[0] if x.ndim else 0 for x in found]
        self._slots = [slots for slots, _ in found.values()]
        self._latest: weakref.ref[Gathered] | None = None
        self._ranks: ProcessGroup = mesh.get_group(mesh.ndim - 1)
        self._replicas: ProcessGroup | None = mesh.get_group(0) if mesh.ndim == 2 else None
        self._fewer = self._fewer_ranks(reshard_after_forward)
        self._accumulated: list[Any] = [None] * len(found)
        self.parameters = [self._shard(x, name) for x, (_, name) in found.items()]
        self._at_rest: Sequence[Any] = self.parameters
        self._put(self.parameters)
        rebound()
        changed()

    # Parts

    def _shard(self, whole: Any, name: str) -> ShardedParameter:
        if not whole.ndim:
            raise failure("fully_shard", f"the parameter {name} has no dimension to be sharded along",
                          [(name, whole)], hint="a tensor of shape (1,)", error=ValueError)
        own: tuple[Placement, ...] = (Shard(0),) if self._replicas is None else (Replicate(), Shard(0))
        here = layout = Layout(self.mesh, own, tuple(whole.shape))
        before = whole.sharding
        if before is not None:  # tensor parallelism has cut it: what is cut here is that rank's part
            layout = Layout(before.mesh.joined(self.mesh), (*before.placements, *own), before.shape)
        shared: ShardedParameter | None = getattr(whole, "sharded_as", None)
        if shared is not None:  # a module outside of this one has it, too, and was sharded first
            if (shared.sharding.mesh.ranks, shared.sharding.placements) != (layout.mesh.ranks, layout.placements):
                raise failure("fully_shard", f"the parameter {name} is shared with a module that was sharded over "
                              "other ranks", [(name, whole)], hint="fully_shard the smallest module that has both",
                              error=ValueError)
            return shared
        with no_grad():
            part = here.own(whole.detach()).clone()
        engine.materialize([part])
        whole.sharded_as = found = ShardedParameter(part, layout, whole.requires_grad)
        return found

    def _fewer_ranks(self, asked: bool | int | None) -> ProcessGroup | None:
        """The neighbours that parameters are kept by after forward, where an int asks for so many."""
        if asked is None or isinstance(asked, bool) or asked == self._ranks.size():
            return None
        if asked < 2 or self._ranks.size() % asked:
            raise failure("fully_shard", f"reshard_after_forward={asked} is no factor of the {self._ranks.size()} "
                          "ranks that parameters are sharded over", error=ValueError)
        return _neighbours(self._ranks, asked)

    def _put(self, tensors: Sequence[Any]) -> None:
        for slots, tensor in zip(self._slots, tensors, strict=True):
            for module, name in slots:
                module._parameters[name] = tensor

    @contextmanager
    def in_place(self, tensors: Sequence[Any]) -> Iterator[None]:
        """Inside, the modules have these tensors as their parameters."""
        try:
            self._put(tensors)
            yield
        finally:
            self._put(self._at_rest)

    @property
    def is_whole(self) -> bool:
        """Whether the modules show whole parameters outside of forwards."""
        return self._at_rest is not self.parameters

    def show_whole(self) -> None:
        """Have the modules show the whole parameters that are held."""
        assert self.held is not None and self.held.tensors is not None
        self._at_rest = self.held.tensors
        self._put(self._at_rest)
        changed()

    def give_up(self) -> None:
        """Let go of whole parameters that are held."""
        self.held = None
        if self.is_whole:
            self._at_rest = self.parameters
            self._put(self._at_rest)
            changed()

    # Gathers

    def unshard(self, reshard: bool) -> Gathered:
        """The whole parameters, for one forward."""
        if self.held is None:
            values = self.gather()
            found = Gathered(self, values, reshard, None if self._fewer is None else self._own_of_fewer(values))
            self._latest = weakref.ref(found)
            return found
        return self.held

    def latest(self) -> Gathered | None:
        """What the last forward has gathered, if a backward may still need it."""
        return None if self._latest is None else self._latest()

    def gather(self, kept: Sequence[Any] | None = None) -> list[Node]:
        """Record the gather of all parameters: of the ranks' parts, or of what few ranks have kept."""
        ranks = self._ranks if kept is None else self._fewer
        assert ranks is not None
        with no_grad():
            parts = [self._padded(cast(read(x), self._dtype(x)), size)
                     for x, size in zip(self.parameters, self._sizes, strict=True)] if kept is None else [
                read(x) for x in kept]
            wholes = ranks.next(ops.all_gather, parts, self.parameters[0].device, world=ranks.size())
            return [rows_of(whole, 0, size) for whole, size in zip(wholes, self._sizes, strict=True)]

    def _dtype(self, x: Any) -> Any:
        wanted = self.policy.param_dtype
        return x.dtype if wanted is None or not x.dtype.is_floating_point else wanted

    def _padded(self, node: Node, size: int, ranks: int = 1) -> Node:
        return padded(node, ranks * chunk_rows(size, self._ranks.size()))

    def _own_of_fewer(self, values: Sequence[Node]) -> list[Node]:
        """This rank's parts of whole parameters that fewer ranks have together."""
        assert self._fewer is not None
        found = []
        for value, size in zip(values, self._sizes, strict=True):
            rows = chunk_rows(size, self._ranks.size()) * self._ranks.size() // self._fewer.size()
            whole = self._padded(value, size, self._ranks.size())
            found.append(rows_of(whole, self._fewer.rank() * rows, (self._fewer.rank() + 1) * rows))
        return found

    # Gradients

    def scatter(self, gradients: Sequence[Any]) -> Gradients:
        """Reduce whole gradients over the ranks; what belongs to this one's parts, by parameter."""
        if not self.keeps_after_backward:
            self.give_up()
        with no_grad():
            totals = [before if g is None else g if before is None else before + g
                      for before, g in zip(self._accumulated, gradients, strict=True)]
            if not self.reduces:
                self._accumulated = totals
                return []
            self._accumulated = [None] * len(totals)
            asked = [(x, g, size) for x, g, size in zip(self.parameters, totals, self._sizes, strict=True)
                     if g is not None and x.requires_grad]
            return list(zip([x for x, *_ in asked], self._reduced(asked), strict=True)) if asked else []

    def _reduced(self, asked: Sequence[tuple[Any, Any, int]]) -> list[Any]:
        ranks, home = self._ranks, self.parameters[0].device
        how = "avg" if self.divide_factor is None else "sum"
        nodes = [self._padded(cast(read(g), self.policy.reduce_dtype or g.dtype), size, ranks.size())
                 for _, g, size in asked]
        parts = ranks.next(ops.reduce_scatter, nodes, home, world=ranks.size(), reduce=how)
        if self._replicas is not None:
            parts = self._replicas.next(ops.all_reduce, parts, home, reduce=how)
        found = [wrap(cast(rows_of(part, 0, x.shape[0]), x.dtype)) for part, (x, *_) in zip(parts, asked, strict=True)]
        return found if self.divide_factor is None else [g / self.divide_factor for g in found]


_cut: dict[tuple[str, int], Any] = {}
"""(group, size) → the group of this rank and its neighbours that was made of it."""


def _neighbours(ranks: ProcessGroup, size: int) -> ProcessGroup:
    """The group of `size` neighbouring ranks that this one is in. Its ranks alone make it: those of another slice of
    the mesh have other neighbours."""
    found = _cut.get((ranks.key, size))
    if found is None or not found.alive:
        start = ranks.rank() // size * size
        found = _cut[ranks.key, size] = new_group(ranks.ranks[start:start + size], use_local_synchronization=True,
                                                  sort_ranks=False)
    assert isinstance(found, ProcessGroup)
    return found
