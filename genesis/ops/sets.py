"""Distinct elements, membership, and counts."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from genesis.frontend.engine_protocol import engine
from genesis.frontend.recording import TensorBase, emit, read, record, require_tensors, wrap
from genesis.ir.errors import failure
from genesis.ir.ops import ranks
from genesis.ir.types import bool_, float32, float64, int64
from genesis.ops.common import axis_in, promote
from genesis.ops.out import into
from genesis.ops.parts import stack
from genesis.ops.searching import searchsorted
from genesis.ops.sorting import sort

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["bincount", "histc", "isin", "unique", "unique_consecutive"]

SMALL = 16
"""Elements up to which membership is a comparison with each."""


def _result(values: Any, inverse: Any, counts: Any, wants_inverse: bool, wants_counts: bool) -> Any:
    found = (values, *((inverse,) if wants_inverse else ()), *((counts,) if wants_counts else ()))
    return found if len(found) > 1 else values


def unique(input: Tensor, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False,
           dim: int | None = None) -> Any:
    """The distinct elements in ascending order, or along `dim` the distinct slices. Reads how many there are.

    Args:
        sorted: they are in order, which they are in any case.
        return_inverse: also where each element of the input is among them.
        return_counts: also how often each occurs.

    Returns:
        The distinct elements, or a tuple of what is wanted. NaN equals nothing, so each is one of its own.

    Raises:
        IndexError: there is no such dimension.

    >>> import genesis
    >>> genesis.unique(genesis.tensor([3, 1, 3]), return_counts=True)
    (tensor([1, 3]), tensor([1, 2]))
    """
    require_tensors(input)
    if dim is not None:
        return _unique_slices(input, axis_in("unique", dim, input.spec.ndim), return_inverse, return_counts)
    values, order = sort(input.detach().reshape(-1), 0)
    found, ranks_, counts = _groups(_changes(values))
    inverse = _at(ranks_, order).reshape(input.spec.shape) if return_inverse else None
    return _result(values[found], inverse, counts, return_inverse, return_counts)


def unique_consecutive(input: Tensor, return_inverse: bool = False, return_counts: bool = False,
                       dim: int | None = None) -> Any:
    """The elements that differ from the one before, or along `dim` such slices. Reads how many there are.

    >>> import genesis
    >>> genesis.unique_consecutive(genesis.tensor([1, 1, 2, 1]))
    tensor([1, 2, 1])
    """
    require_tensors(input)
    axis = 0 if dim is None else axis_in("unique_consecutive", dim, input.spec.ndim)
    line = input.detach().reshape(-1) if dim is None or not input.spec.ndim else input.detach()
    _check_slices("unique_consecutive", line, axis)
    size = line.spec.shape[axis]
    changed = line.narrow(axis, 1, size - 1) != line.narrow(axis, 0, size - 1) if size else line != line
    others = [d for d in range(line.spec.ndim) if d != axis]
    starts = changed.any(others) if others else changed
    found, ranks_, counts = _groups(_with_first(starts) if size else starts)
    inverse = ranks_.reshape(input.spec.shape) if dim is None else ranks_
    return _result(line.index_select(axis, found), inverse, counts, return_inverse, return_counts)


def _changes(values: Any) -> Any:
    """A mask of the places where a sorted vector has another element than before."""
    size = values.spec.numel
    return _with_first(values[1:] != values[:-1]) if size else values.to(bool_)


def _with_first(changed: Any) -> Any:
    from genesis.ops.parts import cat
    return cat((changed.new_ones(1), changed))


def _groups(starts: Any) -> tuple[Any, Any, Any]:
    """Given where groups of neighbours start in a vector: these places, each element's group, the groups' sizes."""
    from genesis.ops.parts import cat
    found, = starts.nonzero(as_tuple=True)
    ends = cat((found[1:], found.new_full((min(found.spec.numel, 1),), starts.spec.numel)))
    return found, starts.cumsum(0) - 1, ends - found


def _at(values: Any, order: Any) -> Any:
    """result[order[i]] = values[i], for a permutation."""
    from genesis.ir.ops.sorting import unsort
    return wrap(emit(unsort, (read(values), read(order)), (0,)))


def _unique_slices(input: Any, axis: int, wants_inverse: bool, wants_counts: bool) -> Any:
    """Slices are numbered in lexicographic order: first each of their columns, then pairs of columns, of pairs, …"""
    line = input.detach() if input.spec.ndim else input.detach().reshape(1)
    _check_slices("unique", line, axis)
    size = line.spec.shape[axis]
    if not size:
        none = line.new_empty(0, dtype=int64)
        return _result(line.clone(), none, none.clone(), wants_inverse, wants_counts)
    columns = line.movedim(axis, -1).reshape(-1, size)
    numbers = _dense(columns)
    while numbers.spec.shape[0] > 1:
        pairs = numbers.spec.shape[0] // 2
        joined = _dense(numbers[0:2 * pairs:2] * size + numbers[1:2 * pairs:2])
        from genesis.ops.parts import cat
        numbers = cat((joined, numbers[2 * pairs:])) if numbers.spec.shape[0] % 2 else joined
    inverse = numbers[0]
    values, order = sort(inverse, 0)
    found, _, counts = _groups(_changes(values))
    return _result(line.index_select(axis, order[found]), inverse, counts, wants_inverse, wants_counts)


def _check_slices(name: str, line: Any, axis: int) -> None:
    """Slices without elements cannot be told apart; that there are no slices is fine."""
    empty = line.spec.shape.count(0)
    if empty > 1 or (empty and line.spec.shape[axis]):
        raise failure(name, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied",
                      [("input", line)])


def _dense(rows: Any) -> Any:
    """The number of each element among the distinct ones of its row, int64."""
    from genesis.ir.ops.sorting import unsort
    from genesis.ops.parts import cat
    values, order = sort(rows, 1)
    changed = cat((values.new_zeros((rows.spec.shape[0], 1), dtype=bool_), values[:, 1:] != values[:, :-1]), 1)
    return wrap(emit(unsort, (read(changed.cumsum(1)), read(order)), (1,)))


def isin(elements: Any, test_elements: Any, *, assume_unique: bool = False, invert: bool = False,
         out: Tensor | None = None) -> Tensor:
    """Whether each element is among the test elements (`invert`: is not). NaN never is.

    Args:
        elements, test_elements: tensors or numbers, at least one a tensor.
        assume_unique: changes nothing here.

    >>> import genesis
    >>> genesis.isin(genesis.tensor([1, 2, 3]), genesis.tensor([2, 3]))
    tensor([False,  True,  True])
    """
    from genesis.ops.creation import tensor
    if not isinstance(elements, TensorBase) and not isinstance(test_elements, TensorBase):
        raise failure("isin", "one of elements and test_elements must be a tensor", error=TypeError)
    device = (elements if isinstance(elements, TensorBase) else test_elements).spec.device
    elements, test_elements = (x if isinstance(x, TensorBase) else tensor(x, device=device)
                               for x in (elements, test_elements))
    values, tests = promote(elements.detach(), test_elements.detach().reshape(-1))
    count = tests.spec.numel
    if not count:
        found = values.new_zeros(values.spec.shape, dtype=bool_)
    elif count <= SMALL:
        found = (values.unsqueeze(-1) == tests).any(-1)
    else:
        found = _among(values, tests)
    return into(out, found.logical_not() if invert else found)


def _among(values: Any, tests: Any) -> Any:
    """Searches the sorted tests, from which NaN is taken out: another of them stands for it, which is none if all are
    NaN."""
    if tests.spec.dtype.kind == "float":
        missing = tests.isnan()
        least = tests.masked_fill(missing, float("inf")).amin()
        tests, some = least.where(missing, tests), missing.logical_not().any()
    rows = sort(tests, 0).values
    places = searchsorted(rows, values).clamp(max=rows.spec.numel - 1)
    found = rows[places] == values
    return found & some if tests.spec.dtype.kind == "float" else found


def bincount(input: Tensor, weights: Tensor | None = None, minlength: int = 0) -> Tensor:
    """The count of each of the numbers 0, 1, 2, … or the sum of its weights. The largest number is read.

    Args:
        input: a vector of integers ≥ 0.
        weights: of its shape; their sums have their dtype if that is float32, else float64.
        minlength: the least length of the result.

    Returns:
        int64 (max + 1,) without weights.

    Raises:
        RuntimeError: the input is no vector of integers ≥ 0, or the weights do not fit.

    >>> import genesis
    >>> genesis.bincount(genesis.tensor([1, 3, 1]))
    tensor([0, 2, 0, 1])
    """
    require_tensors(input, weights)
    minlength = operator.index(minlength)
    if minlength < 0:
        raise failure("bincount", "minlength should be >= 0")
    if input.spec.ndim != 1 or input.spec.dtype.kind != "int":
        raise failure("bincount", "bincount only supports 1-d non-negative integral inputs.", [("input", input)])
    if weights is not None and weights.spec.shape != input.spec.shape:
        raise failure("bincount", "weights should be 1-d and have the same length as input",
                      [("input", input), ("weights", weights)])
    size = minlength
    if input.spec.numel:
        low, high = stack([input.min(), input.max()]).tolist()  # one read
        if low < 0:
            raise failure("bincount", "bincount only supports 1-d non-negative integral inputs.", [("input", input)])
        size = max(minlength, high + 1)
    if weights is None:
        return record(ranks.bincount, (input.to(int64),), (size,))
    kept = weights.spec.dtype if weights.spec.dtype is float32 else float64
    return weights.new_zeros(size, dtype=kept).index_add(0, input.to(int64), weights.to(kept))


def histc(input: Tensor, bins: int = 100, min: float = 0, max: float = 0, *, out: Tensor | None = None) -> Tensor:
    """The number of elements in each of `bins` equal parts of [min, max]; those outside count nowhere.

    Args:
        input: floating-point.
        min, max: by default the least and the largest element.

    Returns:
        (bins,) in the input's dtype.

    Raises:
        RuntimeError: there are no bins, max < min, or a bound is not finite.

    >>> import genesis
    >>> genesis.histc(genesis.tensor([1., 2., 1.]), bins=4, min=0, max=3)
    tensor([0., 2., 1., 0.])
    """
    bins = operator.index(bins)
    if input.spec.dtype.kind != "float":
        raise failure("histc", f"not implemented for {input.spec.dtype!r}", [("input", input)], hint="x.float()")
    if bins <= 0:
        raise failure("histc", f"bins must be > 0, but got {bins}")
    if max < min or not (abs(min) < float("inf") and abs(max) < float("inf")):
        problem = "max must be larger than min" if max < min else f"range of [{min}, {max}] is not finite"
        raise failure("histc", problem, [("input", input)])
    x = input.detach().reshape(-1)
    if x.spec.dtype.itemsize < 4:
        x = x.float()
    if not x.spec.numel:
        return into(out, input.new_zeros(bins))
    low, high = _bounds(x, min, max)
    place = ((x - low) * bins / (high - low)).floor().clamp(0, bins - 1)
    inside = (x >= low) & (x <= high)
    place = place.masked_fill(inside.logical_not(), 0.0)
    counts = x.new_zeros(bins, dtype=int64).index_add(0, place.to(int64), inside.to(int64))
    return into(out, counts.to(input.spec.dtype))


def _bounds(x: Any, low: float, high: float) -> tuple[Any, Any]:
    """The range, as 0-d tensors. A single point is widened by 1 on both sides."""
    if low != high:
        return x.new_full((), low), x.new_full((), high)
    least, largest = (x.amin(), x.amax()) if low == 0 else (x.new_full((), low),) * 2
    if not engine.backend_of(x.spec.device).asynchronous and not bool(((largest - least) < float("inf")).item()):
        raise failure("histc", f"range of [{least.item()}, {largest.item()}] is not finite", [("input", x)])
    point = (least == largest).to(x.spec.dtype)
    return least - point, largest + point


class SetMethods(TensorBase):
    """The methods of a tensor about distinct elements and counts."""

    __slots__ = ()

    unique = unique
    unique_consecutive = unique_consecutive
    isin = isin
    bincount = bincount
    histc = histc


