"""Types with symbolic sizes: they stay as long as their trace, whatever other threads' traces do."""

from __future__ import annotations

import sys
import threading

import pytest

import genesis
from genesis.ir.result_types import forget_sizes_of
from genesis.ir.size_trace import Trace
from genesis.ir.types import float32, tensor_type


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
