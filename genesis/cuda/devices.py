"""The GPUs of the machine: how many, what they can do, and which one "cuda" means."""

from __future__ import annotations

from typing import Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.pending import live_pending
from genesis.ir.types import Device
from genesis.ops.creation import follow_current_gpu
from genesis.runtime.cuda import cuda_python_driver
from genesis.runtime.cuda import stream as cuda_stream
from genesis.runtime.cuda.cuda_python_driver import driver
from genesis.runtime.cuda.device_checks import raise_failed
from genesis.runtime.cuda.driver import DeviceProperties
from genesis.runtime.cuda.stream import device_index

AnyDevice = Device | str | int | None


def is_available() -> bool:
    """Whether there is a GPU to compute on. Never raises."""
    return device_count() > 0


def device_count() -> int:
    """The number of GPUs that this process sees; 0 without a driver or without cuda-python."""
    try:
        return driver().device_count()
    except RuntimeError:
        return 0


def is_initialized() -> bool:
    """Whether this process has started to use CUDA."""
    return cuda_python_driver.is_started()


def init() -> None:
    """Start CUDA on the current GPU, which its first use does too.

    Raises:
        RuntimeError: there is no GPU, or cuda-python is missing.
    """
    driver().use(current_device())


def current_device() -> int:
    """The number of the GPU that "cuda" means."""
    driver()
    return cuda_stream.current_device()


def set_device(device: AnyDevice) -> None:
    """Make "cuda" mean that GPU from now on. A negative number changes nothing."""
    index = device_index(device)
    if index >= 0:
        cuda_stream.set_current_device(index)
        follow_current_gpu(index)


class device:
    """A context inside which "cuda" means that GPU; None or a negative number changes nothing.

    >>> with genesis.cuda.device(1): ...    # doctest: +SKIP
    """

    def __init__(self, device: AnyDevice):
        self.idx = -1 if device is None else device_index(device)

    def __enter__(self) -> None:
        self.prev_idx = current_device()
        set_device(self.idx)

    def __exit__(self, *_: object) -> None:
        set_device(self.prev_idx)


class device_of(device):
    """A context inside which "cuda" means the GPU of that tensor; a CPU tensor changes nothing."""

    def __init__(self, tensor: Any):
        super().__init__(tensor.device if tensor.is_cuda else None)


def get_device_properties(device: AnyDevice = None) -> DeviceProperties:
    """The properties of a GPU: name, compute capability, memory, multiprocessors, caches."""
    return driver().properties(device_index(device))


def get_device_name(device: AnyDevice = None) -> str:
    """The driver's name of the GPU, such as "NVIDIA H200"."""
    return get_device_properties(device).name


def get_device_capability(device: AnyDevice = None) -> tuple[int, int]:
    """Compute capability: (9, 0) for an H200."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Whether the current GPU computes in bfloat16: in hardware from compute capability 8.0 on, emulated before."""
    return including_emulation or get_device_capability()[0] >= 8


def is_tf32_supported() -> bool:
    """Whether the current GPU has products of TensorFloat32: from compute capability 8.0 on."""
    return is_available() and get_device_capability()[0] >= 8


def get_arch_list() -> list[str]:
    """The architecture that kernels are compiled for: the current GPU's; none without one."""
    return ["sm_{}{}".format(*get_device_capability())] if is_available() else []


def is_current_stream_capturing() -> bool:
    """False: what is captured into a CUDA graph is captured inside a call, which no program's line runs in."""
    return False


def can_device_access_peer(device: AnyDevice, peer_device: AnyDevice) -> bool:
    """Whether kernels on one GPU can read the other's memory."""
    return driver().can_access_peer(device_index(device), device_index(peer_device))


def synchronize(device: AnyDevice = None) -> None:
    """Compute what tensors on GPUs show, and wait until the GPU has done all it was given.

    Raises:
        IndexError: a kernel found an index outside a dimension.
    """
    index = device_index(device)
    run_pending()
    driver().use(index)
    driver().synchronize()
    raise_failed(index)


def run_pending() -> None:
    """Give the GPUs the work behind every live tensor of theirs that was not computed yet."""
    engine.flush([storage for storage in live_pending() if storage.type.device.type == "cuda"])
