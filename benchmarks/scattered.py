"""Sums at places that are data, and sorts: cases that were slow for what they move, beside torch in one process.

    python benchmarks/scattered.py                     # device time beside eager, with Genesis' kernels
    python benchmarks/scattered.py --peers eager,compile
    python benchmarks/scattered.py --behind --peers eager,compile --processes 12 --drawn 914 --each 3

The last has those that were slower than torch when they were timed last, and three drawn ones (`sweep.py`) of each
family of these; twelve processes compile them at once, and time them in turn. Cases, memory and clocks are those of
`sweep.py`. Sums of lines are also compared bit by bit with a loop on the host, in the order of the positions.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any, Final

import torch
from bars import COPY_BYTES
from in_turn import run_in_turn, wait_for_turn
from sweep import (
    Bench,
    as_torch,
    device_times,
    forget_no_compiled_case,
    functions_of,
    kernel_times,
    line_of,
    own_memory,
)
from sweep_cases import LEAST_BYTES, Case, Operand, draw_case, nn

import genesis


def scatter_add(lines: int, rows: int, count: int, below: int = 0, dtype: str = "float32") -> Case:
    """Along the last axis; with `below` to the first rows alone."""
    index = Operand((lines, count), "int64", below=below or rows, grad=False)
    base, source = Operand((lines, rows), dtype), Operand((lines, count), dtype)
    return Case("scatter_add", 0, "scatter_add dim=1", lambda t, x, i, y: t.scatter_add(x, 1, i, y),
                (base, index, source), results=base.nbytes, tolerance=4)


def gather(lines: int, rows: int, dtype: str) -> Case:
    """With its gradient."""
    x, index = Operand((lines, rows), dtype), Operand((lines, rows), "int64", below=rows, grad=False)
    return Case("gather", 0, "gather dim=1", lambda t, x, i: t.gather(x, 1, i), (x, index), True, None, x.nbytes, 4)


def index_add(shape: tuple[int, ...], axis: int, count: int) -> Case:
    """Few places of rows that many have."""
    x, index = Operand(shape), Operand((count,), "int64", below=shape[axis], grad=False)
    source = Operand((*shape[:axis], count, *shape[axis + 1:]))
    return Case("index_add", 0, f"index_add dim={axis}", lambda t, x, i, y: t.index_add(x, axis, i, y),
                (x, index, source), results=x.nbytes, tolerance=4)


def embedding(tokens: int, rows: int, width: int, dtype: str) -> Case:
    """With its gradient."""
    index, table = Operand((tokens,), "int64", below=rows, grad=False), Operand((rows, width), dtype)
    return Case("embedding", 0, "embedding", lambda t, i, w: nn(t).embedding(i, w), (index, table), True,
                None, tokens * width * 4, 4)


def rows_at(count: int, rows: int, width: int, dtype: str) -> Case:
    """x[index] with its gradient."""
    x, index = Operand((rows, width), dtype), Operand((count,), "int64", below=rows, grad=False)
    return Case("x[index]", 0, "x[index]", lambda t, x, i: x[i], (x, index), True, None, count * width * 2, 4)


def gather_rows(rows: int, columns: int, dtype: str) -> Case:
    """Along the first axis, with its gradient."""
    x, index = Operand((rows, columns), dtype), Operand((rows, columns), "int64", below=rows, grad=False)
    return Case("gather", 0, "gather dim=0", lambda t, x, i: t.gather(x, 0, i), (x, index), True, None, x.nbytes, 4)


def sort(length: int, dtype: str) -> Case:
    """One long row."""
    x = Operand((1, length), dtype)
    return Case("sort", 0, "sort", lambda t, x: tuple(t.sort(x, dim=1)), (x,), picks=1, results=x.nbytes + 8 * length)


CASES = (scatter_add(33784, 74, 74), scatter_add(33784, 74, 74, below=1), scatter_add(512, 10_000, 3000),
         gather(4096, 1910, "float32"), gather(21010, 800, "bfloat16"), index_add((39233, 9), 1, 12),
         index_add((400_000, 9), 1, 9), embedding(100_000, 20439, 32, "bfloat16"),
         embedding(102_400, 100_000, 32, "float32"), sort(16_000_000, "float32"), sort(1 << 20, "float32"),
         sort(4_000_000, "bfloat16"))

BEHIND: Final = (scatter_add(1, 100_000, 100_000), embedding(58_272, 5827, 31, "bfloat16"),
                 embedding(8440, 8440, 64, "float32"), embedding(100_000, 20439, 32, "bfloat16"),
                 embedding(500_000, 20_000, 32, "bfloat16"), rows_at(100_000, 100_000, 104, "bfloat16"),
                 gather_rows(16_500, 16, "float32"), scatter_add(88, 42_240, 42_240, below=1),
                 scatter_add(88, 42_240, 42_240, below=8), scatter_add(88, 42_240, 42_240))
"""What took longer than the faster of eager torch and torch.compile when it was timed last."""

FAMILIES: Final = ("gather", "embedding", "sort", "scan")
"""Families that cases are drawn of."""


def same_bits(lines: int = 300, rows: int = 74, count: int = 500) -> bool:
    """Whether sums of lines are those of one thread that goes through the positions."""
    generator = torch.Generator().manual_seed(0)
    base, source = (torch.randn(lines, n, generator=generator) for n in (rows, count))
    index = torch.randint(0, rows, (lines, count), generator=generator)
    want = base.clone()
    for position in range(count):
        want[torch.arange(lines), index[:, position]] += source[:, position]
    mine = [genesis.from_dlpack(x).to("cuda") for x in (base, index, source)]
    found = genesis.scatter_add(mine[0], 1, mine[1], mine[2]).to("cpu")
    return torch.equal(torch.from_dlpack(found), want)


def prepared(case: Case, peers: list[str]) -> tuple[dict[str, Any], Bench | None]:
    """The case's row, and what times it, compiled for everyone."""
    row: dict[str, Any] = {"key": case.family, "text": case.text, "bytes": case.nbytes, "small": False}
    try:
        bench = Bench(case, "cuda", own_memory)
        genesis.cuda.synchronize()
        bench.functions = functions_of(case, peers)
        row["error"] = bench.error(as_torch)
        for function in bench.functions.values():
            bench.torch_results(function)
    except Exception as error:  # the other cases are still worth their time
        row["problem"] = f"{type(error).__name__}: {str(error)[:400]}"
        return row, None
    return row, bench


def timed(row: dict[str, Any], bench: Bench | None, spin: Any) -> dict[str, Any]:
    """The row with its times, and those of its kernels."""
    if bench is None:
        return row
    try:
        row["ms"] = device_times(bench, spin)
        row["kernels"] = kernel_times(bench)
    except Exception as error:  # the other cases are still worth their time
        row["problem"] = f"{type(error).__name__}: {str(error)[:400]}"
    return row


def wanted(args: argparse.Namespace) -> list[Case]:
    """The cases of this part; of those that are drawn those with a bar."""
    found = list(BEHIND if args.behind else CASES)
    for family in FAMILIES if args.drawn >= 0 else ():
        drawn = (draw_case(family, args.drawn, number) for number in range(4 * args.each))
        found += [case for case in drawn if case.nbytes >= LEAST_BYTES][:args.each]
    for name in filter(None, args.also.split(",")):
        seed, _, key = name.partition(":")
        family, _, number = key.partition("/")
        found.append(draw_case(family, int(seed), int(number)))
    part, parts = map(int, args.part.split("/"))
    return found[part::parts]


def main() -> int:
    """Print a row for each case, with its kernels; returns 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="eager", help="torch's contestants")
    parser.add_argument("--behind", action="store_true", help="the cases that took longer than torch")
    parser.add_argument("--drawn", type=int, default=-1, metavar="SEED", help="with drawn cases of this seed")
    parser.add_argument("--also", default="", help="drawn cases by name, such as 3:gather/1,3:sort/0")
    parser.add_argument("--each", type=int, default=3, help="drawn cases of a family")
    parser.add_argument("--processes", type=int, default=0, help="that compile at the same time")
    parser.add_argument("--ready-within", type=float, default=90.0, help="seconds, of processes; others are ended")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--in-turn", action="store_true", help="prepare, then wait for a line of stdin (internal)")
    args = parser.parse_args()
    if args.processes and not args.in_turn:
        run_in_turn([[sys.executable, __file__, *sys.argv[1:], "--part", f"{i}/{args.processes}", "--in-turn"]
                     for i in range(args.processes)], args.ready_within)
        return 0
    warnings.filterwarnings("ignore")
    forget_no_compiled_case()
    spin = tuple(genesis.zeros(COPY_BYTES, dtype=genesis.int8, device="cuda") for _ in range(2))
    genesis.eval(*spin)
    right = args.in_turn or same_bits()
    if not args.in_turn:
        print(f"sums of lines in the order of the positions: {'same bits' if right else 'WRONG'}", flush=True)
    found = [prepared(case, args.peers.split(",")) for case in wanted(args)] if args.in_turn else None
    if args.in_turn and not wait_for_turn():
        return 0
    for row, bench in found or (prepared(case, args.peers.split(",")) for case in wanted(args)):
        timed(row, bench, spin)
        right &= "problem" not in row and row["error"] <= 1
        print(line_of(row), flush=True)
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
