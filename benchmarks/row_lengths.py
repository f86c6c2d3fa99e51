"""Long rows in kernels that name their length by its number, and in kernels that take it as an argument.

    python benchmarks/row_lengths.py --out
    python benchmarks/row_lengths.py --match softmax,entropy

A size that was always the same is written into a kernel's text; one that was seen to change is an argument, and one
kernel serves all lengths of a class (`docs/sizes.md`). Each program runs once in either way, in one process, from the
same memory; the times are device times as of `bars.py`. `bits` says whether both gave the same ones, of the first
200,000 elements of each result. The rows of 1001, 10001 and 50257 begin at no multiple of 16 bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import record
from bar_workloads import Operand, Workload, functional, gelu_chain
from bars import Bench, call, room_for_copies

import genesis
from genesis import engine
from genesis.engine.plans import VARIABLE
from genesis.engine.symbolic.shape_erased import Member

ELEMENTS: Final = 1 << 26
HASHED: Final = 200_000


def rows_of(length: int) -> int:
    """Rows that make about `ELEMENTS`, a multiple of 8."""
    return ELEMENTS // length // 8 * 8


def softmax(length: int) -> Workload:
    x = Operand((rows_of(length), length))
    return Workload(f"softmax {length}", lambda library, x: library.softmax(x, -1), (x,), x.nbytes, x.nbytes, x.nbytes)


def layer_norm(length: int) -> Workload:
    x, row = Operand((rows_of(length), length)), Operand((length,))
    return Workload(f"layernorm {length}", lambda library, x, w, b: functional(library).layer_norm(x, (length,), w, b),
                    (x, row, row), x.nbytes, x.nbytes, x.nbytes)


def cross_entropy(length: int) -> Workload:
    rows = rows_of(length)
    return Workload(f"cross-entropy {length}", lambda library, x, y: functional(library).cross_entropy(x, y),
                    (Operand((rows, length)), Operand((rows,), "int64", grad=False, below=length)), 0)


def broadcast(length: int) -> Workload:
    rows = rows_of(length)
    full = Operand((rows, length))
    return Workload(f"gelu chain broadcast {length}", gelu_chain, (full, Operand((length,)), Operand((rows, 1)), full),
                    full.nbytes, 2 * full.nbytes, full.nbytes)


def cumsum(length: int) -> Workload:
    x = Operand((rows_of(length), length))
    return Workload(f"cumsum {length}", lambda library, x: library.cumsum(x, -1), (x,), x.nbytes, 0, x.nbytes)


PROGRAMS: Final[tuple[tuple[Callable[[int], Workload], tuple[int, ...]], ...]] = (
    (softmax, (1000, 1001, 4096, 6000, 10001, 16384, 20000, 50257, 50304, 65536)),
    (layer_norm, (768, 4096, 5000, 8192, 9000, 20480)), (cross_entropy, (30000, 50257, 50304)),
    (broadcast, (5000, 8192)), (cumsum, (8192,)))


@contextmanager
def sizes_are(arguments: bool) -> Iterator[None]:
    """Inside, kernels take all sizes of data as arguments, or all but the batch as numbers."""
    chosen = Member.arguments

    def of(member: Member) -> list[Any]:
        leading = next((axis for axis in chosen(member) if axis.axis == 0), None)
        return list(member.axes) if arguments else [axis for axis in member.axes if axis == leading]
    Member.arguments = of  # type: ignore[method-assign]
    engine.reset()
    try:
        yield
    finally:
        Member.arguments = chosen  # type: ignore[method-assign]


def bits(bench: Bench, both: bool) -> str:
    """A digest of what the program's results begin with."""
    gradient, _ = bench.gradients(both)
    found = call(genesis, bench.workload, bench.workload.function, bench.sets[0], gradient)
    genesis.eval(*found)
    digest = hashlib.sha256()
    for x in found:
        digest.update(x.detach().reshape(-1)[:HASHED].float().cpu().numpy().tobytes())
    return digest.hexdigest()


def measure(bench: Bench) -> list[dict[str, Any]]:
    """A workload's two directions."""
    found = []
    for both in (False, True):
        us, digests = {}, set()
        for way, arguments in (("number", False), ("argument", True)):
            with sizes_are(arguments):
                us[way] = 1e3 * bench.genesis_ms(both)
                digests.add(bits(bench, both))
        found.append({"program": bench.workload.name, "direction": "both" if both else "forward", "us": us,
                      "ratio": us["argument"] / us["number"], "same_bits": len(digests) == 1})
    return found


def main() -> int:
    """Measure, print a table, write JSON; 1 if some bits differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--match", default="", help="only programs with one of these in their name, comma-separated")
    record.add_out(parser)
    options = parser.parse_args()
    os.environ[VARIABLE] = "0"  # a plan from disk would be of the other way
    spin, rows = room_for_copies(), []
    for workload_of, lengths in PROGRAMS:
        for length in lengths:
            workload = workload_of(length)
            if not any(part in workload.name for part in options.match.split(",")):
                continue
            for row in measure(Bench(workload, spin)):
                rows.append(row)
                print(f"{row['program']:28}{row['direction']:9}{row['us']['number']:9.1f} µs"
                      f"{row['us']['argument']:9.1f} µs{row['ratio']:7.2f}"
                      f"{'' if row['same_bits'] else '  other bits'}", flush=True)
            genesis.cuda.empty_cache()
    if options.out:
        record.write(options.out, "row_lengths", rows=rows)
    return int(not all(row["same_bits"] for row in rows))


if __name__ == "__main__":
    sys.exit(main())
