"""Collectives on the CPU: gloo, as torch.distributed has it."""

from __future__ import annotations

import math
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

import torch
import torch.distributed as dist

from genesis.runtime.collectives import DistBackendError
from genesis.runtime.cpu.number_tensors import CPU

if TYPE_CHECKING:
    from genesis.runtime.collectives import KeyStore, SupportsDLPack

_REDUCTIONS = {"sum": dist.ReduceOp.SUM, "avg": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT,
               "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX, "band": dist.ReduceOp.BAND,
               "bor": dist.ReduceOp.BOR, "bxor": dist.ReduceOp.BXOR}
"""An average is a sum that is divided: gloo has none."""


class _Store(dist.Store):
    """Our store as torch's classes take one."""

    def __init__(self, store: KeyStore):
        super().__init__()
        self._store = store

    def set(self, key: str, value: str | bytes) -> None:
        self._store.set(key, value)

    def get(self, key: str) -> bytes:
        return self._store.get(key)

    def add(self, key: str, amount: int) -> int:
        return self._store.add(key, amount)

    def check(self, keys: Sequence[str]) -> bool:
        return self._store.check(keys)

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        self._store.wait(keys, timeout)

    def delete_key(self, key: str) -> bool:
        return self._store.delete_key(key)


@contextmanager
def _failing() -> Iterator[None]:
    """Inside, an error of gloo's is one of Genesis'."""
    try:
        yield
    except RuntimeError as error:
        raise DistBackendError(str(error).split("\n")[0]) from None


class GlooMessage:
    """A message on its way (`runtime.collectives.HostMessage`).

    Args:
        tensor: what is sent, or written to: it is kept until the message is done.
        start: gives it to gloo.
        from_any: it comes from a process that is not known before.
    """

    def __init__(self, tensor: torch.Tensor, start: Callable[[], dist.Work], from_any: bool = False):
        self.tensor, self._from_any = tensor, from_any
        with _failing():
            self._work = start()

    def wait(self, timeout: timedelta | None = None) -> int:
        """Return when the message is done: for one from any process, who sent it."""
        with _failing():
            self._work.wait(*() if timeout is None else (timeout,))
            return int(self._work._source_rank()) if self._from_any else -1


class GlooTransport:
    """A group of processes on the CPU (`runtime.collectives.HostTransport`).

    Args:
        store: has keys for this group alone.
        rank, size: of this process in the group.
        timeout: how long a collective may take.
    """

    def __init__(self, store: KeyStore, rank: int, size: int, timeout: timedelta):
        self.rank, self.size = rank, size
        self._store = _Store(store)  # the group refers to it, and does not keep it
        with _failing():
            self._group = dist.ProcessGroupGloo(self._store, rank, size, timeout)

    def _done(self, start: Callable[[], dist.Work]) -> None:
        """Wait for what `start` starts."""
        with _failing():
            start().wait()

    def compare(self, text: str) -> None:
        """All processes send what stands for the text.

        Raises:
            DistBackendError: some have another one; raised on all.
        """
        if self.size == 1:
            return
        own = torch.tensor([zlib.crc32(text.encode())], dtype=torch.int64, device=CPU)
        found = [torch.empty_like(own) for _ in range(self.size)]
        self._gathered(found, own)
        different = [rank for rank, x in enumerate(found) if not torch.equal(x, own)]
        if different:
            raise DistBackendError(f"ranks run different programs: this is not what ranks {different} of the group run")

    def all_reduce(self, tensors: Sequence[torch.Tensor], reduce: str) -> None:
        """Tensors of one dtype go as one."""
        for alike in _alike(tensors):
            flat = alike[0].view(-1) if len(alike) == 1 else torch.cat([x.view(-1) for x in alike])
            self._reduced([flat], reduce)
            if len(alike) > 1:
                for x, part in zip(alike, flat.split([x.numel() for x in alike]), strict=True):
                    x.view(-1).copy_(part)

    def _reduced(self, tensors: Sequence[torch.Tensor], reduce: str) -> None:
        options = dist.AllreduceOptions()
        options.reduceOp = _REDUCTIONS[reduce]
        for x in tensors:
            if not x.numel():
                continue
            y = _reducible(x)
            self._done(lambda y=y: self._group.allreduce([y], options))  # type: ignore[misc]
            _write_back(x, y)
            if reduce == "avg":
                x.div_(self.size)

    def reduce_to(self, tensors: Sequence[torch.Tensor], reduce: str, peer: int) -> None:
        """Reduce to one process."""
        for x in tensors:
            options = dist.ReduceOptions()
            options.reduceOp, options.rootRank = _REDUCTIONS[reduce], peer
            y = _reducible(x)
            self._done(lambda y=y, options=options: self._group.reduce([y], options))  # type: ignore[misc]
            _write_back(x, y)
            if reduce == "avg" and self.rank == peer:
                x.div_(self.size)

    def broadcast(self, tensors: Sequence[torch.Tensor], peer: int) -> None:
        """One call for each tensor."""
        for x in tensors:
            options = dist.BroadcastOptions()
            options.rootRank, options.rootTensor = peer, 0
            y = _as_bytes(x)
            self._done(lambda y=y, options=options: self._group.broadcast([y], options))  # type: ignore[misc]

    def all_gather(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """gloo wants a list of tensors: parts of the output. Several inputs go side by side."""
        given = [_as_bytes(x) for x in inputs]
        sizes = [x.numel() for x in given]
        if not sum(sizes):
            return
        if len(given) == 1:
            self._gathered(list(_as_bytes(outputs[0]).chunk(self.size)), given[0])
            return
        parts = list(torch.empty(self.size * sum(sizes), dtype=torch.uint8, device=CPU).chunk(self.size))
        self._gathered(parts, torch.cat(given))
        rows = [_as_bytes(x).view(self.size, -1) if x.numel() else x for x in outputs]
        for rank, part in enumerate(parts):
            for row, found in zip(rows, part.split(sizes), strict=True):
                if found.numel():
                    row[rank].copy_(found)

    def _gathered(self, parts: list[torch.Tensor], given: torch.Tensor) -> None:
        self._done(lambda: self._group.allgather([parts], [given]))

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], reduce: str) -> None:
        """All of it is reduced, and a part is kept: gloo has nothing better."""
        whole = [x.clone() for x in inputs]
        self.all_reduce(whole, reduce)
        for output, x in zip(outputs, whole, strict=True):
            if x.numel():
                output.view(-1).copy_(x.view(self.size, -1)[self.rank])

    def all_to_all(self, output: torch.Tensor, input: torch.Tensor, received: Sequence[int],
                   sent: Sequence[int]) -> None:
        """Row by row, in bytes: gloo counts rows of the first dimension. A process without any takes part, too."""
        width = math.prod(input.shape[1:]) * input.element_size()
        if not width:
            return
        out, given = (_as_bytes(x).view(x.shape[0], width) for x in (output, input))
        options = dist.AllToAllOptions()
        self._done(lambda: self._group.alltoall_base(out, given, list(received), list(sent), options))

    def send(self, data: SupportsDLPack, peer: int, tag: int = 0) -> GlooMessage:
        """Begin to send to one process, which may receive it much later."""
        tensor = torch.from_dlpack(data).contiguous()
        return GlooMessage(tensor, lambda: self._group.send([_as_bytes(tensor)], peer, tag))

    def recv(self, shape: Sequence[int], dtype: str, peer: int | None, tag: int = 0) -> GlooMessage:
        """Begin to receive from one process, or from any."""
        tensor = torch.empty(shape, dtype=getattr(torch, dtype), device=CPU)
        into = [_as_bytes(tensor)]
        if peer is None:
            return GlooMessage(tensor, lambda: self._group.recv_anysource(into, tag), True)
        return GlooMessage(tensor, lambda: self._group.recv(into, peer, tag))

    def abort(self) -> None:
        """End what hangs."""
        self._group.abort()

    def close(self) -> None:
        """Let go of the connections."""
        self._group.shutdown()


def _alike(tensors: Sequence[torch.Tensor]) -> list[list[torch.Tensor]]:
    """The tensors, those of a dtype together."""
    found: dict[torch.dtype, list[torch.Tensor]] = {}
    for x in tensors:
        found.setdefault(x.dtype, []).append(x)
    return list(found.values())


def _as_bytes(x: torch.Tensor) -> torch.Tensor:
    """The same memory as bytes, in one dimension: gloo knows fewer dtypes than there are."""
    return x.as_strided((x.numel(),), (1,)).view(torch.uint8)  # an element that is repeated once has a step of 0


def _reducible(x: torch.Tensor) -> torch.Tensor:
    """The tensor in a dtype that gloo reduces."""
    return x.to(torch.uint8) if x.dtype is torch.bool else x.to(torch.int32) if x.dtype is torch.int16 else x


def _write_back(x: torch.Tensor, y: torch.Tensor) -> None:
    if x is not y:
        x.copy_(y)
