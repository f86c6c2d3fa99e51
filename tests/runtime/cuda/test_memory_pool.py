"""The pool's promises: blocks do not overlap, segments come back whole, and the statistics are true."""

from __future__ import annotations

import gc
import itertools
import random
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from genesis.ir.types import Device
from genesis.runtime.cuda.driver import DriverOutOfMemory
from genesis.runtime.cuda.memory_pool import MIB, MemoryPool, OutOfMemoryError
from genesis.runtime.cuda.memory_report import blocks_of
from genesis.runtime.cuda.memory_sizes import SIZES_EXACT, class_size
from genesis.runtime.fake_cuda.driver import HostDriver


def quiet_driver(memory_bytes: int = 1 << 30) -> HostDriver:
    """A host driver that spares the test the filling of fresh memory."""
    driver = HostDriver(memory_bytes)
    driver.poisons = False
    return driver


def rounded(nbytes: int) -> int:
    return -(-nbytes // 512) * 512


def let_sizes_vary(pool: MemoryPool, stream=None) -> None:
    """Ask for so many large sizes that from now on they are rounded up to classes."""
    for number in range(1, SIZES_EXACT + 2):
        pool.give_back(pool.allocate(MIB + 512 * number, stream))
    pool.reset_peaks()


class PoolAgainstAList(RuleBasedStateMachine):
    """Whatever is asked of the pool, a plain list of the blocks in use must agree with it."""

    def __init__(self):
        super().__init__()
        self.pool = MemoryPool(quiet_driver(256 * MIB), 0)
        self.held = []
        self.peak = 0
        self.asked = 0

    def sizes_for(self, nbytes):
        """What a block for such a request may have."""
        return [rounded(nbytes)]

    @rule(nbytes=st.one_of(st.integers(1, 4096), st.integers(1, 3 * MIB), st.integers(1, 40 * MIB)))
    def allocate(self, nbytes):
        try:
            block = self.pool.allocate(nbytes)
        except OutOfMemoryError:
            assert nbytes + self.pool.stats().allocated_bytes > 40 * MIB, "refused although most memory is unused"
            return
        assert block.address % 512 == 0
        assert block.size in self.sizes_for(nbytes)
        self.asked += 1
        self.held.append(block)
        self.peak = max(self.peak, sum(block.size for block in self.held))

    @rule(data=st.data())
    def give_back(self, data):
        if self.held:
            self.pool.give_back(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule()
    def empty_cache(self):
        self.pool.empty_cache()
        blocks = blocks_of(self.pool)
        assert {b.segment for b in blocks} == {b.segment for b in blocks if b.held}, "an unused segment was kept"

    @invariant()
    def blocks_do_not_overlap(self):
        ranges = sorted((block.address, block.address + block.size) for block in self.held)
        assert all(end <= start for (_, end), (start, _) in itertools.pairwise(ranges))

    @invariant()
    def statistics_are_true(self):
        stats = self.pool.stats()
        assert stats.allocated_bytes == sum(block.size for block in self.held)
        assert stats.peak_allocated_bytes == self.peak
        assert stats.allocations == self.asked
        assert stats.frees == self.asked - len(self.held)
        assert stats.reserved_bytes == sum(size for _, size, _ in self.pool._driver._blocks.values())

    @invariant()
    def the_snapshot_tiles_its_segments(self):
        held = {(block.address, block.size) for block in self.held}
        for segment, blocks in itertools.groupby(blocks_of(self.pool), lambda block: block.segment):
            address, before = segment, None
            for block in blocks:
                assert block.address == address
                assert block.held or before is None or before.held, "free neighbours were not merged"
                if block.held:
                    held.remove((block.address, block.size))
                address, before = address + block.size, block
            assert address == segment + before.segment_size
        assert not held

    def teardown(self):
        for block in self.held:
            self.pool.give_back(block)
        assert all(block.size == block.segment_size for block in blocks_of(self.pool))
        self.pool.empty_cache()
        assert self.pool.stats().reserved_bytes == 0


TestPoolAgainstAList = PoolAgainstAList.TestCase
TestPoolAgainstAList.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


class PoolOfClasses(PoolAgainstAList):
    """The same where sizes vary so much that large requests are rounded up."""

    def __init__(self):
        super().__init__()
        let_sizes_vary(self.pool)
        self.asked = self.pool.stats().allocations

    def sizes_for(self, nbytes):
        """A class, or what is larger; where memory runs out, what was asked for; or a small block."""
        exact = rounded(nbytes)
        return [exact] if nbytes < 2 * MIB // 3 else [exact, *(mib * MIB for mib in (2, 3, 4, 6, 8, 12, 16, 24, 32, 48)
                                                              if nbytes <= mib * MIB <= max(2.25 * nbytes, 2 * MIB))]


TestPoolOfClasses = PoolOfClasses.TestCase
TestPoolOfClasses.settings = settings(max_examples=30, stateful_step_count=40, deadline=None)


class SameSizes(RuleBasedStateMachine):
    """Few sizes, given back and asked for again: the shelves do the work."""

    def __init__(self):
        super().__init__()
        self.pool = MemoryPool(quiet_driver(64 * MIB), 0)
        self.held = {}

    @rule(nbytes=st.sampled_from([512, 1024, 65536, MIB, 2 * MIB]))
    def take(self, nbytes):
        try:
            block = self.pool.allocate(nbytes)
        except OutOfMemoryError:
            return
        assert block.address not in self.held
        self.held[block.address] = block

    @rule()
    def return_the_oldest(self):
        if self.held:
            self.pool.give_back(self.held.pop(next(iter(self.held))))


TestSameSizes = SameSizes.TestCase
TestSameSizes.settings = settings(max_examples=20, stateful_step_count=60, deadline=None)


class FakeStream:
    """A stream that is its handle's name."""

    device = Device("cuda")

    def __init__(self, handle):
        self.handle = handle


class OrderedDriver(HostDriver):
    """Knows which work is behind which: a vector clock for each stream, moved on by events and waits."""

    def __init__(self, streams):
        super().__init__(48 * MIB)
        self.poisons = False
        self.clocks = {stream: dict.fromkeys(streams, 0) for stream in streams}

    def work(self, stream):
        """Something is done on the stream; when that was."""
        self.clocks[stream][stream] += 1
        return self.clocks[stream][stream]

    def record_event(self, event, stream):
        event.clock = dict(self.clocks[stream])

    def wait_event(self, stream, event):
        mine = self.clocks[stream]
        mine.update((other, max(mine[other], time)) for other, time in event.clock.items())

    def synchronize(self):
        done = {stream: clock[stream] for stream, clock in self.clocks.items()}
        for clock in self.clocks.values():
            clock.update(done)


class Streams(RuleBasedStateMachine):
    """Memory that work on one stream may still use is not used by another before that work."""

    def __init__(self):
        super().__init__()
        self.streams = [FakeStream(name) for name in "abc"]
        self.driver = OrderedDriver("abc")
        self.pool = MemoryPool(self.driver, 0, slack=0)
        self.held = []
        self.touched = {}  # 512 bytes of memory → stream → when it last used them

    def use(self, block, stream):
        time = self.driver.work(stream.handle)
        for page in range(block.address, block.address + block.size, 512):
            self.touched.setdefault(page, {})[stream.handle] = time

    @rule(nbytes=st.sampled_from([512, 1024, 3000, MIB // 2, 9 * MIB, 11 * MIB]), which=st.integers(0, 2))
    def take(self, nbytes, which):
        stream = self.streams[which]
        try:
            block = self.pool.allocate(nbytes, stream)
        except OutOfMemoryError:
            return
        known = self.driver.clocks[stream.handle]
        for page in range(block.address, block.address + block.size, 512):
            for other, time in self.touched.get(page, {}).items():
                assert known[other] >= time, f"stream {stream.handle} does not wait for {other}"
        self.touched.update((page, {}) for page in range(block.address, block.address + block.size, 512))
        self.use(block, stream)
        self.held.append(block)

    @rule(data=st.data(), which=st.integers(0, 2))
    def use_elsewhere(self, data, which):
        if self.held:
            block, stream = data.draw(st.sampled_from(self.held)), self.streams[which]
            self.use(block, stream)
            self.pool.used_on(block, stream)

    @rule(data=st.data())
    def give_back(self, data):
        if self.held:
            self.pool.give_back(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))

    @rule()
    def empty_cache(self):
        self.pool.empty_cache()
        kept = [(segment.address, segment.address + segment.size) for segment in self.pool.segments()]
        self.touched = {page: uses for page, uses in self.touched.items()
                        if any(start <= page < end for start, end in kept)}

    @invariant()
    def statistics_are_true(self):
        assert self.pool.stats().allocated_bytes == sum(block.size for block in self.held)

    def teardown(self):
        for block in self.held:
            self.pool.give_back(block)
        self.pool.empty_cache()
        assert self.pool.stats().reserved_bytes == 0


TestStreams = Streams.TestCase
TestStreams.settings = settings(max_examples=15, stateful_step_count=40, deadline=None)


class StreamsOfClasses(Streams):
    """The same where sizes vary."""

    def __init__(self):
        super().__init__()
        for stream in self.streams:
            let_sizes_vary(self.pool, stream)
        self.pool.empty_cache()


TestStreamsOfClasses = StreamsOfClasses.TestCase
TestStreamsOfClasses.settings = settings(max_examples=10, stateful_step_count=40, deadline=None)


def test_a_block_of_another_stream_is_waited_for_rather_than_growing():
    a, b = (FakeStream(name) for name in "ab")
    driver = OrderedDriver("ab")
    pool = MemoryPool(driver, 0, slack=0)
    block = pool.allocate(11 * MIB, a)
    assert pool.allocate(10 * MIB, a).segment is not block.segment
    driver.work("a")
    pool.give_back(block)
    again = pool.allocate(11 * MIB, b)
    assert again.address == block.address and driver.clocks["b"]["a"] == 1
    assert pool.stats().segments == 2


def test_sizes_that_take_turns_have_a_shelf_each():
    pool = MemoryPool(quiet_driver(), 0)
    for _ in range(3):
        for size in (2, 4, 8, 16, 32):
            pool.give_back(pool.allocate(size * MIB))
    lane = pool.lane(None)
    assert sorted(lane.quick) == [size * MIB for size in (2, 4, 8, 16, 32)] and all(lane.quick.values())


def test_beyond_the_slack_memory_is_used_again_before_more_is_taken():
    pool = MemoryPool(quiet_driver(), 0, slack=0)
    for size in (2, 4, 8, 16, 20) * 3:
        pool.give_back(pool.allocate(size * MIB))
    assert pool.stats().reserved_bytes == 20 * MIB


def test_where_sizes_vary_a_block_serves_all_of_its_class():
    pool = MemoryPool(quiet_driver(), 0)
    exact = pool.allocate(9 * MIB)
    let_sizes_vary(pool)
    first = pool.allocate(9 * MIB)
    assert (exact.size, first.size) == (9 * MIB, 12 * MIB)
    pool.give_back(first)
    assert pool.allocate(11 * MIB) is first
    assert pool.allocate(5000).size == 5120, "small requests are as before"
    assert pool.allocate(130 * MIB).size == 130 * MIB, "huge ones too"


def test_an_empty_class_borrows_from_the_next():
    pool = MemoryPool(quiet_driver(), 0)
    let_sizes_vary(pool)
    large = pool.allocate(16 * MIB)
    pool.give_back(large)
    assert pool.allocate(10 * MIB) is large and large.size == 16 * MIB
    pool.give_back(large)
    assert pool.allocate(16 * MIB) is large


def test_where_a_class_does_not_fit_the_request_may():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    let_sizes_vary(pool)
    assert class_size(70 * MIB) == 96 * MIB
    assert pool.allocate(70 * MIB).size == 70 * MIB


def test_sizes_that_vary_do_not_fragment_the_memory():
    """With less than half of it held; cut to measure, the blocks of these requests left no hole of 16 MiB."""
    draw, pool, held = random.Random(1), MemoryPool(quiet_driver(240 * MIB), 0), []
    for _ in range(3000):
        nbytes = int(MIB * 2 ** draw.uniform(0, 4))
        while sum(block.size for block in held) + nbytes > 120 * MIB:
            pool.give_back(held.pop(draw.randrange(len(held))))
        held.append(pool.allocate(nbytes))
    stats = pool.stats()
    assert (stats.retries, stats.out_of_memory_errors) == (0, 0), "the driver was asked for what there was"


@pytest.mark.parametrize(("nbytes", "reserved"), [
    (1, 2 * MIB), (MIB, 2 * MIB), (MIB + 1, 20 * MIB), (20 * MIB, 20 * MIB), (33 * MIB + 1, 34 * MIB),
])
def test_segments_are_of_few_sizes(nbytes, reserved):
    pool = MemoryPool(quiet_driver(), 0)
    pool.allocate(nbytes)
    assert pool.stats().reserved_bytes == reserved


def test_the_same_size_comes_back_at_the_same_address():
    pool = MemoryPool(quiet_driver(), 0)
    first = pool.allocate(5000)
    pool.allocate(5000)
    pool.give_back(first)
    assert pool.allocate(5000) is first


def test_best_fit_takes_the_smallest_hole_that_fits():
    pool = MemoryPool(quiet_driver(), 0)
    blocks = [pool.allocate(size) for size in (8192, 512, 4096, 512, 16384, 512)]
    for block in (blocks[0], blocks[2], blocks[4]):
        pool.give_back(block)
    pool.segments()  # empties the shelves into the free list
    assert pool.allocate(3000).address == blocks[2].address


def test_cached_segments_are_given_up_before_memory_runs_out():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    pool.give_back(pool.allocate(60 * MIB))
    pool.allocate(80 * MIB)
    stats = pool.stats()
    assert (stats.retries, stats.reserved_bytes, stats.out_of_memory_errors) == (1, 80 * MIB, 0)


def test_the_last_bytes_of_the_device_are_used():
    pool = MemoryPool(quiet_driver(15 * MIB), 0)
    assert pool.allocate(14 * MIB).size == 14 * MIB


def test_out_of_memory_says_what_there_is_and_changes_nothing():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    kept = pool.allocate(30 * MIB)
    with pytest.raises(OutOfMemoryError) as caught:
        pool.allocate(90 * MIB)
    for part in ("90 MiB", "30 MiB allocated", "30 MiB reserved", "70 MiB of 100 MiB free", "cuda:0"):
        assert part in str(caught.value)
    stats = pool.stats()
    assert (stats.allocated_bytes, stats.out_of_memory_errors) == (kept.size, 1)
    assert pool.allocate(60 * MIB).size == 60 * MIB


def test_the_memory_fraction_is_kept_to():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    pool.set_memory_fraction(0.5)
    held = pool.allocate(40 * MIB)
    with pytest.raises(OutOfMemoryError, match="share is 50 MiB"):
        pool.allocate(20 * MIB)
    assert pool.held_bytes == held.size
    with pytest.raises(ValueError, match="must be in"):
        pool.set_memory_fraction(1.5)


def test_all_of_the_share_may_be_taken():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    pool.set_memory_fraction(0.5)
    assert pool.allocate(50 * MIB).size == 50 * MIB


def test_memory_in_no_segment_is_counted_and_kept_to_the_share():
    pool = MemoryPool(quiet_driver(100 * MIB), 0)
    pool.set_memory_fraction(0.5)
    assert pool.take_outside(1 << 30, 40 * MIB, lambda: "mapped") == "mapped"
    assert (pool.stats().allocated_bytes, pool.stats().reserved_bytes) == (40 * MIB, 40 * MIB)
    with pytest.raises(OutOfMemoryError, match="share is 50 MiB"):
        pool.take_outside(1 << 31, 20 * MIB, lambda: pytest.fail("it is more than the share"))
    assert (pool.stats().reserved_bytes, pool.stats().out_of_memory_errors) == (40 * MIB, 1)
    pool.give_outside(1 << 30, 40 * MIB)
    assert (pool.stats().allocated_bytes, pool.stats().reserved_bytes) == (0, 0)
    assert pool.take_outside(1 << 30, 50 * MIB, lambda: "mapped") == "mapped"


def test_memory_that_the_driver_takes_for_itself_is_made_room_for():
    pool = MemoryPool(quiet_driver(), 0)
    pool.give_back(pool.allocate(512))
    tries = []

    def load(failures):
        tries.append(pool.stats().reserved_bytes)
        if len(tries) <= failures:
            raise DriverOutOfMemory("cuModuleLoadData", "CUDA_ERROR_OUT_OF_MEMORY", "out of memory")
        return "module"

    assert pool.reclaiming(lambda: load(1)) == "module"
    assert tries == [2 * MIB, 0]
    with pytest.raises(OutOfMemoryError, match="cuModuleLoadData needs more memory; 0 bytes allocated"):
        pool.reclaiming(lambda: load(99))


def test_peaks_start_anew():
    pool = MemoryPool(quiet_driver(), 0)
    pool.give_back(pool.allocate(4096))
    pool.reset_peaks()
    assert pool.stats().peak_allocated_bytes == 0


def test_fresh_memory_is_poisoned_also_when_it_is_reused():
    driver = HostDriver()
    pool = MemoryPool(driver, 0)
    block = pool.allocate(512)
    driver.fill(block.address, 0, 512, None)
    pool.give_back(block)
    pool.allocate(512)
    assert driver_bytes(block.address, 512) == b"\xff" * 512


def test_a_block_given_back_by_the_collector_in_the_middle_of_an_allocation():
    """A storage in a reference cycle dies inside whatever code Python is running, the pool's too."""
    pool = MemoryPool(quiet_driver(), 0)

    class Holder:
        def __init__(self):
            self.me, self.block = self, pool.allocate(700)

        def __del__(self):
            pool.give_back(self.block)

    threshold = gc.get_threshold()
    gc.set_threshold(2)
    try:
        for _ in range(300):
            Holder()
            pool.give_back(pool.allocate(700))
    finally:
        gc.set_threshold(*threshold)
    gc.collect()
    assert pool.stats().allocated_bytes == 0


def test_threads_share_a_pool():
    pool = MemoryPool(quiet_driver(), 0)

    def work():
        for size in range(1, 200):
            blocks = [pool.allocate(size * 100) for _ in range(3)]
            for block in blocks:
                pool.give_back(block)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = pool.stats()
    assert (stats.allocated_bytes, stats.allocations) == (0, 4 * 199 * 3)


def driver_bytes(address: int, nbytes: int) -> bytes:
    import ctypes
    return ctypes.string_at(address, nbytes)
