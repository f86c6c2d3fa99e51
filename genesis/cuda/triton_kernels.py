"""Your own Triton kernels on Genesis' GPU memory.

    from genesis.cuda.triton_kernels import CUDATensor

    def add(x, y):
        output = CUDATensor(x.shape, x.dtype)
        add_kernel[grid](x.data_ptr(), y.data_ptr(), output.data_ptr(), x.numel(), BLOCK_SIZE=1024)
        return output

An address from `data_ptr()` knows its dtype, so Triton takes it for a pointer; a tensor itself can be passed too.
Triton's launcher asks a driver object for the device and the stream. Its own asks torch; `launch_on_our_streams`
installs one that asks Genesis, so that a kernel runs after the work that made its operands and before what reads its
results, and torch need not be there. From then on kernels on torch's tensors are launched on Genesis' streams as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from genesis.cuda.devices import current_device, get_device_capability
from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import wrap_memory
from genesis.frontend.tensor import Tensor
from genesis.ir.types import Device, DType, float32, tensor_type
from genesis.runtime.cuda.cuda_python_driver import CudaDriver, driver
from genesis.runtime.cuda.stream import current_stream


class CUDATensor(Tensor):
    """A tensor on the current GPU with memory of its own whose content is not specified, for a kernel to write to."""

    __slots__ = ()

    def __new__(cls, shape: Sequence[int], dtype: DType = float32) -> CUDATensor:
        """Take the memory."""
        launch_on_our_streams()
        kind = tensor_type(tuple(shape), dtype, Device("cuda", current_device()))
        made: Any = wrap_memory(engine.allocate(kind.nbytes, kind.device), kind)
        made.__class__ = cls
        return made

    def __init__(self, shape: Sequence[int], dtype: DType = float32):
        """All is done in `__new__`."""

    def data_ptr(self) -> int:
        """The address. Kernels may write there between any two lines, so what reads the tensor is done in order."""
        memory = engine.memory_of(self)
        self.storage.share(memory)
        return super().data_ptr()


def launch_on_our_streams() -> None:
    """Make `kernel[grid](...)` launch on the current stream of `genesis.cuda`; kernels that are interpreted stay so."""
    if isinstance(driver(), CudaDriver):
        from triton.runtime.driver import driver as active
        active.set_active(_launcher())


@cache
def _launcher() -> Any:
    from triton.backends.nvidia import driver as nvidia

    class Launcher(nvidia.CudaDriver):
        """Triton's driver without torch."""

        def __init__(self) -> None:
            self.utils = nvidia.CudaUtils()
            self.launcher_cls = nvidia.CudaLauncher
            self.get_device_capability = get_device_capability

        def get_current_device(self) -> int:
            """The GPU that "cuda" means, its context current."""
            driver().use(current_device())
            return current_device()

        def set_current_device(self, device: int) -> None:
            """Triton goes back and forth when it loads a kernel."""
            driver().use(device)

        def get_current_stream(self, device: int) -> int:
            """The device and stream that Genesis works on now."""
            return driver().stream_number(current_stream(device).handle)

    return Launcher()
