"""Messages from one process to another under torch's names.

On the CPU a message is no op: it begins when it is called, and goes its way beside all else, so that a process may
begin to receive before it sends, and wait in any order. On a GPU it is recorded, with a place in the order of the
group's collectives, and runs with those beside it (`passes/graph/group_messages.py`) when one is waited for.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of, place_in, run_pending
from genesis.distributed.work import Work
from genesis.frontend import session
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import collectives as ops
from genesis.ir.source import here
from genesis.runtime.collectives import HostMessage
from genesis.runtime.ledger import POINT_TO_POINT, ledger


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to one process; on the CPU, until that process receives it."""
    work = isend(tensor, dst, group, tag, group_dst)
    if work is not None:
        work.wait()


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
          group_dst: int | None = None) -> Work | None:
    """Begin to send a tensor, as it is now, to one process. A tag other than 0 goes through gloo only."""
    require_tensors(tensor)
    found = group_of(group)
    if found is None:
        return None
    to = _other("send", found, dst, group_dst)
    if tensor.device.type == "cpu":
        return _Sending(found, tensor, to, tag)
    check_gpu_message("send", found, tensor, to, tag)
    return record_messages(found, [(tensor, to)], [])


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor with a tag from one process, or on the CPU from any; returns its rank."""
    found = group_of(group)
    work = irecv(tensor, src, group, tag, group_src)
    if found is None or work is None:
        return -1
    work.wait()
    if isinstance(work, _Receiving):
        return work._source_rank()
    return found.ranks[_other("recv", found, src, group_src)]


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
          group_src: int | None = None) -> Work | None:
    """Begin to receive a tensor with a tag from one process, or on the CPU from any. It is there when the work was
    waited for."""
    require_tensors(tensor)
    found = group_of(group)
    if found is None:
        return None
    anybody = src is None and group_src is None
    peer = None if anybody else _other("recv", found, src, group_src)
    if tensor.device.type == "cpu":
        return _Receiving(found, tensor, peer, tag)
    if peer is None:
        raise failure("recv", "a source has to be given on a GPU", [("tensor", tensor)], error=ValueError,
                      hint="recv(tensor, src), or a tensor on the CPU")
    check_gpu_message("recv", found, tensor, peer, tag)
    return record_messages(found, [], [(tensor, peer)])


def record_messages(group: ProcessGroup, sent: Sequence[tuple[Tensor, int]],
                    received: Sequence[tuple[Tensor, int]]) -> Work:
    """Record messages of a GPU that begin at once: tensors, and the numbers in the group of those whom they go to or
    come from."""
    kinds = [x.spec for x, _ in received]
    into = [x for x, _ in received]
    home = (sent or received)[0][0].device
    group.record(ops.messages, [x for x, _ in sent], into, device=home, to=tuple([peer for _, peer in sent]),
                 sources=tuple([peer for _, peer in received]), shapes=tuple([x.shape for x in kinds]),
                 dtypes=tuple([x.dtype for x in kinds]))
    return _Recorded(group, into or [x for x, _ in sent])


class _Recorded(Work):
    """Messages of a GPU."""

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Begin them, with all that was recorded before: another process may wait for them; True. In a function that is
        being captured they begin where it is replayed."""
        if session.active() is None:
            self._group.run_pending()
        return True


class _Message(Work):
    """A message on the CPU, which has begun."""

    def __init__(self, group: ProcessGroup, tensor: Tensor, message: HostMessage, text: str):
        super().__init__(group, [tensor])
        self._message, self._text, self._line = message, text, str(here() or "")
        self._done, self._source = False, -1

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Return when the message is done; True.

        Raises:
            DistBackendError: it took longer than the timeout, or the other process is gone.
        """
        if not self._done:
            run_pending()  # the other process may be in a collective that this one has recorded only
            with ledger.running(POINT_TO_POINT, self._text, self._line):
                self._source = self._message.wait(timeout)
            self._done = True
            self._finish()
        return True

    def _finish(self) -> None:
        """What else is to do."""

    def is_completed(self) -> bool:
        """Whether the message was waited for, as with torch's gloo."""
        return self._done

    def synchronize(self) -> None:
        """`wait`."""
        self.wait()


class _Sending(_Message):
    """A message that goes to one process. It goes on if nobody waits for it."""

    def __init__(self, group: ProcessGroup, tensor: Tensor, to: int, tag: int):
        group.check_backend("send", tensor.device)
        found = group.host_transport()
        with no_grad():
            data = tensor.detach().clone()
        group.run_pending()
        super().__init__(group, tensor, found.send(data, to, tag), f"send({_shown(tensor)}, to {to})")
        group.begin_message(self)

    def _finish(self) -> None:
        self._group.end_message(self)


class _Receiving(_Message):
    """A message that comes from one process, or from any (None)."""

    def __init__(self, group: ProcessGroup, tensor: Tensor, peer: int | None, tag: int):
        group.check_backend("recv", tensor.device)
        found = group.host_transport()
        if session.active() is not None:
            engine.flush([])  # a function that is being captured: another call of it would not receive
        self._peer, kind = peer, tensor.spec
        message = found.recv(kind.shape, kind.dtype.name, peer, tag)
        super().__init__(group, tensor, message, f"recv({_shown(tensor)}, from {'any' if peer is None else peer})")

    def _finish(self) -> None:
        from genesis.ops.interop import from_dlpack
        with no_grad():
            self._results[0].copy_(from_dlpack(self._message.tensor))

    def _source_rank(self) -> int:
        """The rank of the process that sent it."""
        return self._group.ranks[self._source if self._peer is None else self._peer]


def _shown(tensor: Tensor) -> str:
    return f"{tensor.dtype.name}{list(tensor.shape)}"


def check_gpu_message(name: str, group: ProcessGroup, tensor: Tensor, peer: int, tag: int) -> None:
    """Whether it is one that NCCL can send or receive.

    Raises:
        ValueError: it has a tag, or goes to the process itself.
    """
    _check_peer(name, group, peer)
    if tag:
        raise failure(name, "tags are not supported on a GPU: messages between two ranks come in the order in which "
                      "they are sent", [("tensor", tensor)], error=ValueError)


def _other(name: str, group: ProcessGroup, rank: int | None, number: int | None) -> int:
    found = place_in(name, group, rank, number)
    _check_peer(name, group, found)
    return found


def _check_peer(name: str, group: ProcessGroup, peer: int) -> None:
    if peer == group.rank():
        raise failure(name, "Invalid destination rank: should not be the same as the rank of the current process.",
                      error=ValueError)
