"""`parallelize_module`: a model, a mesh and a plan."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from typing import Any

from genesis.distributed.collectives import broadcast_coalesced
from genesis.distributed.mesh import DeviceMesh
from genesis.frontend.engine_protocol import engine
from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.nn.modules.module import Module
from genesis.nn.parallel.tensor.style import ParallelStyle

Plan = Mapping[str, ParallelStyle]


def parallelize_module(module: Module, device_mesh: DeviceMesh, parallelize_plan: ParallelStyle | Plan | None = None, *,
                       src_data_rank: int | None = 0) -> Module:
    """Share a module's weights and work out over the processes of a mesh, in place.

    Args:
        module: whole, on every process.
        device_mesh: of one dimension: a slice of a larger one, `mesh["tp"]`.
        parallelize_plan: a style for the module, or styles by the paths of modules inside, "*" standing for any name
            ("layers.*.self_attn.q_proj"). None takes the model's own: `module.tp_plan(ranks)`.
        src_data_rank: the process of the mesh whose weights are taken; None: each has the same.

    Returns:
        The module.

    Raises:
        RuntimeError: the mesh has more dimensions, or weights do not fit it.
        ValueError: there is no plan.

    >>> import genesis
    >>> from genesis import distributed as dist, nn
    >>> from genesis.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> model = nn.Sequential(nn.Linear(2, 4), nn.ReLU(), nn.Linear(4, 1))
    >>> mesh = dist.init_device_mesh("cpu", (1,))
    >>> parallelize_module(model, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})(genesis.ones(3, 2)).shape
    genesis.Size([3, 1])
    >>> dist.destroy_process_group()
    """
    if device_mesh.ndim != 1:
        raise failure("parallelize_module", f"only a mesh of one dimension is supported, not one of shape "
                      f"{device_mesh.shape}", hint='give a slice of it: mesh["tp"]')
    if parallelize_plan is None:
        own = getattr(module, "tp_plan", None)
        if own is None:
            raise failure("parallelize_module", f"{type(module).__name__} has no plan of its own",
                          hint="parallelize_plan={'path': ColwiseParallel(), …}", error=ValueError)
        parallelize_plan = own(device_mesh.size())
    if src_data_rank is not None:
        _begin_alike(module, device_mesh, src_data_rank)
    plan = {"": parallelize_plan} if isinstance(parallelize_plan, ParallelStyle) else parallelize_plan
    for path, style in plan.items():
        found = list(_at(module, path.split(".") if path else []))
        if not found:
            warnings.warn(f"Parallelize plan key '{path}' could not be resolved: no submodule of "
                          f"{type(module).__name__} has this path", stacklevel=2)
        for part in found:
            style.apply(part, device_mesh)
    return module


def _at(module: Module, names: list[str]) -> Iterator[Module]:
    """The modules at a path."""
    if not names:
        yield module
        return
    for name, child in module.named_children():
        if fnmatch(name, names[0]):
            yield from _at(child, names[1:])


def _begin_alike(module: Module, mesh: DeviceMesh, source: int) -> None:
    """Take one process' parameters and buffers."""
    by_device: dict[Any, list[Tensor]] = {}
    for x in (*module.parameters(), *module.buffers()):
        if getattr(x, "sharding", None) is None and x.device.type != "meta":
            by_device.setdefault(x.device, []).append(x)
    for alike in by_device.values():
        broadcast_coalesced(alike, group=mesh.get_group(), group_src=source)
        engine.materialize(alike)
