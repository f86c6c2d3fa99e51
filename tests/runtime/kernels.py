"""Hand-written kernels and plans over them, as codegen would make them."""

from __future__ import annotations

import numpy as np

from genesis.ir.types import Device, TensorType, float32, float64, int64, tensor_type
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.plan import Copy, KernelImage, Launch, Place, Plan, Table

GPU = Device("cuda")
SIZE = 200
BLOCK = 128

SOURCE = '''
import triton
import triton.language as tl


@triton.jit
def scaled_add(x_ptr, y_ptr, scale_ptr, out_ptr, count, BLOCK: tl.constexpr = 128):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = index < count
    scale = tl.load(scale_ptr).to(tl.float32)
    x = tl.load(x_ptr + index, mask=inside)
    y = tl.load(y_ptr + index, mask=inside)
    tl.store(out_ptr + index, x + y * scale, mask=inside)


@triton.jit
def increment_all(table_ptr, step_ptr, count, BLOCK: tl.constexpr = 128):
    pointer = tl.load(table_ptr + tl.program_id(0)).to(tl.pointer_type(tl.float32))
    step = tl.load(step_ptr).to(tl.float32)
    for start in range(0, count, BLOCK):
        index = start + tl.arange(0, BLOCK)
        inside = index < count
        tl.store(pointer + index, tl.load(pointer + index, mask=inside) + step, mask=inside)
'''


def image(name: str) -> KernelImage:
    """A kernel of the source; without a GPU there is no cubin, the host driver interprets."""
    return KernelImage(name, b"", num_warps=4, shared_bytes=0, source=SOURCE)


def vector(size: int = SIZE) -> TensorType:
    return tensor_type((size,), float32, GPU)


NUMBER = tensor_type((), float64, GPU, True)
COUNT = tensor_type((), int64, GPU, True)


def place(where: str, index: int = 0, offset: int = 0, type: TensorType | None = None) -> Place:
    return Place(where, index, offset, type or vector())


def scaled_add(x: Place, y: Place, out: Place, number: int = 0, size: int = SIZE) -> Launch:
    scale = Place("numbers", number, 8 * number, NUMBER)
    return Launch(image("scaled_add"), (x, y, scale, out, size), (-(-size // BLOCK), 1, 1), label="scaled_add")


def add_plan(size: int = SIZE) -> Plan:
    """out = x + scale * y, in one launch."""
    type = vector(size)
    return Plan(GPU, (type, type), (type,), (), (NUMBER,),
                (scaled_add(place("input", 0, type=type), place("input", 1, type=type),
                            place("output", 0, type=type), size=size),), 0)


def two_step_plan() -> Plan:
    """t = x + a * y; out = t + b * x; and a copy of t as a second output. t is in the arena."""
    temporary = place("arena", offset=1024)
    return Plan(GPU, (vector(), vector()), (vector(), vector()), (), (NUMBER, NUMBER), (
        scaled_add(place("input", 0), place("input", 1), temporary, 0),
        scaled_add(temporary, place("input", 0), place("output", 0), 1),
        Copy(temporary, place("output", 1)),
    ), arena_bytes=4096)


def update_plan(parameters: int = 3) -> Plan:
    """Every input += step, all in one launch by way of a table of addresses."""
    table = Table(tuple(place("input", index) for index in range(parameters)))
    launch = Launch(image("increment_all"), (table, Place("numbers", 0, 0, NUMBER), SIZE), (parameters, 1, 1))
    return Plan(GPU, (vector(),) * parameters, (), tuple(range(parameters)), (NUMBER,), (launch,), 0)


def memory_of(values: np.ndarray) -> CUDAStorage:
    array = np.ascontiguousarray(values, np.float32)
    memory = CUDAStorage(array.nbytes, GPU)
    memory.copy_from_host(array)
    return memory


def values_of(memory: CUDAStorage) -> np.ndarray:
    return memory.to_numpy().view(np.float32)
