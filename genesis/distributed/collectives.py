"""Collectives under torch's names. Each is recorded, as an op, and runs with the program around it: reading a result
waits for it, and a collective that comes later never runs before one that was called earlier.

A process outside of the group does nothing and gets None.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Final

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import current, group_of, place_in
from genesis.distributed.work import Work
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.recording import require_tensors
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import Node
from genesis.ir.ops import collectives as ops
from genesis.ir.ops import movement
from genesis.ops.creation import empty, zeros


class ReduceOp:
    """How elements of several processes become one: sum, mean, product, least, largest; and, or, exclusive or of the
    bits of integers."""

    SUM: Final = "sum"
    AVG: Final = "avg"
    PRODUCT: Final = "product"
    MIN: Final = "min"
    MAX: Final = "max"
    BAND: Final = "band"
    BOR: Final = "bor"
    BXOR: Final = "bxor"


def _done(group: ProcessGroup, results: Sequence[Tensor], async_op: bool) -> Work | None:
    return Work(group, results) if async_op else None


def _reduction(name: str, op: Any) -> str:
    if op not in ops.REDUCTIONS:
        raise failure(name, f"unknown ReduceOp {op!r}", hint="ReduceOp.SUM, AVG, PRODUCT, MIN, MAX, BAND, BOR or BXOR",
                      error=ValueError)
    return str(op)


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Reduce the tensor over all processes, in place on all."""
    return all_reduce_coalesced([tensor], op, group, async_op)


def all_reduce_coalesced(tensors: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                         async_op: bool = False) -> Work | None:
    """Reduce several tensors over all processes, in place, in one call."""
    require_tensors(*tensors)
    found = group_of(group)
    if found is None:
        return None
    found.record(ops.all_reduce, tensors, tensors, reduce=_reduction("all_reduce", op))
    return _done(found, tensors, async_op)


def reduce(tensor: Tensor, dst: int | None = None, op: Any = ReduceOp.SUM, group: Any = None, async_op: bool = False,
           group_dst: int | None = None) -> Work | None:
    """Reduce the tensor to one process, in place; what the others' tensors hold then is not defined."""
    require_tensors(tensor)
    found = group_of(group)
    if found is None:
        return None
    found.record(ops.reduce_to, [tensor], [tensor], reduce=_reduction("reduce", op),
                 peer=place_in("reduce", found, dst, group_dst))
    return _done(found, [tensor], async_op)


def broadcast(tensor: Tensor, src: int | None = None, group: Any = None, async_op: bool = False,
              group_src: int | None = None) -> Work | None:
    """Give all processes one's tensor, in place."""
    return broadcast_coalesced([tensor], src, group, async_op, group_src)


def broadcast_coalesced(tensors: Sequence[Tensor], src: int | None = None, group: Any = None, async_op: bool = False,
                        group_src: int | None = None) -> Work | None:
    """Give all processes one's tensors, in place, in one call."""
    require_tensors(*tensors)
    found = group_of(group)
    if found is None:
        return None
    with no_grad():
        found.record(ops.broadcast, tensors, tensors, peer=place_in("broadcast", found, src, group_src))
    return _done(found, tensors, async_op)


def all_gather_into_tensor(output_tensor: Tensor, input_tensor: Tensor, group: Any = None,
                           async_op: bool = False) -> Work | None:
    """Write all processes' inputs to the output, one after another, or stacked.

    Raises:
        ValueError: the output has neither shape.
    """
    require_tensors(output_tensor, input_tensor)
    found = group_of(group)
    if found is None:
        return None
    if output_tensor.numel() != input_tensor.numel() * found.size():
        raise failure("all_gather_into_tensor", "output tensor size must be equal to world_size times input tensor "
                      "size", [("output", output_tensor), ("input", input_tensor)], error=ValueError)
    found.record(ops.all_gather, [_with_rows(input_tensor)], [output_tensor], _shaped(output_tensor),
                 world=found.size())
    return _done(found, [output_tensor], async_op)


all_gather_single = all_gather_into_tensor
"""torch's newer name."""


def _with_rows(x: Tensor) -> Tensor:
    return x if x.ndim else x.reshape(1)


def _shaped(*targets: Tensor) -> Callable[[Sequence[Node]], list[Node]]:
    """Results in their targets' shapes."""
    def finish(nodes: Sequence[Node]) -> list[Node]:
        return [node if node.shape == x.spec.shape else movement.reshape(node, shape=x.spec.shape)
                for node, x in zip(nodes, targets, strict=True)]
    return finish


def _parts(targets: Sequence[Tensor]) -> Callable[[Sequence[Node]], list[Node]]:
    """One result, cut along its first dimension into its targets."""
    def finish(nodes: Sequence[Node]) -> list[Node]:
        (whole,) = nodes
        rows = [x.spec.shape[0] if x.ndim else 1 for x in targets]
        found = []
        for end, count, x in zip(accumulate(rows), rows, targets, strict=True):
            rest = whole.shape[1:]
            part = movement.slice(whole, starts=(end - count, *(0 for _ in rest)), stops=(end, *rest),
                                  steps=(1,) * len(whole.shape))
            found.append(part if part.shape == x.spec.shape else movement.reshape(part, shape=x.spec.shape))
        return found
    return finish


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Write each process' tensor to one of the list; all have the tensor's shape."""
    require_tensors(tensor, *tensor_list)
    found = group_of(group)
    if found is None:
        return None
    _check_list("all_gather", tensor_list, found.size(), tensor)
    found.record(ops.all_gather, [_with_rows(tensor)], tensor_list, _parts(tensor_list), world=found.size())
    return _done(found, tensor_list, async_op)


def _check_list(name: str, tensors: Sequence[Tensor], count: int, like: Tensor | None = None) -> None:
    if isinstance(tensors, Tensor):
        raise failure(name, "a list of tensors is needed, one for each process, not a tensor", [("tensors", tensors)],
                      hint="all_gather_into_tensor and reduce_scatter_tensor take one", error=TypeError)
    if len(tensors) != count:
        raise failure(name, f"a list of {count} tensors is needed, one for each process, not {len(tensors)}",
                      error=ValueError)
    for x in tensors:
        if like is not None and (x.spec.shape != like.spec.shape or x.dtype is not like.dtype):
            raise failure(name, "tensors of the list have the shape and dtype of the tensor",
                          [("tensor", like), ("of the list", x)], error=ValueError)


def reduce_scatter_tensor(output: Tensor, input: Tensor, op: Any = ReduceOp.SUM, group: Any = None,
                          async_op: bool = False) -> Work | None:
    """Reduce the input over all processes, and write this one's part of it to the output.

    Raises:
        ValueError: the input is not as large as all outputs.
    """
    require_tensors(output, input)
    found = group_of(group)
    if found is None:
        return None
    if input.numel() != output.numel() * found.size():
        raise failure("reduce_scatter_tensor", "input tensor must be the same size as output size times world size",
                      [("output", output), ("input", input)], error=ValueError)
    rows = input if input.ndim and input.shape[0] % found.size() == 0 else input.reshape(-1)
    found.record(ops.reduce_scatter, [rows], [output], _shaped(output), world=found.size(),
                 reduce=_reduction("reduce_scatter", op))
    return _done(found, [output], async_op)


reduce_scatter_single = reduce_scatter_tensor
"""torch's newer name."""


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None,
                   async_op: bool = False) -> Work | None:
    """Reduce the tensors of the list over all processes, and write this one's to the output."""
    from genesis.ops.parts import stack
    require_tensors(output, *input_list)
    found = group_of(group)
    if found is None:
        return None
    _check_list("reduce_scatter", input_list, found.size(), output)
    with no_grad():
        return reduce_scatter_tensor(output, stack(list(input_list)), op, group, async_op)


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None,
                      async_op: bool = False) -> Work | None:
    """Send rows of the input to all, and write what they send to the output: equal parts, or so many rows to and from
    each.

    Raises:
        ValueError, RuntimeError: the parts are not all rows.
    """
    require_tensors(output, input)
    found = group_of(group)
    if found is None:
        return None
    sent = _splits("input", input, input_split_sizes, found.size())
    received = _splits("output", output, output_split_sizes, found.size())
    found.record(ops.all_to_all, [input], [output], _shaped(output), sent=sent, received=received)
    return _done(found, [output], async_op)


def _splits(name: str, x: Tensor, sizes: Sequence[int] | None, count: int) -> tuple[int, ...]:
    rows = x.shape[0] if x.ndim else 0
    if not sizes:
        if rows % count:
            raise failure("all_to_all_single", f"{name} tensor's dim 0 must be divisible by the group size {count}",
                          [(name, x)], error=ValueError)
        return (rows // count,) * count
    if len(sizes) != count or sum(sizes) != rows:
        raise failure("all_to_all_single", f"{name} split sizes {list(sizes)} are not the rows of each process",
                      [(name, x)], error=ValueError)
    return tuple(map(int, sizes))


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor], group: Any = None,
               async_op: bool = False) -> Work | None:
    """Send a tensor to each process, and write what each sends to a tensor; numbers of elements may differ."""
    from genesis.ops.parts import cat
    require_tensors(*output_tensor_list, *input_tensor_list)
    found = group_of(group)
    if found is None:
        return None
    _check_list("all_to_all", output_tensor_list, found.size())
    _check_list("all_to_all", input_tensor_list, found.size())
    with no_grad():
        flat = cat([x.reshape(-1) for x in input_tensor_list])
    found.record(ops.all_to_all, [flat], output_tensor_list, _flat_parts(output_tensor_list),
                 sent=tuple(x.numel() for x in input_tensor_list),
                 received=tuple(x.numel() for x in output_tensor_list))
    return _done(found, output_tensor_list, async_op)


def _flat_parts(targets: Sequence[Tensor]) -> Callable[[Sequence[Node]], list[Node]]:
    def finish(nodes: Sequence[Node]) -> list[Node]:
        (whole,) = nodes
        ends = accumulate(x.numel() for x in targets)
        return [movement.reshape(movement.slice(whole, starts=(end - x.numel(),), stops=(end,), steps=(1,)),
                                 shape=x.spec.shape) for end, x in zip(ends, targets, strict=True)]
    return finish


def gather(tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int | None = None, group: Any = None,
           async_op: bool = False, group_dst: int | None = None) -> Work | None:
    """Write all processes' tensors to the list of one.

    Raises:
        ValueError: that one has no list of them, or another one has.
    """
    require_tensors(tensor, *(gather_list or ()))
    found = group_of(group)
    if found is None:
        return None
    to = place_in("gather", found, 0 if dst is None and group_dst is None else dst, group_dst)
    mine = found.rank() == to
    if mine != bool(gather_list):
        raise failure("gather", "Argument ``gather_list`` must be specified on destination rank, and on no other",
                      error=ValueError)
    if gather_list:
        _check_list("gather", gather_list, found.size(), tensor)
    count = tensor.numel()
    found.record(ops.all_to_all, [tensor.reshape(-1)], list(gather_list or ()),
                 _flat_parts(gather_list) if gather_list else lambda nodes: [],
                 sent=tuple(count if i == to else 0 for i in range(found.size())),
                 received=(count if mine else 0,) * found.size())
    return _done(found, list(gather_list or ()), async_op)


def scatter(tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int | None = None, group: Any = None,
            async_op: bool = False, group_src: int | None = None) -> Work | None:
    """Write one process' tensors of a list to all, one each.

    Raises:
        ValueError: that one has no list of them, or another one has.
    """
    from genesis.ops.parts import cat
    require_tensors(tensor, *(scatter_list or ()))
    found = group_of(group)
    if found is None:
        return None
    source = place_in("scatter", found, 0 if src is None and group_src is None else src, group_src)
    mine = found.rank() == source
    if mine != bool(scatter_list):
        raise failure("scatter", "Argument ``scatter_list`` must be specified on source rank, and on no other",
                      error=ValueError)
    count = tensor.numel()
    with no_grad():
        if scatter_list:
            _check_list("scatter", scatter_list, found.size(), tensor)
            given = cat([x.reshape(-1) for x in scatter_list])
        else:
            given = empty(0, dtype=tensor.dtype, device=tensor.device)
    found.record(ops.all_to_all, [given], [tensor], _shaped(tensor), sent=(count if mine else 0,) * found.size(),
                 received=tuple(count if i == source else 0 for i in range(found.size())))
    return _done(found, [tensor], async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all processes have come here, with all that they recorded before computed."""
    found = group_of(group)
    if found is None:
        return None
    engine.flush([])
    device = "cpu" if "cpu" in found.backends else "cuda"
    met = zeros(1, device=device)
    found.record(ops.all_reduce, [met], [met], reduce="sum")
    if async_op:
        return Work(found, [met])
    met.item()
    return None


def world() -> ProcessGroup:
    """The group of all processes."""
    return current().groups[0]
