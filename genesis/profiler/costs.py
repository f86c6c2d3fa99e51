"""What a step of a plan moves and computes, and what the machine could do at most: the roofline.

A kernel that moves b bytes and computes f operations takes at least max(b / rate, f / peak) seconds; that time over the
one that it took is the fraction of the roofline, and the larger of the two says which side it is on.
Source: Williams, Waterman, Patterson, Roofline: an insightful visual performance model (2009).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import Any, Final

from genesis.ir.flops import flops_of_nodes, is_product
from genesis.runtime.plan import Collective, Copy, Launch

VECTOR_FLOPS: Final = 256
"""Operations a cycle of a multiprocessor outside of matrix products: 128 float32 units, an add and a multiply each."""


@dataclass(frozen=True)
class Peaks:
    """What a device can do: bytes a second, and operations a second in products and outside of them."""

    name: str
    bytes: float
    products: float
    others: float

    def roofline(self, nbytes: int, flops: int, product: bool) -> tuple[float, str]:
        """(the least seconds, "memory" or "compute")."""
        moving, computing = nbytes / self.bytes, flops / (self.products if product else self.others)
        return max(moving, computing), "memory" if moving >= computing else "compute"


@cache
def peaks_of(device: str) -> Peaks:
    """A GPU's by its model and clock; the host's as measured here and now, once, by a copy and a product."""
    if device.partition(":")[0] == "cpu":
        return _host_peaks()
    from genesis.codegen.cuda.gpu_model import model_of
    from genesis.runtime.cuda.cuda_python_driver import driver
    properties = driver().properties(int(device.partition(":")[2] or 0))
    model = model_of(properties)
    hertz = (properties.clock_rate or 1_980_000) * 1e3
    return Peaks(model.name, model.copy_rate, max(model.dot_flops, 1) * model.multiprocessors * hertz,
                 VECTOR_FLOPS * model.multiprocessors * hertz)


def _host_peaks() -> Peaks:
    import torch
    source, target = (torch.zeros(8 << 20, dtype=torch.float32, device="cpu") for _ in range(2))
    square = torch.ones(512, 512, dtype=torch.float32, device="cpu")
    small = torch.ones(2048, dtype=torch.float32, device="cpu")
    return Peaks("this host, as measured", 2 * source.nbytes / _least(lambda: target.copy_(source)),
                 2 * 512 ** 3 / _least(lambda: square @ square), 2048 * 16 / _least(lambda: _many(small)))


def _many(x: Any) -> None:
    for _ in range(16):
        x.mul_(1.0)


def _least(work: Any) -> float:
    seconds = []
    for _ in range(4):
        start = perf_counter()
        work()
        seconds.append(perf_counter() - start)
    return min(seconds)


# Bytes

def bytes_of_step(step: Launch | Copy | Collective) -> int:
    """Bytes that a step of a GPU's plan reads and writes, each value once."""
    if isinstance(step, Copy):
        return 2 * step.destination.type.nbytes
    if isinstance(step, Collective):
        return sum(place.type.nbytes for place in (*step.operands, *step.results))
    return step.moves


# Operations

def flops_by_step(compiled: Any) -> dict[int, tuple[int, bool]]:
    """(operations, whether they are a product's) of the steps of a plan, by their number. A GPU's launches know theirs;
    calls of the CPU are looked for among their program's groups, by their op's name."""
    steps = compiled.plan.steps
    if compiled.plan.device.type != "cpu":
        return {number: (step.flops, step.multiplies) for number, step in enumerate(steps) if isinstance(step, Launch)}
    found: dict[int, tuple[int, bool]] = {}
    groups, at = compiled.schedule.groups, 0
    for number, step in enumerate(steps):
        for candidate in range(at, len(groups)):
            nodes = groups[candidate].nodes
            if step.label.partition("  # ")[0] == nodes[0].op.name:
                found[number] = int(flops_of_nodes(nodes)), any(map(is_product, nodes))
                at = candidate + 1
                break
    return found
