"""What every device's memory can do: the contract of `CPUStorage`, `CUDAStorage` and a backend's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from typing import Self

    from typing_extensions import Buffer

    from genesis.ir.types import Device


class Memory(Protocol):
    """A block of a device's memory."""

    @property
    def nbytes(self) -> int:
        """Its size."""

    @property
    def device(self) -> Device:
        """Where it is."""

    def clone(self) -> Self:
        """Other memory with the same content."""

    def same(self, other: Self) -> bool:
        """Whether both hold the same bytes."""

    def copy_from_host(self, buffer: Buffer) -> None:
        """Overwrite all of it with a buffer of the same size in bytes."""

    def copy_to_host(self, buffer: Buffer) -> None:
        """Write all of it into a writable buffer of the same size in bytes."""
