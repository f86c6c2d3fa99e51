"""Layouts: which part of a whole tensor a rank's parameter is.

A parameter that is a part of a larger tensor says so by its `Layout` (`nn.Parameter.sharding`): its own shape is that
of the part. What norms, checkpoints and gathers need to know of the whole follows from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from genesis.distributed.collectives import all_gather
from genesis.distributed.tensor.placement import Placement, Replicate, Shard
from genesis.frontend.grad_mode import no_grad
from genesis.ir.errors import failure
from genesis.ops.creation import empty_like, zeros
from genesis.ops.parts import cat

if TYPE_CHECKING:
    from genesis.distributed.mesh import DeviceMesh


@dataclass(frozen=True)
class Layout:
    """Where a rank's part of a tensor is.

    Args:
        mesh: the ranks.
        placements: one for each dimension of the mesh. A later one cuts what the earlier ones left.
        shape: of the whole tensor.

    Raises:
        RuntimeError: not one placement for each dimension of the mesh, or a dimension that the tensor does not have.
    """

    mesh: DeviceMesh
    placements: tuple[Placement, ...]
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.placements) != self.mesh.ndim:
            raise failure("Layout", f"a mesh of {self.mesh.ndim} dimensions needs as many placements, not "
                          f"{list(self.placements)}")
        for placement in self.placements:
            if isinstance(placement, Shard) and not 0 <= placement.dim < len(self.shape):
                raise failure("Layout", f"a tensor of shape {list(self.shape)} has no dimension {placement.dim} to be "
                              "sharded along")

    def region(self, coordinate: Sequence[int] | None = None) -> list[tuple[int, int]]:
        """Each dimension's span (first, last + 1) of the part at a place of the mesh: this rank's, if none
        is given."""
        here = self.mesh.get_coordinate() if coordinate is None else list(coordinate)
        assert here is not None, "this rank is not in the mesh"
        found = [(0, size) for size in self.shape]
        for placement, parts, at in zip(self.placements, self.mesh.shape, here, strict=True):
            if isinstance(placement, Shard):
                start, stop = found[placement.dim]
                first, last = placement.part(stop - start, at, parts)
                found[placement.dim] = start + first, start + last
        return found

    def is_part(self, x: Any) -> bool:
        """Whether a tensor has the shape of this rank's part."""
        return tuple(x.shape) == tuple(last - first for first, last in self.region())

    def own(self, whole: Any) -> Any:
        """This rank's part of the whole tensor: a view."""
        return whole[tuple(slice(start, stop) for start, stop in self.region())] if self.shape else whole

    def gathered(self, part: Any) -> Any:
        """The whole tensor, given this rank's part; all ranks of the mesh call this. No gradient flows through it."""
        x = part.detach()
        with no_grad():
            for at in reversed(self.sharded_dims()):
                placement, ranks = self.placements[at], self.mesh.shape[at]
                assert isinstance(placement, Shard)
                dim, rest = placement.dim, (Replicate(),) * (self.mesh.ndim - at)
                start, stop = Layout(self.mesh, (*self.placements[:at], *rest), self.shape).region()[dim]
                bounds = [placement.part(stop - start, place, ranks) for place in range(ranks)]  # of what was left
                missing = bounds[0][1] - bounds[0][0] - x.shape[dim]
                if missing:
                    shape = [*x.shape[:dim], missing, *x.shape[dim + 1:]]
                    x = cat([x, zeros(shape, dtype=x.dtype, device=x.device)], dim)
                parts = [empty_like(x) for _ in range(ranks)]
                all_gather(parts, x.contiguous(), self.mesh.get_group(at))
                x = cat([y.narrow(dim, 0, last - first) for y, (first, last) in zip(parts, bounds, strict=True)], dim)
        return x

    def sharded_dims(self) -> list[int]:
        """The dimensions of the mesh along which ranks have different parts."""
        return [at for at, placement in enumerate(self.placements) if isinstance(placement, Shard)]

    def is_first_copy(self) -> bool:
        """Whether no rank before this one has the same part. Of the root mesh's other dimensions all ranks have it."""
        here = self.mesh.root.get_coordinate()
        assert here is not None, "this rank is not in the mesh"
        cut = {self.mesh.root_dims[at] for at in self.sharded_dims()}
        return not any(place for dim, place in enumerate(here) if dim not in cut)
