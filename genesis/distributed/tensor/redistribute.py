"""`redistribute`: a tensor that lies otherwise over the processes than it did, and gradients that go the way back.

The change of layout is one op, `redistribute` of `ir/ops/collectives.py`; the pass `place_collectives` says what it
becomes. Its gradient is another change of layout, recorded when backward comes there.
"""

from __future__ import annotations

from genesis.distributed.functional import through
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.tensor.placement import Partial, Placement, Replicate, Shard
from genesis.frontend.recording import read, wrap
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.ops import collectives as ops

Change = tuple[Placement, Placement]
"""How a tensor lies, and how it is to lie."""


def redistribute(tensor: Tensor, group: ProcessGroup, change: Change, gradient: Change | None = None,
                 size: int | None = None) -> Tensor:
    """The tensor in another layout over the processes of a group.

    Args:
        tensor: what this process holds.
        group: the processes.
        change: (how it lies, how it is to lie).
        gradient: the same of its gradient, which comes as the result lies; by default as `natural_gradient` says.
        size: of the whole along the dimension that is shared out; by default parts are equal.

    Raises:
        RuntimeError: there is no such change, or no such dimension.

    >>> natural_gradient((Partial(), Replicate()))
    (Replicate(), Replicate())
    """
    change = _counted(change[0], tensor), _counted(change[1], tensor)
    before, after = natural_gradient(change) if gradient is None else gradient
    back = _counted(before, tensor), _counted(after, tensor)
    whole = _whole_size(tensor, group, change[0], size)
    own = change[1].dim if isinstance(change[1], Shard) else None
    asked = whole if whole is not None else None if own is None else tensor.shape[own]
    return through(tensor, lambda x: _moved(x, group, *change, whole),
                   lambda g: redistribute(g, group, back, size=asked))


def natural_gradient(change: Change) -> Change:
    """How a gradient arrives and how it is to lie where each process computes with what it holds, and all use what is
    whole alike: a term of a sum has the gradient of the sum, a part its part."""
    before, after = change
    return after, Replicate() if isinstance(before, Partial) else before


def _counted(placement: Placement, tensor: Tensor) -> Placement:
    """The placement with its dimension counted from the front."""
    if not isinstance(placement, Shard):
        return placement
    if not -tensor.ndim <= placement.dim < tensor.ndim:
        raise failure("redistribute", f"{placement} of a tensor of {tensor.ndim} dimensions", [("tensor", tensor)])
    return Shard(placement.dim % tensor.ndim)


def _whole_size(x: Tensor, group: ProcessGroup, before: Placement, size: int | None) -> int | None:
    """The size of the whole along the dimension that is shared out."""
    if not isinstance(before, Shard):
        return None
    own = x.shape[before.dim]
    whole = own * group.size() if size is None else size
    first, end = before.part(whole, group.rank(), group.size())
    if end - first != own:
        raise failure("redistribute", f"this process' part of {whole} along dimension {before.dim} is {end - first}, "
                      f"not {own}", [("tensor", x)], hint="parts are those of chunk")
    return whole


def _moved(x: Tensor, group: ProcessGroup, before: Placement, after: Placement, whole: int | None) -> Tensor:
    if before == after:
        return wrap(read(x))
    if isinstance(before, Replicate) and isinstance(after, Shard):
        first, end = after.part(x.shape[after.dim], group.rank(), group.size())
        return x.narrow(after.dim, first, end - first)
    if isinstance(after, Partial):
        raise failure("redistribute", f"from {before} to {after}", [("tensor", x)])
    (found,) = group.results(ops.redistribute, [x], world=group.size(), place=group.rank(), before=_text(before),
                             after=_text(after), size=whole or 0)
    return found


def _text(placement: Placement) -> str:
    if isinstance(placement, Shard):
        return f"shard {placement.dim}"
    return f"partial {placement.reduce_op}" if isinstance(placement, Partial) else "replicate"
