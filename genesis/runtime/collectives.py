"""What moves data between processes: the protocol of a transport, and which one each group of processes has.

A plan names a group by its name, which is the same in all its processes. Transports are told tensors as their
backend has them: torch's on the CPU, addresses and a stream on CUDA.
"""

from __future__ import annotations

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final, Literal, NamedTuple, Protocol, overload

if TYPE_CHECKING:
    from datetime import timedelta

    import torch

    from genesis.runtime.cuda.collective_work import CollectiveWork
    from genesis.runtime.cuda.driver import Call, StreamHandle


class DistError(RuntimeError):
    """Something between the processes of a run failed."""


class DistBackendError(DistError):
    """A collective failed: a process is gone, hangs, or does something else."""


class DistNetworkError(DistError):
    """A connection between processes failed."""


class DistStoreError(DistError):
    """A key of the store did not come."""


class SupportsDLPack(Protocol):
    """A tensor of any library's, on the CPU, contiguous."""

    def __dlpack__(self, **arguments: object) -> object:
        """Its memory, as a capsule."""

    def __dlpack_device__(self) -> tuple[int, int]:
        """(type of device, number)."""


class HostMessage(Protocol):
    """A message between two processes that was begun.

    Attributes:
        tensor: what is sent, or what has come once it was waited for.
    """

    tensor: torch.Tensor

    def wait(self, timeout: timedelta | None = None) -> int:
        """Return when it has been sent, or has come; which process sent it, where that was not said."""


class HostTransport(Protocol):
    """Collectives on torch tensors, contiguous, that have returned when they are done.

    `peer` counts in the group. Reductions: "sum", "avg", "product", "min", "max", "band", "bor", "bxor".
    """

    rank: int
    size: int

    def compare(self, text: str) -> None:
        """Whether all processes are about to run the same collective.

        Raises:
            DistBackendError: they are not; on all of them.
        """

    def all_reduce(self, tensors: Sequence[torch.Tensor], reduce: str) -> None:
        """Reduce the tensors of all processes, in place."""

    def reduce_to(self, tensors: Sequence[torch.Tensor], reduce: str, peer: int) -> None:
        """Reduce them to one process, in place; the others' contents are undefined."""

    def broadcast(self, tensors: Sequence[torch.Tensor], peer: int) -> None:
        """Give all processes one's tensors, in place."""

    def all_gather(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> None:
        """Each input of all processes, one after another."""

    def reduce_scatter(self, outputs: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], reduce: str) -> None:
        """This process' part of each reduced input."""

    def all_to_all(self, output: torch.Tensor, input: torch.Tensor, received: Sequence[int],
                   sent: Sequence[int]) -> None:
        """Rows to all and from all."""

    def send(self, data: SupportsDLPack, peer: int, tag: int = 0) -> HostMessage:
        """Begin to send to one process, as a message with a number. Nobody else writes to the data from here on."""

    def recv(self, shape: Sequence[int], dtype: str, peer: int | None, tag: int = 0) -> HostMessage:
        """Begin to receive the next message with this number from one process, or from any (None)."""

    def abort(self) -> None:
        """End what hangs, from another thread."""

    def close(self) -> None:
        """Let go of connections; nothing runs."""


class KeyStore(Protocol):
    """Where processes find each other: keys with values, which all of them see."""

    def set(self, key: str, value: str | bytes) -> None:
        """Give a key a value."""

    def get(self, key: str) -> bytes:
        """The value of a key, waited for."""

    def add(self, key: str, amount: int) -> int:
        """Add to a key's number; returns the sum."""

    def check(self, keys: Sequence[str]) -> bool:
        """Whether all of the keys are there."""

    def wait(self, keys: Sequence[str], timeout: timedelta | None = None) -> None:
        """Wait for keys."""

    def delete_key(self, key: str) -> bool:
        """Remove a key; returns whether it was there."""


class DeviceTransport(Protocol):
    """Collectives on device memory, in the order of a stream."""

    rank: int
    size: int
    capturable: bool
    """Whether a call can be captured into a CUDA graph."""
    blocks: bool
    """Whether a call returns when the collective is done."""
    high_priority: bool
    """Whether its kernels go before others."""

    def compare(self, text: str) -> None:
        """Where a call blocks, whether all processes are about to run the same collective.

        Raises:
            DistBackendError: they are not; on all of them.
        """

    def run(self, work: CollectiveWork, stream: StreamHandle) -> None:
        """Give the stream (the driver's) the collective (`runtime.cuda.collective_work.CollectiveWork`)."""

    def calls(self, work: CollectiveWork, stream: StreamHandle) -> Sequence[Call]:
        """Calls into C that do what `run` does, where it does not block: no line of Python runs between them."""

    def abort(self) -> None:
        """End what hangs, from another thread."""

    def close(self) -> None:
        """Let go of the communicator; nothing runs."""


Transport = HostTransport | DeviceTransport

_transports: Final[dict[tuple[str, str], Transport]] = {}
"""(name of a group, device type) → its transport."""

_making: Final[defaultdict[tuple[str, str], threading.Lock]] = defaultdict(threading.Lock)
"""(name of a group, device type) → who makes its transport: another rank may want it before this one's program does,
and then the watchdog's thread has it made."""

class GroupEntry(NamedTuple):
    """What is known of a group.

    Attributes:
        make: makes a transport for a type of device.
        ranks: the group's, in the run.
        seconds: how long a collective may take.
    """

    make: Callable[[str], Transport]
    ranks: Sequence[int]
    seconds: float


_groups: Final[dict[str, GroupEntry]] = {}


LAUNCHERS: Final = (
    ("torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"),
    ("mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"),
    ("srun", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID"),
    ("mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"),  # MPICH's and Intel MPI's
)
"""(launcher, its variables for rank, world size and local rank), in the order in which they are looked for."""


def rank_of_job() -> int:
    """The number of this process among those that a launcher started; 0 where there is none."""
    told = next((os.environ[rank] for _, rank, size, _ in LAUNCHERS if rank in os.environ and size in os.environ), "0")
    return int(told) if told.isdigit() else 0


def ranks() -> int:
    """How many processes the job has, as far as its groups and who launched it tell."""
    told = next((os.environ[size] for _, rank, size, _ in LAUNCHERS if rank in os.environ and size in os.environ), "1")
    return max((len(entry.ranks) for entry in _groups.values()), default=int(told) if told.isdigit() else 1)


def add_group(name: str, entry: GroupEntry) -> None:
    """Register a group: its transport for a type of device is made at its first collective there, by all of it."""
    _groups[name] = entry


def group_entry(name: str) -> GroupEntry | None:
    """What is known of a group; None if it was destroyed."""
    return _groups.get(name)


def remove_group(name: str) -> None:
    """Forget a group, and let go of its transports."""
    _groups.pop(name, None)
    for key in [key for key in _transports if key[0] == name]:
        _transports.pop(key).close()


@overload
def transport(name: str, device_type: Literal["cpu"]) -> HostTransport: ...


@overload
def transport(name: str, device_type: Literal["cuda"]) -> DeviceTransport: ...


def transport(name: str, device_type: str) -> Transport:
    """A group's transport for a type of device.

    Raises:
        DistBackendError: the group was destroyed.
    """
    found = _transports.get((name, device_type))
    if found is None:
        with _making[name, device_type]:
            found = _transports.get((name, device_type))
            return _made(name, device_type) if found is None else found
    return found


def _made(name: str, device_type: str) -> Transport:
    entry = _groups.get(name)
    if entry is None:
        raise DistBackendError(_DESTROYED)
    found = entry.make(device_type)
    if _groups.get(name) is not entry:  # meanwhile, by another thread
        found.close()
        raise DistBackendError(_DESTROYED)
    _transports[name, device_type] = found
    return found


_DESTROYED: Final = "the process group of this collective was destroyed"


def has_transport(name: str, device_type: str) -> bool:
    """Whether a group's processes have met for a type of device."""
    return (name, device_type) in _transports


def transports() -> list[Transport]:
    """All transports that there are."""
    return list(_transports.values())
