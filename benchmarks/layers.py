"""Layers by name beside torch in one process: a linear layer with gelu, few rows through a large one, attention.

Device times, memory and clocks are those of `sweep.py`, and so are checks against float64. The peer is the fastest of
eager torch, torch.compile and, for attention, each backend of torch's that takes the case.

    python benchmarks/layers.py --processes 6 --out           # compile in six processes, time them in turn
    python benchmarks/layers.py --only linear
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import record
from bars import COPY_BYTES, copy_rate
from in_turn import run_in_turn, wait_for_turn
from sweep import (
    Bench,
    as_torch,
    device_times,
    forget_no_compiled_case,
    functions_of,
    line_of,
    own_memory,
    release,
    speedup,
)
from sweep_cases import Case, Operand, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

import genesis


@dataclass(frozen=True)
class Layer:
    """A case with its bar.

    Attributes:
        bar: times as fast as the peer, or with `of_copy` the part of the copy rate at which its bytes are to be moved.
    """

    case: Case
    bar: float
    of_copy: bool = False


def linear(m: int, k: int, n: int, bar: float, gelu: bool = False, both: bool = False) -> Layer:
    """A bfloat16 layer of M rows; without gelu it is held against the copy rate."""
    def function(t: Any, x: Any, w: Any, b: Any) -> Any:
        y = nn(t).linear(x, w, b)
        return nn(t).gelu(y, approximate="tanh") if gelu else y

    operands = tuple(Operand(shape, "bfloat16") for shape in ((m, k), (n, k), (n,)))
    name = "linear + gelu" if gelu else "linear"
    return Layer(Case("linear", 0, name, function, operands, both, None, m * n * 2, 4), bar, not gelu)


def attention(batch: int, heads: int, length: int, width: int, bar: float, both: bool = False, causal: bool = True,
              mask: bool = False, shared: int = 1) -> Layer:
    """bfloat16 attention; with `mask` a boolean one a batch, with `shared` so many heads for each of k and v."""
    def function(t: Any, q: Any, k: Any, v: Any, keep: Any = None) -> Any:
        return nn(t).scaled_dot_product_attention(q, k, v, keep, is_causal=causal, enable_gqa=shared > 1)

    def of(count: int) -> Operand:
        return Operand((batch, count, length, width), "bfloat16")

    keep = (Operand((batch, 1, length, length), "bool", below=2, grad=False),) if mask else ()
    told = " ".join(word for word in ("causal" if causal else "", "mask" if mask else "",
                                      f"{shared} heads share" if shared > 1 else "") if word)
    operands = (of(heads), of(heads // shared), of(heads // shared), *keep)
    return Layer(Case("attention", 0, f"attention {told}".strip(), function, operands, both, None, operands[0].nbytes,
                      2), bar)


LAYERS: Final = (
    linear(16384, 768, 3072, 1.25, gelu=True), linear(8192, 4096, 14336, 1.06, gelu=True),
    linear(16384, 768, 3072, 1.05, gelu=True, both=True), linear(8192, 4096, 14336, 1.02, gelu=True, both=True),
    *(linear(m, 4096, 14336, 0.88) for m in (1, 8, 64)),
    attention(2, 16, 4096, 64, 0.95), attention(2, 16, 4096, 128, 0.95),
    attention(2, 16, 4096, 64, 0.88, both=True), attention(2, 16, 4096, 128, 0.88, both=True),
    attention(2, 16, 4096, 80, 0.88), attention(2, 8, 4096, 256, 0.88), attention(2, 16, 4096, 256, 0.88, both=True),
    attention(2, 16, 4096, 64, 0.88, causal=False), attention(2, 16, 4096, 128, 0.88, causal=False),
    attention(4, 16, 2048, 64, 0.88, causal=False, mask=True),
    attention(1, 32, 4096, 128, 0.88, shared=4), attention(1, 32, 4096, 128, 0.88, both=True, shared=4))
"""With the bars that they are to reach."""

BACKENDS: Final = {"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION,
                   "efficient": SDPBackend.EFFICIENT_ATTENTION}


def with_backend(backend: SDPBackend, function: Callable[..., Any]) -> Callable[..., Any]:
    """The same with one of torch's backends alone, which raises what it does not take."""
    def call(*args: Any) -> Any:
        with sdpa_kernel(backend):
            return function(*args)
    return call


def peers_of(bench: Bench) -> Iterator[tuple[str, Callable[..., Any]]]:
    """torch's contestants that take the case."""
    for name, function in functions_of(bench.case, ["eager", "compile"]).items():
        yield name, function
    if bench.case.family == "attention":
        for name, backend in BACKENDS.items():
            function = with_backend(backend, bench.case.function)
            try:
                bench.torch_results(function)
            except RuntimeError:  # "No available kernel"
                continue
            yield name, function


def measured(layer: Layer, bench: Bench, error: float, spin: tuple[Any, Any], copied: float) -> dict[str, Any]:
    """The row: times by contestant, and what is held against the bar."""
    row: dict[str, Any] = {"key": layer.case.family, "text": layer.case.text, "bytes": layer.case.nbytes,
                           "small": False, "error": error, "bar": layer.bar, "of_copy": layer.of_copy,
                           "ms": device_times(bench, spin)}
    rate = layer.case.nbytes / row["ms"]["genesis"] / 1e6
    row["reached"] = rate / copied if layer.of_copy else speedup(row)
    return row


def wanted(args: argparse.Namespace) -> list[Layer]:
    """The layers of this part."""
    part, parts = map(int, args.part.split("/"))
    return [layer for layer in LAYERS if args.only in layer.case.text][part::parts]


def main() -> int:
    """Measure, print and record; returns 1 if a result was wrong."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="layers whose text holds this")
    parser.add_argument("--processes", type=int, default=0, help="that compile at the same time")
    parser.add_argument("--ready-within", type=float, default=120.0, help="seconds, of processes; others are ended")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th layer, from the i-th")
    parser.add_argument("--in-turn", action="store_true", help="prepare, then wait for a line of stdin (internal)")
    parser.add_argument("--rows", type=Path, help="append rows to this file (internal)")
    record.add_out(parser)
    parser.set_defaults(device="cuda")  # as `sweep.release` asks
    args = parser.parse_args()
    if args.processes and not args.in_turn:
        return in_processes(args)
    warnings.filterwarnings("ignore")
    forget_no_compiled_case()
    prepared = []
    for layer in wanted(args):
        bench = Bench(layer.case, "cuda", own_memory)
        genesis.cuda.synchronize()
        bench.functions = dict(peers_of(bench))
        error = bench.error(as_torch)
        for function in bench.functions.values():
            bench.torch_results(function)
        prepared.append((layer, bench, error))
        release(args)
    if args.in_turn and not wait_for_turn():
        return 0
    spin = tuple(genesis.zeros(COPY_BYTES, dtype=genesis.int8, device="cuda") for _ in range(2))
    genesis.eval(*spin)
    copied, rows = copy_rate(spin) / 1e9, []
    for layer, bench, error in prepared:
        rows.append(measured(layer, bench, error, spin, copied))
        print(f"{rows[-1]['reached'] or 0:5.2f} ({layer.bar:g}{' of copy' if layer.of_copy else ''})  "
              f"{line_of(rows[-1])}", flush=True)
    if args.rows:
        with args.rows.open("a", encoding="utf-8") as file:
            file.writelines(json.dumps(row) + "\n" for row in rows)
    if args.out:
        record.write(args.out, "layers", rows=rows)
    return int(any(row["error"] > 1 for row in rows))


def in_processes(args: argparse.Namespace) -> int:
    """Each part in a process: all compile at once and time in turn; the rows of all are recorded. Returns 1 if one is
    wrong, or is not there."""
    folder = args.out or Path("build")
    folder.mkdir(parents=True, exist_ok=True)
    kept = folder / "layers.rows.log"
    kept.unlink(missing_ok=True)
    run_in_turn([[sys.executable, __file__, "--only", args.only, "--part", f"{i}/{args.processes}", "--in-turn",
                  "--rows", str(kept)] for i in range(args.processes)], args.ready_within)
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.exists() else []
    rows.sort(key=lambda row: [layer.case.text for layer in LAYERS].index(row["text"]))
    if args.out:
        record.write(args.out, "layers", rows=rows)
    return int(len(rows) < len(wanted(args)) or any(row["error"] > 1 for row in rows))


if __name__ == "__main__":
    sys.exit(main())
