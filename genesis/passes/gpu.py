"""What passes ask about a GPU. `codegen.cuda.gpu_model.GpuModel` answers; the backend hands it over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from genesis.ir.node import Node


class Gpu(Protocol):
    """The GPU that a program is compiled for."""

    @property
    def multiprocessors(self) -> int:
        """How many programs at least keep it busy: one on each."""

    @property
    def copy_rate(self) -> float:
        """Bytes a second, read and written together, that a kernel reaches which copies memory."""

    @property
    def bus_rate(self) -> float:
        """Bytes a second that a collective moves between GPUs of one host, as NCCL's bus bandwidth counts."""

    @property
    def dot_flops(self) -> int:
        """Floating-point operations a cycle of a multiprocessor's 16-bit products, summed in float32."""

    @property
    def product_rate(self) -> float:
        """Operations a second that its 16-bit products reach in a whole program."""

    def streams(self, product: Node) -> bool:
        """Whether the copy engine may bring the blocks of a 16-bit product: a matrix of enough tiles."""

    def streams_parts(self, product: Node) -> bool:
        """Whether the copy engine may bring the blocks of a 16-bit product whose inner dimension is split."""

    def stores_beside_sums(self, product: Node) -> bool:
        """Whether a product's kernel may finish and store one tile while it sums up another."""

    def adds_up_streams(self, product: Node) -> bool:
        """Whether a float32 product may have kernels of multiply-adds whose blocks the copy engine brings."""
