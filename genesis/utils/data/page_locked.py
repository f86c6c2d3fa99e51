"""Batches in page-locked memory, and batches that are copied to a GPU while the program computes with those before.

A copy from page-locked memory needs no help of the host's: it runs beside kernels, on a stream of its own.

    arrays ─ page-locked buffer ─ side stream ─▶ memory on the GPU ─ an event ─▶ the stream that uses it waits

A buffer (`runtime/cuda/page_locked.py`) is used again when no tensor lies in it and no copy reads it any more.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.recording import wrap_memory
from genesis.frontend.tensor import Tensor
from genesis.ir.types import Device, cpu, dtype_of_numpy, tensor_type
from genesis.runtime.cuda.page_locked import buffers
from genesis.utils.data.passes import END, Raised, attempted

if TYPE_CHECKING:
    import numpy as np

MOST_COPIES: Final = 4
"""Batches whose copies may be under way: a program that runs ahead of the GPU waits, and takes no more memory."""


def locked_tensor(array: Any) -> Tensor:
    """A CPU tensor in page-locked memory with a copy of an array, or of a number of numpy's."""
    import numpy as np

    from genesis.runtime.cpu.storage import CPUStorage
    array = np.asarray(array)
    kind = tensor_type(array.shape, dtype_of_numpy(array.dtype), cpu)
    return wrap_memory(CPUStorage.wrap(buffers().like(np.ascontiguousarray(array).reshape(array.shape))), kind)


class _Copy:
    """A batch's copy that was begun.

    Attributes:
        event: its end.
        read: the buffers that it reads until then.
        taken: the batch was given; nobody waits for the event from then on.
        done: it has ended.
    """

    __slots__ = ("done", "event", "read", "taken")

    def __init__(self, event: Any, read: list[Any]):
        self.event, self.read = event, read
        self.taken = self.done = False


class Copier:
    """Copies batches to a GPU on a stream of its own.

    Args:
        device: the GPU.
    """

    def __init__(self, device: Device):
        from genesis.runtime.cuda.cuda_python_driver import driver
        from genesis.runtime.cuda.stream import Stream
        self._gpu, self._device = driver(), device
        self._stream = Stream(device)
        self._copies: deque[_Copy] = deque()  # those that have not ended, as far as is known
        self._last: _Copy | None = None

    def started(self, batch: Any, finish: Callable[[Any, Callable[[Any], Tensor]], Any]) -> Callable[[], Any]:
        """Begin to copy a batch. The returned function gives it, for work of the stream that is current then.

        Args:
            finish: (batch, array → tensor) → the batch of tensors.
        """
        gpu, memories, read = self._gpu, [], []
        gpu.use(self._device.index)
        self._let_go()

        def moved(array: Any) -> Tensor:
            tensor, memory, buffer = self._moved(array)
            memories.append(memory)
            read.append(buffer)
            return tensor
        tensors = finish(batch, moved)
        event = gpu.create_event(False)
        gpu.record_event(event, self._stream.handle)
        copy = _Copy(event, read)
        self._copies.append(copy)
        self._last = copy
        return partial(self._take, tensors, memories, copy)

    def _moved(self, array: Any) -> tuple[Tensor, Any, np.ndarray]:
        import numpy as np

        from genesis.runtime.cuda.storage import CUDAStorage
        from genesis.runtime.cuda.stream_order import order
        from genesis.runtime.host_bytes import address_of, as_bytes
        array = np.asarray(array)
        kind = tensor_type(array.shape, dtype_of_numpy(array.dtype), self._device)
        buffer = buffers().like(array)
        memory = CUDAStorage.on(self._stream, kind.nbytes, "a batch of a DataLoader")
        if kind.nbytes:
            source = as_bytes(buffer, kind.nbytes)
            self._gpu.copy_to_device(memory.ptr, address_of(source), kind.nbytes, self._stream.handle)
            if order().noted:
                order().note(self._stream, (), [memory])
        return wrap_memory(memory, kind), memory, buffer

    def _take(self, tensors: Any, memories: Iterable[Any], copy: _Copy) -> Any:
        """The batch; the current stream's later work waits for its copies."""
        from genesis.runtime.cuda.stream import current_stream
        consumer = current_stream(self._device.index)
        self._gpu.use(self._device.index)
        if not copy.done:
            self._gpu.wait_event(consumer.handle, copy.event)
        copy.taken = True
        self._forget(copy)
        for memory in memories:
            memory.record_stream(consumer)
        return tensors

    def _let_go(self) -> None:
        """Let go of the buffers whose copies are done; wait for the oldest where there are many."""
        if len(self._copies) >= MOST_COPIES:
            self._gpu.synchronize_event(self._copies[0].event)
        while self._copies and self._gpu.event_is_done(self._copies[0].event):
            copy = self._copies.popleft()
            copy.done, copy.read = True, []
            self._forget(copy)

    def _forget(self, copy: _Copy) -> None:
        """Destroy the event of a copy that has ended and whose batch was given."""
        if copy.done and copy.taken:
            self._gpu.destroy_event(copy.event)

    def close(self) -> None:
        """Wait for the copies, so that no buffer is read that others write to."""
        self._gpu.use(self._device.index)
        self._gpu.synchronize_stream(self._stream.handle)
        last = self._last
        if last is not None and not last.taken:  # nobody will ask for it
            last.taken = True
            self._forget(last)
        self._let_go()


def copied_ahead(batches: Iterator[Any], finish: Callable[[Any, Callable[[Any], Tensor]], Any],
                 device: Device) -> Iterator[Any]:
    """The batches on a GPU; each is copied while the program computes with the one before.

    `Raised` stands in the turn of a batch that could not be made or copied.
    """
    copier = Copier(device)
    try:
        ahead = _next(copier, batches, finish)
        while ahead is not None:
            now, ahead = ahead, _next(copier, batches, finish)
            yield now()
    finally:
        copier.close()


def _next(copier: Copier, batches: Iterator[Any], finish: Callable[..., Any]) -> Callable[[], Any] | None:
    try:
        batch = next(batches, END)
    except Exception as error:  # the pass ends here, behind the batches before
        return partial(_raise, error)
    if batch is END:
        return None
    started = attempted(batch, lambda made: copier.started(made, finish))
    return (lambda: started) if isinstance(started, Raised) else started


def _raise(error: Exception) -> None:
    raise error
