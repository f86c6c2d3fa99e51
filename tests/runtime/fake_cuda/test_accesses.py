"""Kernels that race are refused by the host driver, in whatever order it runs their programs."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from genesis.ir.types import int64
from genesis.runtime.cuda.driver import DriverError, Pointer
from genesis.runtime.fake_cuda.accesses import Accesses, OutOfReach, Race, watch
from genesis.runtime.fake_cuda.driver import HostDriver
from genesis.runtime.plan import KernelImage

SOURCE = '''
import triton
import triton.language as tl


@triton.jit
def put(index_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + tl.load(index_ptr + place), place)


@triton.jit
def shift(from_ptr, to_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(to_ptr + place, tl.load(from_ptr + place))


@triton.jit
def store_and_load(in_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(in_ptr + place))
    tl.store(out_ptr + place, tl.load(out_ptr + (place ^ 1)))


@triton.jit
def tell(in_ptr, out_ptr, BLOCK: tl.constexpr):
    nothing_yet = tl.load(out_ptr, volatile=True) == 0
    tl.store(out_ptr, tl.load(in_ptr + tl.program_id(0)), mask=nothing_yet)


@triton.jit
def copied(in_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(in_ptr + place))


@triton.jit
def numbered(in_ptr, out_ptr, BLOCK: tl.constexpr):
    place = tl.program_id(0) + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.load(in_ptr + place) + tl.program_id(0))


CONSTEXPRS = {"BLOCK": 2}
'''


class Given(list):
    """Arguments of a launch that nobody packs."""

    address = 0

    def described(self) -> list[Pointer | int]:
        return self


def whole(array: np.ndarray, start: int = 0) -> Pointer:
    """An array from some element on, of which a kernel may touch all."""
    return Pointer(array[start:].ctypes.data, int64, ((array.ctypes.data, array.ctypes.data + array.nbytes),))


def run(name: str, programs: int, *arguments: Pointer) -> None:
    driver, image = HostDriver(), KernelImage(name, b"", 4, 0, SOURCE)
    kernel = driver.load_kernel(image)
    prepared = driver.prepare_launch(kernel, image, (programs, 1, 1), Given(arguments))
    driver.launch(prepared, driver.create_stream())


def put(index: Sequence[int]) -> list[int]:
    places, out = np.array(index), np.full(6, -1)
    run("put", len(index) // 2, whole(places), whole(out))
    return out.tolist()


def test_programs_that_write_to_places_of_their_own_do_not_race() -> None:
    assert put([5, 0, 2, 1]) == [1, 3, 2, -1, -1, 0]


def test_programs_that_write_to_one_place_race() -> None:
    with pytest.raises(DriverError, match="programs 1 and 0 write the same, 16 bytes from where"):
        put([5, 2, 2, 1])


def test_programs_that_write_the_same_bytes_to_one_place_do_not_race() -> None:
    """Of two that make one row, whichever is last leaves what was there; a place that one of them changes is told."""
    same = np.array([5, 6, 7])
    run("copied", 2, whole(same), whole(out := np.zeros(3, np.int64)))
    assert out.tolist() == [5, 6, 7]
    with pytest.raises(DriverError, match="programs 1 and 0 write the same, 8 bytes from where"):
        run("numbered", 2, whole(same), whole(np.zeros(3, np.int64)))


def test_lanes_that_write_to_one_place_race() -> None:
    with pytest.raises(DriverError, match="a store of program 0 has an address twice"):
        put([3, 3])


@pytest.mark.parametrize(("start", "to", "match"), [
    (0, 1, "program 1 reads what program 0 writes"), (1, 0, "program 1 writes what others read")])
def test_a_program_that_writes_what_another_reads_races(start: int, to: int, match: str) -> None:
    """Whichever is first here."""
    numbers = np.arange(5)
    with pytest.raises(DriverError, match=match):
        run("shift", 2, whole(numbers, start), whole(numbers, to))
    run("shift", 2, whole(numbers), whole(numbers))
    run("shift", 1, whole(numbers, 1), whole(numbers))  # one program reads all before it writes


def test_a_program_may_not_read_again_what_it_has_written() -> None:
    with pytest.raises(DriverError, match="program 0 reads what program 0 writes"):
        run("store_and_load", 1, whole(np.arange(2)), whole(np.zeros(2, np.int64)))


def test_what_is_read_as_volatile_is_shared_on_purpose() -> None:
    found = np.zeros(1, np.int64)
    run("tell", 3, whole(np.array([0, 7, 8])), whole(found))
    assert found.item() == 7


def test_spans_side_by_side_are_one() -> None:
    accesses = Accesses([(8, 16), (0, 8), (24, 32)], programs=1)
    accesses.load(0, np.array([4]), np.array([True]), 8)
    with pytest.raises(OutOfReach, match="1 of 2 accesses are outside the kernel's arguments"):
        accesses.load(0, np.array([24, 12]), np.array([True, True]), 8)


@pytest.mark.parametrize("policies", [("modifier", "eviction"), ("policy",)], ids=["triton 3.6 to 3.8", "triton 3.9"])
@pytest.mark.parametrize("named", [False, True])
def test_loads_and_stores_are_watched_as_each_version_of_triton_makes_them(
        monkeypatch: pytest.MonkeyPatch, policies: tuple[str, ...], named: bool) -> None:
    """3.9 hands over one policy where older ones hand over two."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle
    given: list[tuple[object, ...]] = []

    def made(builder: object, *arguments: object, **more: object) -> None:
        given.append((*arguments, *more.values()))
    for name in ("create_masked_load", "create_masked_store"):
        monkeypatch.setattr(InterpreterBuilder, name, made)
    accesses = Accesses([(64, 72)], programs=2)
    watch(accesses)
    builder = InterpreterBuilder()
    builder.set_grid_dim(2, 1, 1)
    builder.set_grid_idx(0, 0, 0)
    inside, outside = (TensorHandle(np.array([address], np.uint64), tl.pointer_type(tl.int64)) for address in (64, 72))
    mask = TensorHandle(np.array([True]), tl.int1)

    def load(pointers: TensorHandle, volatile: bool) -> None:
        if named:
            builder.create_masked_load(pointers, mask, None, *policies, is_volatile=volatile)
        else:
            builder.create_masked_load(pointers, mask, None, *policies, volatile)
    load(inside, False)
    value = TensorHandle(np.array([1]), tl.int64)
    builder.create_masked_store(inside, value, mask, *policies)
    assert given == [(inside, mask, None, *policies, False), (inside, value, mask, *policies)]
    builder.set_grid_idx(1, 0, 0)
    with pytest.raises(Race):
        load(inside, False)
    with pytest.raises(OutOfReach):
        load(outside, False)
    load(inside, True)  # volatile: shared on purpose
    load(inside, False)


def test_addresses_of_one_span_and_of_several_are_held_against_their_ends() -> None:
    launch = Accesses([(64, 80), (16, 32)], programs=2)
    some, all_of = np.array([True, True, False]), memoryview(np.ones(2, bool))  # as the mask of a matrix's map comes
    launch.load(0, np.array([16, 28, 999], np.uint64), some, 4)
    launch.load(0, np.array([28, 76], np.uint64), all_of, 4)  # type: ignore[arg-type]
    for beyond in ([16, 30], [12, 16], [28, 32], [28, 60], [76, 80]):
        with pytest.raises(OutOfReach):
            launch.load(0, np.array(beyond, np.uint64), all_of, 4)  # type: ignore[arg-type]
    with pytest.raises(Race, match="program 1 writes what others read"):
        launch.store(1, np.array([76, 72], np.uint64), all_of, 4)  # type: ignore[arg-type]
    launch.load(1, np.array([64], np.uint64), np.array(True), 4, volatile=True)
    launch.store(1, np.array([64, 68], np.uint64), all_of, 4, np.array([1, 2]))  # type: ignore[arg-type]
    launch.store(0, np.array([64], np.uint64), np.array(True), 4, np.array([7]))  # shared by a volatile read
    with pytest.raises(Race, match="program 0 reads what program 1 writes, 4 bytes"):
        launch.load(0, np.array([68], np.uint64), np.array(True), 4)
