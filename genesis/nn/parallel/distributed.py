"""`DistributedDataParallel`: each process computes gradients of its own samples, and all step by their mean.

The reduction is one op of the step's program (`ir/ops/collectives.py`, `reduce_gradients`), recorded at the end of
backward: a pass cuts it into buckets, and each is reduced as soon as its gradients are there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any, Final

from genesis import distributed as dist
from genesis.autograd.gradients import observe_backward
from genesis.distributed.collectives import broadcast_coalesced
from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of
from genesis.frontend.draw_parts import drawing_part
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import mode, no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import collectives as ops
from genesis.ir.types import uint8
from genesis.nn.modules.module import Module
from genesis.nn.parallel.bucket_size import HOST_RATE, bus_rate, cap_for
from genesis.nn.parallel.grad_bucket import reduce_by_hook
from genesis.nn.parallel.joining import Joining, joined
from genesis.ops.creation import tensor, zeros_like
from genesis.runtime.contexts import Temporary, items

__all__ = ["DistributedDataParallel"]

FIRST_BUCKET: Final = 1 << 20
"""Bytes of the first bucket where the user says how large the others are, or a hook gets them; as in torch."""

CAP_OF_HOOKS: Final = 25 << 20
"""Bytes of the other buckets that hooks get where the user says nothing; as in torch."""


class DistributedDataParallel(Module):
    """A module whose gradients are the means over all processes of a group.

    Every process has the whole module and samples of its own. Parameters and buffers begin as those of the group's
    first process. Processes with the same seed drop, of their samples, what one process with all samples drops of them
    (samples lie along the first dimension).

    Args:
        module: has parameters that require grad.
        device_ids, output_device, dim: accepted for torch's sake: the module is on one device.
        broadcast_buffers: buffers are the first process' at each forward with gradients, and at the one that follows
            it, as an evaluation does: all processes run that, or the first one runs `module`. False: they are each
            process' own from the start.
        init_sync: begin with the first process' parameters and buffers.
        process_group: the group; None for all.
        bucket_cap_mb: MiB of gradients that are reduced by one call. None: as many as cost least, by the bytes of all
            (`nn/parallel/bucket_size.py`).
        find_unused_parameters: parameters may be left out of a loss, by some or by all processes. Which of them were
            used is asked at each backward, so that the step is no longer one program.
        check_reduction, gradient_as_bucket_view, static_graph: accepted for torch's sake.
        device_mesh: of one dimension, instead of the group.
        forward_sync_buffers: torch's newer word for broadcast_buffers; buffers begin as the first process' in any case.

    Raises:
        RuntimeError: no parameter requires grad, parameters differ between processes, or group and mesh are given.
        ValueError: there is no process group.

    >>> import genesis
    >>> from genesis import distributed as dist, nn
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
    >>> model(genesis.ones(3, 2)).sum().backward()
    >>> model.module.weight.grad
    tensor([[3., 3.]])
    >>> dist.destroy_process_group()
    """

    def __init__(self, module: Module, device_ids: Any = None, output_device: Any = None, dim: int = 0,
                 broadcast_buffers: bool = True, init_sync: bool = True, process_group: ProcessGroup | None = None,
                 bucket_cap_mb: float | None = None, find_unused_parameters: bool = False,
                 check_reduction: bool = False, gradient_as_bucket_view: bool = False, static_graph: bool = False, *,
                 device_mesh: DeviceMesh | None = None, forward_sync_buffers: bool | None = None):
        super().__init__()
        if process_group is not None and device_mesh is not None:
            raise failure("DistributedDataParallel", "Cannot specify both process_group and device_mesh arguments.")
        group = group_of(process_group if device_mesh is None else device_mesh.get_group())
        if group is None:
            raise failure("DistributedDataParallel", "this process is outside of the process group", error=ValueError)
        trained = [(name, p) for name, p in module.named_parameters() if p.requires_grad]
        if not trained:
            raise failure("DistributedDataParallel", "DistributedDataParallel is not needed when a module doesn't have "
                          "any parameters that require a gradient.")
        self.module = module
        self.process_group = group
        self.broadcast_buffers = broadcast_buffers if forward_sync_buffers is None else forward_sync_buffers
        self.find_unused_parameters, self.static_graph = find_unused_parameters, static_graph
        self.require_backward_grad_sync = True
        self.joining: Joining | None = None
        self._expects_backward = False  # of the module, so that the replay of a captured forward sets it, too
        self._unreduced: tuple[int, ...] = ()  # parameters that got gradients since the last reduction (ids)
        self._buffers_differ = True
        self._reducer = _Reducer(group, trained, bucket_cap_mb, find_unused_parameters)
        rate = self._reducer.rate = bus_rate(p.device for _, p in trained)
        observe_backward(self)
        if init_sync:
            self._reducer.rate = self._begin_alike(rate, broadcast_buffers or forward_sync_buffers is not None)

    def __deepcopy__(self, memo: dict[int, Any]) -> DistributedDataParallel:
        """A copy of the module whose gradients are reduced over the same processes."""
        copied: DistributedDataParallel = object.__new__(type(self))
        memo[id(self)] = copied
        vars(copied).update(deepcopy(vars(self), memo))
        copied._unreduced = ()  # which are parameters of the original
        observe_backward(copied)
        return copied

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The module's result."""
        synchronized = mode.enabled and self.require_backward_grad_sync
        if self.joining is not None:
            self.joining.begin(synchronized)
        if self.broadcast_buffers and (self._buffers_differ if self.joining is None else synchronized):
            self._sync_buffers()
        self._buffers_differ = self._expects_backward = synchronized
        with drawing_part(0, self.process_group.rank(), self.process_group.size()):
            return self.module(*args, **kwargs)

    def accumulated(self, tensors: Sequence[Any]) -> None:
        """A backward has ended: reduce its gradients, if it is the first one behind a forward with synchronization,
        and with them those that others have left since the last such one."""
        reached = set(map(id, tensors))
        if not self._reducer.is_of_one(reached):
            return
        if self._expects_backward:
            self._expects_backward = False
            self._reducer.reduce(reached.union(self._unreduced), self.joining)
            self._unreduced = ()
        elif self.find_unused_parameters:
            self._unreduced = self._reducer.own(reached.union(self._unreduced))

    def no_sync(self) -> Temporary:
        """A context in which forwards begin backwards that only accumulate; the first one after it reduces all that
        has been accumulated."""
        return items(vars(self), {"require_backward_grad_sync": False})

    def register_comm_hook(self, state: Any, hook: Callable[[Any, Any], Any]) -> None:
        """Let hook(state, bucket) reduce each bucket of gradients (`distributed.algorithms.ddp_comm_hooks`): it returns
        a future of the bucket's mean over all processes.

        Raises:
            TypeError: it is no function.
            RuntimeError: there is a hook already.
        """
        if not callable(hook):
            raise failure("register_comm_hook", "Communication hook must be callable.", error=TypeError)
        if self._reducer.hook is not None:
            raise failure("register_comm_hook", "register_comm_hook or register_builtin_comm_hook can only be called "
                          "once.")
        self._reducer.hook = hook, state

    def join(self, divide_by_initial_world_size: bool = True, enable: bool = True,
             throw_on_early_termination: bool = False) -> AbstractContextManager[None]:
        """A context for ranks with unequal numbers of batches: those that are done take part in the others' steps, and
        all end with the model of the last one.

        Args:
            divide_by_initial_world_size: sums of gradients are divided by the number of all ranks; False: by that of
                the ranks that still train.
            enable: False does nothing.
            throw_on_early_termination: raise RuntimeError on all ranks when the first is done.
        """
        return joined(self, divide_by_initial_world_size, enable, throw_on_early_termination)

    def shadow(self, reduces: bool) -> None:
        """Take part in a step of other ranks."""
        if reduces:
            if self.broadcast_buffers:
                self._sync_buffers()
            self._reducer.shadow(self.joining)

    def _sync_buffers(self) -> None:
        buffers = list(self.module.buffers())
        if buffers:
            _broadcast(self.process_group, buffers, 0 if self.joining is None else self.joining.source())

    def _begin_alike(self, rate: float, buffers: bool) -> float:
        """Check that all processes have equal structures, and take the first one's values, with or without buffers;
        the least of their rates."""
        held = [*self.module.named_parameters(), *self.module.named_buffers()]
        own = [(name, tuple(x.shape), x.dtype.name) for name, x in held]
        told: list[Any] = [None] * self.process_group.size()
        dist.all_gather_object(told, (rate, own), self.process_group)
        found = [each for _, each in told]
        for place, theirs in enumerate(found):
            if theirs != found[0]:
                here, there = next(((a, b) for a, b in zip(found[0], theirs, strict=False) if a != b),
                                   (f"{len(found[0])} tensors", f"{len(theirs)}"))
                raise failure("DistributedDataParallel", f"the module is not the same on all processes: {here} on rank "
                              f"{self.process_group.ranks[0]}, {there} on rank {self.process_group.ranks[place]}")
        tensors = [*self.module.parameters(), *(self.module.buffers() if buffers else ())]
        _broadcast(self.process_group, tensors)
        engine.materialize(tensors)
        return float(min(each for each, _ in told))


def _broadcast(group: ProcessGroup, tensors: Sequence[Tensor], source: int = 0) -> None:
    """Take one process' values: one call for each device."""
    by_device: dict[Any, list[Tensor]] = {}
    for x in tensors:
        by_device.setdefault(x.device, []).append(x)
    for alike in by_device.values():
        broadcast_coalesced(alike, group=group, group_src=source)


class _Reducer:
    """Reduces gradients.

    Attributes:
        hook: reduces buckets, and its state; None: they are one op.
        rate: bytes a second that all ranks' bus moves at least (`bucket_size.bus_rate`).
    """

    def __init__(self, group: ProcessGroup, trained: Sequence[tuple[str, Tensor]], cap_mb: float | None,
                 finds_unused: bool):
        self.hook: tuple[Callable[[Any, Any], Any], Any] | None = None
        self._group, self._finds_unused = group, finds_unused
        self._names = [name for name, _ in reversed(trained)]  # about the order in which backward makes gradients
        self._parameters = [p for _, p in reversed(trained)]
        self._cap = 0 if cap_mb is None else max(int(cap_mb * 2**20), 1)  # bytes; 0: as many as cost least
        self.rate = HOST_RATE

    def is_of_one(self, reached: set[int]) -> bool:
        """Whether a parameter is among the tensors (their ids)."""
        return not reached.isdisjoint(map(id, self._parameters))

    def own(self, reached: set[int]) -> tuple[int, ...]:
        """Which of the tensors (their ids) are parameters, in the order of these."""
        return tuple(id(p) for p in self._parameters if id(p) in reached)

    def reduce(self, reached: set[int], joining: Joining | None) -> None:
        """Reduce what a backward has given gradients.

        Args:
            reached: the ids of tensors with new gradients.
            joining: what is known of ranks that are done, inside `join`.
        """
        wanted = [p for p in self._parameters if p.requires_grad]
        unused = [p for p in wanted if id(p) not in reached]
        if self._finds_unused:
            wanted = self._used_by_any(wanted, reached)
        elif unused:
            names = [name for name, p in zip(self._names, self._parameters, strict=True) if any(p is x for x in unused)]
            raise failure("DistributedDataParallel", "parameters were not used in producing the loss: "
                          f"{', '.join(reversed(names))}; their gradients are not reduced",
                          hint="find_unused_parameters=True, or use all parameters on all ranks")
        with no_grad():
            for p in wanted:
                if p.grad is None:
                    p.grad = zeros_like(p)
        self._reduce(wanted, [p.grad for p in wanted], joining)

    def shadow(self, joining: Joining | None) -> None:
        """Reduce zeros, beside what others reduce."""
        wanted = [p for p in self._parameters if p.requires_grad]
        if self._finds_unused:
            wanted = self._used_by_any(wanted, set())
        with no_grad():
            self._reduce(wanted, [zeros_like(p) for p in wanted], joining)

    def _reduce(self, wanted: Sequence[Tensor], found: Sequence[Tensor], joining: Joining | None) -> None:
        """Let gradients be the means over all ranks."""
        if self.hook is not None:
            cap = self._cap or CAP_OF_HOOKS
            reduce_by_hook(*self.hook, wanted, found, min(FIRST_BUCKET, cap), cap)
        else:
            self._reduce_together(found)
        scale = None if joining is None else joining.scale()
        if scale is not None:
            with no_grad():
                for g in found:
                    g.mul_(scale.to(g.dtype))

    def _reduce_together(self, found: Sequence[Tensor]) -> None:
        by_device: dict[Any, list[Tensor]] = {}
        for g in found:
            by_device.setdefault(g.device, []).append(g)
        for gradients in by_device.values():
            cap = self._cap or cap_for(sum(g.nbytes for g in gradients), self.rate, self._group.size())
            first = min(FIRST_BUCKET, cap) if self._cap else cap
            self._group.record(ops.reduce_gradients, gradients, gradients, first=first, cap=cap)

    def _used_by_any(self, parameters: list[Tensor], reached: set[int]) -> list[Tensor]:
        """Those of the parameters that the loss of some process depends on."""
        used = tensor([id(p) in reached for p in parameters], device=parameters[0].device).to(uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX, self._group)
        return [p for p, some in zip(parameters, used.tolist(), strict=True) if some]
