"""What the compiler knows about a GPU. This is the only file that does: splits, tiles and grids ask the model.

A model is read from the driver (`model_of`), or is one of `MODELS`, for a machine without a GPU. It is handed from the
backend to the passes and to every emitter, and is part of the keys of kernels and plans.

    target "cuda"  →  the GPU at hand, or an H200 where there is none
    target "l4"    →  MODELS["l4"]

What needs Hopper (compute capability 9.0) asks the model, and has a plain form beside it for older GPUs. A GPU below
8.0 is refused when it is first used (`runtime.cuda.driver.require_capability`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

from genesis.ir.gpu_figures import H200 as H200_FIGURES
from genesis.ir.gpu_figures import GpuFigures
from genesis.ir.node import Node
from genesis.ir.sym_int import hint
from genesis.ir.types import bfloat16, float16, float32
from genesis.passes.multiply_add_times import streams_fma
from genesis.passes.product_times import STREAMED


@dataclass(frozen=True)
class GpuModel:
    """One kind of GPU.

    Attributes:
        name: as the driver calls it.
        capability: compute capability, (9, 0) for 9.0.
        multiprocessors: how many there are.
        warps: the most that are resident on a multiprocessor.
        registers: of 32 bits, on a multiprocessor.
        shared_memory: bytes of shared memory on a multiprocessor.
        block_shared_memory: the most bytes of it that one program may have.
        l2_bytes: size of the L2 cache.
        copy_rate: bytes a second, read and written together, that a kernel reaches which copies memory.
    """

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    warps: int
    registers: int
    shared_memory: int
    block_shared_memory: int
    l2_bytes: int
    copy_rate: float

    @property
    def architecture(self) -> int:
        """What Triton calls the compute capability: 90 for 9.0."""
        return 10 * self.capability[0] + self.capability[1]

    @property
    def dependent_launch(self) -> bool:
        """Whether a kernel may be started while those before it end, and wait for them itself (`gdc_wait`)."""
        return self.capability >= (9, 0)

    @property
    def streams_products(self) -> bool:
        """Whether its copy engine moves blocks that its tensor cores read where they are put (Hopper's `wgmma`)."""
        return self.capability == (9, 0)

    def streams(self, product: Node) -> bool:
        """Whether the copy engine may bring the blocks of a 16-bit product: a matrix of tiles for half of the
        multiprocessors. (`templates/streamed_matmul.py` asks in addition how operands lie.)"""
        return (hint(product.inputs[0].shape[-1]) >= 64
                and self._has_tiles(product, STREAMED.rows * STREAMED.columns * (self.multiprocessors // 2)))

    def streams_parts(self, product: Node) -> bool:
        """Whether the copy engine may bring the blocks of a 16-bit matrix product whose inner dimension is split.
        (`templates/streamed_matmul.py` asks in addition how operands lie.)"""
        return self._has_tiles(product, 0)

    def stores_beside_sums(self, product: Node) -> bool:
        """Whether groups of warps take turns at a product's tiles: it is streamed, a program has two tiles and more.

        (`templates/streamed_matmul.py` asks in addition how operands lie.)
        """
        return self._has_tiles(product, 2 * STREAMED.rows * STREAMED.columns * self.multiprocessors)

    def _has_tiles(self, product: Node, least: int) -> bool:
        """Is a 16-bit product a matrix of at least so many elements, on a GPU that streams?"""
        rows, columns = map(hint, product.shape[-2:])
        return (self.streams_products and product.dtype in (float16, bfloat16) and min(rows, columns) >= 128
                and hint(product.type.numel) == rows * columns >= least)

    def adds_up_streams(self, product: Node) -> bool:
        """Whether a float32 product may have kernels of multiply-adds whose blocks the copy engine brings: a matrix of
        enough tiles. (`templates/streamed_matmul.py` asks in addition how operands lie.)"""
        rows, columns = map(hint, product.shape[-2:])
        return (self.streams_products and product.dtype is float32 and min(rows, columns) >= 128
                and hint(product.inputs[0].shape[-1]) >= 64
                and hint(product.type.numel) == rows * columns and streams_fma(rows * columns, self.multiprocessors))

    @property
    def bulk_prefetch(self) -> bool:
        """Whether one instruction asks the L2 for a whole block (`cp.async.bulk.prefetch`)."""
        return self.capability >= (9, 0)

    @property
    def bus_rate(self) -> float:
        """Bytes a second that a collective moves between GPUs of one host, as NCCL's bus bandwidth counts."""
        return next((rate for capability, rate in BUS_RATES if self.capability == capability), PCIE_RATE)

    @property
    def figures(self) -> GpuFigures:
        """What it was measured to take: an H200's figures, as nobody has measured another GPU."""
        return H200_FIGURES

    @property
    def dot_flops(self) -> int:
        """Floating-point operations a cycle of a multiprocessor's 16-bit products, summed in float32."""
        return next((flops for capability, flops in DOT_FLOPS if self.capability >= capability), 0)

    @property
    def product_rate(self) -> float:
        """Operations a second that 16-bit products reach in a whole program."""
        return PRODUCT_HERTZ * self.multiprocessors * max(self.dot_flops, 1)


DOT_FLOPS: Final = (((12, 0), 1024), ((10, 0), 8192), ((9, 0), 4096), ((8, 6), 1024), ((8, 0), 2048))
"""(compute capability from which on it holds, `GpuModel.dot_flops`), from the peak rates in NVIDIA's data sheets."""

BUS_RATES: Final = (((10, 0), 7.2e11), ((9, 0), 3.6e11), ((8, 0), 2.4e11))
"""(compute capability, `GpuModel.bus_rate`) of the kinds that NVLink connects: 0.8 of the rate in one direction.
That is what eight H200s of a host reach, of their 450 GB/s; the others' are in proportion to their data sheets."""

PCIE_RATE: Final = 2e10
"""`GpuModel.bus_rate` over PCIe 4 with 16 lanes: two thirds of its 32 GB/s."""

PRODUCT_HERTZ: Final = 1.22e9
"""Cycles a second that products would take if tensor cores were never idle: 0.66 PFLOP/s of an H200, where products of
whole models' steps reached 0.51 to 0.75 (2026-11). Other GPUs' clocks are near enough to its own."""

COPY_SHARE: Final = 0.727
"""Part of the memory's peak rate that a kernel reaches: 3.5 of an H200's 4.8 TB/s."""

_KIB: Final = 1 << 10
_MIB: Final = 1 << 20

MODELS: Final[dict[str, GpuModel]] = {
    "a100": GpuModel("NVIDIA A100-SXM4-80GB", (8, 0), 108, 64, 65536, 164 * _KIB, 163 * _KIB, 40 * _MIB, 1.48e12),
    "l4": GpuModel("NVIDIA L4", (8, 9), 58, 48, 65536, 100 * _KIB, 99 * _KIB, 48 * _MIB, 0.22e12),
    "h100": GpuModel("NVIDIA H100 80GB HBM3", (9, 0), 132, 64, 65536, 228 * _KIB, 227 * _KIB, 50 * _MIB, 2.44e12),
    "h200": GpuModel("NVIDIA H200", (9, 0), H200_FIGURES.multiprocessors, 64, 65536, 228 * _KIB, 227 * _KIB, 60 * _MIB,
                     3.5e12),
    "b200": GpuModel("NVIDIA B200", (10, 0), 148, 64, 65536, 228 * _KIB, 227 * _KIB, 126 * _MIB, 5.82e12),
}
"""The GPUs that `--target` knows by name. The H200's row is what its driver says; the others are from data sheets."""

H200: Final = MODELS["h200"]
"""The GPU that thresholds were measured on, and the one that "cuda" means where there is none."""


class Properties(Protocol):
    """What a model is read from: `runtime.driver.DeviceProperties`. Clocks are in kHz, the bus width in bits."""

    @property
    def name(self) -> str: ...
    @property
    def major(self) -> int: ...
    @property
    def minor(self) -> int: ...
    @property
    def multi_processor_count(self) -> int: ...
    @property
    def max_threads_per_multi_processor(self) -> int: ...
    @property
    def warp_size(self) -> int: ...
    @property
    def regs_per_multiprocessor(self) -> int: ...
    @property
    def shared_memory_per_multiprocessor(self) -> int: ...
    @property
    def shared_memory_per_block_optin(self) -> int: ...
    @property
    def L2_cache_size(self) -> int: ...
    @property
    def memory_clock_rate(self) -> int: ...
    @property
    def memory_bus_width(self) -> int: ...


def model_of(properties: Properties) -> GpuModel:
    """The model of the GPU that the driver describes."""
    return GpuModel(
        properties.name, (properties.major, properties.minor), properties.multi_processor_count,
        properties.max_threads_per_multi_processor // properties.warp_size, properties.regs_per_multiprocessor,
        properties.shared_memory_per_multiprocessor, properties.shared_memory_per_block_optin,
        properties.L2_cache_size, _copy_rate(properties))


def _copy_rate(properties: Properties) -> float:
    """Bytes a second, rounded to 10 GB/s. Where a driver does not tell its memory's clock it is the H200's rate a
    multiprocessor."""
    peak = 2 * 1e3 * properties.memory_clock_rate * properties.memory_bus_width / 8  # two transfers a cycle
    if not peak:
        return H200.copy_rate * properties.multi_processor_count / H200.multiprocessors
    return round(COPY_SHARE * peak, -10)
