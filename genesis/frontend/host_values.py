"""A tensor's elements on the host: copied out, copied in, or shared with numpy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import over, read, wrap_laid_out, wrap_memory
from genesis.frontend.state import lock
from genesis.frontend.view_geometry import is_row_major
from genesis.frontend.views import Layout
from genesis.ir.errors import failure
from genesis.ir.types import Device, dtype_of_numpy, tensor_type


def host_copy(tensor: Any) -> Any:
    """The tensor's elements as a new numpy array. A tensor on a GPU is waited for.

    Raises:
        RuntimeError: the interpreter shuts down, and what computes or copies the value can no longer be imported.
    """
    return _reading(_host_copy, tensor)


def host_number(tensor: Any) -> Any:
    """The one element of a tensor as a Python number; what is raised is `host_copy`'s."""
    return _reading(_host_number, tensor)


def _reading(how: Callable[[Any], Any], tensor: Any) -> Any:
    try:
        with lock:
            return how(tensor)
    except (ImportError, RuntimeError) as error:  # the latter of `threading`, from what torch imports
        if sys.meta_path is not None and "register atexit" not in str(error):
            raise
        raise failure("read", "the interpreter is shutting down, and nothing can be imported any more",
                      [("tensor", tensor)], hint="read it before the program ends, or in an atexit function") from None


def _host_number(tensor: Any) -> Any:
    if tensor.is_cpu:  # there is no copy to wait for
        return engine.locked_memory_of(tensor).number(tensor.storage.type, tensor.storage_offset())
    return _host_copy(tensor).item()


def _host_copy(tensor: Any) -> Any:
    import numpy as np
    if tensor.part is not None and not (is_row_major(tensor.spec, tensor.part) and tensor.storage_offset() == 0
                                        and tensor.spec.numel == tensor.storage.type.numel):
        if isinstance(tensor.part, Layout):  # all of the memory, with its dimensions in another order
            order, = tensor.part.steps[0][1]
            return np.ascontiguousarray(host_copy(over(tensor.storage, tensor.storage.type, None)).transpose(order))
        if tensor.is_cpu and tensor.storage.settled and tensor.spec.numel:
            return _part_copied(tensor)
        tensor = wrap_laid_out(read(tensor.detach()), None)
    memory = engine.locked_memory_of(tensor)
    result = np.empty(tensor.spec.shape, tensor.spec.dtype.numpy)
    if tensor.spec.nbytes:
        memory.copy_to_host(result)
    return result


def _part_copied(tensor: Any) -> Any:
    """The elements that a view shows of host memory whose content is there: no program copies them."""
    import numpy as np
    size = tensor.spec.dtype.itemsize
    return np.ndarray(tensor.spec.shape, tensor.spec.dtype.numpy, engine.locked_memory_of(tensor).bytes,
                      tensor.storage_offset() * size, [stride * size for stride in tensor.strides]).copy()


def host_rows(tensors: Sequence[Any]) -> Any:
    """The elements of tensors of one type that lie whole in one memory, one behind the other, as a new numpy array with
    an axis more in front; None where they do not: `host_copy` of each takes five times as long.

    >>> import genesis
    >>> x = genesis.tensor([[1, 2], [3, 4], [5, 6]])
    >>> host_rows([x[2], x[0]])
    array([[5, 6],
           [1, 2]])
    """
    return _reading(_host_rows, tensors)


def _host_rows(tensors: Sequence[Any]) -> Any:
    import numpy as np
    first = tensors[0]
    storage, spec, size = first.storage, first.spec, first.spec.numel
    if not first.is_cpu or not size or not storage.settled or spec.dtype is not storage.type.dtype:
        return None
    starts = []
    for x in tensors:
        if x.storage is not storage or x.spec is not spec or not is_row_major(spec, x.part):
            return None
        start, rest = divmod(x.storage_offset(), size)
        if rest:
            return None
        starts.append(start)
    rows = storage.type.numel // size
    whole = np.ndarray((rows, size), spec.dtype.numpy, engine.memory_of(first).bytes)
    return whole.take(starts, axis=0).reshape(len(starts), *spec.shape)


def export_numpy(tensor: Any) -> Any:
    """A numpy array over a CPU tensor's memory; the storage counts as exported while it lives."""
    with lock:
        array = _export_numpy(tensor)
        if not tensor.storage.settled:  # another thread wrote to it meanwhile
            engine.flush([tensor.storage])
    return array


def _export_numpy(tensor: Any) -> Any:
    import numpy as np
    memory = engine.memory_of(tensor)
    whole = memory.numpy(tensor.storage.type).reshape(-1)
    root = np.frombuffer(memoryview(whole.view(np.uint8)), np.uint8) if whole.nbytes else whole
    size = tensor.spec.dtype.itemsize
    array = np.lib.stride_tricks.as_strided(
        root.view(tensor.spec.dtype.numpy)[tensor.storage_offset():] if whole.nbytes else whole, tensor.spec.shape,
        tuple(stride * size for stride in tensor.strides))
    tensor.storage.share(root)
    return array


def from_host(array: Any, place: Device) -> Any:
    """A tensor on `place` with a copy of a numpy array."""
    import numpy as np
    array = np.ascontiguousarray(array).reshape(array.shape)
    kind = tensor_type(tuple(array.shape), dtype_of_numpy(array.dtype), place)
    memory = engine.allocate(kind.nbytes, place)
    if kind.nbytes:
        memory.copy_from_host(array)
    return wrap_memory(memory, kind)
