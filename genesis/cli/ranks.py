"""The ranks of a training run: `genesis train CONFIG --mesh dp=4`.

The batch of a configuration is that of all ranks, each of which computes some rows of it. So a run is the same on any
number of them, but for the order of sums, and goes on from its checkpoints with another number.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

LAUNCHERS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK")
"""Variables that a process has which a launcher has started as one of several."""


@dataclass(frozen=True)
class Ranks:
    """Attributes:
        rank, size: of this process, and how many there are.
    """

    rank: int = 0
    size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this is the one that writes and tells."""
        return self.rank == 0

    def data_parallel(self, model: Any) -> Any:
        """What computes a model's results, so that gradients are the means of all ranks'."""
        if self.size == 1:
            return model
        from genesis.nn.parallel import DistributedDataParallel
        return DistributedDataParallel(model)

    def own(self, rows: Any) -> Any:
        """This rank's rows of a batch."""
        return rows.chunk(self.size)[self.rank]

    def total(self, x: Any) -> Any:
        """The sum over all ranks."""
        if self.size == 1:
            return x
        from genesis import distributed as dist
        found = x.detach().clone()
        dist.all_reduce(found)
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


def ranks_of(mesh: str) -> int:
    """How many processes a mesh has.

    Raises:
        ValueError: it is none that a run can have.

    >>> ranks_of("dp=4")
    4
    """
    name, _, size = mesh.partition("=")
    if name.strip() != "dp" or not size.strip().isdecimal() or int(size) < 1:
        raise ValueError(f"--mesh {mesh!r} is not supported: dp=N trains on N ranks, each with the whole model")
    return int(size)


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


def join(count: int) -> Ranks:
    """Join the run of the launcher that started this process.

    Raises:
        ValueError: it has another number of processes than the mesh.
    """
    import genesis
    from genesis import distributed as dist
    on_gpu = genesis.cuda.is_available()
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    if dist.get_world_size() != count:
        raise ValueError(f"the mesh has {count} ranks, the launcher started {dist.get_world_size()}")
    if on_gpu:
        genesis.cuda.set_device(dist.get_node_local_rank())
    return Ranks(dist.get_rank(), count)
