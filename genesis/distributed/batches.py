"""Several messages at once, and lists of objects as messages, under torch's names."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from genesis.distributed.messages import check_gpu_message, irecv, isend, record_messages, recv, send
from genesis.distributed.objects import device_of, packed, unpacked
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of, place_in
from genesis.distributed.work import Work
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import int64, uint8
from genesis.ops.creation import empty, tensor


@dataclass
class P2POp:
    """A message of a batch.

    Args:
        op: `isend` or `irecv`.
        tensor: what is sent, or written to.
        peer: the other rank.
        group: None for all.
        tag: see `isend`.
        group_peer: the other rank's number in the group, instead of `peer`.

    Raises:
        ValueError: `op` is another function, or not one of `peer` and `group_peer` is given.
    """

    op: Callable[..., Work | None]
    tensor: Tensor
    peer: int | None = None
    group: Any = None
    tag: int = 0
    group_peer: int | None = None

    def __post_init__(self) -> None:
        if self.op not in (isend, irecv):
            raise failure("P2POp", "Invalid ``op``. Expected ``op`` to be of type ``genesis.distributed.isend`` or "
                          "``genesis.distributed.irecv``.", error=ValueError)
        self._group: ProcessGroup | None = group_of(self.group)
        self._other = -1 if self._group is None else place_in("P2POp", self._group, self.peer, self.group_peer)

    def start(self) -> Work | None:
        """Send or receive."""
        name = "group_dst" if self.op is isend else "group_src"
        return self.op(self.tensor, group=self.group, tag=self.tag, **{name: self._other})

    @property
    def of_gpu(self) -> bool:
        """Whether it is a message of the group's GPUs, which several can be one with."""
        return self._group is not None and self.tensor.device.type == "cuda"


def batch_isend_irecv(p2p_op_list: Sequence[P2POp]) -> list[Work]:
    """Send and receive several messages, listed in any order: no rank waits for another that waits for it. Messages of
    GPUs are one call, with one handle.

    Raises:
        ValueError: the list is empty, has something else in it, or messages of several groups; or on a GPU a tag, or
            a message to the process itself.

    >>> batch_isend_irecv([])
    Traceback (most recent call last):
    ValueError: batch_isend_irecv: p2p_op_list has to be a list of P2POp, and not empty
    """
    if not p2p_op_list or not all(isinstance(x, P2POp) for x in p2p_op_list):
        raise failure("batch_isend_irecv", "p2p_op_list has to be a list of P2POp, and not empty", error=ValueError)
    if len({id(x._group) for x in p2p_op_list}) > 1:
        raise failure("batch_isend_irecv", "all messages have to be of one group", error=ValueError)
    begun = [each.start() for each in p2p_op_list if not each.of_gpu]
    return [*(work for work in begun if work is not None), *_together([x for x in p2p_op_list if x.of_gpu])]


def _together(batch: Sequence[P2POp]) -> list[Work]:
    """Messages of GPUs as one: to and from each rank in the order of the list."""
    group = batch[0]._group if batch else None
    if group is None:
        return []
    require_tensors(*(x.tensor for x in batch))
    for x in batch:
        check_gpu_message("batch_isend_irecv", group, x.tensor, x._other, x.tag)
    return [record_messages(group, [(x.tensor, x._other) for x in batch if x.op is isend],
                            [(x.tensor, x._other) for x in batch if x.op is irecv])]


def send_object_list(object_list: Sequence[Any], dst: int | None = None, group: Any = None, device: Any = None,
                     group_dst: int | None = None, use_batch: bool = False) -> None:
    """Send a list of objects to one process; they are pickled.

    Args:
        use_batch: accepted for torch's sake.
    """
    found = group_of(group)
    if found is None:
        return
    home = device_of(found, device)
    data = packed(list(object_list), home)
    send(tensor([data.numel()], dtype=int64, device=home), dst, group, group_dst=group_dst)
    send(data, dst, group, group_dst=group_dst)


def recv_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                     group_src: int | None = None, use_batch: bool = False) -> int:
    """Replace the objects of a list by those that one process sends; returns its rank. They are unpickled, which runs
    code of that process'.

    Raises:
        ValueError: there are not as many.
    """
    found = group_of(group)
    if found is None:
        return -1
    home = device_of(found, device)
    size = empty(1, dtype=int64, device=home)
    sender = recv(size, src, group, group_src=group_src)
    data = empty(int(size.item()), dtype=uint8, device=home)
    recv(data, sender, group)
    objects = unpacked(data, data.numel())
    if len(objects) != len(object_list):
        raise failure("recv_object_list", f"{len(objects)} objects were sent, and the list has {len(object_list)}",
                      error=ValueError)
    object_list[:] = objects
    return sender
