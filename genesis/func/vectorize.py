"""vmap: a function of one example as a function of a batch.

The function runs once, on stand-ins for one example, and what it records is rewritten for all
(`genesis.func.batching`). Where an op can not be rewritten the function is called for each example and the results are
stacked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from genesis.frontend.generator import get_rng_state, set_rng_state
from genesis.frontend.pending import live_pending
from genesis.frontend.recording import TensorBase, read, wrap
from genesis.frontend.state import state
from genesis.frontend.storage import Storage
from genesis.func.batching import Batch, NotBatchable
from genesis.func.tree import flatten, spread
from genesis.ir.errors import Overwritten, failure
from genesis.ops.parts import cat, narrow, select, stack
from genesis.ops.shape import movedim
from genesis.runtime.contexts import Context, leaving


class _OnStandIns(Context):
    """A context in which values are stand-ins: nothing that is recorded can be computed yet."""

    def _entering(self) -> Callable[[], object]:
        return partial(state.rewriting.calls.append, None)

    def _leaving(self) -> Callable[..., object]:
        return leaving((state.rewriting.calls.pop,))


on_stand_ins: Final = _OnStandIns()


def vmap(func: Callable[..., Any], in_dims: Any = 0, out_dims: Any = 0, randomness: str = "error",
         *, chunk_size: int | None = None) -> Callable[..., Any]:
    """func over a batch: each argument's dimension `in_dims` counts examples, which func sees one at a time.

    Args:
        func: of nests of tensors (and anything else), to a nest of tensors; it does not read values.
        in_dims: an int for all arguments, or a nest of them like the arguments; None for what all examples share.
            Keyword arguments are shared.
        out_dims: where the examples are counted in the results, an int or a nest; None for a result that they share.
        randomness: "error", "different" or "same" numbers for each example.
        chunk_size: examples to take at a time.

    Raises:
        ValueError: the batches differ in size, or there is none; in_dims or out_dims do not fit.
        RuntimeError: random numbers are drawn with randomness="error", a value is read, or a tensor from outside is
            written to.

    >>> import genesis
    >>> genesis.func.vmap(genesis.dot)(genesis.ones(3, 2), genesis.arange(6.0).reshape(3, 2))
    tensor([1., 5., 9.])
    >>> genesis.func.vmap(lambda x: {"sum": x["a"] + x["b"]}, in_dims=({"a": 0, "b": None},))(
    ...     {"a": genesis.tensor([1.0, 2.0]), "b": genesis.tensor(10.0)})
    {'sum': tensor([11., 12.])}
    """
    if randomness not in ("error", "different", "same"):
        raise failure("vmap", "Only allowed values for randomness are 'error', 'different', or 'same'. "
                      f"Got {randomness}")
    if chunk_size is not None and chunk_size <= 0:
        raise failure("vmap", f"chunk_size should be None or greater than 0. (got {chunk_size})", error=ValueError)
    name = getattr(func, "__name__", repr(func))

    @functools.wraps(func)
    def over_batch(*args: Any, **kwargs: Any) -> Any:
        flat, build = flatten(args)
        dims = _checked_dims(name, args, flat, in_dims)
        sizes = [x.spec.shape[d] for x, d in zip(flat, dims, strict=True) if d is not None]
        if len(set(sizes)) != 1:
            raise failure("vmap", "Expected all tensors to have the same size in the mapped dimension, got sizes "
                          f"{sizes} for the mapped dimension" if sizes else
                          "at least one input has to be mapped over, all entries of in_dims are None", error=ValueError)
        size = sizes[0]
        if chunk_size is None or size <= chunk_size:
            return _over(name, func, flat, build, dims, kwargs, size, randomness, out_dims)
        before = get_rng_state() if randomness == "same" else None
        parts = []
        for start in range(0, size, chunk_size):
            if before is not None:
                set_rng_state(before)
            length = min(chunk_size, size - start)
            chunk = [x if d is None else narrow(x, d, start, length) for x, d in zip(flat, dims, strict=True)]
            parts.append(_over(name, func, chunk, build, dims, kwargs, length, randomness, out_dims))
        return _concatenated(name, parts, out_dims)
    return over_batch


def _checked_dims(name: str, args: tuple[Any, ...], flat: list[Any], in_dims: Any) -> list[int | None]:
    """The dimension of each value among the arguments that counts examples, counted from the front; None for none."""
    what = f"vmap({name}, in_dims={in_dims}, ...)(<inputs>)"
    if not isinstance(in_dims, (int, tuple)):
        raise failure("vmap", f"{what}: expected `in_dims` to be int or a (potentially nested) tuple matching the "
                      f"structure of inputs, got: {type(in_dims)}", error=ValueError)
    if not args:
        raise failure("vmap", f"vmap({name})(<inputs>): got no inputs. Maybe you forgot to add inputs, or you are "
                      "trying to vmap over a function with no inputs. The latter is unsupported", error=ValueError)
    dims = spread(in_dims, args)
    if dims is None:
        raise failure("vmap", f"{what}: in_dims is not compatible with the structure of `inputs`", error=ValueError)
    return [_checked_dim(what, x, d) for x, d in zip(flat, dims, strict=True)]


def _checked_dim(what: str, x: Any, dim: Any) -> int | None:
    if dim is None:
        return None
    if not isinstance(dim, int):
        raise failure("vmap", f"{what}: Got in_dim={dim} for an input but in_dim must be either an integer dimension "
                      "or None", error=ValueError)
    if not isinstance(x, TensorBase):
        raise failure("vmap", f"{what}: Got in_dim={dim} for an input but the input is of type {type(x)}. We cannot "
                      "vmap over non-Tensor arguments, please use None as the respective in_dim", error=ValueError)
    rank = x.spec.ndim
    if not -rank <= dim < rank:
        raise failure("vmap", f"{what}: Got in_dim={dim} for some input, but that input is a Tensor of dimensionality "
                      f"{rank} so expected in_dim to satisfy -{rank} <= in_dim < {rank}", error=ValueError)
    return dim % rank


def _over(name: str, func: Callable[..., Any], flat: list[Any], build: Any, dims: list[int | None], kwargs: Any,
          size: int, randomness: str, out_dims: Any) -> Any:
    """One call: all the examples at once."""
    front = [x if d is None else movedim(x, d, 0) for x, d in zip(flat, dims, strict=True)]
    mapped = [d is not None for d in dims]
    try:
        with on_stand_ins:
            result, places = _rewritten(name, func, front, mapped, build, kwargs, size, randomness, out_dims)
    except NotBatchable:
        result, places = _looped(name, func, front, mapped, build, kwargs, size, out_dims)
    leaves, like = flatten(result)
    return like([movedim(x, 0, d) if d else x for x, d in zip(leaves, places, strict=True)])


def _rewritten(name: str, func: Callable[..., Any], front: list[Any], mapped: list[bool], build: Any, kwargs: Any,
               size: int, randomness: str, out_dims: Any) -> tuple[Any, list[Any]]:
    """The function's program for one example, rewritten for all; and where each result's batch goes."""
    batch = Batch(size, randomness)
    given = [wrap(batch.stand_in(read(x))) if m else x for x, m in zip(front, mapped, strict=True)]
    holes = [x.storage.node if m else None for x, m in zip(given, mapped, strict=True)]
    pending = {storage: storage.node for storage in live_pending()}
    try:
        result = func(*build(given), **kwargs)
    except Overwritten:
        raise failure("vmap", "It looks like you're calling .item() on a Tensor, or use one in data-dependent control "
                      "flow: its values differ between examples",
                      hint="compute with it instead: where() for if") from None
    leaves, like, places = _results(name, result, out_dims)
    wanted = [i for i, d in enumerate(places) if d is not None]
    found = batch.all_of([read(leaves[i]) for i in wanted])
    for i, node in zip(wanted, found, strict=True):
        leaves[i] = wrap(node)
    for x, d in zip(leaves, places, strict=True):
        if d is None and isinstance(x, TensorBase) and batch.depends(read(x)):
            raise failure("vmap", f"vmap({name}, ...): `{name}` can not return a BatchedTensor when out_dim is None",
                          error=ValueError)
    for whole, one, hole in zip(front, given, holes, strict=True):
        if hole is not None and one.storage.node is not hole:  # written to in place
            whole.copy_(wrap(batch.all_of([one.storage.node])[0]))
    _refuse_writes(batch, pending, {x.storage for x in given if isinstance(x, TensorBase)})
    return like(leaves), places


def _refuse_writes(batch: Batch, before: dict[Storage, Any], own: set[Storage]) -> None:
    """A tensor from outside has room for one example only."""
    for storage in live_pending():
        outside = storage.cell is not None or storage in before
        if outside and storage not in own and storage.node is not before.get(storage) and batch.depends(storage.node):
            error = failure("vmap", "inplace arithmetic is not possible because a tensor from outside, which all "
                            "examples share, is written to with a value that differs between them",
                            hint="return the value, or map over that tensor too")
            if storage in before:
                storage.write(before[storage])
            else:
                storage.fail(error)
            raise error


def _results(name: str, result: Any, out_dims: Any) -> tuple[list[Any], Any, list[Any]]:
    """The values of a result, the function that builds it, and where each value's batch goes."""
    leaves, like = flatten(result)
    places = spread(out_dims, result)
    if places is None and isinstance(out_dims, (tuple, list)) and len(out_dims) == 1 and isinstance(result, TensorBase):
        places = list(out_dims)
    if places is None:
        raise failure("vmap", f"vmap({name}, ..., out_dims={out_dims})(<inputs>): out_dims is not compatible with the "
                      "structure of `outputs`", error=ValueError)
    for x, d in zip(leaves, places, strict=True):
        if d is not None and not isinstance(x, TensorBase):
            raise failure("vmap", f"vmap({name}, ...): `{name}` must only return Tensors, got type {type(x)}. Did you "
                          "mean to set out_dims= to None for output?", error=ValueError)
    return leaves, like, places


def _looped(name: str, func: Callable[..., Any], front: list[Any], mapped: list[bool], build: Any, kwargs: Any,
            size: int, out_dims: Any) -> tuple[Any, list[Any]]:
    """The function called for each example."""
    columns: list[list[Any]] = []
    for i in range(size):
        given = [select(x, 0, i) if m else x for x, m in zip(front, mapped, strict=True)]
        leaves, like, places = _results(name, func(*build(given), **kwargs), out_dims)
        columns.append(leaves)
    return like([rows[0] if d is None else stack(list(rows))
                 for rows, d in zip(zip(*columns, strict=True), places, strict=True)]), places


def _concatenated(name: str, parts: list[Any], out_dims: Any) -> Any:
    columns = []
    for part in parts:
        leaves, like, places = _results(name, part, out_dims)
        columns.append(leaves)
    return like([rows[0] if d is None else cat(list(rows), d)
                 for rows, d in zip(zip(*columns, strict=True), places, strict=True)])
