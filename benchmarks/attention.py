"""Causal bf16 attention, forward and forward + backward, beside torch's SDPA with its cuDNN and flash backends.

Every contestant runs in a process of its own, on the same inputs. Two heads are compared with float32 numpy
before anything is timed. Times are device times: launches back to back between two events.

    python benchmarks/attention.py --out
    python benchmarks/attention.py --only genesis --tiles "flash_attention=128,64,8,3;flash_attention_dq=64,64,4,2"
    python benchmarks/attention.py --sweep --cases 4x16x4096x64      # every tile of a grid, the best rows printed
    python benchmarks/attention.py --forms table dkv=2x64x4x2x1x1    # the streamed backward beside the plain one
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np
import record

import genesis

CASES = "16x12x1024x64,4x16x4096x64,4x16x4096x128"
TOLERANCE = 2e-2
"""Of the largest value: bf16 inputs are exact in the reference, probabilities and results are rounded to 8 bits."""

CHOSEN = ExitStack()
"""The tiles that are in use."""

SWEPT = {"i": (64, 128), "j": (32, 64, 128), "num_warps": (4, 8), "num_stages": (2, 3, 4)}
REPEATS = 20
STREAMED = "streamed:"
"""Before a form of the backward in a contestant's name."""


def rounded(x: np.ndarray) -> np.ndarray:
    """To the nearest bf16, as float32."""
    import ml_dtypes
    return x.astype(ml_dtypes.bfloat16).astype(np.float32)


def operands(case: tuple[int, ...]) -> list[np.ndarray]:
    """q, k, v and the result's gradient."""
    rng = np.random.default_rng(0)
    return [rounded(rng.standard_normal(case, dtype=np.float32)) for _ in range(4)]


def reference(q: np.ndarray, k: np.ndarray, v: np.ndarray, g: np.ndarray) -> list[np.ndarray]:
    """y, dq, dk, dv of one head in float32."""
    scale = q.shape[-1] ** -0.5
    scores = np.where(np.tri(len(q), dtype=bool), q @ k.T * np.float32(scale), -np.inf)
    p = np.exp(scores - scores.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    y = p @ v
    to_scores = p * (g @ v.T - (g * y).sum(1, keepdims=True)) * np.float32(scale)
    return [y, to_scores @ k, to_scores.T @ q, p.T @ g]


Expected = dict[tuple[int, int], list[np.ndarray]]


def expected(arrays: list[np.ndarray]) -> Expected:
    """The reference of the first and the last head."""
    b, h = arrays[0].shape[:2]
    return {at: reference(*(x[at] for x in arrays)) for at in ((0, 0), (b - 1, h - 1))}


def worst_error(wanted: Expected, results: Any) -> float:
    """The largest error relative to the largest value; `results(b, h)` are a head's."""
    return max(float(np.abs(want - got).max() / np.abs(want).max())
               for at, heads in wanted.items() for want, got in zip(heads, results(*at), strict=True))


def tflops(case: tuple[int, ...], ms: float, products: float) -> float:
    """Floating-point operations per second, a causal product being half a full one; forward 2, backward 5 products."""
    b, h, s, d = case
    return products * b * h * s * s * d / ms / 1e9


class Genesis:
    """Genesis's plans for one case."""

    def __init__(self, case: tuple[int, ...], arrays: list[np.ndarray]):
        import genesis
        self.genesis = genesis
        self.inputs = [genesis.tensor(x, device="cuda").to(genesis.bfloat16) for x in arrays]
        genesis.eval(*self.inputs)
        self.expected = expected(arrays)

    def run(self, backward: bool) -> tuple[list[Any], Any]:
        """The results and the plan that made them."""
        from genesis import engine
        genesis = self.genesis
        q, k, v = (x.detach().requires_grad_(backward) for x in self.inputs[:3])
        y = genesis.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        found = [y, *genesis.autograd.grad(y, (q, k, v), self.inputs[3])] if backward else [y]
        genesis.eval(*found)
        return found, engine.last_plan()

    def error(self, found: list[Any]) -> float:
        """The largest, in two heads, next to numpy."""
        return worst_error(self.expected, lambda b, h: [x[b, h].detach().float().cpu().numpy() for x in found])

    def times(self, plan: Any) -> dict[str, float]:
        """Milliseconds of each launch, and of all of them in a row."""
        from genesis.runtime.cuda.stream import current_stream
        stream = current_stream(0).handle
        steps = plan.executor.launches()
        found = {label: self._timed([start], stream) for label, start in steps}
        return {**found, "all": self._timed([start for _, start in steps], stream)}

    def _timed(self, starts: list[Any], stream: int) -> float:
        begin, end = (self.genesis.cuda.Event(enable_timing=True) for _ in range(2))
        for warm in (3, REPEATS):
            begin.record()
            for _ in range(warm):
                for start in starts:
                    start(stream)
            end.record()
            end.synchronize()
        return begin.elapsed_time(end) / REPEATS


def run_genesis(case: tuple[int, ...]) -> dict[str, Any]:
    """Errors and times of Genesis, in a process without torch."""
    bench = Genesis(case, operands(case))
    held, plan = bench.run(backward=False)  # the launches that are timed write to these results
    ms = bench.times(plan)["all"]
    del held
    found, both = bench.run(backward=True)
    error = bench.error(found)
    kernels = bench.times(both)
    return {"forward_ms": ms, "both_ms": kernels.pop("all"), "error": error, "kernels": kernels,
            "peak_gb": bench.genesis.cuda.max_memory_allocated() / 1e9, "torch_imported": "torch" in sys.modules}


def heads_of(results: list[Any], b: int, h: int) -> list[np.ndarray]:
    """One head of each of torch's results."""
    return [x[b, h].detach().float().cpu().numpy() for x in results]


def run_torch(case: tuple[int, ...], backend: str) -> dict[str, Any]:
    """Errors and times of one of torch's backends."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    arrays = operands(case)
    q, k, v, g = (torch.tensor(x, device="cuda").to(torch.bfloat16) for x in arrays)
    for x in (q, k, v):
        x.requires_grad_()

    def forward() -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def both() -> list[Any]:
        y = forward()
        return [y, *torch.autograd.grad(y, (q, k, v), g)]

    def timed(run: Any) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for warm in (3, REPEATS):
            begin.record()
            for _ in range(warm):
                run()
            end.record()
            end.synchronize()
        return begin.elapsed_time(end) / REPEATS

    with sdpa_kernel({"cudnn": SDPBackend.CUDNN_ATTENTION, "flash": SDPBackend.FLASH_ATTENTION}[backend]):
        error = worst_error(expected(arrays), partial(heads_of, both()))
        with torch.no_grad():
            ms = timed(forward)
        return {"forward_ms": ms, "both_ms": timed(both), "error": error,
                "peak_gb": torch.cuda.max_memory_allocated() / 1e9, "version": torch.__version__}


def use_tiles(text: str) -> None:
    """Make kernels with these tiles: "op=i,j,warps,stages;…". Plans on disk were made with others."""
    from genesis.codegen.cuda.choice_table import Key, Row, Rows
    from genesis.codegen.cuda.choices import deciding
    from genesis.codegen.cuda.templates.attention_choice import AttentionTile
    rows = [Row(Key(op, ""), AttentionTile(*map(int, numbers.split(","))).name)
            for op, _, numbers in (row.partition("=") for row in filter(None, text.split(";")))]
    CHOSEN.close()
    if rows:
        CHOSEN.enter_context(deciding(Rows(rows)))
        os.environ["GENESIS_PLAN_CACHE"] = "0"


def use_forms(text: str) -> None:
    """Take the streamed backward: with the forms of its table, or "dq=form+dkv=form", where a form is groups x rows
    that pass x stages x held tiles (x in registers x ahead x tiles of values x by role); an op that is not named keeps
    its table's."""
    from genesis.codegen.cuda.templates import streamed_attention_backward as streamed
    os.environ["GENESIS_PLAN_CACHE"] = "0"
    for row in text.split("+") if text != "table" else []:
        op, _, numbers = row.partition("=")
        rows = streamed.BACKWARD_FORMS[f"flash_attention_{op}"]
        form = streamed.BackwardForm(*map(int, numbers.split("x")))
        streamed.BACKWARD_FORMS[f"flash_attention_{op}"] = ((rows[-1][0], form),)


def sweep(case: tuple[int, ...]) -> list[dict[str, Any]]:
    """The time of every kernel with every tile of the grid that compiles, fits and gives right results."""
    from genesis import engine
    from genesis.codegen.cuda.compile import compile_sources
    from genesis.codegen.cuda.emit import emit
    from genesis.engine.backends import gpu_at_hand
    from genesis.runtime.cuda.kernel_cache import KernelCache
    bench = Genesis(case, operands(case))
    _, plan = bench.run(backward=True)
    groups = [group for group in plan.schedule.groups if group.kind.startswith("attention")]
    gpu = gpu_at_hand(0)
    labels = {next(n.op.name for n in group.nodes if n.op.name.startswith("flash")): emit(group, gpu).label
              for group in groups}
    rows, sources = [], []
    for (op, label), *numbers in itertools.product(labels.items(), *SWEPT.values()):
        tile = f"{op}={','.join(map(str, numbers))}"
        use_tiles(tile)
        group = next(g for g in groups if emit(g, gpu).label == label)
        rows.append((op, label, tile))
        sources.append(emit(group, gpu))

    def compiles(source: Any) -> bool:
        try:
            compile_sources([source], KernelCache(), gpu)
        except RuntimeError:
            return False
        return True

    with ThreadPoolExecutor(16) as threads:
        fine = list(threads.map(compiles, sources))
    found = []
    for (op, label, tile), works in zip(rows, fine, strict=True):
        if not works:
            continue
        use_tiles(tile)
        engine.reset()
        try:
            results, plan = bench.run(backward=True)
            ms = bench.times(plan)[label]
        except Exception as error:  # too much shared memory for the device is found when it is loaded
            print(f"{tile}: {type(error).__name__} {str(error).splitlines()[0][:100]}", file=sys.stderr)
            continue
        error = bench.error(results)
        if error <= TOLERANCE:
            found.append({"op": op, "tile": tile, "ms": ms})
        else:
            print(f"{tile}: wrong by {error:.1e}", file=sys.stderr)
    return sorted(found, key=lambda row: (row["op"], row["ms"]))


def contestants() -> list[str]:
    """Genesis, and torch's backends where torch is installed."""
    return ["genesis", *(["torch-cudnn", "torch-flash"] if importlib.util.find_spec("torch") else [])]


def measure(name: str, case: tuple[int, ...]) -> Any:
    """What one contestant's process does."""
    if name == "sweep":
        return sweep(case)
    if name.startswith(STREAMED):
        use_forms(name.removeprefix(STREAMED))
        return run_genesis(case)
    return run_genesis(case) if name == "genesis" else run_torch(case, name.removeprefix("torch-"))


def in_own_process(name: str, case: str, tiles: str) -> Any:
    """A contestant's results, None when it failed."""
    done = subprocess.run([sys.executable, __file__, "--measure", name, "--cases", case, "--tiles", tiles,
                           *([] if genesis.config.streamed_attention else ["--not-streamed"])],
                          capture_output=True, text=True)
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        print(f"{name} {case} failed:\n{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
        return None
    return json.loads(line.removeprefix("RESULT "))


def print_case(case: str, results: dict[str, Any]) -> None:
    """A table row a contestant; ratios are Genesis's time over the other's."""
    sizes = tuple(map(int, case.split("x")))
    mine = results.get("genesis")
    print(f"\ncausal bf16 attention {case} (batch, heads, length, head size)")
    print(f"{'':34}{'fwd ms':>9}{'TFLOP/s':>9}{'ratio':>7}{'fwd+bwd ms':>12}{'TFLOP/s':>9}{'ratio':>7}"
          f"{'error':>9}{'GB':>7}")
    for name, r in results.items():
        r["forward_tflops"] = tflops(sizes, r["forward_ms"], 2)
        r["both_tflops"] = tflops(sizes, r["both_ms"], 7)
        ratios = [mine[key] / r[key] if mine else 0.0 for key in ("forward_ms", "both_ms")]
        print(f"{name:34}{r['forward_ms']:9.3f}{r['forward_tflops']:9.0f}{ratios[0]:7.2f}{r['both_ms']:12.3f}"
              f"{r['both_tflops']:9.0f}{ratios[1]:7.2f}{r['error']:9.1e}{r['peak_gb']:7.2f}"
              + ("" if r["error"] <= TOLERANCE else "  WRONG"))
    for name, r in results.items():
        for label, ms in r.get("kernels", {}).items():
            print(f"    {name:14} {label:24}{ms:8.3f} ms")


def main() -> int:
    """Run the contestants on each case, print tables."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", default=CASES, help="batch x heads x length x head size, comma-separated")
    parser.add_argument("--only", help="contestants, comma-separated")
    parser.add_argument("--tiles", default="", help='"op=i,j,warps,stages;…"')
    parser.add_argument("--not-streamed", action="store_true",
                        help="without the forward whose blocks the copy engine moves")
    parser.add_argument("--forms", nargs="*", default=[], metavar="FORM",
                        help='of the streamed backward: "table", or "dq=2x128x3x2x0x1+dkv=2x64x4x2x1x1"')
    parser.add_argument("--sweep", action="store_true", help="time a grid of tiles instead")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    record.add_out(parser)
    args = parser.parse_args()
    genesis.config.streamed_attention = not args.not_streamed
    use_tiles(args.tiles)
    if args.measure:
        print("RESULT " + json.dumps(measure(args.measure, tuple(map(int, args.cases.split("x"))))))
        return 0
    found: dict[str, Any] = {}
    wrong = False
    for case in args.cases.split(","):
        if args.sweep:
            found[case] = in_own_process("sweep", case, args.tiles) or []
            print(f"\n{case}: the five fastest tiles of each kernel (i, j, warps, stages)")
            for _, rows in itertools.groupby(found[case], key=lambda row: row["op"]):
                for row in itertools.islice(rows, 5):
                    print(f"    {row['tile']:44}{row['ms']:9.3f} ms", flush=True)
            continue
        names = args.only.split(",") if args.only else contestants()
        names += [STREAMED + form for form in args.forms]
        results = {name: r for name in names if (r := in_own_process(name, case, args.tiles)) is not None}
        print_case(case, results)
        wrong |= len(results) < len(names) or any(r["error"] > TOLERANCE for r in results.values())
        found[case] = results
    if args.out:
        record.write(args.out, "attention_sweep" if args.sweep else "attention", results=found)
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
