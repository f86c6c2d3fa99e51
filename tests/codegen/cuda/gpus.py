"""A GPU of each compute capability that kernels are built for."""

from __future__ import annotations

from dataclasses import replace

from genesis.codegen.cuda.gpu_model import MODELS, GpuModel

GPUS: dict[int, GpuModel] = {
    80: MODELS["a100"],
    86: replace(MODELS["l4"], name="NVIDIA A10", capability=(8, 6), multiprocessors=72, l2_bytes=6 << 20),
    89: MODELS["l4"],
    90: MODELS["h200"],
    100: MODELS["b200"],
    120: replace(MODELS["l4"], name="NVIDIA RTX 5090", capability=(12, 0), multiprocessors=170, l2_bytes=96 << 20),
}
