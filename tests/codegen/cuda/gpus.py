"""A GPU of each compute capability that kernels are built for."""

from __future__ import annotations

from dataclasses import replace

from genesis.codegen.cuda.gpu_model import MODELS, GpuModel
from genesis.runtime.cuda.driver import DeviceProperties

GPUS: dict[int, GpuModel] = {
    80: MODELS["a100"],
    86: replace(MODELS["l4"], name="NVIDIA A10", capability=(8, 6), multiprocessors=72, l2_bytes=6 << 20),
    89: MODELS["l4"],
    90: MODELS["h200"],
    100: MODELS["b200"],
    120: replace(MODELS["l4"], name="NVIDIA RTX 5090", capability=(12, 0), multiprocessors=170, l2_bytes=96 << 20),
}

SAID_BY_AN_H200 = DeviceProperties(
    "NVIDIA H200", 150 << 30, 9, 0, 132, regs_per_multiprocessor=65536, shared_memory_per_block=49152,
    shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472, L2_cache_size=62914560,
    clock_rate=1980000, memory_clock_rate=3201000, memory_bus_width=6016)
"""What cuDeviceGetAttribute answers on one."""
