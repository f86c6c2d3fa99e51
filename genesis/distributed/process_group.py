"""Process groups: which processes work together, and the chain of what they run."""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from genesis.distributed.calls import call_others
from genesis.distributed.store import PrefixStore
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import emit, read, wrap
from genesis.frontend.session import own_storages
from genesis.frontend.tensor import Tensor
from genesis.frontend.writes import assign_all
from genesis.ir.errors import failure
from genesis.ir.node import Node, Op
from genesis.ir.ops.collectives import BITWISE
from genesis.ir.ops.control import results_of
from genesis.ir.source import here
from genesis.ir.types import Device, int32
from genesis.ops.creation import tensor
from genesis.runtime.collectives import GroupEntry, HostTransport, add_group, has_transport, remove_group, transport
from genesis.runtime.ledger import POINT_TO_POINT, Entry, ledger
from genesis.runtime.nccl_options import NcclOptions

if TYPE_CHECKING:
    from genesis.distributed.work import Work

BACKENDS: Final = {"gloo": ("cpu", "cuda"), "nccl": ("cuda",)}
"""Backend → the device types whose tensors it moves."""

MESSAGES: Final = 256
"""Messages of a group that may be on their way with nobody waiting for them: each keeps its data."""

_numbers = itertools.count()
_own_numbers: defaultdict[tuple[int, ...], Iterator[int]] = defaultdict(itertools.count)
"""Ranks → the numbers of the groups that these made without the others, who do not count them."""


class ProcessGroup:
    """Some of a run's processes, in order.

    Attributes:
        key: the group's name in programs, the same in all its processes.
        ranks: their ranks in the run.
        backends: device type → backend.
        timeout: how long a collective may take.
        store: keys of the group alone.
        barriers: the numbers of its monitored barriers.

    Args:
        rank: of this process in the run.
        store: the run's.
        options: settings of NCCL's.
        made_by_all: all processes of the run make this group, not its own alone.
        world: the group of all processes, None for this one.
    """

    compared_by_identity = True

    def __init__(self, ranks: Sequence[int], rank: int, backends: dict[str, str], timeout: timedelta,
                 store: PrefixStore, options: NcclOptions | None = None, made_by_all: bool = True,
                 world: ProcessGroup | None = None):
        self._options = options
        self.ranks, self.backends, self.timeout = tuple(ranks), backends, timeout
        self.key = f"group{next(_numbers)}" if made_by_all else (
            f"group{next(_own_numbers[self.ranks])}of{'_'.join(map(str, self.ranks))}")
        self._rank = self.ranks.index(rank) if rank in self.ranks else -1
        self._run_store = store
        self.store = PrefixStore(self.key, store)
        self.barriers = itertools.count()
        self._orders: dict[Device, Tensor] = {}
        self._world = self if world is None else world
        self._messages: list[Work] = []
        self.alive = True
        if self._rank >= 0:
            add_group(self.key, GroupEntry(self._make_transport, self.ranks, timeout.total_seconds()))

    def __deepcopy__(self, memo: dict[int, Any]) -> ProcessGroup:
        """Itself: copies of what uses it have the same processes and transports."""
        return self

    def rank(self) -> int:
        """This process' number in the group, -1 outside."""
        return self._rank

    def size(self) -> int:
        """How many processes there are."""
        return len(self.ranks)

    def name(self) -> str:
        """The backend."""
        found = dict.fromkeys(self.backends.values())
        return next(iter(found)) if len(found) == 1 else ",".join(f"{k}:{v}" for k, v in self.backends.items())

    def place_of(self, rank: int) -> int:
        """The number in the group of a rank of the run.

        Raises:
            ValueError: it is none of the group's.
        """
        if rank not in self.ranks:
            raise failure("process group", f"Global rank {rank} is not part of group {list(self.ranks)}",
                          error=ValueError)
        return self.ranks.index(rank)

    def order(self, device: Device) -> Tensor:
        """What the group's collectives on a device are ordered by (`genesis/ir/ops/collectives.py`).

        On the CPU, where a collective is a call that waits, it is that of all groups: ranks whose programs are
        scheduled otherwise, as those of parts of other sizes, would wait for each other in two groups. On GPUs, where
        collectives of several groups run beside each other, each group has its own.
        """
        orders = self._orders_on(device.type)
        found = orders.get(device)
        if found is None:
            # in memory at once, so that the first collective has the structure of all others
            found = orders[device] = tensor([0], dtype=int32, device=device)
            own_storages.add(found.storage)
        return found

    def _orders_on(self, device_type: str) -> dict[Device, Tensor]:
        return self._world._orders if device_type == "cpu" else self._orders

    def record(self, op: Op, tensors: Sequence[Tensor], targets: Sequence[Tensor], finish: Callable[
            [Sequence[Node]], Sequence[Node]] = lambda nodes: nodes, device: Device | None = None,
               **attributes: Any) -> None:
        """Record the group's next collective, and write what it gives to the targets.

        Args:
            op: a row of `ir/ops/collectives.py`.
            tensors: its operands.
            targets: the tensors to write to.
            finish: makes what is written of the results.
            device: where, if there are no operands.
            attributes: the op's, but for the group.

        Raises:
            RuntimeError: there is no backend for the device, or the operands do not fit.
            ValueError: the group was destroyed.
        """
        order = self._order_for(op, tensors[0].device if device is None else device)
        with no_grad():
            *results, following = self._emitted(op, [read(x) for x in tensors], order, attributes)
            assign_all([*targets, order], [*finish(results), following])

    def results(self, op: Op, tensors: Sequence[Tensor], **attributes: Any) -> list[Tensor]:
        """Record the group's next collective; returns what it gives.

        Raises:
            RuntimeError, ValueError: as `record` does.
        """
        with no_grad():
            nodes = [read(x) for x in tensors]
            return [wrap(node) for node in self.next(op, nodes, tensors[0].device, **attributes)]

    def next(self, op: Op, nodes: Sequence[Node], device: Device, **attributes: Any) -> list[Node]:
        """Record the group's next collective on values, and give its results.

        Raises:
            RuntimeError, ValueError: as `record` does.
        """
        results, order, following = self.upcoming(op, nodes, device, **attributes)
        with no_grad():
            assign_all([order], [following])
        return results

    def upcoming(self, op: Op, nodes: Sequence[Node], device: Device, **attributes: Any) -> tuple[
            list[Node], Tensor, Node]:
        """What the group's next collective on values gives, and the order with the content that it is to get: the
        collective has its place once that is written, with other writes that belong to it.

        Raises:
            RuntimeError, ValueError: as `record` does.
        """
        order = self._order_for(op, device)
        with no_grad():
            *results, following = self._emitted(op, nodes, order, attributes)
        return results, order, following

    def _order_for(self, op: Op, home: Device) -> Tensor:
        self.check_backend(op.name, home)
        return self.order(home)

    def check_backend(self, name: str, home: Device) -> None:
        """Whether the group can move tensors of a device.

        Raises:
            RuntimeError, ValueError: as `record` does.
        """
        if not self.alive:
            raise failure(name, "the process group was destroyed", error=ValueError)
        if home.type not in self.backends:
            raise failure(name, f"No backend type associated with device type {home.type}",
                          hint=f"the group has {self.name()!r}: move the tensor, or init_process_group with another "
                               "backend")

    def _emitted(self, op: Op, nodes: Sequence[Node], order: Tensor, attributes: dict[str, Any]) -> list[Node]:
        home = order.device
        if attributes.get("reduce") in BITWISE and self.backends[home.type] == "nccl":
            raise failure(op.name, f"Cannot use ReduceOp.{attributes['reduce'].upper()} with NCCL", error=ValueError,
                          hint="a group of gloo, or all_gather and &, | or ^")
        known = {"communicator": self.key, "device": home, **attributes}
        return results_of(emit(op, (*nodes, read(order)), tuple(known[name] for name in op.attrs)))

    def run_pending(self) -> None:
        """Run the group's collectives that were recorded, and on the CPU all that have their place before these."""
        orders = {**self._orders_on("cpu"), **self._orders_on("cuda")}
        pending = [x.storage for x in orders.values() if not x.storage.settled]
        if pending:
            engine.flush(pending)

    def begin_message(self, message: Work) -> None:
        """Keep a message until it has been sent; the oldest one is waited for where there are many."""
        self._messages.append(message)
        if len(self._messages) > MESSAGES:
            self._messages[0].wait()

    def end_message(self, message: Work) -> None:
        """Forget a message that has been sent."""
        self._messages.remove(message)

    def finish(self) -> None:
        """Run the group's collectives that were recorded, and wait until its messages have been sent."""
        self.run_pending()
        for message in list(self._messages):
            message.wait()

    def destroy(self) -> None:
        """Run what is pending, and let go of the transports."""
        if self.alive:
            try:
                self.finish()
            finally:
                self.alive = False
                remove_group(self.key)
                self._orders.clear()

    def connect(self) -> None:
        """Meet the group's other processes, where its tensors are on the CPU alone: two of them may send messages
        while others do not use the group. With GPUs the first one that moves a tensor of the CPU calls the others
        (`call_others`): most such programs never do, and need no torch."""
        if self.size() > 1 and self.backends.get("cpu") == "gloo" and not self._may_meet_later():
            self.host_transport()

    def connect_gpus(self) -> None:
        """Meet the group's other processes on GPUs."""
        if self.size() > 1:
            with ledger.in_(self._meeting()):
                transport(self.key, "cuda")

    def _meeting(self) -> Entry:
        return Entry(POINT_TO_POINT, 0, f"process group of ranks {list(self.ranks)}", str(here() or ""))

    def _may_meet_later(self) -> bool:
        from genesis.cuda import is_available
        return "nccl" in self.backends.values() and is_available()

    def host_transport(self) -> HostTransport:
        """The group's transport of tensors on the CPU, for which its processes meet the first time."""
        if not has_transport(self.key, "cpu"):
            with ledger.in_(self._meeting()):
                return transport(self.key, "cpu")
        return transport(self.key, "cpu")

    def _make_transport(self, device_type: str) -> Any:
        backend = self.backends[device_type]
        if backend == "gloo" and (device_type == "cuda" or self._may_meet_later()):
            calls = self._run_store.clone()
            call_others(calls, self.key, device_type)
            calls.close()
        store = PrefixStore(f"{backend}-{device_type}", self.store.clone())
        if backend == "nccl":
            from genesis.runtime.cuda.nccl import NcclTransport
            return NcclTransport(store, self._rank, self.size(), self.timeout, self._options)
        from genesis.runtime.cpu.gloo import GlooTransport
        transport = GlooTransport(store, self._rank, self.size(), self.timeout)
        if device_type == "cpu":
            return transport
        from genesis.runtime.cuda.staged_transport import StagedTransport
        return StagedTransport(transport)

    def __repr__(self) -> str:
        return f"<genesis.distributed.ProcessGroup {self.key}: ranks {list(self.ranks)}, {self.name()}>"


def backends_of(text: str | None) -> dict[str, str]:
    """Device type → backend, of what `init_process_group` is given.

    >>> backends_of("cpu:gloo,cuda:nccl"), backends_of("nccl")
    ({'cpu': 'gloo', 'cuda': 'nccl'}, {'cuda': 'nccl'})
    """
    if text is None:
        return {"cpu": "gloo", "cuda": "nccl"}
    found: dict[str, str] = {}
    for part in text.lower().split(","):
        device, _, backend = part.rpartition(":")
        if backend not in BACKENDS or (device and device not in BACKENDS[backend]):
            raise failure("init_process_group", f"invalid backend: {text!r}", error=ValueError,
                          hint="'gloo', 'nccl' or 'cpu:gloo,cuda:nccl'")
        found.update(dict.fromkeys([device] if device else BACKENDS[backend], backend))
    return found
