"""Placements: what a process holds of a tensor, along one dimension of a mesh; torch's names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Placement:
    """What a process holds of a tensor."""

    def is_shard(self, dim: int | None = None) -> bool:
        """Whether it is a part along a dimension, of this number if one is given."""
        return isinstance(self, Shard) and dim in (None, self.dim)

    def is_replicate(self) -> bool:
        """Whether it is all of it."""
        return isinstance(self, Replicate)

    def is_partial(self) -> bool:
        """Whether it is one term of a sum."""
        return isinstance(self, Partial)


@dataclass(frozen=True)
class Replicate(Placement):
    """Every process holds all of it."""

    def __repr__(self) -> str:
        return "Replicate()"


@dataclass(frozen=True)
class Shard(Placement):
    """Every process holds a part along a dimension: parts are as large as those of `chunk`, the last ones smaller.

    >>> Shard(0).part(5, 1, 2), Shard(0).part(5, 1, 4), Shard(0).part(5, 3, 4)
    ((3, 5), (2, 4), (5, 5))
    """

    dim: int

    def part(self, size: int, place: int, count: int) -> tuple[int, int]:
        """Where the part of process `place` of `count` begins and ends, of a dimension of this size."""
        step = -(-size // count)
        return min(place * step, size), min((place + 1) * step, size)

    def __repr__(self) -> str:
        return f"Shard(dim={self.dim})"


@dataclass(frozen=True)
class Partial(Placement):
    """Every process holds a term: the whole is their sum, or what else `reduce_op` says ("sum", "avg", "max", ...)."""

    reduce_op: str = "sum"

    def __repr__(self) -> str:
        return f"Partial({self.reduce_op})"
