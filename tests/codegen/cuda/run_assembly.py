"""Runs the assembly of a function over shared words and memory: threads as coroutines that meet where PTX lets them.

The host's interpreter knows what such a function gives (`runtime/fake_cuda/shared_words.py`), not how. Here its own
instructions run: each thread goes on by itself up to an instruction of its warp (`.sync`) or a barrier, and whoever is
not at the same one as the others is an error, as is an address that is not a multiple of what is read there. Warps take
turns in a random order, so that what needs a barrier that is missing gives something else.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from typing import Final, NamedTuple

import numpy as np

MASK: Final = 0xFFFFFFFF
UNKNOWN: Final = 0xDEADBEEF
"""What a register has before anything was written to it."""

MOST_STEPS: Final = 1 << 20
"""Instructions of one thread after which it is taken for one that never ends."""

Meeting = Generator[tuple[str, int, int], int, None]
"""A thread: (how it meets others, its instruction, what it brings) → what it is given."""


class Instruction(NamedTuple):
    """One line: the predicate that must hold, or must not (`unless`), the operation and its operands."""

    predicate: str
    unless: bool
    operation: str
    operands: tuple[str, ...]


def assembly_of(helper: str) -> str:
    """The instructions in a helper's text."""
    found = re.search(r'"""\{ // shared[^\n]*\n(.*?)\}"""', helper, re.S)
    assert found is not None
    return found.group(1)


def run_assembly(helper: str, operands: Sequence[Sequence[int]], threads: int, shared: bytearray,
                 seed: int = 0) -> list[int]:
    """What each thread's result is.

    Args:
        operands: the bits of each operand, a number for each thread; the result is not among them.
        shared: the program's shared memory, which is changed.
    """
    return run_with_results(helper, operands, threads, shared, bytearray(), 1, seed)[0]


def run_with_results(helper: str, operands: Sequence[Sequence[int]], threads: int, shared: bytearray,
                     memory: bytearray, results: int, seed: int = 0) -> list[list[int]]:
    """What each thread has of each result; memory's first address is 0."""
    code, labels = _parsed(assembly_of(helper))
    random, found = np.random.default_rng(seed), [[0] * threads for _ in range(results)]
    runs = [_thread(at, [x[at] for x in operands], code, labels, {"shared": shared, "global": memory}, found)
            for at in range(threads)]
    where = [next(run) for run in runs]
    while True:
        for warp in random.permutation(threads // 32):
            lanes = range(32 * warp, 32 * warp + 32)
            while where[lanes[0]][0] in _OF_WARP:
                _same([where[at] for at in lanes], code)
                given = _OF_WARP[where[lanes[0]][0]]([where[at][2] for at in lanes])
                for at, value in zip(lanes, given, strict=True):
                    where[at] = runs[at].send(value)
        _same(where, code)
        if where[0][0] == "end":
            return found
        together = sum(bool(x[2]) for x in where)
        for at in random.permutation(threads):
            where[at] = runs[at].send(together)


_OF_WARP: Final[dict[str, Callable[[list[int]], list[int]]]] = {
    "warp": lambda brought: brought,
    "any": lambda brought: [int(any(brought))] * 32,
    "ballot": lambda brought: [sum(bool(x) << lane for lane, x in enumerate(brought))] * 32,
    "match": lambda brought: [sum((x == y) << lane for lane, y in enumerate(brought)) for x in brought],
    "shfl": lambda brought: [brought[x >> 32] & MASK for x in brought],
}
"""What the lanes of a warp are given for what they bring; a shuffle brings the lane that it reads above its value."""


def _same(where: Sequence[tuple[str, int, int]], code: Sequence[Instruction]) -> None:
    places = {(kind, at) for kind, at, _ in where}
    assert len(places) == 1, f"threads meet at {[code[at - 1] if at else kind for kind, at in places]}"


def _parsed(text: str) -> tuple[list[Instruction], dict[str, int]]:
    code: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in (line.strip() for line in text.splitlines()):
        if re.fullmatch(r"[A-Z]+\d*:", line):
            labels[line[:-1]] = len(code)
        elif line and not line.startswith(".reg"):
            match = re.fullmatch(r"(?:@(!?)(%\w+)\s+)?([\w.]+)\s*(.*);", line)
            assert match is not None, line
            operands = re.findall(r"\{[^}]*\}|\[[^\]]*\]|[^,\s]+", match[4])
            code.append(Instruction(match[2] or "", match[1] == "!", match[3], tuple(operands)))
    return code, labels


def _thread(thread: int, operands: Sequence[int], code: Sequence[Instruction], labels: dict[str, int],
            memories: dict[str, bytearray], found: list[list[int]]) -> Meeting:
    lane, registers, at = thread % 32, dict[str, int](), 0
    special = {"%laneid": lane, "%tid.x": thread, "%lanemask_lt": (1 << lane) - 1, "%lanemask_eq": 1 << lane,
               "%lanemask_gt": MASK << lane + 1 & MASK}

    def value(text: str) -> int:
        if text[0] == "$":
            return operands[int(text[1:]) - len(found)] if int(text[1:]) >= len(found) else found[int(text[1:])][thread]
        if text[0] == "%":
            return special[text] if text in special else registers.get(text, UNKNOWN)
        return int(text[2:], 16) if text.startswith(("0f", "0d")) else int(text, 0) & MASK

    def place(text: str, nbytes: int) -> slice:
        base, _, more = text[1:-1].partition("+")
        first = (value(base) & MASK) + int(more or 0)
        assert first % nbytes == 0 and first + nbytes <= len(memory), f"{nbytes} bytes at {first} of {len(memory)}"
        return slice(first, first + nbytes)

    for _ in range(MOST_STEPS):
        if at == len(code):
            yield "end", 0, 0
        predicate, unless, operation, given = code[at]
        at += 1
        if predicate and bool(registers.get(predicate, 0)) == unless:
            continue
        name, *kinds = operation.split(".")
        kind = kinds[-1] if kinds else ""
        nbytes = 8 if kind.endswith("64") else 2 if kind == "b16" else 4
        memory = memories["global" if "global" in kinds else "shared"]
        if name == "bra":
            at = labels[given[0]]
        elif operation == "bar.sync":
            yield "bar", at, 0
        elif operation.startswith("bar.red"):
            registers[given[0]] = yield "bar", at, value(given[2])
        elif operation == "bar.warp.sync":
            yield "warp", at, 0
        elif name in ("vote", "match"):
            way = "match" if name == "match" else kinds[1]
            registers[given[0]] = yield way, at, value(given[1]) & MASK
        elif name == "shfl":
            registers[given[0]] = yield "shfl", at, (value(given[2]) & 31) << 32 | value(given[1]) & MASK
        elif name == "mov" and given[0][0] == "{":
            whole = value(given[1])
            registers |= dict(zip(re.findall(r"%\w+", given[0]), (whole & MASK, whole >> 32), strict=True))
        elif name == "mov" and given[1][0] == "{":
            low, high = (value(x) & MASK for x in re.findall(r"%\w+", given[1]))
            registers[given[0]] = low | high << 32
        elif name == "mov" and given[0][0] == "$":
            found[int(given[0][1:])][thread] = value(given[1])
        elif name in ("ld", "st") and {"v2", "v4"} & {*kinds}:
            names = re.findall(r"%\w+", given[name == "st"])
            where = place(given[name == "ld"], 4 * len(names))
            if name == "st":
                memory[where] = b"".join((value(x) & MASK).to_bytes(4, "little") for x in names)
            else:
                words = np.frombuffer(bytes(memory[where]), np.uint32)
                registers |= dict(zip(names, map(int, words), strict=True))
        elif name == "ld":
            registers[given[0]] = int.from_bytes(memory[place(given[1], nbytes)], "little")
        elif name == "st":
            memory[place(given[0], nbytes)] = value(given[1]).to_bytes(8, "little")[:nbytes]
        elif name in ("red", "atom"):
            where, added = place(given[-2], 4), value(given[-1]) & MASK
            before = int.from_bytes(memory[where], "little")
            after = {"min": min(before, added), "max": max(before, added), "or": before | added,
                     "add": before + added & MASK}[kinds[1]]
            memory[where] = after.to_bytes(4, "little")
            if name == "atom":
                registers[given[0]] = before
        else:
            registers[given[0]] = _computed(name, kinds, [value(x) for x in given[1:]])
    raise AssertionError("a thread does not end")


def _computed(name: str, kinds: Sequence[str], x: Sequence[int]) -> int:
    """What an instruction over registers gives."""
    kind = kinds[-1]
    if kind in ("f32", "f64") and name == "add":
        bits, number = (np.uint32, np.float32) if kind == "f32" else (np.uint64, np.float64)
        first, second = (np.array([each], bits).view(number)[0] for each in x)
        return int(np.array([first + second], number).view(bits)[0])
    if name == "cvt":
        import ml_dtypes
        narrow = ml_dtypes.bfloat16 if kinds[1].startswith("bf") else np.float16
        parts = np.array([y & MASK for y in x], np.uint32).view(np.float32).astype(narrow).view(np.uint16)
        return int(parts[0]) << 16 | int(parts[1]) if len(x) > 1 else int(parts[0])
    if name == "mad" and kinds[0] == "wide":
        return _signed(x[0] & MASK) * _signed(x[1] & MASK) + x[2]
    whole = (1 << 64) - 1 if kind.endswith("64") else MASK
    a, b = x[0] & whole, (x[1] if len(x) > 1 else 0) & whole
    if name == "setp":
        if kind == "s32":
            a, b = _signed(a), _signed(b)
        holds = {"eq": a == b, "ne": a != b, "lt": a < b, "ge": a >= b, "gt": a > b}[kinds[0]]
        return int(holds and (len(x) < 3 or bool(x[2])))
    computed: dict[str, Callable[[], int]] = {
        "mov": lambda: a, "not": lambda: ~a, "neg": lambda: -a, "add": lambda: a + b, "sub": lambda: a - b,
        "and": lambda: a & b, "or": lambda: a | b, "xor": lambda: a ^ b,
        "shl": lambda: a << b if b < 32 else 0, "shr": lambda: a >> b if b < 32 else 0,
        "mad": lambda: a * b + x[2], "max": lambda: max(_signed(a), _signed(b)), "popc": lambda: a.bit_count(),
        "brev": lambda: int(f"{a:032b}"[::-1], 2), "clz": lambda: 32 - a.bit_length(), "selp": lambda: a if x[2] else b}
    return computed[name]() & whole


def _signed(x: int) -> int:
    return x - (1 << 32) if x >> 31 else x
