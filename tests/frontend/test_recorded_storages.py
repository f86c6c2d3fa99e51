"""What recording an op makes without the calls that are for everybody else."""

from __future__ import annotations

import sys
from typing import Any

import pytest

import genesis
from genesis.frontend.recording import emit, read, read_all
from genesis.frontend.state import state
from genesis.frontend.storage import Storage, storage_of
from genesis.ir.ops import pointwise as p
from genesis.ir.source import here


@pytest.mark.parametrize("inference", [False, True])
def test_a_recorded_value_s_storage_is_like_any_other(inference: bool) -> None:
    node = (genesis.ones(2) * 3).storage.node
    with genesis.inference_mode(inference):
        found, expected = storage_of(node), Storage(node.type, node)
    own = {"_queued", "_reference", "__weakref__"}
    assert all(getattr(found, name) == getattr(expected, name) for name in set(Storage.__slots__) - own)
    assert found._reference() is found and state.pending[found._queued]() is found


def test_the_line_of_an_op_is_the_user_s_however_deep_the_op_is() -> None:
    x = genesis.ones(2, 2)
    sums = x + 1
    exponents = x.exp()
    gelus = genesis.nn.functional.gelu(x)
    texts = [str(y.storage.node.source and y.storage.node.source.text) for y in (sums, exponents, gelus)]
    assert texts == ["sums = x + 1", "exponents = x.exp()", "gelus = genesis.nn.functional.gelu(x)"]


def test_a_line_asked_for_from_where_nobody_is() -> None:
    """A function of ours that C code calls on an empty stack has fewer callers than are passed over."""
    depth = 0
    while True:
        try:
            sys._getframe(depth)
        except ValueError:
            break
        depth += 1
    assert here(inside=depth + 5) is not None
    assert emit(p.exp, (genesis.ones(2).storage.node,)).source is not None


@pytest.mark.parametrize("sizes", [(6, 1.0), (6.0, 1), ("6", 1)])
def test_a_view_that_was_taken_answers_for_no_sizes_of_other_types(sizes: tuple[Any, ...]) -> None:
    x = genesis.zeros(2, 3)
    assert x.view(6, 1).shape == (6, 1)
    with pytest.raises(TypeError, match="sizes must be integers"):
        x.view(*sizes)


def test_reading_many_tensors_is_reading_each() -> None:
    weight = genesis.ones(3, requires_grad=True)
    computed = weight * 2
    matrix = genesis.tensor([[1.0, 2.0], [3.0, 4.0]])
    tensors = [weight, computed, computed.detach(), matrix, matrix.t(), matrix[0], genesis.zeros(2) + 1]
    for enabled in (False, True):
        with genesis.set_grad_enabled(enabled):
            assert read_all(tensors) == [read(tensor) for tensor in tensors]
    with genesis.no_grad():
        assert not any(node.needs_grad for node in read_all(tensors))
        with pytest.raises(TypeError, match="float"):
            read_all([matrix, 1.5])  # type: ignore[list-item]
