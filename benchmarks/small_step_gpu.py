"""A GPT step at batch 1 on a GPU, bf16 compute, plain and compiled, with and without clipping; launches, first steps.

    python benchmarks/small_step_gpu.py [--device cuda] [--layers 12] [--dim 768] [--context 1024] [--out]

Milliseconds a step, the least of several rounds of 20 steps that are waited for together. The bars: 6 ms for a plain
step of twelve layers, and two launches more with clipping by the norm. `--device cpu` tries the script anywhere.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import perf_counter
from typing import Any

import record

import genesis
from genesis.engine import last_plan
from genesis.models.gpt import GPT, GPTConfig
from genesis.runtime.plan import Call, Launch

BARS = {"plain": 6e-3}
CLIPS: dict[str, Callable[[Any], Any]] = {
    "": lambda parameters: None,
    ", clipped by the norm": lambda parameters: genesis.nn.utils.clip_grad_norm_(parameters, 1.0),
    ", clipped by value": lambda parameters: genesis.nn.utils.clip_grad_value_(parameters, 1.0)}


def step_of(args: argparse.Namespace, clip: Callable[[Any], Any]) -> Callable[[], Any]:
    """A training step over one sequence."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(50304, args.context, args.layers, 12, args.dim)).to(args.device)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-4)
    held = list(model.parameters())
    ids = genesis.randint(0, 50304, (1, args.context), device=args.device)
    genesis.eval(ids)

    def step() -> Any:
        optimizer.zero_grad()
        with genesis.autocast(args.device, dtype=genesis.bfloat16):
            _, loss = model(ids, ids)
        loss.backward()
        clip(held)
        optimizer.step()
        return loss
    return step


def measured(step: Callable[[], Any], rounds: int, calls: int) -> tuple[float, float]:
    """(seconds of the first step, of a later one)."""
    start = perf_counter()
    step().item()
    first, least = perf_counter() - start, float("inf")
    for _ in range(3):
        step().item()
    for _ in range(rounds):
        start = perf_counter()
        for _ in range(calls):
            loss = step()
        loss.item()
        least = min(least, (perf_counter() - start) / calls)
    return first, least


def main() -> None:
    """Time all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda")
    for name, default in (("layers", 12), ("dim", 768), ("context", 1024), ("rounds", 5), ("calls", 20)):
        parser.add_argument(f"--{name}", type=int, default=default)
    record.add_out(parser)
    args = parser.parse_args()
    rows = []
    for words, clip in CLIPS.items():
        for way, wrap in (("plain", lambda f: f), ("compiled", genesis.compile)):
            step = step_of(args, clip)
            first, later = measured(wrap(step), args.rounds, args.calls)
            step()
            plan = last_plan()
            assert plan is not None
            launches = sum(isinstance(s, (Launch, Call)) for s in plan.plan.steps)
            rows.append({"name": way + words, "first": first, "step": later, "launches": launches})
            print(f"{way + words:34}{later * 1e3:8.2f} ms   first step {first:6.2f} s   {launches} launches")
    if args.out:
        record.write(args.out, "small_step_gpu", bars=BARS, rows=rows)


if __name__ == "__main__":
    main()
