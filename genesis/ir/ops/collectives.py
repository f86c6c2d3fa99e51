"""Collectives: ops whose results depend on what other processes give them.

All processes of a communicator (a process group, by its name) run the same collectives in the same order. That order
is data: the last operand is the communicator's *order*, one int32 in memory (on the CPU one for all communicators of
a process), and the last result is its next content, which is pending like any write to memory until it has run. So a
collective is equal to no other, none is dropped, and no pass and no schedule, on whichever rank, can change which comes
first.

Gradients of collectives are recorded, not emitted by a pass (`genesis/distributed/functional.py`): only what is
recorded has a place in the order that is the same on all ranks, however much of the program each computes at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from genesis.ir.node import Op
from genesis.ir.opaque import Opaque
from genesis.ir.types import Device, DType, TensorType, int32, tensor_type

if TYPE_CHECKING:
    from genesis.ir.node import Attr

BITWISE = ("band", "bor", "bxor")
"""Reductions of integers and booleans, bit by bit."""

REDUCTIONS = ("sum", "avg", "product", "min", "max", *BITWISE)


def order_type(device: Device) -> TensorType:
    """The type of a communicator's order on a device."""
    return tensor_type((1,), int32, device)


def _checked(infer: Callable[..., tuple[TensorType, ...]]) -> Callable[..., tuple[TensorType, ...]]:
    def types(*operands: TensorType, **attributes: Attr) -> tuple[TensorType, ...]:
        *tensors, order = operands
        if order is not order_type(order.device):
            raise RuntimeError(f"the last operand of a collective is the communicator's order, not {order}")
        if any(x.device is not order.device for x in tensors):
            raise RuntimeError("tensors of one collective are on one device, that of the communicator's order: "
                               f"{', '.join(sorted({str(x.device) for x in operands}))}")
        return (*infer(*tensors, **attributes), order)
    return types


def _same(*tensors: TensorType, reduce: str = "", **attributes: Attr) -> tuple[TensorType, ...]:
    if reduce == "avg" and any(x.dtype.kind != "float" for x in tensors):
        raise RuntimeError("an average is of floating-point tensors")
    if reduce in BITWISE and any(x.dtype.kind == "float" for x in tensors):
        raise RuntimeError("bitwise reductions are of integers and booleans")
    if reduce and reduce not in REDUCTIONS:
        raise RuntimeError(f"unknown reduction {reduce!r}")
    return tensors


def _gathered(*tensors: TensorType, communicator: str, world: int) -> tuple[TensorType, ...]:
    if not all(x.shape for x in tensors):
        raise RuntimeError("what is gathered along its first dimension has one")
    return tuple([x.with_shape((world * x.shape[0], *x.shape[1:])) for x in tensors])


def _scattered(*tensors: TensorType, communicator: str, world: int, reduce: str) -> tuple[TensorType, ...]:
    _same(*tensors, reduce=reduce)
    for x in tensors:
        if not x.shape or x.shape[0] % world:
            raise RuntimeError(f"the first dimension of {tuple(x.shape)} cannot be cut into {world} parts")
    return tuple([x.with_shape((x.shape[0] // world, *x.shape[1:])) for x in tensors])


def _exchanged(x: TensorType, communicator: str, sent: tuple[int, ...],
               received: tuple[int, ...]) -> tuple[TensorType, ...]:
    if not x.shape or sum(sent) != x.shape[0]:
        raise RuntimeError(f"the rows sent, {list(sent)}, are not those of a tensor of shape {tuple(x.shape)}")
    return (x.with_shape((sum(received), *x.shape[1:])),)


def _arrived(*tensors: TensorType, communicator: str, to: tuple[int, ...], sources: tuple[int, ...],
             shapes: tuple[tuple[int, ...], ...], dtypes: tuple[DType, ...], device: Device) -> tuple[TensorType, ...]:
    if len(to) != len(tensors) or not len(sources) == len(shapes) == len(dtypes):
        raise RuntimeError(f"{len(tensors)} tensors go to {list(to)}, and {len(shapes)} come from {list(sources)}")
    return tuple([tensor_type(shape, dtype, device) for shape, dtype in zip(shapes, dtypes, strict=True)])


def _collective(name: str, infer: Callable[..., tuple[TensorType, ...]], attrs: tuple[str, ...], doc: str) -> Op:
    return Op(name, "collective", _checked(infer), attrs=("communicator", *attrs), differentiable=False, doc=doc,
              opaque=Opaque("collective"))


all_reduce = _collective("all_reduce", _same, ("reduce",),
                         "Each operand, reduced over all processes. Several are one call.")
reduce_to = _collective("reduce_to", _same, ("reduce", "peer"),
                        "Each operand, reduced over all processes, on one of them; what the others get is undefined.")
broadcast = _collective("broadcast", _same, ("peer",), "Each operand of one process, on all.")
all_gather = _collective("all_gather", _gathered, ("world",),
                         "Each operand of all processes, one after another along its first dimension. Several are one "
                         "call.")
reduce_scatter = _collective("reduce_scatter", _scattered, ("world", "reduce"),
                             "Each operand, reduced over all processes: this one's part of its first dimension. "
                             "Several are one call.")
all_to_all = _collective("all_to_all", _exchanged, ("sent", "received"),
                         "`sent[i]` rows of the operand to process i; from it `received[i]`, one after another.")
messages = _collective("messages", _arrived, ("to", "sources", "shapes", "dtypes", "device"),
                       "Operand i goes to process `to[i]`, and result i is what process `sources[i]` sends next: all "
                       "at once, so that no process waits for one message with others left. On a GPU; on the CPU a "
                       "message is no op.")



# Changes of layout

def _relaid(x: TensorType, communicator: str, world: int, place: int, before: str, after: str,
            size: int) -> tuple[TensorType, ...]:
    own, wanted = sharded_dim(before), sharded_dim(after)
    if before == after or before == "replicate":
        raise RuntimeError(f"from {before} to {after} nothing is sent")
    shape = list(x.shape)
    if own is not None:
        shape[own] = size
    elif before.removeprefix("partial ") not in REDUCTIONS:
        raise RuntimeError(f"unknown layout {before!r}")
    if wanted is not None:
        first, end = part_of(shape[wanted], world, place)
        shape[wanted] = end - first
    return (x.with_shape(tuple(shape)),)


def sharded_dim(layout: str) -> int | None:
    """The dimension that is shared out in a layout's text, None where none is.

    >>> sharded_dim("shard 1"), sharded_dim("partial sum"), sharded_dim("replicate")
    (1, None, None)
    """
    return int(layout.removeprefix("shard ")) if layout.startswith("shard ") else None


def part_of(size: int, world: int, place: int) -> tuple[int, int]:
    """(first, last + 1) of a process' part of a dimension: parts are equal, but for the last ones.

    >>> [part_of(5, 4, place) for place in range(4)]
    [(0, 2), (2, 4), (4, 5), (5, 5)]
    """
    most = -(-size // world)
    return min(place * most, size), min((place + 1) * most, size)


redistribute = _collective(
    "redistribute", _relaid, ("world", "place", "before", "after", "size"),
    "A tensor that lies over the processes as `before` says, as `after` does: \"replicate\", \"shard 1\" (parts "
    "along a dimension, of `size` in all), \"partial sum\" (terms of a reduction). The pass `place_collectives` makes "
    "all_reduce, reduce_scatter or all_gather of it. `place` is this process' number in the communicator.")


COLLECTIVES = (all_reduce, reduce_to, broadcast, all_gather, reduce_scatter, all_to_all, messages)


# Buckets

def bucketed(sizes: list[int], first: int, cap: int) -> list[list[int]]:
    """Neighbouring tensors (by their bytes) put together: up to `first` bytes, then up to `cap` a bucket.

    >>> bucketed([4, 4, 8, 8, 2], 4, 12)
    [[0], [1, 2], [3, 4]]
    """
    found: list[list[int]] = [[]]
    filled, limit = 0, first
    for at, size in enumerate(sizes):
        if found[-1] and filled + size > limit:
            found.append([])
            filled, limit = 0, cap
        found[-1].append(at)
        filled += size
    return found


def _reduced_gradients(*operands: TensorType, communicator: str, first: int, cap: int) -> tuple[TensorType, ...]:
    return _checked(_same)(*operands, communicator=communicator, reduce="avg")


reduce_gradients = Op("reduce_gradients", "collective", _reduced_gradients, attrs=("communicator", "first", "cap"),
                      differentiable=False,
                      doc="The mean over all processes of each operand: gradients, about in the order in which "
                          "backward makes them. The pass `bucket_gradients` makes an all_reduce of each bucket, of at "
                          "most `cap` bytes (the first of at most `first`).")


