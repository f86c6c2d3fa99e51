"""Samples → a batch.

Batches are made of numpy arrays, so that workers need no engine; the loader makes tensors of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from copy import copy
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

from genesis.frontend.default_dtypes import get_default_dtype
from genesis.frontend.host_values import host_copy, host_rows
from genesis.frontend.tensor import Tensor
from genesis.ir.sequences import is_named, sequence_of
from genesis.ir.types import dtype_of_numpy, promote_types
from genesis.ops.creation import as_tensor, dtype_of_nested
from genesis.ops.parts import stack

if TYPE_CHECKING:
    import numpy as np


def default_collate(batch: Sequence[Any]) -> Any:
    """A batch of samples: tensors, arrays and numbers are stacked into a tensor, in the samples' own structure.

    Raises:
        TypeError: samples of a type that cannot be stacked.
        RuntimeError: samples of unequal shapes or lengths.

    >>> default_collate([{"x": [1.0, 2.0], "name": "a"}, {"x": [3.0, 4.0], "name": "b"}])
    {'x': [tensor([1., 3.], dtype=genesis.float64), tensor([2., 4.], dtype=genesis.float64)], 'name': ['a', 'b']}
    """
    return mapped(stacked(batch, True), as_tensor)


def default_convert(data: Any) -> Any:
    """A sample without a batch: arrays become tensors, tuples lists, as torch's; all else stays."""
    return converted(data, as_tensor, tuples=list)


def converted(data: Any, make: Callable[[Any], Tensor],
              tuples: type[list[Any]] | type[tuple[Any, ...]] = tuple) -> Any:
    """The structure with tensors, which `make` makes, for its arrays and numbers of numpy's."""
    import numpy as np

    def change(x: Any) -> Any:
        of_numbers = isinstance(x, np.generic) or (isinstance(x, np.ndarray) and x.dtype.kind not in "SUO")
        return make(x) if of_numbers else x
    return rebuilt(data, change, tuples)


def stacked(batch: Sequence[Any], learnt: bool = False) -> Any:
    """`default_collate`, with numpy arrays.

    Args:
        batch: the samples.
        learnt: tensors that require gradients are stacked as tensors, through which gradients flow.
    """
    import numpy as np
    first = batch[0]
    if isinstance(first, Tensor):
        for at, sample in enumerate(batch):
            if not isinstance(sample, Tensor):
                raise TypeError(f"default_collate: expected Tensor as element {at} of the batch, but got "
                                f"{type(sample).__name__}")
        if learnt and any(tensor.requires_grad for tensor in batch):
            return stack(list(batch))
        rows = host_rows(batch) if all(isinstance(tensor, Tensor) for tensor in batch) else None
        return rows if rows is not None else _stack([_elements(tensor) for tensor in batch])
    if isinstance(first, np.ndarray):
        if first.dtype.kind in "SUO":
            raise TypeError(f"default_collate: cannot stack arrays of dtype {first.dtype}")
        return _stack([np.asarray(sample) for sample in batch])
    if isinstance(first, np.generic):
        numbers = np.array(batch)
        return numbers if len(set(map(type, batch))) == 1 else (  # as torch.as_tensor has a list of them
            numbers.astype(dtype_of_nested(batch, dtype_of_numpy(numbers.dtype).kind).numpy))
    if isinstance(first, float):
        return np.array(batch, np.float64)
    if isinstance(first, (bool, int)):  # as torch.tensor of the numbers, so that floats among them are of its default
        numbers = np.array(batch)
        return numbers.astype(get_default_dtype().numpy) if numbers.dtype.kind == "f" else numbers
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        return _mapping_like(first, {key: stacked([sample[key] for sample in batch], learnt) for key in first})
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError("default_collate: each element in list of batch should be of equal size")
        parts = [stacked(part, learnt) for part in zip(*batch, strict=True)]
        if is_named(type(first)):
            return sequence_of(type(first), parts)
        return parts if isinstance(first, tuple) else _sequence_like(first, parts)  # a list for tuples, as torch's
    if hasattr(first, "__array__"):  # another library's tensor: what transforms and datasets' formats hand out
        return _stack([np.asarray(sample) for sample in batch])
    raise TypeError("default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found "
                    f"{type(first).__name__}")


SMALL: Final = 1 << 16
"""Bytes up to which a sample's elements are copied: to share memory takes longer."""


def _elements(tensor: Tensor) -> np.ndarray:
    """The elements of a sample, to be read now."""
    if tensor.nbytes <= SMALL:
        return host_copy(tensor)
    return tensor.detach().cpu().numpy()


def _stack(arrays: Sequence[np.ndarray]) -> np.ndarray:
    import numpy as np
    shapes = {array.shape for array in arrays}
    if len(shapes) > 1:
        raise RuntimeError(f"default_collate: samples have different shapes: {', '.join(map(str, sorted(shapes)))}; "
                           "give a collate_fn that pads them")
    kinds = {array.dtype for array in arrays}
    if len(kinds) == 1:
        return np.stack(arrays)
    wanted = reduce(promote_types, map(dtype_of_numpy, kinds)).numpy  # numpy makes float64 of int64 and float32
    return np.stack([array.astype(wanted) for array in arrays])


def mapped(data: Any, function: Callable[[Any], Any]) -> Any:
    """The structure with a function of each of its arrays."""
    import numpy as np
    return rebuilt(data, lambda x: function(x) if isinstance(x, (np.ndarray, np.generic)) else x)


def rebuilt(data: Any, change: Callable[[Any], Any], tuples: type[list[Any]] | type[tuple[Any, ...]] = tuple) -> Any:
    """The structure, its mappings, tuples and lists of the classes that they were, with what else is in it changed.

    `tuples` is what tuples without names become.
    """
    if isinstance(data, Mapping):
        return _mapping_like(data, {key: rebuilt(value, change, tuples) for key, value in data.items()})
    if isinstance(data, tuple):
        parts = [rebuilt(value, change, tuples) for value in data]
        return sequence_of(type(data), parts) if is_named(type(data)) else tuples(parts)
    if isinstance(data, MutableSequence) and not isinstance(data, bytearray):
        return _sequence_like(data, [rebuilt(value, change, tuples) for value in data])
    return change(data)


def _mapping_like(data: Mapping[Any, Any], items: dict[Any, Any]) -> Any:
    """The items in a mapping of the same class, which may hold more than items: a copy if it can be written to."""
    if type(data) is dict:
        return items
    try:
        if isinstance(data, MutableMapping):
            clone = copy(data)
            clone.update(items)
            return clone
        return type(data)(items)  # type: ignore[call-arg]
    except TypeError:  # its class is made of something else
        return items


def _sequence_like(data: Sequence[Any], parts: list[Any]) -> Any:
    """The same of a sequence."""
    if type(data) is list:
        return parts
    try:
        if isinstance(data, MutableSequence):
            clone = copy(data)
            for i, part in enumerate(parts):
                clone[i] = part
            return clone
        return type(data)(parts)  # type: ignore[call-arg]
    except TypeError:
        return parts


def as_arrays(data: Any) -> Any:
    """The structure with arrays in place of tensors: what a worker of a user's own `collate_fn` sends."""
    return rebuilt(data, lambda x: _Was(x.detach().cpu().numpy()) if isinstance(x, Tensor) else x)


class _Was:
    """An array that was a tensor."""

    def __init__(self, array: np.ndarray):
        self.array = array


def as_tensors(data: Any, make: Callable[[Any], Tensor] = as_tensor) -> Any:
    """What `as_arrays` was made of."""
    return rebuilt(data, lambda x: make(x.array) if isinstance(x, _Was) else x)
