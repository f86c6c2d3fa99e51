"""Messages from one process to another under torch's names, in the order of the collectives around them."""

from __future__ import annotations

from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of, place_in
from genesis.distributed.work import Work
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import collectives as ops
from genesis.ir.types import int32
from genesis.ops.creation import zeros


def send(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0, group_dst: int | None = None) -> None:
    """Send a tensor to one process, now."""
    isend(tensor, dst, group, tag, group_dst)


def isend(tensor: Tensor, dst: int | None = None, group: Any = None, tag: int = 0,
          group_dst: int | None = None) -> Work | None:
    """Send a tensor to one process, now. A tag other than 0 goes through gloo only."""
    require_tensors(tensor)
    found = group_of(group)
    if found is None:
        return None
    to = _other("send", found, dst, group_dst)
    found.record(ops.send, [tensor], [], peer=to, tag=_tag("send", found, tensor, tag))
    found.run_pending()
    return Work(found, [tensor])


def recv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0, group_src: int | None = None) -> int:
    """Receive a tensor with a tag from one process, or on the CPU from any; returns its rank."""
    found = group_of(group)
    if found is None:
        return -1
    if src is None and group_src is None:
        require_tensors(tensor)
        return found.ranks[int(_from_any(tensor, found, tag).item())]
    irecv(tensor, src, group, tag, group_src)
    found.run_pending()
    return found.ranks[_other("recv", found, src, group_src)]


def irecv(tensor: Tensor, src: int | None = None, group: Any = None, tag: int = 0,
          group_src: int | None = None) -> Work | None:
    """Receive a tensor with a tag from one process, or on the CPU from any, when it is read."""
    require_tensors(tensor)
    found = group_of(group)
    if found is None:
        return None
    if src is None and group_src is None:
        _from_any(tensor, found, tag)
        return Work(found, [tensor])
    peer, kind = _other("recv", found, src, group_src), tensor.spec
    found.record(ops.recv, [], [tensor], device=kind.device, shape=kind.shape, dtype=kind.dtype, peer=peer,
                 tag=_tag("recv", found, tensor, tag))
    return Work(found, [tensor])


def _from_any(tensor: Tensor, group: ProcessGroup, tag: int) -> Tensor:
    """Receive from any process: its number in the group."""
    kind = tensor.spec
    if kind.device.type != "cpu":
        raise failure("recv", "a source has to be given on a GPU", [("tensor", tensor)], error=ValueError,
                      hint="recv(tensor, src), or a tensor on the CPU")
    source = zeros(1, dtype=int32)
    group.record(ops.recv_any, [], [tensor, source], device=kind.device, shape=kind.shape, dtype=kind.dtype, tag=tag)
    return source


def _tag(name: str, group: ProcessGroup, tensor: Tensor, tag: int) -> int:
    if tag and tensor.device.type != "cpu":
        raise failure(name, "tags are not supported on a GPU: messages between two ranks come in the order in which "
                      "they are sent", [("tensor", tensor)], error=ValueError)
    return tag


def _other(name: str, group: ProcessGroup, rank: int | None, number: int | None) -> int:
    found = place_in(name, group, rank, number)
    if found == group.rank():
        raise failure(name, "Invalid destination rank: should not be the same as the rank of the current process.",
                      error=ValueError)
    return found
