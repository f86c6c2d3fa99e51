"""Blocks of GPU memory that an exception meets on their way between the pool's lists and who holds them."""

from __future__ import annotations

import ctypes
import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import pairwise, repeat
from operator import call, itemgetter
from typing import Any

import pytest

from genesis.ir.types import Device
from genesis.runtime.contexts import in_order
from genesis.runtime.cuda.cuda_python_driver import install
from genesis.runtime.cuda.memory_pool import MemoryPool, OutOfMemoryError, pool_of
from genesis.runtime.cuda.storage import CUDAStorage
from genesis.runtime.fake_cuda.driver import HostDriver
from tests.faults.events import Traced, injected
from tests.faults.signals import Timer

GPU = Device("cuda", 0)
KIB, MIB = 1 << 10, 1 << 20

come = partial(ctypes.CDLL(None)["raise"], signal.SIGINT)
"""A signal comes, and Python has not looked for it yet. A call of C."""


class Quiet(HostDriver):
    """A GPU whose memory is not poisoned, so that blocks go straight back to their shelves."""

    poisons = False

    def free_call(self, address: int) -> Callable[[], object]:
        """One call of C, as CUDA's own is: an exception in the middle of it freed memory that the pool still had."""
        return partial(self._blocks.pop, address, None)


@pytest.fixture
def pool() -> Iterator[MemoryPool]:
    install(Quiet(64 * MIB))
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda found: None  # what comes in a finalizer
    yield pool_of(0)
    sys.unraisablehook = unraisable
    install(None)


@pytest.fixture(autouse=True)
def interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def check_tiled(pool: MemoryPool) -> None:
    """The blocks of each segment tile it."""
    for segment in pool._segments:
        at, before = segment.address, None
        for block in segment.blocks():
            assert (block.address, block.before) == (at, before)
            at, before = at + block.size, block
        assert at == segment.address + segment.size


def is_whole(pool: MemoryPool) -> bool:
    """Whether all memory can go back to the driver, where nobody holds any."""
    check_tiled(pool)
    pool.empty_cache()
    stats = pool.stats()
    return (pool.held, stats.reserved_bytes, stats.segments) == (0, 0, 0)


def test_a_signal_that_comes_while_a_block_is_taken_finds_the_storage_with_it(pool):
    for _ in range(3):
        CUDAStorage(100 * KIB, GPU)  # from the second time on there is a shelf
    (shelf,) = pool.lane(next(iter(pool._lanes))).shelves.values()
    assert len(shelf.blocks) == 1
    blocks = map(itemgetter(1), zip(map(call, repeat(come)), iter(shelf.blocks.pop, None), strict=False))
    shelf.blocks.taken = blocks
    with pytest.raises(KeyboardInterrupt):
        CUDAStorage(100 * KIB, GPU)
    assert len(shelf.blocks) == 1 and pool.held == 0, "the storage has given it back"


def test_a_block_whose_storage_ends_in_a_signal_is_found_when_memory_is_short(pool):
    """Python looks for signals where `__del__` begins: what its handler raises there ends it, and is dropped."""
    holder = [CUDAStorage(40 * MIB, GPU)]
    in_order(map(call, [come, holder.clear]))
    assert pool.held_bytes == 40 * MIB, "this test wants a block that is lost"
    kept = CUDAStorage(40 * MIB, GPU)
    assert pool.held_bytes == kept.nbytes
    with pytest.raises(OutOfMemoryError):
        CUDAStorage(40 * MIB, GPU)


def test_what_is_held_is_never_taken_for_lost(pool):
    held = [pool.allocate(nbytes) for nbytes in (3 * MIB, 100 * KIB, 200 * KIB, 30 * MIB)]
    for block in (*held[1:2], *held[3:]):
        held.remove(block)
        pool.give_back(block)
    del block
    before = {block.address: block.size for block in held}
    pool.empty_cache()
    assert {block.address: block.size for block in held} == before and pool.held_bytes == sum(before.values())
    check_tiled(pool)


SIZES = (100 * KIB, 3 * MIB, 200 * KIB, 30 * MIB, 5 * MIB, 512, 20 * MIB, 40 * KIB)


def work(held: dict[int, CUDAStorage], chance: random.Random) -> None:
    """Take and give back memory of all sizes; some is cut and joined, some goes back to the driver."""
    for _ in range(12):
        slot = chance.randrange(4)
        held.pop(slot, None)
        try:
            held[slot] = CUDAStorage(chance.choice(SIZES), GPU)
        except OutOfMemoryError:
            held.clear()


def check_apart(held: dict[int, CUDAStorage]) -> None:
    """No two storages share memory."""
    ranges = sorted((x.ptr, x.ptr + x.nbytes) for x in held.values())
    assert all(before[1] <= after[0] for before, after in pairwise(ranges))


def begun(seed: int) -> tuple[dict[int, CUDAStorage], Any]:
    """Storages of a new GPU, and more work with them."""
    install(Quiet(64 * MIB))
    held: dict[int, CUDAStorage] = {}
    work(held, random.Random(seed))
    return held, partial(work, held, random.Random(seed + 100))


def fail(instants: Traced, seed: int, at: int) -> None:
    """An exception comes to that work, at instant number `at`; other work goes on behind it."""
    held, function = begun(seed)
    fault = injected(KeyboardInterrupt)
    try:
        instants.fail(function, at, fault)
    except KeyboardInterrupt as error:
        assert error is fault
    error: BaseException | None = fault
    while error is not None:  # what a tracer's exception ends is never freed, in 3.11, and frames hold the storages
        error.__traceback__, error = None, error.__context__
    lock = pool_of(0)._lock
    while lock._is_owned():  # type: ignore[attr-defined]
        assert instants.last.unprotected, f"the pool's lock is left held at {instants.last.place}"
        lock.release()
    check_apart(held)
    work(held, random.Random(at))
    check_apart(held)
    held.clear()


@pytest.mark.parametrize("part", range(4))
def test_an_exception_between_any_two_bytecodes_of_the_pool_loses_no_memory(part):
    instants = Traced("opcode", ("runtime/cuda/memory_", "runtime/cuda/storage"))
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda found: None
    try:
        count = len(instants.places(begun(part)[1]))
        assert count > 1000
        for at in range(part, count, 149):
            fail(instants, part, at)
            assert is_whole(pool_of(0)), instants.last.place
    finally:
        sys.unraisablehook = unraisable
        install(None)


def test_an_exception_between_any_two_bytecodes_where_segments_come_and_go():
    """Each of them: the pool has what the driver gave, and nothing that the driver has again."""
    instants = Traced("opcode", ("runtime/cuda/memory_pool",))

    def run() -> None:
        CUDAStorage(20 * MIB, GPU)
        pool_of(0).empty_cache()

    def made(at: int) -> None:
        install(Quiet(64 * MIB))
        kept = CUDAStorage(3 * MIB, GPU)
        fault = injected(KeyboardInterrupt)
        try:
            instants.fail(run, at, fault)
        except KeyboardInterrupt as error:
            assert error is fault
        fault.__traceback__ = None
        while pool_of(0)._lock._is_owned():  # type: ignore[attr-defined]
            pool_of(0)._lock.release()
        other = CUDAStorage(20 * MIB, GPU)
        check_apart({0: kept, 1: other})
    install(Quiet(64 * MIB))
    unraisable, sys.unraisablehook = sys.unraisablehook, lambda found: None
    try:
        count = len(instants.places(run))
        assert count > 200
        for at in range(0, count, 2):
            made(at)
            assert is_whole(pool_of(0)), instants.last.place
    finally:
        sys.unraisablehook = unraisable
        install(None)


def test_signals_at_random_lose_no_memory(pool):
    chance, timer, came = random.Random(0), Timer(), 0
    held: dict[int, CUDAStorage] = {}
    try:
        while came < 300:
            try:
                try:
                    signal.signal(signal.SIGINT, signal.default_int_handler)
                    timer.start(chance.uniform(1e-6, 1e-3))
                    for _ in range(50):  # what comes in a finalizer is dropped
                        work(held, chance)
                finally:
                    signal.signal(signal.SIGINT, signal.SIG_IGN)
            except KeyboardInterrupt:
                came += 1
            check_apart(held)
    finally:
        timer.close()
    held.clear()
    assert is_whole(pool)


def interrupted_at(function: Callable[[], None], at: int, handler: Callable[[], None]) -> int:
    """Run the function; before opcode number `at` of the pool's a handler runs, as a signal's does. Returns how many
    opcodes there were."""
    seen = 0

    def trace(frame: Any, event: str, arg: object) -> Any:
        nonlocal seen
        if "runtime/cuda/memory_" not in frame.f_code.co_filename and (
                "runtime/cuda/storage" not in frame.f_code.co_filename):
            return None
        frame.f_trace_opcodes = True
        if event == "opcode":
            seen += 1
            if seen - 1 == at:
                sys.settrace(None)
                handler()
                sys.settrace(trace)
        return trace
    sys.settrace(trace)
    try:
        function()
    finally:
        sys.settrace(None)
    return seen


@pytest.mark.parametrize("part", range(4))
def test_a_handler_that_takes_memory_between_any_two_bytecodes_of_the_pool_breaks_nothing(part):
    """Nobody's memory is handed out again, no list is changed behind whoever has looked up a place in it, and all
    memory can go back to the driver."""
    others: dict[int, CUDAStorage] = {}

    def handle() -> None:
        work(others, chance)
        pool_of(0).segments()
        if at % 3 == 0:
            pool_of(0).empty_cache()
    try:
        count = interrupted_at(begun(part)[1], -1, handle)
        assert count > 1000
        for at in range(part * 100, count, 797):
            held, function = begun(part)
            others, chance = {}, random.Random(at)
            with suppress(OutOfMemoryError):  # what the handler holds is not there
                interrupted_at(function, at, handle)
            check_apart({**held, **{-1 - slot: x for slot, x in others.items()}})
            work(held, random.Random(at))
            work(others, chance)
            check_apart({**held, **{-1 - slot: x for slot, x in others.items()}})
            del function
            held.clear()
            others.clear()
            assert is_whole(pool_of(0)), at
    finally:
        install(None)
