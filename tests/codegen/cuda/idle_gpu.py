"""A pretended GPU that computes nothing: for the kernels of programs of any size, and what they are launched with."""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Sequence
from typing import Final, NamedTuple

from triton import knobs

from genesis.codegen.cuda.gpu_model import GpuModel
from genesis.codegen.cuda.source import KernelSource
from genesis.codegen.cuda.worker import compile_kernel
from genesis.engine.backends import FakeCUDABackend
from genesis.runtime.cuda.module import SHARED_BYTES_WITHOUT_PERMISSION
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import KernelImage

TOUCHED: Final = 1 << 16
"""Bytes up to which memory is there: tables and numbers, which are copied."""

FIRST_ADDRESS: Final = 1 << 44
"""Where memory begins that is not there."""


class IdleDriver(HostDriver):
    """The host driver without memory and without work: a program of gigabytes is planned in a moment. What CUDA would
    refuse of a launch is refused all the same."""

    def __init__(self, memory_bytes: int = 140 << 30, capability: tuple[int, int] = (9, 0)):
        super().__init__(memory_bytes, capability=capability)
        self._next = FIRST_ADDRESS

    def alloc(self, nbytes: int) -> int:
        """An address that nobody may look at, of large memory."""
        return super().alloc(nbytes) if nbytes <= TOUCHED else self.reserve_range(nbytes)

    def free(self, address: int) -> None:
        """Likewise."""
        if address < FIRST_ADDRESS:
            super().free(address)

    def reserve_range(self, nbytes: int) -> int:
        """Addresses, without memory."""
        address = self._next
        self._next += -(-nbytes // (1 << 21)) * (1 << 21)
        return address

    def map_memory(self, address: int, nbytes: int) -> None:
        """Nothing is behind it."""

    def unmap_memory(self, address: int, nbytes: int) -> None:
        """Nothing was."""

    def copy_to_device(self, *arguments: object) -> None:
        """Nothing is copied, here and below."""

    def copy_to_host(self, *arguments: object) -> None: ...
    def copy(self, *arguments: object) -> None: ...
    def fill(self, *arguments: object) -> None: ...
    def launch(self, *arguments: object) -> None: ...
    def launch_graph(self, *arguments: object) -> None: ...
    def _inside(self, call: str, address: int, nbytes: int) -> None: ...


class Kept(FakeCUDABackend):
    """A pretended GPU that keeps the kernels that it was asked for."""

    def __init__(self) -> None:
        super().__init__(IdleDriver())
        self.sources: list[KernelSource] = []

    def compile(self, sources: Sequence[KernelSource]) -> Sequence[KernelImage]:
        """As it was, and they are kept."""
        self.sources += sources
        return super().compile(sources)


RESERVED: Final = 1024
"""Bytes of shared memory that CUDA has of each program itself; a GPU's limit is without them."""


class Resources(NamedTuple):
    """What a kernel takes.

    Attributes:
        registers: of a thread.
        stack: bytes of a thread that are in memory, as registers have no room for them.
        static: bytes of shared memory that its text declares, beside what it is launched with.
    """

    registers: int
    stack: int
    static: int


def resources(binary: bytes) -> Resources:
    """What NVIDIA's own tool says of a kernel."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        told = subprocess.run([knobs.nvidia.cuobjdump.path, "-res-usage", file.name], capture_output=True, text=True,
                              check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", told)
    assert found is not None, told
    registers, stack, shared = map(int, found.groups())
    return Resources(registers, stack, max(0, shared - RESERVED))


def compiles_for(source: KernelSource, gpu: GpuModel) -> Resources:
    """Compile a kernel; a GPU of this kind can start it."""
    image = compile_kernel(source.key_parts(), gpu.architecture)
    used, shared, warps = resources(image["cubin"]), image["shared_bytes"], image["num_warps"]
    room = SHARED_BYTES_WITHOUT_PERMISSION if shared <= SHARED_BYTES_WITHOUT_PERMISSION else gpu.block_shared_memory
    assert shared + used.static <= room, f"{source.name}: {shared} + {used.static} bytes of shared memory"
    assert -(-used.registers // 8) * 8 * 32 * warps <= gpu.registers, f"{source.name}: {used.registers} × {warps} warps"
    return used
