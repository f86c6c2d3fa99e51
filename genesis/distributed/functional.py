"""Collectives that gradients flow through, as torch.distributed.nn.functional has them.

Each is a boundary of autograd: its gradient is a collective too, which is recorded when backward comes there. So both
have their places in the group's order, on all ranks the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from genesis.distributed.collectives import ReduceOp
from genesis.distributed.collectives import all_gather_into_tensor as _all_gather_into_tensor
from genesis.distributed.collectives import all_reduce as _all_reduce
from genesis.distributed.collectives import all_to_all_single as _all_to_all_single
from genesis.distributed.collectives import broadcast as _broadcast
from genesis.distributed.collectives import reduce as _reduce
from genesis.distributed.collectives import reduce_scatter_tensor as _reduce_scatter_tensor
from genesis.distributed.run import group_of
from genesis.frontend.boundaries import Boundary, Gradients, insert_boundary
from genesis.frontend.grad_mode import enable_grad, mode, no_grad
from genesis.frontend.recording import read, wrap
from genesis.frontend.tensor import Tensor
from genesis.ops.creation import empty
from genesis.ops.parts import cat


class _Collective(Boundary):
    """The boundary of a collective: its gradient is another."""

    records = True
    owns_origins = True

    def __init__(self, origin: Tensor, pull: Callable[[Tensor], Tensor]):
        self.origins, self._pull = (origin,), pull

    def pull(self, gradients: Sequence[Any]) -> Gradients:
        """The origin's gradient."""
        (given,), (origin,) = gradients, self.origins
        return [(origin, self._pull(given))]


def through(x: Tensor, forward: Callable[[Tensor], Tensor], backward: Callable[[Tensor], Tensor]) -> Tensor:
    """forward(x), through which gradients go by `backward`."""
    with enable_grad():
        origin = wrap(read(x)) if x.requires_grad else None
    with no_grad():
        result = forward(x.detach())
    if origin is None or not mode.enabled:
        return result
    insert_boundary(result, _Collective(origin, backward))
    return result


def all_reduce(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensor, reduced over all processes: a sum, or a mean. The gradient is reduced in the same way."""
    def reduced(x: Tensor) -> Tensor:
        found = x.clone()
        _all_reduce(found, op, group)
        return found
    return through(tensor, reduced, lambda g: all_reduce(g, op, group))


def all_gather_tensor(tensor: Tensor, group: Any = None) -> Tensor:
    """All processes' tensors, one after another along the first dimension."""
    found = group_of(group)
    assert found is not None

    def gathered(x: Tensor) -> Tensor:
        whole = empty((found.size() * x.shape[0], *x.shape[1:]), dtype=x.dtype, device=x.device)
        _all_gather_into_tensor(whole, x, found)
        return whole
    return through(tensor, gathered, lambda g: reduce_scatter_rows(g, group=group))


def reduce_scatter_rows(tensor: Tensor, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This process' part, along the first dimension, of the sum over all."""
    found = group_of(group)
    assert found is not None

    def scattered(x: Tensor) -> Tensor:
        part = empty((x.shape[0] // found.size(), *x.shape[1:]), dtype=x.dtype, device=x.device)
        _reduce_scatter_tensor(part, x, op, found)
        return part

    def back(g: Tensor) -> Tensor:
        whole = all_gather_tensor(g, group)
        return whole / found.size() if op == ReduceOp.AVG else whole
    return through(tensor, scattered, back)


def all_gather(tensor: Tensor, group: Any = None) -> tuple[Tensor, ...]:
    """All processes' tensors."""
    found = group_of(group)
    assert found is not None
    return tuple(all_gather_tensor(tensor.unsqueeze(0), group).unbind(0))


def broadcast(tensor: Tensor, src: int, group: Any = None) -> Tensor:
    """One process' tensor, on all. Its gradient is the sum of theirs, and zeros on the others."""
    found = group_of(group)
    assert found is not None

    def given(x: Tensor) -> Tensor:
        copy = x.clone()
        _broadcast(copy, src, found)
        return copy

    def back(g: Tensor) -> Tensor:
        total = g.clone()
        _reduce(total, src, ReduceOp.SUM, found)
        return total if found.ranks[found.rank()] == src else total.new_zeros(total.shape)
    return through(tensor, given, back)


def all_to_all_rows(tensor: Tensor, output_split_sizes: Sequence[int] | None = None,
                    input_split_sizes: Sequence[int] | None = None, group: Any = None) -> Tensor:
    """Rows to and from all processes: equal parts, or so many to and from each."""
    def exchanged(x: Tensor) -> Tensor:
        rows = sum(output_split_sizes) if output_split_sizes else x.shape[0]
        out = empty((rows, *x.shape[1:]), dtype=x.dtype, device=x.device)
        _all_to_all_single(out, x, output_split_sizes, input_split_sizes, group)
        return out
    return through(tensor, exchanged, lambda g: all_to_all_rows(g, input_split_sizes, output_split_sizes, group))


def all_to_all_single(output: Tensor, input: Tensor, output_split_sizes: Sequence[int] | None = None,
                      input_split_sizes: Sequence[int] | None = None, group: Any = None) -> Tensor:
    """`all_to_all_rows` of the input under torch's name: what it returns is in `output`, too, which gets no history."""
    return _given(all_to_all_rows(input, output_split_sizes, input_split_sizes, group), output)


def all_to_all(output_tensor_list: Sequence[Tensor], input_tensor_list: Sequence[Tensor],
               group: Any = None) -> tuple[Tensor, ...]:
    """The i-th tensor to process i, from it the i-th; what it returns is in the outputs, too, which get no history."""
    sizes = [x.numel() for x in output_tensor_list]
    rows = all_to_all_rows(cat([x.flatten() for x in input_tensor_list]), sizes,
                           [x.numel() for x in input_tensor_list], group)
    return tuple([_given(part.reshape(out.shape), out) for part, out in zip(rows.split(sizes), output_tensor_list,
                                                                            strict=True)])


def reduce(tensor: Tensor, dst: int, op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """The tensor, summed over all processes, on one of them; what the others get is undefined. Its gradient is that
    one's, on all."""
    def reduced(x: Tensor) -> Tensor:
        found = x.clone()
        _reduce(found, dst, op, group)
        return found
    return through(tensor, reduced, lambda g: broadcast(g, dst, group))


def gather(tensor: Tensor, dst: int = 0, group: Any = None) -> tuple[Tensor, ...]:
    """All processes' tensors on one of them, on the others zeros, through which backward goes on all."""
    found = group_of(group)
    assert found is not None
    size, here = tensor.numel(), found.ranks[found.rank()] == dst
    rows = all_to_all_rows(tensor.flatten(), [size if here else 0] * found.size(),
                           [size if rank == dst else 0 for rank in found.ranks], group)
    if here:
        return tuple([part.reshape(tensor.shape) for part in rows.split(size)])
    nothing = rows.sum()
    return tuple([tensor.new_zeros(tensor.shape) + nothing for _ in found.ranks])


def scatter(tensors: Sequence[Tensor], src: int = 0, group: Any = None) -> Tensor:
    """One process' i-th tensor, on process i. The others' tensors say what comes, and get zeros as gradients."""
    found = group_of(group)
    assert found is not None
    size, here = tensors[0].numel(), found.ranks[found.rank()] == src
    flat = cat([x.flatten() for x in tensors])
    rows = all_to_all_rows(flat if here else flat[:0], [size if rank == src else 0 for rank in found.ranks],
                           [size if here else 0] * found.size(), group)
    return rows.reshape(tensors[0].shape)


def reduce_scatter(output: Tensor, input_list: Sequence[Tensor], op: Any = ReduceOp.SUM, group: Any = None) -> Tensor:
    """This process' of the sums over all of each tensor of a list; what it returns is in `output`, too, which gets no
    history."""
    parts = [x.reshape(1, *x.shape) for x in input_list]
    return _given(reduce_scatter_rows(cat(parts), op, group).reshape(output.shape), output)


def _given(found: Tensor, output: Tensor) -> Tensor:
    with no_grad():
        output.copy_(found)
    return found
