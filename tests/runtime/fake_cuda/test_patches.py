"""Patches of Triton's modules are taken back, and what is asked most is answered as it was."""

from __future__ import annotations

from types import SimpleNamespace

from genesis.runtime.fake_cuda.interpreter import interpreting
from genesis.runtime.fake_cuda.patches import Patches


def test_changes_are_taken_back_the_last_one_first() -> None:
    place = SimpleNamespace(a=1, b=2)
    patches = Patches()
    patches.set([(place, "a", 10), (place, "c", 30)])
    patches.set([(place, "a", 100), (place, "c", 300), (place, "b", 200)])
    assert vars(place) == {"a": 100, "b": 200, "c": 300}
    place.a, place.d = 5, 6
    del place.c
    patches.undo()
    assert vars(place) == {"a": 1, "b": 2, "d": 6}
    place.a = 7
    patches.undo()
    assert place.a == 7, "there is nothing left to take back"


def test_dtypes_are_equal_as_ever() -> None:
    import triton.language as tl
    pointer, block = tl.pointer_type(tl.float32), tl.block_type(tl.float32, [4])
    pairs = [(x, y) for x in (tl.float32, tl.dtype("fp32"), tl.int32, pointer, block, tl.constexpr(tl.float32))
             for y in (tl.float32, tl.dtype("fp32"), tl.int1, tl.pointer_type(tl.float32), tl.pointer_type(tl.int8),
                       tl.block_type(tl.float32, [4]), tl.constexpr(tl.float32), "fp32", None)]
    before = [(bool(x == y), bool(x != y)) for x, y in pairs]
    with interpreting():
        assert [(bool(x == y), bool(x != y)) for x, y in pairs] == before
    assert dict.fromkeys((tl.float32, tl.int32), 1)[tl.dtype("fp32")] == 1


def test_constants_are_taken_out_of_whatever_holds_them() -> None:
    import triton.language as tl
    four = tl.constexpr(4)
    values = [four, 4, [four, [four]], (four, 1.5), tl.tuple([four, tl.float32]), None, True, tl.float32, "text"]

    def found() -> list[object]:
        return [repr(tl.core._unwrap_if_constexpr(value)) for value in values]
    before = found()
    with interpreting():
        assert found() == before and found() == before, "also where the class is known"
