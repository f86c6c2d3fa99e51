"""The run that this process belongs to: its start, its groups, its end."""

from __future__ import annotations

import atexit
import itertools
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final
from urllib.parse import parse_qs, urlsplit

from genesis.distributed.environment import place
from genesis.distributed.process_group import ProcessGroup, backends_of
from genesis.distributed.store import PrefixStore, Store, TCPStore
from genesis.distributed.watchdog import GRACE, Watchdog
from genesis.frontend.session import rebound
from genesis.ir.errors import failure
from genesis.ir.suggest import suggesting
from genesis.runtime.collectives import DistStoreError
from genesis.runtime.ledger import ledger
from genesis.runtime.nccl_options import NcclOptions

DEFAULT_TIMEOUT: Final = timedelta(minutes=30)
NCCL_TIMEOUT: Final = timedelta(minutes=10)
"""How long a collective may take, as in torch: of gloo's, and of NCCL's."""


class GroupMember:
    """Names of torch's for the group of all, and for a group that this process is outside of."""

    WORLD: ProcessGroup | None = None
    NON_GROUP_MEMBER: Final[Any] = -100


class _Group(type):
    @property
    def WORLD(cls) -> ProcessGroup | None:
        """The group of all processes, None before there is one."""
        return GroupMember.WORLD


class group(metaclass=_Group):
    """`group.WORLD` is the group of all processes."""


@dataclass
class _Run:
    """What this process is in.

    Attributes:
        saved: how often this process has saved a checkpoint that others have, too, by where and of which step.
    """

    rank: int
    world_size: int
    store: PrefixStore
    bottom: Store
    own_store: bool
    watchdog: Watchdog
    groups: list[ProcessGroup] = field(default_factory=list)
    saved: Counter[str] = field(default_factory=Counter)


_run: list[_Run] = []
_starts = itertools.count()


def init_process_group(backend: str | None = None, init_method: str | None = None, timeout: timedelta | None = None,
                       world_size: int = -1, rank: int = -1, store: Store | None = None, group_name: str = "",
                       pg_options: Any = None, device_id: Any = None) -> None:
    """Join the run: all of its processes call this, and each returns when all have.

    Args:
        backend: "gloo" (on CUDA it goes through the host), "nccl", or "cpu:gloo,cuda:nccl", which is the default.
        init_method: "env://" (the default): the variables of torchrun, srun or mpirun; "tcp://host:port".
        timeout: how long a collective may take: 30 minutes, with NCCL alone 10.
        world_size, rank: of the run, if no launcher tells them.
        store: the store to find the others by, instead of an init_method.
        group_name: accepted for torch's sake.
        pg_options: `ProcessGroupNCCL.Options`: what NCCL may take of a GPU.
        device_id: the GPU of this process: it becomes the current one, and all processes meet there at once. Without
            it they meet at a group's first collective on GPUs, or its first message, which all of them have to take
            part in.

    Raises:
        ValueError: there is a group already, or nothing tells rank and world size.
        DistNetworkError, DistStoreError: the others are not there within the timeout.

    >>> import genesis
    >>> from genesis import distributed as dist
    >>> dist.init_process_group("gloo", store=dist.TCPStore("127.0.0.1", 0, is_master=True), rank=0, world_size=1)
    >>> x = genesis.ones(2)
    >>> dist.all_reduce(x)
    >>> x, dist.get_world_size()
    (tensor([1., 1.]), 1)
    >>> dist.destroy_process_group()
    """
    if _run:
        raise failure("init_process_group", "trying to initialize the default process group twice!", error=ValueError)
    backends = backends_of(backend)
    own = store is None
    if store is None:
        store, rank, world_size, prefix = _meet(init_method, rank, world_size, timeout)
    else:
        prefix = "given"
        if rank < 0 or world_size < 1:
            raise failure("init_process_group", "with a store, rank and world_size are needed", error=ValueError)
    if not 0 <= rank < world_size:
        raise failure("init_process_group", f"rank {rank} is none of {world_size}", error=ValueError)
    below = PrefixStore(f"genesis/{prefix}/{next(_starts)}", store)
    limit = timeout or (NCCL_TIMEOUT if set(backends.values()) == {"nccl"} else DEFAULT_TIMEOUT)
    if device_id is not None:
        from genesis.cuda import set_device
        set_device(device_id)
    _wait_for_all(below, rank, world_size)
    world = ProcessGroup(range(world_size), rank, backends, limit, below, _nccl_options(pg_options))
    GroupMember.WORLD = world
    beats = below.clone()
    watchdog = Watchdog(beats, rank, world_size)
    beats.limit_answers(max(watchdog.limit, GRACE))
    _run.append(_Run(rank, world_size, below, store, own, watchdog, [world]))
    rebound()
    world.connect()
    if device_id is not None and "cuda" in backends:
        world.connect_gpus()


def _meet(init_method: str | None, rank: int, world_size: int,
          timeout: timedelta | None) -> tuple[TCPStore, int, int, str]:
    """The store of the run, this process' rank in it, and what keys begin with."""
    found = urlsplit(init_method or "env://")
    limit = timeout or timedelta(minutes=5)
    if found.scheme == "tcp":
        options = parse_qs(found.query)
        rank = int(options["rank"][0]) if "rank" in options else rank
        world_size = int(options["world_size"][0]) if "world_size" in options else world_size
        if rank < 0 or world_size < 1 or found.port is None or found.hostname is None:
            raise failure("init_process_group", f"{init_method!r} needs a port, a rank and a world_size",
                          error=ValueError)
        return TCPStore(found.hostname, found.port, world_size, rank == 0, limit), rank, world_size, "tcp"
    if found.scheme != "env":
        raise failure("init_process_group", f"No rendezvous handler for {found.scheme}://", error=ValueError,
                      hint="env:// or tcp://host:port")
    here = place(rank=rank, world_size=world_size)
    master = here.rank == 0 and not here.served
    store = TCPStore(here.address, here.port, here.world_size, master, limit)
    return store, here.rank, here.world_size, f"restart{here.restart}"


class ProcessGroupNCCL:
    """torch's name for groups of NCCL's: `ProcessGroupNCCL.Options` are `pg_options`."""

    Options = NcclOptions


def _nccl_options(given: Any) -> NcclOptions | None:
    if given is not None and not isinstance(given, NcclOptions):
        raise failure("init_process_group", f"pg_options are ProcessGroupNCCL.Options, not {type(given).__name__}",
                      error=TypeError)
    return given


def _wait_for_all(store: PrefixStore, rank: int, world_size: int) -> None:
    """Return when all ranks have come.

    Raises:
        DistStoreError: some have not, within the store's limit; the message names them.
        ValueError: the first rank counts other ranks.
    """
    store.set(f"here/{rank}", str(world_size))
    keys = [f"here/{other}" for other in range(world_size)]
    try:
        store.wait(keys[:1])
        if int(store.get(keys[0])) != world_size:
            raise failure("init_process_group", f"rank {rank} is one of {world_size} ranks, and rank 0 one of "
                          f"{int(store.get(keys[0]))}", error=ValueError,
                          hint="the launcher's WORLD_SIZE is the same in all processes")
        if world_size > 1:
            store.wait(keys[1:])
    except DistStoreError as error:
        late = [str(other) for other, key in enumerate(keys) if not store.check([key])]
        if not late:
            raise
        raise failure("init_process_group", f"rank{'s' * (len(late) > 1)} {', '.join(late)} of {world_size} did not "
                      "join the run in time", hint="such a process may have failed before: look at its output",
                      error=DistStoreError) from error


def current() -> _Run:
    """The run.

    Raises:
        ValueError: there is none.
    """
    if not _run:
        raise failure("genesis.distributed", "Default process group has not been initialized, please make sure to call "
                      "init_process_group.", error=ValueError)
    return _run[0]


def run_pending() -> None:
    """Run all groups' collectives that were recorded."""
    for each in current().groups:
        each.run_pending()


def group_of(group: Any) -> ProcessGroup | None:
    """The group that is meant: None is all; the result None means that this process is outside of it."""
    if group is None:
        return current().groups[0]
    if group is GroupMember.NON_GROUP_MEMBER:
        return None
    found: ProcessGroup = group
    return found if found.rank() >= 0 else None


def place_in(name: str, group: ProcessGroup, rank: int | None, number: int | None) -> int:
    """The number in the group of a rank that is given as one or the other."""
    if (rank is None) == (number is None):
        raise failure(name, "Must specify a rank of the run, or of the group, and not both", error=ValueError)
    return group.place_of(rank) if rank is not None else number  # type: ignore[return-value]


def is_available() -> bool:
    """Whether this package can be used: always."""
    return True


def is_initialized() -> bool:
    """Whether this process has joined a run."""
    return bool(_run)


def get_rank(group: Any = None) -> int:
    """This process' number in the group, -1 outside."""
    found = group_of(group)
    return -1 if found is None else found.rank()


def get_world_size(group: Any = None) -> int:
    """How many processes the group has, -1 outside."""
    found = group_of(group)
    return -1 if found is None else found.size()


def get_backend(group: Any = None) -> str:
    """The backend of the group."""
    found = group_of(group)
    if found is None:
        raise failure("get_backend", "Invalid process group specified", error=ValueError)
    return found.name()


def get_backend_config(group: Any = None) -> str:
    """The backend of each type of device: "cpu:gloo,cuda:nccl"."""
    found = group_of(group)
    if found is None:
        raise failure("get_backend_config", "Invalid process group specified", error=ValueError)
    return ",".join(f"{device}:{backend}" for device, backend in found.backends.items())


def get_pg_count() -> int:
    """How many groups this process knows of."""
    return len(current().groups)


def get_process_group_ranks(group: Any = None) -> list[int]:
    """The group's ranks in the run."""
    found = group_of(group)
    return [] if found is None else list(found.ranks)


def get_global_rank(group: ProcessGroup, group_rank: int) -> int:
    """The rank in the run of the group's process with a number."""
    return group.ranks[group_rank]


def get_group_rank(group: ProcessGroup, global_rank: int) -> int:
    """The number in the group of a rank of the run."""
    return group.place_of(global_rank)


def get_node_local_rank(fallback_rank: int | None = None) -> int:
    """This process' number on its host."""
    try:
        return place().local_rank
    except ValueError:
        if fallback_rank is None:
            raise
        return fallback_rank


def new_group(ranks: Sequence[int] | None = None, timeout: timedelta | None = None, backend: str | None = None,
              pg_options: Any = None, use_local_synchronization: bool = False, group_desc: str | None = None,
              device_id: Any = None, sort_ranks: bool = True) -> Any:
    """A group of some ranks. All processes of the run call this, in one order; those outside get
    `GroupMember.NON_GROUP_MEMBER`.

    Args:
        ranks: of the run; None are all.
        timeout, backend: those of the group of all, if not said.
        pg_options: see `init_process_group`.
        use_local_synchronization: only the group's own processes need to call this, the same for each that they are in.
        group_desc, device_id: accepted for torch's sake.
        sort_ranks: processes have their places in the group by rank, not as the ranks are listed.

    Raises:
        ValueError: a rank is none of the run's, or listed twice.
    """
    run = current()
    chosen = list(range(run.world_size) if ranks is None else ranks)
    if len(set(chosen)) != len(chosen) or not chosen or min(chosen) < 0 or max(chosen) >= run.world_size:
        raise failure("new_group", f"the ranks {chosen} are not different ones of the {run.world_size} of the run",
                      error=ValueError)
    if use_local_synchronization and run.rank not in chosen:
        return GroupMember.NON_GROUP_MEMBER
    world = run.groups[0]
    found = ProcessGroup(sorted(chosen) if sort_ranks else chosen, run.rank,
                         dict(world.backends) if backend is None else backends_of(backend), timeout or world.timeout,
                         run.store, _nccl_options(pg_options), made_by_all=not use_local_synchronization, world=world)
    run.groups.append(found)
    if found.rank() < 0:
        return GroupMember.NON_GROUP_MEMBER
    found.connect()
    return found


def destroy_process_group(group: Any = None) -> None:
    """Run what is pending of a group, and end it; of all, and leave the run, without one."""
    run = current()
    if group is not None and group is not run.groups[0]:
        found = group_of(group)
        if found is not None:
            found.destroy()
            run.groups.remove(found)
        return
    try:
        for each in run.groups:
            each.finish()
        run.watchdog.announce_end()  # first: a communicator's end may wait for ranks that wait for this one
        for each in reversed(run.groups):
            each.destroy()
    finally:
        _leave(run)


def _leave(run: _Run) -> None:
    """Tell the others, and wait for them where this process serves the store."""
    _run.clear()
    GroupMember.WORLD = None
    rebound()
    run.watchdog.leave(_serves(run))
    ledger.forget()
    if run.own_store:
        run.bottom.close()


def _serves(run: _Run) -> bool:
    """Whether the others' store is this process' own."""
    return run.own_store and isinstance(run.bottom, TCPStore) and run.bottom.serves


def _at_exit() -> None:
    """A process that ends without destroy_process_group has run what others wait for; one that failed keeps the store,
    where it serves it, until they have read why."""
    if not _run:
        return
    if not _run[0].watchdog.failed:
        destroy_process_group()
    elif _serves(_run[0]):
        _run[0].watchdog.wait_for_others(GRACE)


atexit.register(_at_exit)


def is_gloo_available() -> bool:
    """True: it is torch's, on the CPU."""
    return True


def is_nccl_available() -> bool:
    """True if a GPU can be used."""
    from genesis import cuda
    return cuda.is_available()


def is_mpi_available() -> bool:
    """False: there is no such backend."""
    return False


is_ucc_available = is_xccl_available = is_mpi_available


def is_backend_available(backend: str) -> bool:
    """True for the name of a backend that can be used.

    >>> is_backend_available("gloo"), is_backend_available("mpi")
    (True, False)
    """
    return {"gloo": is_gloo_available, "nccl": is_nccl_available}.get(backend.lower(), is_mpi_available)()


def is_torchelastic_launched() -> bool:
    """True in a process that torchrun started."""
    return "TORCHELASTIC_RUN_ID" in os.environ


def get_default_backend_for_device(device: Any) -> str:
    """"nccl" for a GPU, "gloo" for the CPU."""
    return "nccl" if str(device).partition(":")[0] == "cuda" else "gloo"

__getattr__ = suggesting(__name__)
