"""Sums at places that are data, and sorts: cases that were slow for what they move, beside torch in one process.

    python benchmarks/scattered.py                     # device time beside eager, with Genesis' kernels
    python benchmarks/scattered.py --peers eager,compile

Cases, memory and clocks are those of `sweep.py`. Sums of lines are also compared bit by bit with a loop on the host, in
the order of the positions.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from typing import Any

import torch
from bars import COPY_BYTES
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
from sweep_cases import Case, Operand, nn

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


def sort(length: int, dtype: str) -> Case:
    """One long row."""
    x = Operand((1, length), dtype)
    return Case("sort", 0, "sort", lambda t, x: tuple(t.sort(x, dim=1)), (x,), picks=1, results=x.nbytes + 8 * length)


CASES = (scatter_add(33784, 74, 74), scatter_add(33784, 74, 74, below=1), scatter_add(512, 10_000, 3000),
         gather(4096, 1910, "float32"), gather(21010, 800, "bfloat16"), index_add((39233, 9), 1, 12),
         index_add((400_000, 9), 1, 9), embedding(100_000, 20439, 32, "bfloat16"),
         embedding(102_400, 100_000, 32, "float32"), sort(16_000_000, "float32"), sort(1 << 20, "float32"),
         sort(4_000_000, "bfloat16"))


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


def measured(case: Case, peers: list[str], spin: Any) -> dict[str, Any]:
    """The case's row."""
    row: dict[str, Any] = {"key": case.family, "text": case.text, "bytes": case.nbytes, "small": False}
    try:
        bench = Bench(case, "cuda", own_memory)
        genesis.cuda.synchronize()
        bench.functions = functions_of(case, peers)
        row["error"] = bench.error(as_torch)
        row["ms"] = device_times(bench, spin)
        row["kernels"] = kernel_times(bench)
    except Exception as error:  # the other cases are still worth their time
        row["problem"] = f"{type(error).__name__}: {str(error)[:400]}"
    return row


def main() -> int:
    """Print a row for each case, with its kernels; returns 1 if something was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--peers", default="eager", help="torch's contestants")
    peers = parser.parse_args().peers.split(",")
    warnings.filterwarnings("ignore")
    forget_no_compiled_case()
    spin = tuple(genesis.zeros(COPY_BYTES, dtype=genesis.int8, device="cuda") for _ in range(2))
    genesis.eval(*spin)
    right = same_bits()
    print(f"sums of lines in the order of the positions: {'same bits' if right else 'WRONG'}", flush=True)
    for case in CASES:
        row = measured(case, peers, spin)
        right &= "problem" not in row and row["error"] <= 1
        print(line_of(row), flush=True)
    return int(not right)


if __name__ == "__main__":
    sys.exit(main())
