"""The instructions of sums in shared memory, run as a GPU's threads run them."""

from __future__ import annotations

import numpy as np
import pytest

from genesis.codegen.cuda.templates.long_lines import MANY_IN_ONE, buckets_of, least_first_helper, words_of
from genesis.codegen.cuda.templates.shared_words import (
    MANY_TURNS,
    added_helper,
    counted_helper,
    emptied_helper,
    own_added_helper,
    raised_helper,
)
from genesis.codegen.cuda.templates.written_rows import written_helper
from genesis.runtime.fake_cuda.shared_words import SharedWords
from tests.codegen.cuda.run_assembly import run_assembly, run_with_results
from tests.sweeping import by_default, each_value

DTYPES = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64}
SUMS_AT = 64
"""Where sums begin in shared memory: a place that is not 0."""


def drawn_labels(way: str, rows: int, count: int, threads: int, random: np.random.Generator) -> np.ndarray:
    """Labels of each thread's elements; -1 is none."""
    labels = random.integers(0, rows, (count, threads))
    if way == "one":
        labels[:] = rows - 1
    elif way == "half of them one":
        labels[random.random(labels.shape) < 0.5] = 1
    elif way == "few, and none":
        labels %= 3
    if way.endswith("none"):
        labels[random.random(labels.shape) < 0.4] = -1
    return labels


def bits_of(values: np.ndarray) -> list[int]:
    """The bits of numbers."""
    return [int(x) for x in values.view(np.uint64 if values.itemsize == 8 else np.uint32)]


class Sums:
    """Sums in shared memory with words behind them, and what is to be added to them."""

    def __init__(self, kind: str, rows: int, count: int, threads: int, way: str):
        random, dtype = np.random.default_rng(rows), DTYPES[kind]
        self.labels = drawn_labels(way, rows, count, threads, random)
        self.sums = (random.standard_normal(rows) * 9).astype(dtype)
        self.values = (random.standard_normal((count, threads)) * 9).astype(dtype)
        self.behind = SUMS_AT + -(-self.sums.nbytes // 16) * 16
        self.want, self.kind = self.sums.astype(np.float64), kind
        here = self.labels >= 0
        np.add.at(self.want, self.labels[here], self.values[here])

    def shared(self, behind: bytes) -> bytearray:
        """Shared memory as a kernel has it then."""
        return bytearray(b"\xee" * SUMS_AT + self.sums.tobytes().ljust(self.behind - SUMS_AT, b"\xee") + behind)

    def operands(self, *between: int) -> list[list[int]]:
        """Labels, what is given to each thread, and values."""
        threads = self.labels.shape[1]
        return [*(bits_of(row.astype(np.int32)) for row in self.labels), *([x] * threads for x in between),
                *map(bits_of, self.values)]

    def check(self, shared: bytearray) -> None:
        """That each sum is there, and nothing before it was touched."""
        found = np.frombuffer(bytes(shared[SUMS_AT:SUMS_AT + self.sums.nbytes]), self.sums.dtype)
        np.testing.assert_allclose(found, self.want, rtol=0, atol={"f32": 1e-3, "f64": 1e-11}.get(self.kind, 0))
        assert set(shared[:SUMS_AT]) == {0xEE}


WAYS = ("alike", "one", "half of them one", "few, and none", "none")


@each_value
@pytest.mark.parametrize("at_once", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "count", "threads", "rows"), [
    ("f32", 4, 64, 300), ("f32", 4, 64, 1000), ("f64", 3, 64, 700), ("s32", 2, 64, 200), ("f32", 1, 128, 500)])
def test_positions_of_all_warps_are_added_whatever_they_meet_in(kind: str, count: int, threads: int, rows: int,
                                                                way: str, at_once: bool) -> None:
    """The number's lowest bit says whether all are added at once, and comes back where that is worth it."""
    taken = threads << (count - 1).bit_length()
    slots = min(1 << (rows - 1).bit_length(), 2 * taken)
    sums, number = Sums(kind, rows, count, threads, way), 2**32 - 2 * taken + at_once
    buckets, words = buckets_of(kind, slots, taken), words_of(kind, slots, taken)
    empty, end = b"\xff" * (4 * buckets) + bytes(8 * buckets), 4 * words - 16
    left = empty.ljust(end, b"\xee") + bytes(4) + b"\xee" * 12
    shared = sums.shared(left if at_once else b"\xff" * (4 * words))
    operands = sums.operands(sums.behind, sums.behind, number)
    operands[count] = [SUMS_AT] * threads
    operands.insert(count + 3, list(range(threads)))
    helper, other = least_first_helper(kind, count, slots, threads), bytearray(shared)
    following, again = (run_assembly(helper, operands, threads, memory, seed)
                        for seed, memory in enumerate((shared, other)))
    sums.check(shared)
    assert shared[:sums.behind] == other[:sums.behind] and following == again and len(set(following)) == 1
    assert (following[0] & 1) == (count * threads // 32 >= MANY_IN_ONE and way not in ("alike", "none"))
    if following[0] & 1:  # whoever comes next finds empty buckets
        behind = shared[sums.behind:]
        assert behind[:len(empty)] == empty and not any(behind[end:end + 4])
    else:  # or is below all that is left in the slots
        met = np.frombuffer(bytes(shared[sums.behind:sums.behind + 8 * slots]), np.uint32)
        assert (met > (following[0] + taken - 1) % 2**32).all()


@by_default("one-one-alike")
@pytest.mark.parametrize("ways", [
    ("one", "one", "alike"), ("one", "alike", "one"), ("few, and none", "nothing", "one")], ids="-".join)
def test_what_one_turn_leaves_is_what_the_next_one_finds(ways: tuple[str, ...]) -> None:
    """Buckets behind positions that met, which stay for the next turn, and slots behind those that did not."""
    kind, rows, count, threads, slots = "f32", 300, 4, 64, 512
    turns = [Sums(kind, rows, count, threads, way) for way in ways]
    first, helper = turns[0], least_first_helper(kind, count, slots, threads)
    shared, number = first.shared(b"\xff" * (4 * words_of(kind, slots, 4 * threads))), 2**32 - 8 * threads
    for turn, way in zip(turns, ways, strict=True):
        if way == "nothing":
            turn.labels[:] = -1
        here = turn.labels >= 0
        if turn is not first:
            np.add.at(first.want, turn.labels[here], turn.values[here])
        operands = turn.operands(first.behind, first.behind, number)
        operands[count] = [SUMS_AT] * threads
        operands.insert(count + 3, list(range(threads)))
        number = run_assembly(helper, operands, threads, shared, 1)[0]
        assert number & 1 == (way in ("one", "few, and none"))
    first.check(shared)


@each_value
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(("kind", "count", "rows"), [
    ("f32", 4, 74), ("f64", 3, 9), ("s32", 1, 70), ("s64", 2, 30), ("f32", 2, 500)])
def test_positions_of_a_warp_are_added_whatever_they_meet_in(kind: str, count: int, rows: int, way: str) -> None:
    slots, width = min(256, 1 << (rows - 1).bit_length()), {1: 1, 2: 2}.get(count, 4)
    sums = Sums(kind, rows, count, 32, way)
    shared = sums.shared(bytes(4 * width * slots))
    operands = sums.operands(SUMS_AT, sums.behind)
    run_assembly(added_helper(kind, count, slots), operands, 32, shared)
    sums.check(shared)
    assert not any(shared[sums.behind:])


@each_value
@pytest.mark.parametrize("way", ["alike", "one", "few, and none"])
@pytest.mark.parametrize(("kind", "count"), [("f32", 4), ("f64", 3), ("s32", 1), ("s64", 2)])
def test_sums_of_a_lanes_own_are_added_one_after_another(kind: str, count: int, way: str) -> None:
    sums = Sums(kind, 5 * 32, count, 32, way)
    sums.labels = np.where(sums.labels < 0, -1, np.arange(32) * 5 + sums.labels % 5)
    sums.want = sums.sums.astype(np.float64)
    np.add.at(sums.want, sums.labels[sums.labels >= 0], sums.values[sums.labels >= 0])
    shared = sums.shared(b"")
    run_assembly(own_added_helper(kind, count), sums.operands(SUMS_AT), 32, shared)
    sums.check(shared)


def test_few_that_meet_are_added_in_the_order_of_their_lanes() -> None:
    sums = Sums("f32", 70, 1, 32, "alike")
    sums.labels[:] = np.arange(32) // MANY_TURNS
    shared = sums.shared(bytes(4 * 128))
    run_assembly(added_helper("f32", 1, 128), sums.operands(SUMS_AT, sums.behind), 32, shared)
    want = sums.sums.copy()
    for label, value in zip(sums.labels[0], sums.values[0], strict=True):
        want[label] += value
    assert bytes(shared[SUMS_AT:SUMS_AT + want.nbytes]) == want.tobytes()


@pytest.mark.parametrize("below", [1, 4, 300])
@pytest.mark.parametrize("start", [0, 7])
def test_words_that_all_threads_change_are_the_same_in_any_order(below: int, start: int) -> None:
    """Largest values and totals, negative ones too; elements that are not wanted change nothing. One element of each
    word is told that it found 0."""
    random, threads = np.random.default_rng(below), 128
    places, wanted = random.integers(0, below, threads), random.random(threads) < 0.8
    values, totals = random.integers(1, 255, threads), random.integers(-2**30, 2**30, threads)
    for helper, given, add in ((raised_helper, values, np.maximum), (counted_helper, totals, np.add)):
        want = np.full(below, start, np.int32)
        add.at(want, places[wanted], given[wanted].astype(np.int32))
        for seed in range(3):
            shared = bytearray(b"\xee" * SUMS_AT + np.full(below, start, np.int32).tobytes())
            found = run_assembly(helper(), [[int(x) for x in SUMS_AT + 4 * places], bits_of(given.astype(np.int32)),
                                            [int(x) for x in wanted]], threads, shared, seed)
            assert bytes(shared[SUMS_AT:]) == want.tobytes() and set(shared[:SUMS_AT]) == {0xEE}
            first = places[np.array(found) != 0]
            if helper is raised_helper:
                assert sorted(first) == (sorted(set(places[wanted])) if start == 0 else [])


@pytest.mark.parametrize("nbytes", [16, 1008, 1024, 5 * 1024 + 32])
def test_words_are_emptied_and_no_others(nbytes: int) -> None:
    shared = bytearray(b"\xee" * (SUMS_AT + nbytes + 64))
    run_assembly(emptied_helper(nbytes, 64), [[SUMS_AT] * 64, list(range(64))], 64, shared)
    assert not any(shared[SUMS_AT:SUMS_AT + nbytes])
    assert set(shared[:SUMS_AT]) == set(shared[SUMS_AT + nbytes:]) == {0xEE}


@by_default("0-8-bf16", "2-4-f32", "2-1-f16", "-1-8-f16", "-1-1-f32", "0-2-bf16")
@pytest.mark.parametrize("kind", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("vector", [1, 2, 4, 8])
@pytest.mark.parametrize("shares", [0, 2, -1])
def test_rows_that_end_go_where_the_interpreter_has_them(kind: str, vector: int, shares: int) -> None:
    """To memory with what programs for shares have of them, to a share's sums, or to the slot of a row that began
    before; what is left of the values is 0 there. Every second warp wants nothing."""
    threads, columns, rows, size = 128, 32, 16, 4 if kind == "f32" else 2
    inner, lanes = columns - vector, columns // vector
    random = np.random.default_rng(vector)
    group = np.arange(threads) // lanes
    row = random.permutation(max(rows, threads // lanes))[group]
    near = (np.arange(threads) % lanes * vector)[:, None] + np.arange(vector)
    wanted = (random.random(threads // lanes) < 0.7)[group] & (np.arange(threads) // 32 % 2 == 0)
    wanted = wanted[:, None] & (near < inner)
    first = np.where(group % 3 == 0, row, -1)
    value = (random.standard_normal((threads, vector)) * 9).astype(np.float32)
    value.reshape(-1)[:3] = np.nan, np.inf, -1e-41
    slot, table = 64 + (group[:, None] * columns + near) * 4, max(rows, threads // lanes)
    next_share, part_at = 4 * table * columns, -(-size * table * inner // 16) * 16
    parts = (random.standard_normal((2, table, columns)) * 9).astype(np.float32)
    memory, shared = b"\xee" * part_at + parts.tobytes(), b"\xee" * (64 + 4 * columns * threads)

    def both(*, address: int) -> list[np.ndarray]:
        given = [row[:, None], first[:, None], slot, near, value, wanted.astype(np.int32), np.int64(address),
                 np.int32(inner), np.int64(address + part_at), np.int32(shares), np.int64(next_share)]
        return [np.ascontiguousarray(np.broadcast_to(x, (threads, vector))) for x in given]

    operands = [bits_of(x[:, k]) if x.itemsize == 4 else [int(y) for y in x[:, k]]
                for x in (y.astype(np.int32) if y.dtype == np.int64 and at < 6 else y for at, y in enumerate(
                    both(address=0))) for k in range(vector)]
    mine, mine_shared = bytearray(memory), bytearray(shared)
    left = run_with_results(written_helper(kind, vector, columns, True), operands, threads, mine_shared,
                            mine, vector)
    theirs, words = np.frombuffer(bytearray(memory), np.uint8), SharedWords()
    words._bytes = np.frombuffer(bytearray(shared), np.uint8)
    want = words._written(kind, columns, *both(address=theirs.ctypes.data))
    assert bytes(mine) == theirs.tobytes() and bytes(mine_shared) == words._bytes.tobytes()
    assert bytes(mine) != memory and [bits_of(np.ascontiguousarray(want[:, k])) for k in range(vector)] == left
