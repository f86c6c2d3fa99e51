"""What the host's interpreter does for assembly over shared memory (`codegen/cuda/templates/shared_words.py`).

The interpreter runs one program after the other, and each asks for its shared memory first: one memory is enough,
filled anew with what nobody wrote. Elements come in the order of the threads that hold them, 32 to a warp.
"""

from __future__ import annotations

import ctypes
import re
from collections import Counter
from typing import Final

import numpy as np

_SIZE: Final = re.compile(r"words\[(\d+)\]")

_DTYPES: Final = {"f32": np.float32, "f64": np.float64, "s32": np.int32, "s64": np.int64, "u32": np.uint32,
                  "b16": np.int16, "u16": np.uint16, "b32": np.int32, "b64": np.int64}


MANY_TURNS: Final = 12
SOON: Final = 3
MANY_IN_ONE: Final = 8
"""The numbers of `codegen/cuda/templates/shared_words.py` and `long_lines.py`: an interpreter knows no emitter."""


def equal_ones_summed(labels: np.ndarray, values: np.ndarray) -> list[tuple[int, int, np.generic]]:
    """(label, place of its first lane, sum) of each label among a warp's lanes: neighbours are added, then theirs."""
    found = []
    for label in dict.fromkeys(labels.tolist()):
        lanes = np.flatnonzero(labels == label)
        left = list(values[lanes])
        while len(left) > 1:
            left = [left[i] + left[i + 1] if i + 1 < len(left) else left[i] for i in range(0, len(left), 2)]
        found.append((label, int(lanes[0]), left[0]))
    return found


class SharedWords:
    """A program's shared memory."""

    def __init__(self) -> None:
        self._bytes = np.zeros(0, np.uint8)

    def run(self, text: str, values: list[np.ndarray]) -> tuple[np.ndarray, ...]:
        """The results of one line of assembly for its operands, all elements of a block at once."""
        what, _, kind = text.split("// shared ", 1)[1].split("\n", 1)[0].strip().partition(" ")
        if kind != "v4":
            return self._run(text, what, kind, values),
        words = [values[0] + 4 * i for i in range(4)]
        if what == "get":
            return tuple([self._get("b32", place) for place in words])
        return tuple([self._put("b32", place, x, values[5]) for place, x in zip(words, values[1:5], strict=True)][:1])

    def _run(self, text: str, what: str, kind: str, values: list[np.ndarray]) -> np.ndarray:
        if what == "words":
            found = _SIZE.search(text)
            assert found is not None
            self._bytes = np.full(int(found.group(1)), 0xFF, np.uint8)
            return np.zeros(1, np.int32)
        if what == "get":
            read = self._get(kind, *values)  # where it is wanted, if it says so
            return read.astype(np.int32) if kind == "u16" else read
        if what == "ranked":
            return self._ranked(values[0], values[1])
        if what == "added":
            kind, count, slots = kind.split()
            return self._added(kind, int(count), int(slots), values)
        if what == "own":
            kind, _, count = kind.partition(" ")
            return self._own_added(kind, int(count), values)
        if what == "least_first":
            kind, count, slots, threads = kind.split()
            return self._least_first(kind, int(count), int(slots), int(threads), values)
        if what == "listed":
            most, warps = map(int, kind.split())
            return self._listed(most, warps, *values)
        if what == "ended":
            kind, _, stride = kind.partition(" ")
            row, first, slot, words, value, wanted = np.broadcast_arrays(*values)
            place = words + int(stride) * np.where(row == first, slot, row)
            self._at(kind, place)  # all are read
            self._plus(kind, place, value, wanted)
            return np.where(wanted != 0, value.dtype.type(0), value)
        if what == "written":
            kind, columns = kind.split()
            return self._written(kind, int(columns), *np.broadcast_arrays(*values))
        if what == "alike":
            return self._alike(*np.broadcast_arrays(*values))
        if what in ("waited", "entered", "left"):
            return self._flagged(what, *(int(np.unique(x).item()) for x in values))
        if what == "emptied":
            begin, nbytes = int(np.unique(self._at("s32", values[0])).item()) * 4, int(kind)
            self._bytes[begin:begin + nbytes] = 0
            return np.zeros(values[1].shape, np.int32)
        if what in ("raised", "counted"):
            return self._changed(what, kind, *np.broadcast_arrays(*values))
        write = {"put": self._put, "plus": self._plus}[what]
        return write(kind, values[0], values[1], values[2])

    def _written(self, kind: str, columns: int, row: np.ndarray, first: np.ndarray, slot: np.ndarray, near: np.ndarray,
                 value: np.ndarray, wanted: np.ndarray, out: np.ndarray, inner: np.ndarray,
                 *shared: np.ndarray) -> np.ndarray:
        """Rows that end: to memory, with what programs for shares have of them, or to slots."""
        kept, gone = (wanted != 0) & (row == first), (wanted != 0) & (row != first)
        self._put("f32", slot, value, kept)
        sums, at = value[gone], (row * columns + near)[gone]
        if at.size and shared:
            begin, many, further = (int(np.unique(x).item()) for x in shared)
            if many < 0:
                _memory(begin, value.dtype, at)[at] = sums
                return np.where(wanted != 0, value.dtype.type(0), value)
            for share in range(many):
                sums = sums + _memory(begin + share * further, value.dtype, at)[at]
        if at.size:
            import ml_dtypes
            dtype = np.dtype({"f32": np.float32, "f16": np.float16, "bf16": ml_dtypes.bfloat16}[kind])
            at = (row * inner + near)[gone]
            if np.unique(at).size != at.size:
                raise RuntimeError("two threads write to one place of memory")
            _memory(int(np.unique(out).item()), dtype, at)[at] = sums.astype(dtype)
        return np.where(wanted != 0, value.dtype.type(0), value)

    def _changed(self, what: str, kind: str, place: np.ndarray, value: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Largest values, and who found 0; or totals."""
        at, words, first = self._at(kind, place[wanted != 0]), self._words(kind), np.zeros(place.shape, np.int32)
        if what == "counted":
            np.add.at(words, at, value[wanted != 0].astype(words.dtype))
            return first
        empty, places = words[at] == 0, np.flatnonzero(wanted != 0)
        _, those = np.unique(at[empty], return_index=True)
        first.reshape(-1)[places[empty][those]] = 1
        np.maximum.at(words, at, value[wanted != 0].astype(words.dtype))
        return first

    def _words(self, kind: str) -> np.ndarray:
        dtype = _DTYPES[kind]
        return self._bytes[:self._bytes.size // np.dtype(dtype).itemsize * np.dtype(dtype).itemsize].view(dtype)

    def _at(self, kind: str, place: np.ndarray) -> np.ndarray:
        size = np.dtype(_DTYPES[kind]).itemsize
        if (place % size).any() or (place < 0).any() or (place + size > self._bytes.size).any():
            raise IndexError(f"shared memory of {self._bytes.size} bytes has no {kind} at {place}")
        return place // size

    def _put(self, kind: str, place: np.ndarray, value: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        place, value, wanted = np.broadcast_arrays(place, value, wanted != 0)
        at = self._at(kind, place[wanted])
        if np.unique(at).size != at.size:
            raise RuntimeError("two threads write to one place of shared memory")
        self._words(kind)[at] = value[wanted]
        return np.zeros(place.shape, np.int32)

    def _plus(self, kind: str, place: np.ndarray, value: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        place, value, wanted = np.broadcast_arrays(place, value, wanted)
        return self._put(kind, place, value + self._get(kind, np.where(wanted != 0, place, 0)), wanted)

    def _get(self, kind: str, place: np.ndarray, wanted: np.ndarray | None = None) -> np.ndarray:
        if wanted is None:
            return self._words(kind)[self._at(kind, place)]
        place, wanted = np.broadcast_arrays(place, wanted != 0)
        found = np.zeros(place.shape, _DTYPES[kind])
        found[wanted] = self._words(kind)[self._at(kind, place[wanted])]
        return found

    def _added(self, kind: str, count: int, slots: int, operands: list[np.ndarray]) -> np.ndarray:
        size = np.dtype(_DTYPES[kind]).itemsize
        labels, words, marks, values = operands[:count], operands[count], operands[count + 1], operands[count + 2:]
        begin = int(np.unique(marks).item()) // 4
        marked = self._words("s32")[begin:begin + slots * (1 << (count - 1).bit_length())]
        if begin % 4 or marked.size < slots or marked.any():
            raise RuntimeError("marks are not 0")
        every = np.concatenate([np.broadcast_to(x, labels[0].shape).reshape(-1) for x in labels])
        every = every[every >= 0]
        slot = ((every >> (slots - 1).bit_length()) ^ every) & (slots - 1)
        many = np.bincount(slot, minlength=1).max() > MANY_TURNS
        for given, added in zip(labels, values, strict=True):
            label, word, value = np.broadcast_arrays(given, words, added)
            here = label >= 0
            at = self._at(kind, word[here] + label[here] * size)
            if (at * size >= begin * 4).any():
                raise IndexError("sums lie where the marks do")
            if not many:
                np.add.at(self._words(kind), at, value[here])
                continue
            for _, first, total in equal_ones_summed(label[here], value[here]):
                self._words(kind)[at[first]] += total
        return np.zeros(labels[0].shape, np.int32)

    def _own_added(self, kind: str, count: int, operands: list[np.ndarray]) -> np.ndarray:
        lanes = np.arange(32).reshape(operands[0].shape)
        owners: dict[int, int] = {}
        for given, value in zip(operands[:count], operands[count + 1:], strict=True):
            label, word, added, lane = np.broadcast_arrays(given, operands[count], value, lanes)
            here = label >= 0
            for place, owner in zip(label[here].tolist(), lane[here].tolist(), strict=True):
                if owners.setdefault(place, owner) != owner:
                    raise RuntimeError(f"two lanes add to word {place}")
            at = self._at(kind, word[here] + label[here] * np.dtype(_DTYPES[kind]).itemsize)
            np.add.at(self._words(kind), at, added[here])
        return np.zeros(operands[0].shape, np.int32)

    def _least_first(self, kind: str, count: int, slots: int, threads: int, operands: list[np.ndarray]) -> np.ndarray:
        size, taken = np.dtype(_DTYPES[kind]).itemsize, threads << (count - 1).bit_length()
        words, marks, number, thread = operands[count:count + 4]
        label = np.stack([np.broadcast_to(x, thread.shape).reshape(-1) for x in operands[:count]])
        value = np.stack([np.broadcast_to(x, thread.shape).reshape(-1) for x in operands[count + 4:]])
        begin, word, following = (int(np.unique(x).item()) for x in (marks, words, number))
        at_once = bool(following & 1)
        following -= following & 1
        if thread.size != threads or np.unique(thread).size != threads:
            raise RuntimeError(f"{thread.size} elements are not those of {threads} threads")
        position = thread.reshape(-1) + threads * np.arange(count)[:, None]
        slot = ((label >> (slots - 1).bit_length()) ^ label) & (slots - 1)
        met, waits, half = self._words("s32").view(np.uint32)[begin // 4:begin // 4 + 2 * slots], label >= 0, 0
        above = at_once or (met > np.uint32((following + taken - 1) & 0xFFFFFFFF)).all()
        if met.size != 2 * slots or not above:
            raise RuntimeError("a slot has a number that is not above those to come")
        turns = 0
        while waits.any():
            at_once |= turns == MANY_TURNS or (turns == SOON and waits.any(0).sum() > threads - threads // 8)
            if at_once:
                stays = self._many_at_once(kind, label, value, waits, word, begin)
                met[:] = 0 if stays else 0xFFFFFFFF  # buckets, of which a call that is not told would make slots
                return np.full(thread.shape, following + stays, np.int32)
            turns += 1
            mine = np.asarray((following + position) & 0xFFFFFFFF, np.uint32)
            np.minimum.at(met, half + slot[waits], mine[waits])
            first = waits & (met[half + slot] == mine)
            at = self._at(kind, word + label[first] * size)
            if (at * size >= begin).any() or np.unique(at).size != at.size:
                raise IndexError("sums lie where the slots do, or two elements add to one of them at once")
            self._words(kind)[at] += value[first]
            waits, half, following = waits & ~first, slots - half, following - taken
        if at_once:  # and there was nothing
            met[:] = 0xFFFFFFFF
        return np.full(thread.shape, following, np.int32)

    def _many_at_once(self, kind: str, label: np.ndarray, value: np.ndarray, waits: np.ndarray, word: int,
                      begin: int) -> bool:
        """All that waits: equal labels of a warp's lanes first, then one warp after another. Returns whether a sum had
        `MANY_IN_ONE` from them."""
        size, times = np.dtype(_DTYPES[kind]).itemsize, Counter[int]()
        for k in range(len(label)):
            for warp in range(0, label.shape[1], 32):
                lanes = np.arange(warp, min(warp + 32, label.shape[1]))[waits[k, warp:warp + 32]]
                for one, _, total in equal_ones_summed(label[k, lanes], value[k, lanes]):
                    at = self._at(kind, np.asarray(word + one * size))
                    if (at * size >= begin).any():
                        raise IndexError("sums lie where the slots do")
                    self._words(kind)[at] += total
                    times[one] += 1
        return max(times.values(), default=0) >= MANY_IN_ONE

    def _listed(self, most: int, warps: int, lists: np.ndarray, value: np.ndarray, wanted: np.ndarray) -> np.ndarray:
        """Elements are dealt to the warps one by one: on a GPU each has others, which no kernel may mind."""
        lists, value, wanted = np.broadcast_arrays(lists, value, wanted != 0)
        words, begin = self._words("s32"), int(np.unique(self._at("s32", lists)).item())
        for warp in range(warps):
            mine = value.reshape(-1)[warp::warps][wanted.reshape(-1)[warp::warps]]
            counter = begin + warp * (most + 1)
            first, words[counter] = counter + 1 + words[counter], words[counter] + len(mine)
            if not len(mine) <= words[counter] <= most:
                raise IndexError(f"a list of {most} words would have {words[counter]}")
            words[first:first + len(mine)] = mine
        return np.zeros(value.shape, np.int32)

    @staticmethod
    def _flagged(what: str, flags: int, *numbers: int) -> np.ndarray:
        """What programs of an exact sum do with its flags: read them when all is added, count up, leave them 0."""
        memory = (ctypes.c_int32 * 3).from_address(flags)
        if what == "waited":
            if memory[0] < numbers[0]:
                raise RuntimeError(f"{memory[0]} of {numbers[0]} programs have added their positions")
            return np.full(1, memory[1], np.int32)
        if what == "entered":
            memory[2] += 1
            return np.full(1, memory[2] - 1, np.int32)
        entered, makers = numbers
        if entered == makers - 1:
            memory[0] = memory[1] = memory[2] = 0
        return np.zeros(1, np.int32)

    @staticmethod
    def _alike(label: np.ndarray, value: np.ndarray) -> np.ndarray:
        """What the elements of a warp have together for each label, at its first one."""
        found, labels, values = np.zeros(label.size, value.dtype), label.reshape(-1), value.reshape(-1)
        for begin in range(0, labels.size, 32):
            here = begin + np.flatnonzero(labels[begin:begin + 32] >= 0)
            for _, first, total in equal_ones_summed(labels[here], values[here]):
                found[here[first]] = total
        return found.reshape(label.shape)

    def _ranked(self, label: np.ndarray, counters: np.ndarray) -> np.ndarray:
        label, counters = np.broadcast_arrays(label, counters)
        words, place = self._words("s32"), self._at("s32", counters + label * 4)
        ranks = np.zeros(label.shape, np.int32)
        for i in np.ndindex(*label.shape):
            ranks[i] = words[place[i]]
            words[place[i]] += 1
        return ranks


def _memory(address: int, dtype: np.dtype, at: np.ndarray) -> np.ndarray:
    """Memory from an address on, up to the last of these elements."""
    nbytes = (int(at.max()) + 1) * dtype.itemsize
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).view(dtype)


__all__ = ["SharedWords"]
