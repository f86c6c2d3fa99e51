"""Device meshes: the ranks of a run as an array, with a group along each of its dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product
from math import prod
from typing import Any

from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import current, new_group
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import int32
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

    >>> from genesis import distributed as dist
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> mesh = dist.init_device_mesh("cpu", (1, 1), mesh_dim_names=("dp", "tp"))
    >>> mesh, mesh["tp"].size()
    (DeviceMesh((dp=1, tp=1), 'cpu', ranks [[0]]), 1)
    >>> dist.destroy_process_group()
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
        self._flat_ones: dict[str, DeviceMesh] = {}

    def __deepcopy__(self, memo: dict[int, Any]) -> DeviceMesh:
        """Itself, as its groups are theirs."""
        return self

    @staticmethod
    def from_group(group: Any, device_type: str, mesh: Any = None, *,
                   mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
        """The mesh over groups that there are.

        Args:
            group: the group, or for each dimension that of this rank's line.
            device_type: "cpu" or "cuda".
            mesh: the ranks, nested as the array is; of one group it follows.
            mesh_dim_names: a name for each dimension; of one group it may be left out.

        Raises:
            ValueError: the mesh is not that of the groups, or not given where it is needed.
        """
        groups = [group] if isinstance(group, ProcessGroup) else list(group)
        if isinstance(group, ProcessGroup):
            if mesh is not None and _nested(mesh) != list(group.ranks):
                raise failure("DeviceMesh", f"the mesh {_nested(mesh)} is not that of a group of ranks "
                              f"{list(group.ranks)}", error=ValueError)
            mesh = list(group.ranks)
        elif mesh is None or mesh_dim_names is None:
            raise failure("DeviceMesh", "of several groups the mesh and its mesh_dim_names are needed",
                          error=ValueError)
        if len(_shape(_nested(mesh))) != len(groups):
            raise failure("DeviceMesh", f"a mesh of {len(_shape(_nested(mesh)))} dimensions needs as many groups, not "
                          f"{len(groups)}", error=ValueError)
        return DeviceMesh(device_type, mesh, mesh_dim_names=mesh_dim_names, _groups=groups)

    def _make_groups(self) -> list[Any]:
        """The group of this rank's line along each dimension; all lines' groups are made, in order."""
        found: list[Any] = [None] * len(self.shape)
        for dim in range(len(self.shape)):
            others = [range(size) if at != dim else (0,) for at, size in enumerate(self.shape)]
            for start in product(*others):
                line = [_at(self.ranks, (*start[:dim], i, *start[dim + 1:])) for i in range(self.shape[dim])]
                group = new_group(line, sort_ranks=False)
                if self._rank in line:
                    found[dim] = group
        return found

    @property
    def mesh(self) -> Tensor:
        """The ranks, on the CPU."""
        return tensor(self.ranks, dtype=int32, device="cpu")

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
        """The slice of the mesh along these dimensions that this rank is in, or what was made flat under this name.

        Raises:
            RuntimeError: the mesh's dimensions have no names.
            KeyError: there is none of this name.
        """
        if self.mesh_dim_names is None:
            raise failure("DeviceMesh", "Cannot slice a DeviceMesh without mesh_dim_names!",
                          hint='init_device_mesh(…, mesh_dim_names=("dp", "tp"))')
        flat = self.root._flat_ones.get(names) if isinstance(names, str) else None
        if flat is not None:
            return flat
        return self._slice([self._dim(name) for name in ((names,) if isinstance(names, str) else names)])

    def _flatten(self, mesh_dim_name: str | None = None) -> DeviceMesh:
        """The ranks of this slice in one dimension, a mesh of its own that `root[name]` gives, too. All processes of
        the run call this; torch's name.

        Args:
            mesh_dim_name: the dimension's name; None joins the names of the slice's.

        Raises:
            RuntimeError: the mesh's dimensions have no names.
            ValueError: there is a dimension of this name.
        """
        if self.mesh_dim_names is None:
            raise failure("DeviceMesh", "Cannot flatten a DeviceMesh without mesh_dim_names!",
                          hint='init_device_mesh(…, mesh_dim_names=("dp", "tp"))')
        name = mesh_dim_name or "_".join(self.mesh_dim_names)
        if self.mesh_dim_names == (name,):
            return self
        if name in (self.root.mesh_dim_names or ()):
            raise failure("DeviceMesh", f"a dimension is named {name!r} already", error=ValueError)
        root, found = self.root, None
        others = [range(1) if dim in self.root_dims else range(size) for dim, size in enumerate(root.shape)]
        for place in product(*others):
            line = _flat(root._ranks_along(self.root_dims, list(place)))
            group = new_group(line, sort_ranks=False)
            if self._rank in line:
                found = DeviceMesh(self.device_type, line, mesh_dim_names=(name,), _groups=[group])
        if found is None:
            raise failure("DeviceMesh", f"rank {self._rank} is not in {self}")
        root._flat_ones[name] = found
        return found

    def __enter__(self) -> DeviceMesh:
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing: who wants the mesh is given it."""

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
        names = self.mesh_dim_names
        return DeviceMesh(self.device_type, self._ranks_along(chosen, here),
                          mesh_dim_names=None if names is None else [names[dim] for dim in chosen],
                          _groups=[self._groups[dim] for dim in chosen],
                          _of=(self.root, [self.root_dims[dim] for dim in chosen]))

    def _ranks_along(self, dims: Sequence[int], place: list[int]) -> Any:
        """The ranks from a place along some dimensions, nested in their order."""
        if not dims:
            return _at(self.ranks, tuple(place))
        return [self._ranks_along(dims[1:], [i if dim == dims[0] else at for dim, at in enumerate(place)])
                for i in range(self.shape[dims[0]])]

    def __repr__(self) -> str:
        named = zip(self.mesh_dim_names or (), self.shape, strict=False)
        sizes = ", ".join(map(str, self.shape) if self.mesh_dim_names is None else (f"{k}={n}" for k, n in named))
        return f"DeviceMesh(({sizes}), {self.device_type!r}, ranks {self.ranks})"


def init_device_mesh(device_type: str, mesh_shape: Sequence[int], *,
                     mesh_dim_names: Sequence[str] | None = None) -> DeviceMesh:
    """The mesh of all ranks, in order, with this shape.

    Raises:
        RuntimeError: the shape does not hold as many ranks as there are, or the device has a number.
    """
    shape = tuple(mesh_shape)
    if ":" in device_type:
        raise failure("init_device_mesh", f"Device type with index is not supported but got {device_type}.",
                      hint=f"{device_type.partition(':')[0]!r}: which GPU is each process' own is said by "
                           "cuda.set_device")
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
