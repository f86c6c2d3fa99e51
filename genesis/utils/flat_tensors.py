"""Several tensors as one vector and back, by torch's private names, which tools of mixed precision import."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from genesis.frontend.tensor import Tensor
from genesis.ir.suggest import suggesting
from genesis.ops.parts import cat


def _flatten_dense_tensors(tensors: Sequence[Tensor]) -> Tensor:
    """The elements of tensors of one dtype, one after the other.

    >>> import genesis
    >>> _flatten_dense_tensors([genesis.ones(2), genesis.zeros(1, 1)])
    tensor([1., 1., 0.])
    """
    return cat([x.reshape(-1) for x in tensors])


def _unflatten_dense_tensors(flat: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Views of a vector with the shapes of these tensors."""
    parts = flat.split([x.numel() for x in tensors])
    return tuple(part.view(x.shape) for part, x in zip(parts, tensors, strict=True))


def _take_tensors(tensors: Sequence[Tensor], size_limit: int) -> Iterator[list[Tensor]]:
    """Groups of tensors of one class by dtype and device, each of up to so many bytes, or of one tensor."""
    groups: dict[str, tuple[list[Tensor], int]] = {}
    for x in tensors:
        kind = x.type()
        group, size = groups.get(kind, ([], 0))
        if group and size + x.nbytes > size_limit:
            yield group
            group, size = [], 0
        groups[kind] = [*group, x], size + x.nbytes
    yield from (group for group, _ in groups.values() if group)


__getattr__ = suggesting(__name__)
