"""The ranks of a training run: `genesis train CONFIG --mesh fsdp=2,tp=2`.

    dp=N      each rank has the whole model and some rows of a batch
    zero1=N   so it does, and of what the optimizer keeps a part (ZeRO 1)
    fsdp=N    each has some rows, and a part of all parameters, which are gathered where they are used
    tp=N      ranks that have the same rows share heads, hidden units and the vocabulary

The batch of a configuration is that of all ranks. So a run is the same on any mesh, but for the order of sums, and goes
on from its checkpoints with another one.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any, Final

LAUNCHERS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Variables that a process has which a launcher has started as one of several."""


DIMENSIONS: Final = ("dp", "zero1", "fsdp", "tp")
"""Names of a mesh's dimensions, the slowest first: neighbours share the most."""

SHARING: Final = DIMENSIONS[:-1]
"""Those along which ranks have rows of their own."""

Sizes = dict[str, int]
"""Name of a dimension → ranks along it: all of `DIMENSIONS`, 1 where it is not there."""


@dataclass(frozen=True)
class Ranks:
    """Attributes:
        rank, size: of this process, and how many there are.
        sizes: ranks along each dimension.
        mesh: they as a `DeviceMesh` of all of `DIMENSIONS`; None for a process alone.
    """

    rank: int = 0
    size: int = 1
    sizes: Sizes = field(default_factory=lambda: dict.fromkeys(DIMENSIONS, 1))
    mesh: Any = None

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and tells."""
        return self.rank == 0

    @property
    def shares(self) -> int:
        """How many shares a batch has."""
        return shares_of(self.sizes)

    @property
    def saves(self) -> bool:
        """Whether this process takes part in saving a checkpoint: all do where each has parts of what it holds."""
        return self.is_first or self.has_parts or self.sizes["zero1"] > 1

    @property
    def exports(self) -> bool:
        """Whether it takes part in writing the model: all do where each has parts of that."""
        return self.is_first or self.has_parts

    @property
    def has_parts(self) -> bool:
        """Whether each rank has parts of the parameters."""
        return self.sizes["fsdp"] * self.sizes["tp"] > 1

    def share_out(self, model: Any, optimizer: str) -> None:
        """Leave this rank's parts of a model, before optimizers are made.

        Raises:
            ValueError: the model or the optimizer cannot be shared out so.
        """
        if optimizer != "adamw" and (self.has_parts or self.sizes["zero1"] > 1):
            raise ValueError(f"optimizer.name = {optimizer!r} needs whole matrices, of which ranks of a mesh with "
                             "zero1, fsdp or tp step parts: use \"adamw\", or --mesh dp=N")
        if self.sizes["tp"] > 1:
            from genesis.distributed.tensor.parallel import parallelize_module
            parallelize_module(model, self.mesh["tp"], model.tp_plan(self.sizes["tp"]))
        if self.sizes["fsdp"] > 1:
            from genesis.distributed.fsdp import fully_shard
            mesh = self._along("dp", "fsdp")
            for layer in model.model.layers:
                fully_shard(layer, mesh=mesh)
            fully_shard(model, mesh=mesh)

    def data_parallel(self, model: Any) -> Any:
        """What computes a model's results, so that gradients are the means of all ranks'."""
        if self.shares == 1 or self.sizes["fsdp"] > 1:
            return model
        from genesis.nn.parallel import DistributedDataParallel
        mesh = self._along("dp", "zero1")
        return DistributedDataParallel(model, device_mesh=mesh if mesh.ndim == 1 else mesh._flatten())

    def optimizer(self, kind: Any, params: Any, **options: Any) -> Any:
        """The optimizer of a class, whose state is shared out where the mesh says so."""
        if self.sizes["zero1"] == 1:
            return kind(params, **options)
        from genesis.distributed.optim import ZeroRedundancyOptimizer
        return ZeroRedundancyOptimizer(params, kind, device_mesh=self._along("dp", "zero1"), **options)

    def _along(self, *names: str) -> Any:
        """The slice of the mesh along those of these dimensions that have several ranks."""
        return self.mesh[tuple(name for name in names if self.sizes[name] > 1)]

    @contextmanager
    def outside_of_forward(self, model: Any) -> Iterator[None]:
        """Inside, what the model's own forward would gather is there for its other methods."""
        if self.sizes["fsdp"] == 1:
            yield
            return
        model.unshard()
        try:
            yield
        finally:
            model.reshard()

    def own(self, rows: Any) -> Any:
        """This rank's rows of a batch."""
        if self.shares == 1:
            return rows
        place = 0
        for name in SHARING:
            place = place * self.sizes[name] + self.mesh.get_local_rank(name)
        return rows.chunk(self.shares)[place]

    def total(self, x: Any) -> Any:
        """The sum over all shares of a batch."""
        if self.shares == 1:
            return x
        from genesis import distributed as dist
        found = x.detach().clone()
        for name in SHARING:
            if self.sizes[name] > 1:
                dist.all_reduce(found, group=self.mesh.get_group(name))
        return found

    def largest(self, number: int) -> int:
        """The largest of all ranks' numbers, which waits for them."""
        if self.size == 1:
            return number
        import genesis
        from genesis import distributed as dist
        told = genesis.tensor([number])
        dist.all_reduce(told, dist.ReduceOp.MAX)
        return int(told.item())

    def leave(self) -> None:
        """The run is over."""
        if self.size > 1:
            from genesis import distributed as dist
            dist.destroy_process_group()


ALONE = Ranks()


def sizes_of(mesh: str) -> Sizes:
    """How many processes a mesh has along each dimension.

    Raises:
        ValueError: it is none that a run can have.

    >>> sizes_of("fsdp=2,tp=4")
    {'dp': 1, 'zero1': 1, 'fsdp': 2, 'tp': 4}
    """
    found = dict.fromkeys(DIMENSIONS, 0)
    for part in mesh.split(","):
        name, _, size = (word.strip() for word in part.partition("="))
        if name not in found or found[name] or not size.isdecimal() or int(size) < 1:
            raise ValueError(f"--mesh {mesh!r} is not supported: dp=N trains on N ranks, each with the whole model, "
                             "zero1=N shards what the optimizer keeps, fsdp=N parameters too, tp=N shares out layers; "
                             "several are dp=2,fsdp=2,tp=2")
        found[name] = int(size)
    if found["zero1"] > 1 and found["fsdp"] > 1:
        raise ValueError(f"--mesh {mesh!r}: fsdp=N shards what the optimizer keeps, too: zero1=N or fsdp=N")
    return {name: size or 1 for name, size in found.items()}


def shares_of(sizes: Sizes) -> int:
    """How many shares a batch has."""
    return prod(sizes[name] for name in SHARING)


def check_rows(batch: int, sizes: Sizes) -> None:
    """Refuse a batch whose rows cannot be shared out.

    Raises:
        ValueError: their number is no multiple of that of the shares.

    >>> check_rows(3, sizes_of("dp=2"))
    Traceback (most recent call last):
    ValueError: batch = 3 rows cannot be shared out evenly over 2 ranks
    """
    if batch % shares_of(sizes):
        raise ValueError(f"batch = {batch} rows cannot be shared out evenly over {shares_of(sizes)} ranks")


def is_started() -> bool:
    """Whether a launcher has started this process as one of several."""
    return any(name in os.environ for name in LAUNCHERS)


def start(arguments: Sequence[str], count: int) -> int:
    """Run the command of this program in so many processes; returns their status. SIGTERM goes on to them; Ctrl-C
    reaches them by itself."""
    from genesis.cli import launch
    processes = launch.start([sys.executable, "-m", "genesis", *arguments], count)

    def pass_on(number: int, frame: object) -> None:
        for process in processes:
            if process.poll() is None:
                process.send_signal(number)
    before = signal.signal(signal.SIGTERM, pass_on), signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        return launch.wait(processes)
    finally:
        signal.signal(signal.SIGTERM, before[0])
        signal.signal(signal.SIGINT, before[1])


def join(sizes: Sizes) -> Ranks:
    """Join the run of the launcher that started this process.

    Raises:
        ValueError: it has another number of processes than the mesh.
    """
    import genesis
    from genesis import distributed as dist
    on_gpu = genesis.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    count = prod(sizes.values())
    if dist.get_world_size() != count:
        raise ValueError(f"the mesh has {count} ranks, the launcher started {dist.get_world_size()}")
    if on_gpu:
        genesis.cuda.set_device(dist.get_node_local_rank())
    mesh = dist.init_device_mesh("cuda" if on_gpu else "cpu", tuple(sizes.values()), mesh_dim_names=tuple(sizes))
    return Ranks(dist.get_rank(), count, sizes, mesh)
