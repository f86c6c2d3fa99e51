"""A language model's loss head, linear + cross-entropy forward and backward, beside torch.compile in one process.

Loss and gradients are compared before anything is timed: a norm and a few rows of each. A time is the median over
rounds of many steps without waiting in between, by CUDA events. Memory is the most that was allocated during these,
with the inputs and without; "plan" is what Genesis' plan asks for beside inputs and results.

    python benchmarks/loss_head.py --out                      # 8192 rows, 768 wide, 50304 classes
    python benchmarks/loss_head.py --case autocast            # float32 parameters, products in bfloat16
    python benchmarks/loss_head.py --chunk-mib 0,64,128,256   # other chunks (0: whole logits), to choose the default
"""

from __future__ import annotations

import argparse
import gc
import sys
from collections.abc import Callable
from statistics import median
from typing import Any

import numpy as np
import record

ROUNDS, STEPS = 5, 20
TOLERANCE = 2e-2
"""Of the largest value: bfloat16 logits are rounded to 8 bits on both sides, and so are gradients."""

Step = Callable[[], tuple[Any, Any, Any]]
"""A step: the loss, and the gradients of the hidden states and of the weight."""


def inputs(rows: int, width: int, classes: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Hidden states, the weight and class numbers; logits are about standard normal."""
    rng = np.random.default_rng(0)
    x = rng.standard_normal((rows, width), dtype=np.float32)
    weight = rng.standard_normal((classes, width), dtype=np.float32) * np.float32(width ** -0.5)
    return x, weight, rng.integers(0, classes, rows)


def genesis_step(arrays: tuple[np.ndarray, ...], autocast: bool) -> Step:
    """The step as a user of Genesis writes it."""
    import genesis
    import genesis.nn.functional as F
    dtype = genesis.float32 if autocast else genesis.bfloat16
    x, weight = (genesis.tensor(each, device="cuda").to(dtype).detach().requires_grad_() for each in arrays[:2])
    targets = genesis.tensor(arrays[2], device="cuda")
    genesis.eval(x, weight, targets)

    def step() -> tuple[Any, Any, Any]:
        with genesis.autocast("cuda", dtype=genesis.bfloat16, enabled=autocast):
            loss = F.cross_entropy(F.linear(x, weight), targets)
        found = (loss, *genesis.autograd.grad(loss, (x, weight)))
        genesis.eval(*found)
        return found

    return step


def torch_step(arrays: tuple[np.ndarray, ...], autocast: bool) -> Step:
    """The same step, compiled by torch."""
    import torch
    import torch.nn.functional as F
    dtype = torch.float32 if autocast else torch.bfloat16
    x, weight = (torch.tensor(each).cuda().to(dtype).requires_grad_() for each in arrays[:2])
    targets = torch.tensor(arrays[2]).cuda()

    @torch.compile
    def loss_of(x: Any, weight: Any, targets: Any) -> Any:
        return F.cross_entropy(F.linear(x, weight), targets)

    def step() -> tuple[Any, Any, Any]:
        with torch.autocast("cuda", dtype=torch.bfloat16, enabled=autocast):
            loss = loss_of(x, weight, targets)
        return (loss, *torch.autograd.grad(loss, (x, weight)))

    return step


def seen(found: tuple[Any, ...]) -> list[np.ndarray]:
    """What is compared: the loss, and of each gradient its first and last rows and its norm."""
    values = [np.asarray(found[0].detach().float().cpu().numpy())]
    for gradient in found[1:]:
        wide = gradient.detach().float()
        values += [part.cpu().numpy() for part in (wide[:64], wide[-64:], (wide * wide).sum().sqrt())]
    return values


def measured(cuda: Any, step: Step, held: int) -> dict[str, Any]:
    """Milliseconds a step and the most bytes allocated, with what is compared."""
    values = seen(step())
    gc.collect()
    cuda.synchronize()
    cuda.empty_cache()
    cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
    times = []
    for _ in range(ROUNDS):
        begin.record()
        for _ in range(STEPS):
            step()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / STEPS)
    peak = cuda.max_memory_allocated()
    return {"ms": median(times), "peak_mb": peak / 1e6, "above_inputs_mb": (peak - held) / 1e6, "values": values}


def worst_error(wanted: list[np.ndarray], found: list[np.ndarray]) -> float:
    """The largest error relative to the largest value."""
    return max(float(np.abs(a - b).max() / np.abs(a).max()) for a, b in zip(wanted, found, strict=True))


def compare(arrays: tuple[np.ndarray, ...], autocast: bool, limits: list[int | None]) -> dict[str, dict[str, Any]]:
    """A row of torch.compile and one of Genesis for each limit of bytes; None is the default."""
    import torch

    import genesis
    from genesis import engine
    from genesis.passes.graph import chunk_loss
    held = sum(x.size * (4 if autocast else 2) for x in arrays[:2]) + arrays[2].nbytes
    rows = {"torch.compile": measured(torch.cuda, torch_step(arrays, autocast), held)}
    gc.collect()
    torch.cuda.empty_cache()
    for limit in limits:
        if limit is not None:
            genesis.config.loss_chunk_bytes, chunk_loss.FEWEST_ROWS = limit, 1
        step = genesis_step(arrays, autocast)
        name = "genesis" if limit is None else f"genesis, chunks of {limit >> 20} MiB" if limit else "genesis, whole"
        row = rows[name] = measured(genesis.cuda, step, held)
        plan = engine.last_plan()
        if plan is not None:
            row["plan_mb"], row["launches"] = plan.plan.arena_bytes / 1e6, len(plan.plan.steps)
        del step
        gc.collect()
        engine.reset()
        genesis.cuda.empty_cache()
    wanted = rows["torch.compile"]["values"]
    for row in rows.values():
        row["error"] = worst_error(wanted, row.pop("values"))
    return rows


def print_rows(case: str, rows: dict[str, dict[str, Any]]) -> None:
    """A table; ratios are torch.compile's time over a row's, and a row's memory over torch.compile's."""
    theirs = rows["torch.compile"]
    print(f"\n{case}\n{'':28}{'ms':>8}{'ratio':>7}{'peak MB':>9}{'of it':>7}{'above inputs':>14}{'of it':>7}{'plan':>8}"
          f"{'launches':>10}{'error':>9}")
    for name, row in rows.items():
        print(f"{name:28}{row['ms']:8.3f}{theirs['ms'] / row['ms']:7.2f}{row['peak_mb']:9.0f}"
              f"{row['peak_mb'] / theirs['peak_mb']:7.2f}{row['above_inputs_mb']:14.0f}"
              f"{row['above_inputs_mb'] / theirs['above_inputs_mb']:7.2f}{row.get('plan_mb', 0):8.0f}"
              f"{row.get('launches', 0):10}{row['error']:9.1e}" + ("" if row["error"] <= TOLERANCE else "  WRONG"))


def main() -> int:
    """Measure, print, and fail where results differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", type=int, default=8192)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--classes", type=int, default=50304)
    parser.add_argument("--case", choices=("bf16", "autocast"), default="bf16", help="dtype of the parameters")
    parser.add_argument("--chunk-mib", help="limits of a chunk's logits in MiB, comma-separated; 0 is no limit")
    record.add_out(parser)
    args = parser.parse_args()
    arrays = inputs(args.rows, args.width, args.classes)
    limits: list[int | None] = [int(x) << 20 for x in args.chunk_mib.split(",")] if args.chunk_mib else [None, 0]
    rows = compare(arrays, args.case == "autocast", limits)
    print_rows(f"linear + cross-entropy {args.rows} x {args.width} x {args.classes}, {args.case}, forward and backward",
               rows)
    if args.out:
        record.write(args.out, "loss_head", case=args.case, shape=[args.rows, args.width, args.classes], results=rows)
    return int(any(row["error"] > TOLERANCE for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
