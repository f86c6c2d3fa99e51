"""Every mix of indices, drawn at random, against torch: the result or the kind of error, and what writing does."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import genesis
from genesis import IndexKind, index_plan

SETTINGS = settings(max_examples=120, deadline=None)

shapes = st.lists(st.integers(0, 4), max_size=4).map(tuple)


class Ints(tuple):
    """Entries of an integer tensor of this dtype."""

    dtype = "int64"


class Ints32(Ints):
    """The same in int32."""

    dtype = "int32"


class Mask(tuple):
    """Entries of a boolean tensor."""


@st.composite
def items(draw, size: int | None) -> Any:
    """One item of a key for a dimension of this size; most fit."""
    bound = (size or 1) - 1
    low, high = (-(bound + 1), bound) if size else (0, 0)
    kind = draw(st.sampled_from(["int", "slice", "slice", "none", "ellipsis", "index", "index", "list", "mask",
                                 "matrix", "scalar", "bool", "int32", "array"]))
    if kind == "slice" or (kind in ("index", "list", "int32", "array", "matrix") and not size):
        ends = st.one_of(st.none(), st.integers(-5, 5))
        return slice(draw(ends), draw(ends), draw(st.one_of(st.none(), st.integers(1, 3))))
    if kind == "mask":
        return Mask(draw(st.lists(st.booleans(), min_size=size or 0, max_size=size or 0)))
    if kind == "matrix":
        return Ints(draw(st.lists(st.tuples(*[st.integers(low, high)] * 2), min_size=1, max_size=2)))
    row = draw(st.lists(st.integers(low, high), min_size=1, max_size=3))
    return {"int": row[0] + draw(st.sampled_from([0, 0, 0, 1])), "none": None, "ellipsis": Ellipsis, "bool": row[0] > 0,
            "scalar": ("scalar", row[0]), "index": Ints(row), "list": row, "array": np.array(row),
            "int32": Ints32(row)}[kind]


@st.composite
def cases(draw) -> tuple[tuple[int, ...], Any]:
    """A shape and a key for it."""
    shape = draw(shapes)
    parts, at = [], 0
    for _ in range(draw(st.integers(0, len(shape) + 1))):
        parts.append(draw(items(shape[at] if at < len(shape) else None)))
        if parts[-1] is Ellipsis and Ellipsis in [x for x in parts[:-1] if x is Ellipsis]:
            parts[-1] = None  # torch takes some keys with two of them, to odd effect; here they are an error
        at += 0 if parts[-1] is None or parts[-1] is Ellipsis or isinstance(parts[-1], bool) else 1
    return shape, parts[0] if len(parts) == 1 and draw(st.booleans()) else ("key", *parts)


def made(T: Any, part: Any) -> Any:
    """What the framework is given for a drawn key."""
    if isinstance(part, tuple) and part[:1] == ("key",):
        return tuple(made(T, x) for x in part[1:])
    if isinstance(part, tuple) and part[:1] == ("scalar",):
        return T.tensor(part[1])
    if isinstance(part, Ints):
        return T.tensor([list(x) if isinstance(x, tuple) else x for x in part], dtype=getattr(T, part.dtype))
    return T.tensor(list(part), dtype=T.bool) if isinstance(part, Mask) else part


def numbers(T: Any, shape: tuple[int, ...]) -> Any:
    count = int(np.prod(shape))
    return T.arange(count).float().reshape(shape) + 1


def outcome(run: Any) -> Any:
    """What a program gives, or the kind of its error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return [(tuple(x.shape), x.tolist()) for x in run()]
        except IndexError:  # ours has a name of its own where values decide
            return "IndexError"
        except (RuntimeError, TypeError, ValueError) as error:
            return type(error).__name__


def same(program: Any, checked: bool = True) -> None:
    """`checked`: whether an index out of range is an error here as it is in torch; it is not where nothing is read."""
    found, wanted = outcome(lambda: program(genesis)), outcome(lambda: program(torch))
    nothing = any(isinstance(x, list) and any(0 in shape for shape, _ in x) for x in (found, wanted))
    if (checked and not nothing) or "IndexError" not in (found, wanted):
        assert found == wanted


@SETTINGS
@given(cases())
def test_reading(case):
    shape, key = case
    same(lambda T: [numbers(T, shape)[made(T, key)]], checked=0 not in shape)


@SETTINGS
@given(cases())
def test_reading_through_a_view_and_its_gradient(case):
    shape, key = case

    def program(T):
        whole = numbers(T, (*shape[::-1], 2)).requires_grad_()
        x = whole[..., 1].permute(tuple(reversed(range(len(shape)))))
        y = x[made(T, key)]
        (y * y).sum().backward()
        return y, whole.grad
    same(program, checked=0 not in shape)


@SETTINGS
@given(cases())
def test_writing_a_number(case):
    shape, key = case

    def program(T):
        x = numbers(T, shape)
        x[made(T, key)] = -1
        y = numbers(T, shape)
        y[made(T, key)] = T.tensor([[2.5]])
        return x, y
    same(program, checked=0 not in shape)  # a write that changes nothing does not run


@SETTINGS
@given(cases())
def test_a_view_is_a_view(case):
    """Writing into what is read changes the tensor, exactly where it does in torch."""
    shape, key = case

    def program(T):
        x = numbers(T, shape)
        y = x[made(T, key)]
        y.add_(100)
        return x, y
    same(program, checked=0 not in shape)


@SETTINGS
@given(cases(), st.booleans())
def test_writing_a_tensor(case, narrow):
    """A value for each place, or one row of them; places that are named twice are left out."""
    shape, key = case
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            places = numbers(torch, shape)[made(torch, key)]
        except (IndexError, RuntimeError, TypeError, ValueError):
            return
    if places.unique().numel() != places.numel() or not places.numel():
        return
    given_shape = tuple(places.shape[-1:]) if narrow else (1, *places.shape)

    def program(T):
        x, w = numbers(T, shape), T.tensor(1.0, requires_grad=True)
        y = x * w
        y[made(T, key)] = -numbers(T, given_shape) * w
        (y * y).sum().backward()
        return y, w.grad
    same(program)


X = genesis.arange(60).view(3, 4, 5)


@pytest.mark.parametrize("key, kind, shape, strides, offset", [
    ((slice(1, None), 2), IndexKind.VIEW, (2, 5), (20, 1), 8 * 30),
    ((Ellipsis, slice(None, None, 2)), IndexKind.VIEW, (3, 4, 3), (20, 5, 2), 0),
    (None, IndexKind.VIEW, (1, 3, 4, 5), (60, 20, 5, 1), 0),
    (([0, 2], slice(None), [1, 1]), IndexKind.GATHER, (2, 4), None, 0),
    ((slice(1, 3), [0, 1, 1]), IndexKind.GATHER, (2, 3, 5), None, 8 * 20),
])
def test_a_plan_can_be_inspected(key, kind, shape, strides, offset):
    plan = index_plan(X, key)
    assert plan.kind is kind and plan.result_shape == shape and plan.result_strides == strides
    assert plan.ptr_offset_bytes == offset and tuple(X[key].shape) == shape
    assert (plan.index_tensor is None) is (kind is IndexKind.VIEW) and not plan.needs_mask_compaction


def test_a_plan_of_rows_names_them():
    plan = index_plan(X, ([0, 2, -1], [1, 0, 3]))
    assert plan.index_tensor.tolist() == [1, 8, 11] and plan.temp_memory_bytes == 24


def test_a_mask_is_compacted_to_be_read_but_not_to_be_filled():
    mask = X > 50
    read = index_plan(X, mask)
    assert (read.kind, read.result_shape, read.needs_mask_compaction) == (IndexKind.GATHER, (9,), True)
    assert read.temp_memory_bytes == 4 * 9 * 8
    fill = index_plan(X, mask, 0)
    assert (fill.kind, fill.result_shape, fill.needs_mask_compaction) == (IndexKind.FILL, None, False)
    write = index_plan(X, mask, genesis.arange(9))
    assert (write.kind, write.result_shape, write.needs_mask_compaction) == (IndexKind.SCATTER, (9,), True)


@pytest.mark.parametrize("key, value, kind", [
    (slice(2), 0.0, IndexKind.FILL), (slice(2), genesis.tensor(1), IndexKind.FILL),
    (slice(2), genesis.arange(5), IndexKind.COPY), ([0, 1], 0, IndexKind.SCATTER),
])
def test_the_kind_of_a_write(key, value, kind):
    assert index_plan(X, key, value).kind is kind


def test_filling_by_a_mask_reads_nothing():
    x = genesis.ones(4)
    x[x * 2 > 1] = 5
    assert not x.storage.settled and x.tolist() == [5] * 4


@pytest.mark.parametrize("key, error, text", [
    (3, IndexError, "index 3 is out of bounds for dimension 0 with size 3"),
    ((0, 0, 0, 0), IndexError, "too many indices for tensor of dimension 3"),
    (slice(None, None, -1), ValueError, "step must be greater than zero"),
    ("a", IndexError, "only integers, slices"),
    (0.5, IndexError, r"only integers, slices .* \(got float\)"),
    ((Ellipsis, Ellipsis), IndexError, "only one ellipsis"),
    (genesis.tensor([0.5]), IndexError, "tensors used as indices must be long, int, byte or bool"),
    (genesis.tensor([True, False]), IndexError, r"The shape of the mask \[2\] at index 0 does not match the shape of "
                                                r"the indexed tensor \[3, 4, 5\] at index 0"),
    ((Ellipsis, genesis.ones(2, dtype=genesis.bool)), IndexError, r"mask \[2\] at index 0 .* at index 2"),
    (([0, 1], [0, 1, 2]), IndexError, r"could not be broadcast together with shapes \[2\], \[3\]"),
    ([7], IndexError, "index 7 is out of bounds for dimension 0 with size 3"),
])
def test_errors(key, error, text):
    with pytest.raises(error, match=text):
        X[key].tolist()


@pytest.mark.parametrize("key, value, text", [
    (slice(0, 2), genesis.ones(3), r"The expanded size of the tensor \(5\) must match the existing size \(3\) at "
                                   r"non-singleton dimension 2. Target sizes: \[2, 4, 5\]. Tensor sizes: \[3\]"),
    ([0, 1], genesis.ones(3), r"value tensor of shape \[3\] cannot be broadcast to indexing result of shape "
                              r"\[2, 4, 5\]"),
    (0, genesis.ones(2, 4, 5), r"number of sizes of the target \(2\) .* dimensions of the value \(3\)"),
])
def test_errors_of_writing(key, value, text):
    x = X.clone()
    with pytest.raises(RuntimeError, match=text):
        x[key] = value
    assert (x == X).all()
