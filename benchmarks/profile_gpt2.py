"""Where the time of Genesis's GPT-2 124M step goes: every launch timed alone, summed by kernel.

    python benchmarks/profile_gpt2.py --out
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from typing import Any

import record
from gpt2_step import BETAS, CONTEXT, DECAY, DIM, HEADS, LAYERS, LR, VOCAB, batches

import genesis
from genesis.engine import last_plan
from genesis.models import GPT, GPTConfig
from genesis.runtime.cuda.stream import current_stream


def main() -> None:
    """Train three steps, then time the last plan's launches one by one."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batch", type=int, default=16)
    record.add_out(parser)
    args = parser.parse_args()
    genesis.manual_seed(0)
    model = GPT(GPTConfig(VOCAB, CONTEXT, LAYERS, HEADS, DIM)).to("cuda")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)
    x, y = (genesis.tensor(part, device="cuda") for part in batches(1, args.batch, 1)[0])
    host: dict[str, float] = {}
    for _ in range(5):
        start = time.perf_counter()
        with genesis.autocast("cuda", dtype=genesis.bfloat16):
            loss = model(x, y)[1]  # logits that are kept would be computed anew at the end
        host["forward"] = time.perf_counter() - start
        optimizer.zero_grad()
        loss.backward()
        host["backward"] = time.perf_counter() - start
        optimizer.step()
        host["step"] = time.perf_counter() - start
        genesis.cuda.synchronize()
        host["done"] = time.perf_counter() - start
    print("host ms until after", {name: round(s * 1e3, 2) for name, s in host.items()})
    plan = last_plan()
    assert plan is not None
    stream = current_stream(0).handle
    spent: dict[str, list[float]] = defaultdict(list)
    begin, end = genesis.cuda.Event(enable_timing=True), genesis.cuda.Event(enable_timing=True)
    for _ in range(2):
        spent.clear()
        for (label, start_step), step in zip(plan.executor.launches(), plan.plan.steps, strict=False):
            begin.record()
            start_step(stream)
            end.record()
            end.synchronize()
            spent[f"{label} {_shape(step)}"].append(begin.elapsed_time(end))
    rows = sorted(spent.items(), key=lambda row: -sum(row[1]))
    print(f"sum of launches {sum(map(sum, spent.values())):.1f} ms, {sum(map(len, spent.values()))} launches")
    for label, times in rows[:45]:
        print(f"{sum(times):8.2f} ms {len(times):4d} x {sum(times) / len(times) * 1e3:8.1f} us  {label}")
    if args.out:
        record.write(args.out, "profile_gpt2",
                     launches={label: {"ms": sum(times), "count": len(times)} for label, times in rows})


def _shape(step: Any) -> str:
    """Types of what a launch reads and writes, largest first."""
    places = [a.type for a in getattr(step, "args", (getattr(step, "source", None),)) if hasattr(a, "where")]
    return " ".join(str(t).replace("@cuda:0", "") for t in sorted(set(places), key=lambda t: -t.nbytes)[:3])


if __name__ == "__main__":
    main()
