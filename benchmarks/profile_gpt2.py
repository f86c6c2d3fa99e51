"""Where the time of Genesis's GPT-2 124M step goes: every launch timed alone, summed by kernel.

    python benchmarks/profile_gpt2.py --out
"""

from __future__ import annotations

import argparse
import time

import record
from gpt2_step import BETAS, CONTEXT, DECAY, DIM, HEADS, LAYERS, LR, VOCAB, batches
from launches import timed_launches

import genesis
from genesis.models import GPT, GPTConfig


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
    rows = timed_launches()
    total, count = (sum(row[key] for row in rows.values()) for key in ("ms", "count"))
    print(f"sum of launches {total:.1f} ms, {count} launches")
    for label, row in list(rows.items())[:45]:
        print(f"{row['ms']:8.2f} ms {row['count']:4d} x {row['ms'] / row['count'] * 1e3:8.1f} us  {label}")
    if args.out:
        record.write(args.out, "profile_gpt2", launches=rows)


if __name__ == "__main__":
    main()
