"""Types with symbolic sizes: they stay as long as their trace, whatever other threads' traces do."""

from __future__ import annotations

import sys
import threading
from typing import NoReturn

import pytest

import genesis
from genesis.engine.capture import input_nodes
from genesis.ir import result_types, types
from genesis.ir.node import Op
from genesis.ir.ops.movement import reshape
from genesis.ir.ops.movement import slice as slice_
from genesis.ir.ops.pointwise import exp
from genesis.ir.result_types import OFTEN_PLACED, forget_sizes_of, result_type
from genesis.ir.size_trace import Trace
from genesis.ir.types import TensorType, float32, tensor_type


@pytest.fixture(autouse=True)
def _often_another_thread(monkeypatch: pytest.MonkeyPatch):
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


def test_a_trace_that_ends_leaves_another_s_types() -> None:
    with Trace(True, n=7) as outer:
        size = outer.symbol("n")
        kept = tensor_type((size, 3), float32)
        with Trace(True, n=9) as inner:
            gone = tensor_type((inner.symbol("n"), 3), float32)
            forget_sizes_of(inner)
            assert tensor_type((inner.symbol("n"), 3), float32) is not gone
        assert tensor_type((size, 3), float32) is kept
        forget_sizes_of(outer)
        assert tensor_type((size, 3), float32) is not kept
        forget_sizes_of(outer)


def _typed(op: Op, type: TensorType, *attrs: object) -> TensorType:
    """The type of op(a value of this type)."""
    found = result_type(op, tuple(input_nodes([type])), attrs)
    assert isinstance(found, TensorType)
    return found


@pytest.mark.parametrize("made", ["operand", "attribute", "place"])
def test_results_go_with_the_trace_whose_sizes_they_have(made: str) -> None:
    before = set(result_types._result_types)
    fixed = tensor_type((50, 3) if made == "place" else (33,), float32)
    with Trace(True, n=11, m=9) as outer:
        kept = _typed(exp, tensor_type((outer.symbol("m"), 3), float32))
        with Trace(True, n=11) as inner:
            n = inner.symbol("n")
            if made == "operand":
                _typed(exp, tensor_type((n, 3), float32))
            elif made == "attribute":
                _typed(reshape, fixed, (n, 3))
            else:
                for _ in range(OFTEN_PLACED):  # until it is remembered
                    _typed(slice_, fixed, (n, 0), (n + 2, 3), (1, 1))
            assert len(set(result_types._result_types) - before) >= 3
            forget_sizes_of(inner)
        assert {result_types._result_types[key] for key in set(result_types._result_types) - before} <= {kept, fixed}
        forget_sizes_of(outer)
    assert {result_types._result_types[key] for key in set(result_types._result_types) - before} <= {fixed}


def test_forgetting_goes_through_no_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables have tens of thousands of types, and each symbolic capture forgets its own."""
    class Large(dict):
        def walked(self) -> NoReturn:
            raise AssertionError("all of it was gone through")
        __iter__ = copy = items = keys = values = walked  # type: ignore[assignment]
    monkeypatch.setattr(result_types, "_result_types", Large(result_types._result_types))
    monkeypatch.setattr(types, "_types", Large(types._types))
    with Trace(True, n=7) as trace:
        type = tensor_type((trace.symbol("n"), 3), float32)
        _typed(exp, type)
        forget_sizes_of(trace)
        assert tensor_type((trace.symbol("n"), 3), float32) is not type
    assert not any(type in key for key in dict.keys(result_types._result_types))


def test_threads_whose_traces_end_at_once() -> None:
    failures: list[BaseException] = []
    together = threading.Barrier(3)

    def work() -> None:
        try:
            for _ in range(30):
                with Trace(True, n=7) as trace:
                    sizes = [trace.symbol("n") + i for i in range(20)]
                    kept = [tensor_type((size,), float32) for size in sizes]
                    assert all(tensor_type((size,), float32) is x for size, x in zip(sizes, kept, strict=True))
                together.wait()
                forget_sizes_of(trace)
        except BaseException as error:
            failures.append(error)
            together.abort()
    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_no_size_is_a_float() -> None:
    """It would be an equal key, and the size of all later tensors of that shape."""
    for call in (lambda: genesis.diag_embed(genesis.ones(3, 4001), 2.0),
                 lambda: genesis.ones(8).as_strided((2, 2), (1, 1), 1.0),
                 lambda: tensor_type((3, 7919.0), float32)):  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            call()
    assert [type(n) for n in genesis.diag_embed(genesis.ones(3, 401), 2).shape] == [int, int, int]
    assert type(tensor_type((3, 7919), float32).shape[1]) is int
