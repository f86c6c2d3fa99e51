"""Collectives on device memory by way of the host: gloo for CUDA tensors. Slow; it waits for the GPU."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import torch

from genesis.runtime.cpu.number_tensors import CPU
from genesis.runtime.cuda.cuda_python_driver import driver

if TYPE_CHECKING:
    from genesis.runtime.collectives import HostTransport
    from genesis.runtime.cuda.collective_work import Buffer, CollectiveWork
    from genesis.runtime.cuda.driver import Call, StreamHandle


class StagedTransport:
    """A `DeviceTransport` over a transport of the host's.

    Args:
        host: moves what is copied there.
    """

    capturable = high_priority = False
    blocks = True

    def __init__(self, host: HostTransport):
        self._host, self.rank, self.size = host, host.rank, host.size

    def compare(self, text: str) -> None:
        """Whether all processes are about to run the same collective; raises DistBackendError if not."""
        self._host.compare(text)

    def run(self, work: CollectiveWork, stream: StreamHandle) -> None:
        """Wait for the stream, copy, run, copy back."""
        given = [_fetched(buffer, stream) for buffer in work.operands]
        if stream is not None:
            driver().synchronize_stream(stream)
        for buffer, tensor in zip(work.results, self._run(work, given), strict=True):
            if buffer.count:
                driver().copy_to_device(buffer.address, tensor.data_ptr(), buffer.count * buffer.itemsize, stream)
        if stream is not None:
            driver().synchronize_stream(stream)

    def calls(self, work: CollectiveWork, stream: StreamHandle) -> list[Call]:
        """None are of C: who waits for other processes runs lines of Python."""
        return [partial(self.run, work, stream)]

    def _run(self, work: CollectiveWork, given: list[torch.Tensor]) -> list[torch.Tensor]:
        host, step = self._host, work.step
        if step.op in ("all_reduce", "reduce_to", "broadcast"):
            rest = {"all_reduce": (step.reduce,), "reduce_to": (step.reduce, step.peer), "broadcast": (step.peer,)}
            getattr(host, step.op)(given, *rest[step.op])
            return given
        results = [_empty(buffer) for buffer in work.results]
        if step.op == "all_gather":
            host.all_gather(results, given)
        elif step.op == "reduce_scatter":
            host.reduce_scatter(results, given, step.reduce)
        elif step.op == "all_to_all":
            out, into = _rows(results[0], sum(step.received)), _rows(given[0], sum(step.sent))
            host.all_to_all(out, into, step.received, step.sent)
        else:
            sent = [host.send(x, peer) for x, peer in zip(given, step.sent, strict=True)]
            begun = [host.recv(x.shape, buffer.dtype, peer)
                     for x, buffer, peer in zip(results, work.results, step.received, strict=True)]
            for message in (*begun, *sent):
                message.wait()
            results = [message.tensor for message in begun]
        return results

    def abort(self) -> None:
        """End what hangs."""
        self._host.abort()

    def close(self) -> None:
        """Let go of the host's transport."""
        self._host.close()


def _rows(x: torch.Tensor, count: int) -> torch.Tensor:
    return x.view(count, -1) if count else x.view(0, 1)


def _empty(buffer: Buffer) -> torch.Tensor:
    return torch.empty(buffer.count, dtype=getattr(torch, buffer.dtype), device=CPU)


def _fetched(buffer: Buffer, stream: StreamHandle) -> torch.Tensor:
    found = _empty(buffer)
    if buffer.count:
        driver().copy_to_host(found.data_ptr(), buffer.address, buffer.count * buffer.itemsize, stream)
    return found
