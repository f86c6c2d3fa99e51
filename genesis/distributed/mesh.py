"""Device meshes: the ranks of a run as an array, with a group along each of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from genesis.distributed.run import current, new_group
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import int64
from genesis.ops.creation import tensor


class DeviceMesh:
    """The ranks of a run, or of a slice of it, as an array.

    All processes of the run make the same mesh: it makes groups.

    Args:
        device_type: "cpu" or "cuda".
        mesh: the ranks, nested as the array is.
        mesh_dim_names: a name for each dimension.

    Attributes:
        ranks: nested, as lists.
        shape: the array's shape.
        root: the mesh that it is a slice of, or itself.
        root_dims: its dimensions' places in the root.
    """

    compared_by_identity = True

    def __init__(self, device_type: str, mesh: Any, *, mesh_dim_names: Sequence[str] | None = None,
                 _groups: Sequence[Any] | None = None, _of: tuple[DeviceMesh, Sequence[int]] | None = None):
        self.device_type, self.ranks = device_type, _nested(mesh)
        self.shape = _shape(self.ranks)
        self.mesh_dim_names = None if mesh_dim_names is None else tuple(mesh_dim_names)
        if self.mesh_dim_names is not None and len(self.mesh_dim_names) != len(self.shape):
            raise failure("DeviceMesh", f"{len(self.shape)} dimensions need as many names, not "
                          f"{len(self.mesh_dim_names)}")
        if len(set(self.mesh_dim_names or ())) < len(self.mesh_dim_names or ()):
            raise failure("DeviceMesh", f"Each mesh_dim_name must be unique: {self.mesh_dim_names}")
        ranks = _flat(self.ranks)
        if len(set(ranks)) != len(ranks):
            raise failure("DeviceMesh", f"a rank is in the mesh {self.ranks} twice")
        self._rank = current().rank
        self.root, self.root_dims = (self, tuple(range(len(self.shape)))) if _of is None else (_of[0], tuple(_of[1]))
        self._groups = self._make_groups() if _groups is None else list(_groups)

    def _make_groups(self) -> list[Any]:
        """The group of this rank's line along each dimension; all lines' groups are made, in order."""
        found: list[Any] = [None] * len(self.shape)
        for dim in range(len(self.shape)):
            others = [range(size) if at != dim else (0,) for at, size in enumerate(self.shape)]
            for start in product(*others):
                line = [_at(self.ranks, (*start[:dim], i, *start[dim + 1:])) for i in range(self.shape[dim])]
                group = new_group(line)
                if self._rank in line:
                    found[dim] = group
        return found

    @property
    def mesh(self) -> Tensor:
        """The ranks, on the CPU."""
        return tensor(self.ranks, dtype=int64, device="cpu")

    def __eq__(self, other: object) -> bool:
        """Whether it is an equal array of ranks on the same type of device. Its groups may be others."""
        if not isinstance(other, DeviceMesh):
            return NotImplemented
        return (self.device_type, self.ranks, self.mesh_dim_names) == (other.device_type, other.ranks,
                                                                       other.mesh_dim_names)

    def __hash__(self) -> int:
        return hash((self.device_type, tuple(_flat(self.ranks)), self.mesh_dim_names))

    @property
    def ndim(self) -> int:
        """The number of dimensions."""
        return len(self.shape)

    def size(self, mesh_dim: int | None = None) -> int:
        """The number of ranks, along one dimension or in all."""
        return prod(self.shape) if mesh_dim is None else self.shape[mesh_dim]

    def _dim(self, mesh_dim: int | str | None) -> int:
        if mesh_dim is None:
            if self.ndim > 1:
                raise failure("DeviceMesh", f"the mesh has {self.ndim} dimensions: which one has to be said")
            return 0
        if isinstance(mesh_dim, str):
            if mesh_dim not in (self.mesh_dim_names or ()):
                raise failure("DeviceMesh", f"no dimension is named {mesh_dim!r}", error=KeyError,
                              hint=f"one of {self.mesh_dim_names}")
            return (self.mesh_dim_names or ()).index(mesh_dim)
        return mesh_dim

    def get_group(self, mesh_dim: int | str | None = None) -> Any:
        """The group of the ranks that differ from this one along a dimension alone."""
        return self._groups[self._dim(mesh_dim)]

    def get_all_groups(self) -> list[Any]:
        """The groups of all dimensions."""
        return list(self._groups)

    def get_rank(self) -> int:
        """This process' rank in the run."""
        return self._rank

    def get_coordinate(self) -> list[int] | None:
        """This rank's place in the array, None if it is not in it."""
        for place in product(*map(range, self.shape)):
            if _at(self.ranks, place) == self._rank:
                return list(place)
        return None

    def get_local_rank(self, mesh_dim: int | str | None = None) -> int:
        """This rank's place along one dimension."""
        found = self.get_coordinate()
        assert found is not None
        return found[self._dim(mesh_dim)]

    def __getitem__(self, names: str | tuple[str, ...]) -> DeviceMesh:
        """The slice of the mesh along these dimensions that this rank is in."""
        return self._slice([self._dim(name) for name in ((names,) if isinstance(names, str) else names)])

    def joined(self, other: DeviceMesh) -> DeviceMesh:
        """The slice of the root along this mesh's dimensions, then another one's.

        Raises:
            ValueError: they are not slices of one mesh along different dimensions.
        """
        if other.root is not self.root or set(self.root_dims) & set(other.root_dims):
            raise failure("DeviceMesh", f"{self} and {other} are not slices of one mesh along different dimensions",
                          hint='mesh = init_device_mesh(…, mesh_dim_names=("fsdp", "tp")), then mesh["tp"] and '
                          'mesh["fsdp"]', error=ValueError)
        return self.root._slice([*self.root_dims, *other.root_dims])

    def _slice(self, chosen: Sequence[int]) -> DeviceMesh:
        """The slice along dimensions of this mesh that this rank is in."""
        here = self.get_coordinate()
        assert here is not None

        def cut(dims: Sequence[int], place: list[int]) -> Any:
            if not dims:
                return _at(self.ranks, tuple(place))
            found = []
            for i in range(self.shape[dims[0]]):
                place[dims[0]] = i
                found.append(cut(dims[1:], place.copy()))
            return found
        names = self.mesh_dim_names
        return DeviceMesh(self.device_type, cut(chosen, here),
                          mesh_dim_names=None if names is None else [names[dim] for dim in chosen],
                          _groups=[self._groups[dim] for dim in chosen],
                          _of=(self.root, [self.root_dims[dim] for dim in chosen]))

    def __repr__(self) -> str:
        names = "" if self.mesh_dim_names is None else f", mesh_dim_names={self.mesh_dim_names}"
        return f"DeviceMesh({self.device_type!r}, {self.ranks}{names})"


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *,
                     mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
    """The mesh of all ranks, in order, with this shape.

    Raises:
        RuntimeError: the shape does not hold as many ranks as there are.
    """
    shape = tuple(mesh_shape)
    if prod(shape) != current().world_size:
        raise failure("init_device_mesh", f"a mesh of shape {shape} holds {prod(shape)} ranks, but there are "
                      f"{current().world_size}")
    ranks = iter(range(prod(shape)))

    def fill(sizes: tuple[int, ...]) -> Any:
        return [fill(sizes[1:]) if len(sizes) > 1 else next(ranks) for _ in range(sizes[0])]
    return DeviceMesh(device_type, fill(shape), mesh_dim_names=mesh_dim_names)


def _nested(mesh: Any) -> Any:
    plain = mesh.tolist() if hasattr(mesh, "tolist") else mesh
    return [_nested(x) if isinstance(x, (list, tuple, range)) else int(x) for x in plain]


def _shape(mesh: Any) -> tuple[int, ...]:
    return () if isinstance(mesh, int) else (len(mesh), *_shape(mesh[0]))


def _flat(mesh: Any) -> list[int]:
    return [mesh] if isinstance(mesh, int) else [rank for part in mesh for rank in _flat(part)]


def _at(mesh: Any, place: tuple[int, ...]) -> int:
    for i in place:
        mesh = mesh[i]
    return int(mesh)
