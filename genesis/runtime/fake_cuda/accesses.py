"""Checks of a kernel's memory accesses while the host interprets it: they stay within its arguments and do not race.

Here a kernel's programs run one after the other, and so do the lanes of a store; on a GPU all at once, in no order. So
in one launch nobody may read or write what another program writes, a program may not read again what it has written
(its threads do not wait for each other), and a store may not have an address twice. A GPU gives a wrong number then, if
it shows at all; here it is an error. Two programs may write the same bytes to one place, as those do that make the last
rows of an image again: whoever comes last leaves what was there.

What is read as volatile is left out: programs share it on purpose. Atomic additions are not looked at.
"""

from __future__ import annotations

import ctypes
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from triton.runtime.interpreter import InterpreterBuilder, TensorHandle

AddressRange = tuple[int, int]
"""A range of addresses: from the first up to, and without, the second."""

SEVERAL: Final = -1
"""Stands for a program's number where more than one program has read a byte."""

MOST: Final = 1 << 63
"""No address is as large."""

SHARED: Final = -2
"""Stands for a program's number where a byte is read as volatile, which programs do to share it."""


class OutOfReach(Exception):
    """A kernel read or wrote outside its arguments."""


class Race(Exception):
    """A kernel's result depends on the order in which a GPU runs its programs or their threads."""


class Accesses:
    """The memory accesses of one launch.

    Args:
        spans: the addresses that it may touch, in any order.
        programs: how many programs it has.

    >>> launch = Accesses([(0, 8)], programs=2)
    >>> launch.store(0, np.array([0, 4]), np.array([True, False]), 4)
    >>> launch.load(1, np.array([4]), np.array([True]), 4)
    >>> launch.load(1, np.array([0]), np.array([True]), 4)  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    genesis.runtime.fake_cuda.accesses.Race: program 1 reads what program 0 writes, 0 bytes from ...
    """

    def __init__(self, spans: Iterable[AddressRange], programs: int):
        merged = _merged(spans)
        self._starts = np.array([start for start, _ in merged], np.int64)
        self._ends = np.array([end for _, end in merged], np.int64)
        sizes = self._ends - self._starts
        self._before = np.cumsum(sizes) - sizes - self._starts  # address + this = position in the arrays below
        self._spans = merged
        self._stored = self._shared = False  # whether the kernel has stored, or read as volatile, anything yet
        # For each byte the program that reads, or writes, an element there: 0, its number + 1, SEVERAL or SHARED.
        self._readers = np.zeros(sizes.sum() if programs > 1 else 0, np.int32)
        self._writers = np.zeros(sizes.sum(), np.int32)

    def load(self, program: int, addresses: np.ndarray, mask: np.ndarray, nbytes: int, volatile: bool = False) -> None:
        """Note that a program reads elements of `nbytes` where the mask holds.

        Raises:
            OutOfReach: some lie outside the spans.
            Race: some have been written.
        """
        touched, places = self._touched(addresses, mask, nbytes)
        if volatile:
            self._writers[places] = SHARED
            self._shared = True
            return
        if self._stored:
            writers = self._writers[places]
            self._refuse(touched, writers > 0, f"program {program} reads what program {{}} writes", writers)
        if self._readers.size:
            readers = self._readers[places]
            self._readers[places] = program + 1 if not readers.any() else np.where(
                (readers == 0) | (readers == program + 1), program + 1, SEVERAL)

    def store(self, program: int, addresses: np.ndarray, mask: np.ndarray, nbytes: int,
              values: np.ndarray | None = None) -> None:
        """Note that a program writes elements of `nbytes` where the mask holds.

        Args:
            values: what it writes; without them no two are the same.

        Raises:
            OutOfReach: some lie outside the spans.
            Race: two are in one place, or another program has read some, or has written something else.
        """
        touched, places = self._touched(addresses, mask, nbytes)
        writers, own = self._writers[places], None
        if self._shared:
            own = writers != SHARED
            touched, places, writers = touched[own], places[own], writers[own]
        order = np.sort(places)
        if (order[1:] == order[:-1]).any():
            raise Race(f"a store of program {program} has an address twice")
        if self._stored:
            others = (writers != 0) & (writers != program + 1)
            if values is not None and others.any():
                written = np.broadcast_to(values, addresses.shape)[np.broadcast_to(mask, addresses.shape)]
                others[others] = _differ(touched[others], (written if own is None else written[own])[others])
            self._refuse(touched, others, f"programs {program} and {{}} write the same", writers)
        if self._readers.size:
            readers = self._readers[places]
            self._refuse(touched, (readers != 0) & (readers != program + 1),
                         f"program {program} writes what others read", readers)
        self._writers[places] = program + 1
        self._stored = True

    def _touched(self, addresses: np.ndarray, mask: np.ndarray, nbytes: int) -> tuple[np.ndarray, np.ndarray]:
        """The addresses where the mask holds, and their places among all bytes of the spans."""
        mask = np.asarray(mask)  # of a matrix's map it is an array's buffer
        touched = (addresses.ravel() if mask.all() else addresses[np.broadcast_to(mask, addresses.shape)]).astype(
            np.int64)
        if not touched.size:
            return touched, touched
        at = bisect_right(self._spans, (int(touched.min()), MOST)) - 1
        if at >= 0 and touched.max() + nbytes <= self._spans[at][1]:  # all in one of them, as nearly always
            return touched, touched + self._before[at]
        span = np.searchsorted(self._starts, touched, "right") - 1
        wrong = touched[(span < 0) | (touched + nbytes > self._ends[span])]
        if wrong.size:
            raise OutOfReach(f"{wrong.size} of {touched.size} accesses are outside the kernel's arguments, the first "
                             f"{int(np.abs(self._starts - wrong[0]).min())} bytes from where one begins")
        return touched, touched + self._before[span]

    def _refuse(self, touched: np.ndarray, wrong: np.ndarray, text: str, others: np.ndarray) -> None:
        if wrong.any():
            first = int(np.argmax(wrong))
            offset = touched[first] - self._starts[np.searchsorted(self._starts, touched[first], "right") - 1]
            raise Race(f"{text.format(others[first] - 1)}, {offset} bytes from where an argument begins")


def _differ(addresses: np.ndarray, values: np.ndarray) -> list[bool]:
    """Whether memory holds other bytes than a value, for each of them."""
    return [ctypes.string_at(int(address), values.itemsize) != value.tobytes()
            for address, value in zip(addresses, values, strict=True)]


def _merged(spans: Iterable[AddressRange]) -> Sequence[AddressRange]:
    """The same addresses as disjoint spans, in order."""
    merged: list[AddressRange] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(merged[-1][1], end)
        else:
            merged.append((start, end))
    return merged


def watch(accesses: Accesses) -> None:
    """Make the interpreter's loads and stores note themselves, until `interpreter.interpreting` ends."""
    from triton.runtime.interpreter import InterpreterBuilder
    load, store = InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store

    # Between the operands and `is_volatile` Triton 3.6 to 3.8 pass a cache modifier and an eviction policy, 3.9 passes
    # both as one: neither means anything on the host.
    def watched_load(builder: InterpreterBuilder, pointers: TensorHandle, mask: TensorHandle, *more: object,
                     **named: object) -> TensorHandle:
        volatile = named["is_volatile"] if "is_volatile" in named else more[-1]
        accesses.load(_program(builder), pointers.data, mask.data, _size(pointers), bool(volatile))
        return load(builder, pointers, mask, *more, **named)

    def watched_store(builder: InterpreterBuilder, pointers: TensorHandle, value: TensorHandle, mask: TensorHandle,
                      *more: object, **named: object) -> None:
        accesses.store(_program(builder), pointers.data, mask.data, _size(pointers), value.data)
        return store(builder, pointers, value, mask, *more, **named)
    InterpreterBuilder.create_masked_load, InterpreterBuilder.create_masked_store = watched_load, watched_store


def _program(builder: InterpreterBuilder) -> int:
    """The number of the program that the interpreter runs now."""
    x, y, z = builder.grid_idx
    _, ny, nz = builder.grid_dim
    return (x * ny + y) * nz + z


def _size(pointers: TensorHandle) -> int:
    """Bytes of an element that the pointers point to."""
    return pointers.get_element_ty().primitive_bitwidth // 8 or 1
