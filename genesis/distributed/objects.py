"""Python objects between processes, pickled. They come from the run's own processes: unpickling runs their code."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from typing import Any

from genesis.distributed.collectives import all_gather_into_tensor, broadcast, gather, scatter
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of, place_in
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import int64, uint8
from genesis.ops.creation import empty, tensor, zeros


def device_of(group: ProcessGroup, device: Any = None) -> Any:
    """Where objects of a group's go through: the given device, or the first that it has."""
    return device if device is not None else "cpu" if "cpu" in group.backends else "cuda"


def packed(value: Any, device: Any) -> Tensor:
    """An object as bytes."""
    import numpy as np

    from genesis.ops.interop import from_numpy
    return from_numpy(np.frombuffer(pickle.dumps(value), np.uint8).copy()).to(device)


def unpacked(x: Tensor, size: int) -> Any:
    """The object that the first bytes are."""
    return pickle.loads(x.cpu().numpy()[:size].tobytes())


def _sizes(size: int, group: ProcessGroup, device: Any) -> list[int]:
    """All processes' sizes."""
    found = empty(group.size(), dtype=int64, device=device)
    all_gather_into_tensor(found, tensor([size], dtype=int64, device=device), group)
    return [int(x) for x in found.tolist()]


def _padded(x: Tensor, size: int) -> Tensor:
    found = zeros(size, dtype=uint8, device=x.device)
    found[:x.numel()] = x
    return found


def all_gather_object(object_list: list[Any], obj: Any, group: Any = None) -> None:
    """Put all processes' objects into the list, which has a place for each."""
    found = group_of(group)
    if found is None:
        return
    if len(object_list) != found.size():
        raise failure("all_gather_object", f"a list of {found.size()} places is needed, not {len(object_list)}",
                      error=ValueError)
    device = device_of(found)
    own = packed(obj, device)
    sizes = _sizes(own.numel(), found, device)
    most = max(sizes)
    whole = empty((found.size(), most), dtype=uint8, device=device)
    all_gather_into_tensor(whole, _padded(own, most), found)
    for at, size in enumerate(sizes):
        object_list[at] = unpacked(whole[at], size)


def broadcast_object_list(object_list: list[Any], src: int | None = None, group: Any = None, device: Any = None,
                          group_src: int | None = None) -> None:
    """Replace the objects of all processes' lists by one's."""
    found = group_of(group)
    if found is None:
        return
    root = place_in("broadcast_object_list", found, 0 if src is None and group_src is None else src, group_src)
    home = device_of(found, device)
    mine = found.rank() == root
    own = packed(list(object_list), home) if mine else empty(0, dtype=uint8, device=home)
    size = tensor([own.numel()], dtype=int64, device=home)
    broadcast(size, group=found, group_src=root)
    count = int(size.item())
    data = own if mine else empty(count, dtype=uint8, device=home)
    broadcast(data, group=found, group_src=root)
    if not mine:
        object_list[:] = unpacked(data, count)


def gather_object(obj: Any, object_gather_list: list[Any] | None = None, dst: int | None = None, group: Any = None,
                  group_dst: int | None = None) -> None:
    """Put all processes' objects into the list of one."""
    found = group_of(group)
    if found is None:
        return
    root = place_in("gather_object", found, 0 if dst is None and group_dst is None else dst, group_dst)
    device = device_of(found)
    own = packed(obj, device)
    sizes = _sizes(own.numel(), found, device)
    most, mine = max(sizes), found.rank() == root
    if mine and (object_gather_list is None or len(object_gather_list) != found.size()):
        raise failure("gather_object", "the destination needs a list with a place for each process", error=ValueError)
    parts = [empty(most, dtype=uint8, device=device) for _ in sizes] if mine else None
    gather(_padded(own, most), parts, group=found, group_dst=root)
    if parts is not None and object_gather_list is not None:
        object_gather_list[:] = [unpacked(part, size) for part, size in zip(parts, sizes, strict=True)]


def scatter_object_list(scatter_object_output_list: list[Any], scatter_object_input_list: Sequence[Any] | None = None,
                        src: int | None = None, group: Any = None, group_src: int | None = None) -> None:
    """Put one object of one process' list into the first place of each process' output list."""
    found = group_of(group)
    if found is None:
        return
    root = place_in("scatter_object_list", found, 0 if src is None and group_src is None else src, group_src)
    device, mine = device_of(found), found.rank() == root
    if mine and (scatter_object_input_list is None or len(scatter_object_input_list) != found.size()):
        raise failure("scatter_object_list", "the source needs a list with an object for each process",
                      error=ValueError)
    own = [packed(x, device) for x in scatter_object_input_list or ()] if mine else []
    sizes = tensor([x.numel() for x in own] or [0] * found.size(), dtype=int64, device=device)
    broadcast(sizes, group=found, group_src=root)
    counts = [int(x) for x in sizes.tolist()]
    data = empty(max(counts), dtype=uint8, device=device)
    scatter(data, [_padded(x, max(counts)) for x in own] if mine else None, group=found, group_src=root)
    scatter_object_output_list[0] = unpacked(data, counts[found.rank()])
