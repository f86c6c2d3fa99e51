"""What numpy computes at once of plain operands is what Triton's language computes of them, and everything else goes
its way."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

from genesis.runtime.fake_cuda import plain_operands
from genesis.runtime.fake_cuda.interpreter import interpreting

OPERATORS = [*plain_operands._ARITHMETIC, *plain_operands._COMPARISONS]


def language_call(name: str) -> Any:
    """The operator as the interpreter has it, whatever the operands."""
    import triton.language as tl
    from triton.runtime.interpreter import interpreter_semantic
    member = getattr(tl if name == "where" else tl.tensor, name)
    return lambda *operands: member(*operands, _semantic=interpreter_semantic)


def operands() -> list[Any]:
    """Tensors of each dtype, as a block, a row, a column and a scalar; a pointer; and numbers of Python's."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    found: list[Any] = [3, -7, 1 << 40, 2.5, -0.1]
    for dtype, kind in ((tl.int32, np.int32), (tl.int64, np.int64), (tl.uint32, np.uint32), (tl.uint8, np.uint8),
                        (tl.float32, np.float32), (tl.float64, np.float64), (tl.float16, np.float16),
                        (tl.int1, np.bool_)):
        for shape in ((2, 4), (1, 4), (2, 1), ()):
            data = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64)[::-1].reshape(shape or 1)
            data = (data % 2 if dtype is tl.int1 else data * 3).astype(kind)
            found.append(tl.tensor(TensorHandle(data, dtype), tl.block_type(dtype, list(shape)) if shape else dtype))
    pointer = tl.pointer_type(tl.float32)
    for shape in ((2, 4), ()):
        data = np.full(shape or 1, 4096, np.uint64)
        found.append(tl.tensor(TensorHandle(data, pointer), tl.block_type(pointer, list(shape)) if shape else pointer))
    return found


def told(call: Any, *what: Any) -> tuple[Any, ...]:
    """All that a result says of itself, or what was raised."""
    try:
        x = call(*what)
    except Exception as error:
        return type(error),
    return (repr(x.handle.data.tolist()), x.handle.data.dtype, str(x.handle.dtype), str(x.type.scalar), str(x.dtype),
            [int(n) for n in x.type.shape] if x.type.is_block() else None, [int(n) for n in x.shape], int(x.numel))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_gives_what_the_language_gives(name: str) -> None:
    import triton.language as tl
    with interpreting():
        language, seen = language_call(name), []
        quick = plain_operands.plain(tl.tensor, name, lambda *what: seen.append(what) or language(*what))
        given = operands()
        tensors = [x for x in given if isinstance(x, tl.tensor)]
        for a, b in itertools.product(tensors, given):
            assert told(quick, a, b) == told(language, a, b), (name, str(a.type), str(getattr(b, "type", b)))
    assert 0 < len(seen) < len(tensors) * len(given) - 20, "some have plain operands, and not all"


@pytest.mark.filterwarnings("ignore")
def test_a_choice_is_the_languages() -> None:
    import triton.language as tl
    with interpreting():
        language, seen = language_call("where"), []
        quick = plain_operands.plain(tl, "where", lambda *what: seen.append(what) or language(*what))
        tensors = [x for x in operands() if isinstance(x, tl.tensor)]
        conditions = [x for x in tensors if x.dtype is tl.int1]
        tried = 0
        for condition, a in itertools.product(conditions, tensors):
            for b in (a, tensors[0], 3):
                assert told(quick, condition, a, b) == told(language, condition, a, b)
                tried += 1
    assert 0 < len(seen) < tried - 8


def test_other_names_stay_as_they_are() -> None:
    import triton.language as tl

    def original() -> None: ...
    assert plain_operands.plain(tl.tensor, "__matmul__", original) is original
    assert plain_operands.plain(tl, "__add__", original) is original
    assert plain_operands.plain(tl.math, "where", original) is original
