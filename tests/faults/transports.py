"""Transports of a group of one process that has, as far as results tell, a second one with the same values: a sum is
twice what is given. What a collective does a second time shows."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any
from weakref import WeakKeyDictionary

import torch

from genesis import distributed as dist
from genesis.distributed.process_group import ProcessGroup
from genesis.runtime import collectives
from genesis.runtime.collectives import GroupEntry, Transport
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.staged_transport import StagedTransport

ONE_MORE = 2
"""What a sum over this process and its like is, of what it gives."""


class Waiting:
    """A transport of the host's (`HostTransport`) whose other process is there at once."""

    rank, size = 0, 1

    def compare(self, text: str) -> None:
        """They are the same."""

    def all_reduce(self, tensors: Sequence[torch.Tensor], reduce: str) -> None:
        """Twice each sum; an average stays."""
        for x in tensors:
            if reduce == "sum":
                x.mul_(ONE_MORE)

    def broadcast(self, tensors: Sequence[torch.Tensor], peer: int) -> None:
        """They are this process's."""

    def all_gather(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """The group has one."""
        for y, x in zip(outputs, inputs, strict=True):
            y.copy_(x)

    def abort(self) -> None:
        """Nothing hangs."""

    def close(self) -> None:
        """Nothing is held."""


class OfC:
    """A `DeviceTransport` whose collectives are begun by calls into C, as NCCL's are.

    Args:
        capturable: whether they can be part of a graph.
    """

    rank, size, blocks, high_priority = 0, 1, False, False

    def __init__(self, capturable: bool):
        self.capturable = capturable

    def compare(self, text: str) -> None:
        """They are the same."""

    def run(self, work: Any, stream: Any) -> None:
        """All at once."""
        for call in self.calls(work, stream):
            call()

    def calls(self, work: Any, stream: Any) -> list[Any]:
        """A call for each operand: those of the fake GPU, and these, count as C."""
        twice = work.step.op == "all_reduce" and work.step.reduce == "sum"
        return [partial(_moved, x, y, twice, stream) for x, y in zip(work.operands, work.results, strict=True)]

    def abort(self) -> None:
        """Nothing hangs."""

    def close(self) -> None:
        """Nothing is held."""


def _moved(x: Any, y: Any, twice: bool, stream: Any) -> None:
    nbytes = x.count * x.itemsize
    host = torch.empty(x.count, dtype=getattr(torch, x.dtype))
    driver().copy_to_host(host.data_ptr(), x.address, nbytes, stream)
    if stream is not None:
        driver().synchronize_stream(stream)
    if twice:
        host.mul_(ONE_MORE)
    ctypes.memmove(y.address, host.data_ptr(), nbytes)


class _Nowhere:
    """A store that nobody asks."""


def group_of(how: str) -> ProcessGroup:
    """The group of this process alone on the GPU at hand whose collectives are begun as a row of `MAKERS` says.

    There is one each: a group's name is part of its programs, and instants come in a run's order only where it compiles
    nothing and finds no more plans beside its own than the run before.
    """
    groups = _of_driver.setdefault(driver(), {})
    return groups[how] if how in groups else groups.setdefault(how, _group(MAKERS[how]()))


_of_driver: WeakKeyDictionary[Any, dict[str, ProcessGroup]] = WeakKeyDictionary()


def _group(transport: Transport) -> ProcessGroup:
    found = ProcessGroup([0], 0, {"cuda": "gloo"}, timedelta(minutes=1), dist.PrefixStore(
        "", _Nowhere()))  # type: ignore[arg-type]
    collectives.add_group(found.key, GroupEntry(lambda device: transport, (0,), 60.0))
    return found


def apart_again(group: ProcessGroup) -> None:
    """The group's ranks have not met."""
    collectives._transports.pop((group.key, "cuda"), None)


MAKERS = {"of C": partial(OfC, False), "in graphs": partial(OfC, True), "staged": lambda: StagedTransport(Waiting())}
"""How collectives are begun → what makes such a transport."""
