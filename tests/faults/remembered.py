"""A pretended GPU that computes a kernel once for the same bytes: the same steps run again for each fault.

The interpreter takes milliseconds a kernel, most of what a trial on the pretended GPU takes. A launch is a function of
the bytes that it reads, and these it notes (`genesis.runtime.fake_cuda.accesses`): where they are what they were, it
would read and write the same again.
"""

from __future__ import annotations

import ctypes
import linecache
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Any

import numpy as np

from genesis.runtime.cuda.driver import MappedMatrix, Pointer
from genesis.runtime.fake_cuda import interpreter
from genesis.runtime.fake_cuda.accesses import Accesses

Argument = Pointer | MappedMatrix | int
Spans = list[tuple[int, int]]
Launches = list[tuple[np.ndarray, dict[bytes, tuple[np.ndarray, np.ndarray]]]]
"""For each set of places that launches have read: what they read there → the places that they wrote, and what."""

_UNNOTED = re.compile(r"\batomic|// shared ")
"""What reads or writes memory without telling."""

_ADDRESS = 1 << 62
"""Added to the place of what an entry of a table points to, beside which no number is as large."""


class _Noting(Accesses):
    """The accesses of a launch, which also knows which bytes were read and written, and whether it has reported."""

    last: _Noting | None = None
    reported = False

    def __init__(self, spans: Any, programs: int):
        super().__init__(spans, programs)
        self.read, self.written = np.zeros(self._writers.size, bool), np.zeros(self._writers.size, bool)
        _Noting.last = self

    def load(self, program: int, addresses: np.ndarray, mask: np.ndarray, nbytes: int, volatile: bool = False) -> None:
        super().load(program, addresses, mask, nbytes, volatile)
        self._note(self.read, addresses, mask, nbytes)

    def store(self, program: int, addresses: np.ndarray, mask: np.ndarray, nbytes: int,
              values: np.ndarray | None = None) -> None:
        super().store(program, addresses, mask, nbytes, values)
        self._note(self.written, addresses, mask, nbytes)

    def _note(self, where: np.ndarray, addresses: np.ndarray, mask: np.ndarray, nbytes: int) -> None:
        _, places = self._touched(addresses, mask, nbytes)
        for byte in range(nbytes):
            where[places + byte] = True

    def touched(self, of: np.ndarray, spans: Spans) -> np.ndarray:
        """The places of marked bytes, counted over these spans."""
        starts = [(start + int(self._before[np.searchsorted(self._starts, start, "right") - 1]), end - start)
                  for start, end in spans]
        return np.flatnonzero(np.concatenate([of[start:start + size] for start, size in starts]))


@contextmanager
def remembered_kernels() -> Iterator[dict[Any, Launches]]:
    """Inside, what a launch wrote is put there again where it comes with the same arguments and reads the same."""
    made: dict[Any, Launches] = {}
    bind, accesses, reported = interpreter.bind, interpreter.Accesses, interpreter._reported

    def reporting(index: np.ndarray, wrong: np.ndarray, report: np.ndarray) -> Any:
        if np.any(wrong) and _Noting.last is not None:
            _Noting.last.reported = True
        return reported(index, wrong, report)

    def remembering(kernel: Any, grid: tuple[int, int, int], arguments: Sequence[Argument],
                    constexprs: dict[str, object]) -> Callable[[], None]:
        run = bind(kernel, grid, arguments, constexprs)
        found = None if _reads_unnoted(kernel) else _described(arguments)
        if found is None:
            return run
        words, spans, tables = found
        known = made.setdefault((kernel, grid, words, tuple(constexprs.items())), [])

        def launch() -> None:
            before = _read(spans)
            seen = _without_addresses(before, spans, tables)
            for read, results in known:
                if (result := results.get(seen[read].tobytes())) is not None:
                    before[result[0]] = result[1]
                    _put(spans, before)
                    return
            _Noting.last = None
            run()
            noted = _Noting.last
            assert noted is not None
            if noted.reported:
                return
            read, written = noted.touched(noted.read, spans), noted.touched(noted.written, spans)
            results = next((found for places, found in known if np.array_equal(places, read)), None)
            if results is None:
                known.append((read, results := {}))
            results[seen[read].tobytes()] = written, _read(spans)[written]
        return launch
    interpreter.bind, interpreter.Accesses = remembering, _Noting  # type: ignore[misc]
    interpreter._reported = reporting
    try:
        yield made
    finally:
        interpreter.bind, interpreter.Accesses, interpreter._reported = bind, accesses, reported  # type: ignore[misc]


@cache
def _reads_unnoted(kernel: Any) -> bool:
    return _UNNOTED.search("".join(linecache.getlines(kernel.fn.__code__.co_filename))) is not None


def _read(spans: Spans) -> np.ndarray:
    return np.frombuffer(bytearray().join(ctypes.string_at(start, end - start) for start, end in spans), np.uint8)


def _put(spans: Spans, content: np.ndarray) -> None:
    at = 0
    for start, end in spans:
        ctypes.memmove(start, content[at:at + end - start].tobytes(), end - start)
        at += end - start


def _without_addresses(content: np.ndarray, spans: Spans, tables: Spans) -> np.ndarray:
    """The bytes with places in the spans for the addresses that are in tables."""
    if not tables:
        return content
    found, at = content.copy(), 0
    for start, end in spans:
        if (start, end) in tables:
            words, counted = found[at:at + end - start].view(np.int64), 0
            entries = words.copy()
            for first, last in spans:
                inside = (entries >= first) & (entries < last)
                words[inside] = entries[inside] - first + counted + _ADDRESS
                counted += last - first
        at += end - start
    return found


def _described(arguments: Sequence[Argument]) -> tuple[tuple[object, ...], Spans, Spans] | None:
    """What a launch depends on beside bytes, the addresses of these, and those of tables among them; None where it is
    not known what it reaches.

    Addresses count by where they lie in the memory that is reached: the same program may be given other memory.
    """
    pointers = [x.pointer if isinstance(x, MappedMatrix) else x for x in arguments if not isinstance(x, int)]
    if not all(pointer.reach for pointer in pointers):
        return None
    spans = _reached(pointers)
    tables = [pointer.reach[0] for pointer in pointers if len(pointer.reach) > 1]

    def place(address: int) -> tuple[int, int]:
        number = next(n for n, (start, end) in enumerate(spans) if start <= address < end or start == address)
        return number, address - spans[number][0]
    words: list[object] = [tuple((end - start, start % 16) for start, end in spans)]
    for x in arguments:
        if isinstance(x, int):
            words.append(x)
            continue
        pointer = x.pointer if isinstance(x, MappedMatrix) else x
        words.append((pointer.dtype, place(pointer.address), tuple(place(start) for start, _ in pointer.reach)))
        if isinstance(x, MappedMatrix):
            words.append((tuple(x.shape), tuple(x.strides), tuple(x.block)))
    return tuple(words), spans, tables


def _reached(pointers: Sequence[Pointer]) -> Spans:
    """The addresses that pointers reach: spans that overlap are one; in the order of the first pointer into each."""
    merged: Spans = []
    for start, end in sorted({span for pointer in pointers for span in pointer.reach}):
        if merged and start < merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    order = [start for pointer in pointers for start, _ in pointer.reach]
    return sorted(merged, key=lambda span: next(n for n, at in enumerate(order)
                                                if span[0] <= at < span[1] or span[0] == at))
