"""ZeRO 1 (Rajbhandari et al. 2020): each rank has all parameters and gradients, and a part of the optimizer's state.

    layout    rank i of n has the state of the i-th chunk of each parameter's rows, and steps these rows alone
    program   g (whole, reduced) → its rows ┐
              p (whole)          → its rows ┴→ the update → all_gather of all parameters' rows → p

It is the optimizer of a class of `genesis.optim`, whose update gets rows in the place of parameters: options, counts,
numbers and the op are that class's own. The gather is a node of the step's program, as all collectives are, and
parameters get what it brings together with the state and the counts, or nothing of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from genesis.distributed.mesh import DeviceMesh
from genesis.distributed.process_group import ProcessGroup
from genesis.distributed.run import group_of
from genesis.distributed.tensor import Layout, Placement, Replicate, Shard
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import no_grad
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.node import Op
from genesis.optim.gathering import GatheringWrites
from genesis.optim.groups import Group, with_names_apart
from genesis.optim.optimizer import Optimizer
from genesis.optim.state_dict import state_dict_of

NAME: Final = "ZeroRedundancyOptimizer"

_classes: Final[dict[tuple[type, type], type]] = {}
"""(this class or a user's subclass, an optimizer's class) → the class of an optimizer that is both."""


@dataclass(frozen=True)
class Share:
    """The rows of a parameter that this rank steps.

    Attributes:
        rows: their layout in the parameter as this rank has it.
        layout: that in the whole tensor, of which tensor parallelism may have left this rank a part.
    """

    rows: Layout
    layout: Layout

    @property
    def is_cut(self) -> bool:
        """Whether other ranks step other rows."""
        return any(self.rows.mesh.shape[dim] > 1 for dim in self.rows.sharded_dims())


class ZeroRedundancyOptimizer(Optimizer):
    """An optimizer whose state the ranks of a group share out: each steps a chunk of each parameter's rows, and all
    gather the new parameters. So with AdamW a rank has 2/n floats of state for each parameter instead of 2.

    Gradients are those of all ranks, as `DistributedDataParallel` leaves them; clipping, `GradScaler`, schedules and
    compiled steps see an optimizer of `optimizer_class`. Parameters without a dimension are stepped by all. Steps are
    those of the whole state, as each element's follows from its own gradients; on the CPU up to the last bit, which
    torch's kernels round otherwise at the end of a row of vectors.

    Args:
        params: parameters or groups, as of any optimizer; the same on all ranks, whole ones. Of those that tensor
            parallelism has cut the mesh says which ranks have the same part.
        optimizer_class: one of `genesis.optim` that steps each element by its own gradients.
        process_group: the ranks; None for all.
        parameters_as_bucket_view, overlap_with_ddp: accepted for torch's sake: nothing is copied into buckets, and
            what runs beside what is decided by passes.
        device_mesh: instead of the group, a mesh of one dimension, or (replicas, shards): state is shared out along the
            last one.
        defaults: options of `optimizer_class`.

    Raises:
        TypeError: `optimizer_class` is no optimizer's class.
        ValueError: its steps depend on all of a parameter; a parameter is shared out over these ranks already; there is
            no process group, or this process is outside of it.
        NotImplementedError: the class is not of `genesis.optim`: its step cannot be given rows.

    >>> import genesis
    >>> from genesis import distributed as dist, nn, optim
    >>> from genesis.distributed.optim import ZeroRedundancyOptimizer
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> model = nn.parallel.DistributedDataParallel(nn.Linear(2, 1, bias=False))
    >>> optimizer = ZeroRedundancyOptimizer(model.parameters(), optimizer_class=optim.AdamW, lr=1e-3)
    >>> model(genesis.ones(3, 2)).sum().backward()
    >>> optimizer.step()
    >>> optimizer.consolidate_state_dict()
    >>> optimizer.state_dict()["state"][0]["exp_avg"]
    tensor([[0.3000, 0.3000]])
    >>> dist.destroy_process_group()
    """

    def __new__(cls, params: Any = None, optimizer_class: Any = None, *args: Any, **options: Any) -> Any:
        """An instance of this class and of `optimizer_class`."""
        if any(issubclass(each, Optimizer) and not issubclass(each, ZeroRedundancyOptimizer) and each is not Optimizer
               for each in cls.__mro__):  # a copy is made of it
            return super().__new__(cls)
        _check_class(optimizer_class)
        if (cls, optimizer_class) not in _classes:
            _classes[cls, optimizer_class] = type(f"ZeroRedundancy{optimizer_class.__name__}", (cls, optimizer_class),
                                                  {"__module__": optimizer_class.__module__})
        return super().__new__(_classes[cls, optimizer_class])

    def __init__(self, params: Iterable[Any], optimizer_class: type[Optimizer],
                 process_group: ProcessGroup | None = None, parameters_as_bucket_view: bool = False,
                 overlap_with_ddp: bool = False, *, device_mesh: DeviceMesh | None = None, **defaults: Any):
        if process_group is not None and device_mesh is not None:
            raise failure(NAME, "Cannot specify both process_group and device_mesh arguments.", error=ValueError)
        if device_mesh is not None and device_mesh.ndim > 2:
            raise failure(NAME, f"a mesh of one dimension, or (replicas, shards), not {device_mesh}", error=ValueError)
        found = group_of(process_group) if device_mesh is None else device_mesh.get_group(device_mesh.ndim - 1)
        if found is None:
            raise failure(NAME, "this process is outside of the process group", error=ValueError)
        self.process_group: ProcessGroup = found
        self._mesh = device_mesh
        self._shares: dict[int, tuple[Tensor, Share]] = {}
        self._consolidated: tuple[dict[int, Any], list[Any]] | None = None
        super().__init__(params, **defaults)

    @property
    def optim(self) -> ZeroRedundancyOptimizer:
        """The optimizer of this rank's rows, as torch names it: this one."""
        return self

    # Rows

    def share_of(self, parameter: Tensor) -> Share:
        """The rows of a parameter that this rank steps.

        Raises:
            ValueError: the parameter is shared out over these ranks already.
        """
        found = self._shares.get(id(parameter))
        if found is None:
            found = self._shares[id(parameter)] = (parameter, self._shared_out(parameter))
        return found[1]

    def _shared_out(self, parameter: Tensor) -> Share:
        mesh = self._mesh_for(parameter)
        cut: Placement = Shard(0) if parameter.ndim else Replicate()
        placements = (*[Replicate()] * (mesh.ndim - 1), cut)
        rows = Layout(mesh, placements, tuple(parameter.shape))
        before = getattr(parameter, "sharding", None)
        if before is None or not before.sharded_dims():
            return Share(rows, rows)
        try:
            joined = before.mesh.joined(mesh)
        except ValueError:
            raise failure(NAME, f"ranks have parts of a parameter already: of one of shape {list(before.shape)}, over "
                          f"{before.mesh}", [("parameter", parameter)], error=ValueError,
                          hint="fully_shard leaves any optimizer a part; beside tensor parallelism device_mesh="
                          'mesh["dp"], of the mesh that layers are shared out over') from None
        return Share(rows, Layout(joined, (*before.placements, *placements), before.shape))

    def _mesh_for(self, parameter: Tensor) -> DeviceMesh:
        if self._mesh is None:
            self._mesh = DeviceMesh.from_group(self.process_group, parameter.device.type)
        return self._mesh

    def _rows(self, parameter: Tensor) -> Tensor:
        """This rank's rows of a parameter: a view without history."""
        with no_grad():
            return self.share_of(parameter).rows.own(parameter.detach())

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own, as of any optimizer."""
        group = with_names_apart(param_group)
        for parameter in group["params"]:
            if isinstance(parameter, Tensor):  # otherwise it is refused
                self.share_of(parameter)
        super().add_param_group(group)

    def initial_state(self, parameter: Tensor, group: Group) -> dict[str, Any]:
        """The class's, of this rank's rows."""
        return super().initial_state(self._rows(parameter), group)

    def update(self, group: Group, parameters: Sequence[Tensor], gradients: Sequence[Tensor]) -> None:
        """The class's update, of the rows' gradients."""
        super().update(group, parameters, [self.share_of(p).rows.own(g)
                                           for p, g in zip(parameters, gradients, strict=True)])

    def record(self, op: Op, attrs: tuple[Any, ...], numbers: Callable[[], Sequence[float]],
               operands: Sequence[Tensor], written: Sequence[Tensor]) -> None:
        """Record `op` on this rank's rows of the parameters among its operands."""
        super().record(op, attrs, numbers, [self._rows(x) if id(x) in self._shares else x for x in operands], written)

    def new_writes(self) -> GatheringWrites:
        """Where updates note what they write: parameters are gathered first."""
        cut = {id(p): share.rows for p, share in self._shares.values() if share.is_cut}
        return GatheringWrites(self._noted, self.process_group, cut)

    # State dicts

    def state_layout(self, parameter: Tensor) -> Layout | None:
        """Which part of a tensor like the whole parameter the state of this rank is."""
        return self.share_of(parameter).layout

    def consolidate_state_dict(self, to: int = 0) -> None:
        """Gather the state on one rank of the group, on its CPU, for its `state_dict()`. All ranks call this."""
        here = self.process_group.rank() == to
        numbers = {id(p): at for at, p in enumerate(self._parameters())}
        found: dict[int, Any] = {}
        for parameter, state in self._states.items():
            layout = self.share_of(parameter).layout
            made = {}
            for name, x in state.items():
                value = layout.gathered(x) if isinstance(x, Tensor) and layout.is_part(x) else x
                if isinstance(value, Tensor):  # one after the other, so that one alone is whole on other ranks
                    engine.materialize([value])
                if here:
                    made[name] = value.cpu().clone() if isinstance(value, Tensor) else value
            found[numbers[id(parameter)]] = made
        self._consolidated = (found, list(self._contents())) if here else None

    def _contents(self) -> Iterator[Any]:
        """What tells a state from one of another step: memories' contents, and what Python counts."""
        for state in self._states.values():
            for value in state.values():
                yield (value.storage.cell, value.storage.settled) if isinstance(value, Tensor) else value

    def state_dict(self) -> dict[str, Any]:
        """The whole state, as any optimizer has it, on the rank that `consolidate_state_dict` has gathered it on.

        Raises:
            RuntimeError: it was not gathered here, or has changed since.
        """
        if self.process_group.size() == 1:
            return self.local_state_dict()
        if self._consolidated is None:
            raise failure("ZeroRedundancyOptimizer.state_dict", "Optimizer state has not been consolidated on this "
                          "rank. Please call `consolidate_state_dict(to=...)` on all ranks beforehand if you meant to "
                          "save the global state.", hint="local_state_dict() is this rank's part")
        states, contents = self._consolidated
        if contents != list(self._contents()):
            raise failure("ZeroRedundancyOptimizer.state_dict", "the state has changed since "
                          "consolidate_state_dict() was called", hint="call it again, on all ranks")
        return {**self.local_state_dict(), "state": {number: dict(state) for number, state in states.items()}}

    def local_state_dict(self) -> dict[str, Any]:
        """The state of this rank's rows, in the form of `state_dict()`."""
        return state_dict_of(self)

    def own_part(self, parameter: Tensor, value: Tensor) -> Tensor:
        """This rank's rows of a saved tensor, which may be the whole one or these."""
        layout = self.share_of(parameter).layout
        return layout.own(value) if tuple(value.shape) == layout.shape else value


def _check_class(optimizer_class: Any) -> None:
    """Refuse what cannot step rows of parameters."""
    if not isinstance(optimizer_class, type) or not issubclass(optimizer_class, Optimizer):
        raise failure(NAME, f"optimizer_class is {optimizer_class!r}", hint="a class of genesis.optim: AdamW",
                      error=TypeError)
    name = optimizer_class.__name__
    if not optimizer_class.by_element:
        raise failure(NAME, f"a step of {name} depends on all of a parameter, of which a rank would have rows",
                      hint=f"AdamW or SGD; or {name} by itself, whose state each rank then has whole", error=ValueError)
    if optimizer_class.step is not Optimizer.step or not optimizer_class.update.__module__.startswith("genesis.optim."):
        raise failure(NAME, f"{name} is an optimizer of your own, whose step cannot be given rows of parameters",
                      hint="a class of genesis.optim; or fully_shard, with which any optimizer has parts",
                      error=NotImplementedError)
