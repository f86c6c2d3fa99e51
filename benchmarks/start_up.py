"""What starting costs: the first step of GPT-2 124M, cold and warm, and the first steps at other batch sizes.

Each process starts from nothing; cold is with an empty cache, warm is the same script again. A phase is the time
since the phase before it, in milliseconds; "beyond the context" is the sum without that of the CUDA context. A batch
size is `first` the first time that a process sees it, against the median of later steps: the difference is what the
size costs. Losses of the warm run must be those of the cold run, bit for bit.

    python benchmarks/start_up.py --out
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from statistics import median
from typing import Any

import record

VOCAB, CONTEXT, DIM, HEADS = 50304, 1024, 768, 12
AGAIN = 5


def measure(args: argparse.Namespace) -> dict[str, Any]:
    """Everything in one process."""
    phases: dict[str, float] = {}
    last = float(os.environ["STARTED"])

    def phase(name: str) -> None:
        nonlocal last
        now = time.time()
        phases[name] = (now - last) * 1e3
        last = now

    phase("interpreter")
    import numpy as np
    phase("numpy")
    import genesis
    from genesis import engine
    phase("import genesis")
    from genesis.runtime.cuda_driver import driver
    driver().use(0)
    driver().synchronize()
    phase("context")
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(0)
    model = GPT(GPTConfig(VOCAB, CONTEXT, args.layers, HEADS, DIM)).to("cuda")
    genesis.eval(*model.parameters())
    genesis.cuda.synchronize()
    phase("parameters")
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    genesis.cuda.synchronize()
    phase("optimizer")
    rng = np.random.default_rng(0)

    def batch(size: int, length: int) -> tuple[Any, Any]:
        tokens = rng.integers(0, VOCAB, (size, length + 1))
        return tuple(genesis.tensor(x, device="cuda") for x in (tokens[:, :-1], tokens[:, 1:]))  # type: ignore[return-value]

    def step(x: Any, y: Any) -> Any:
        with genesis.autocast("cuda", dtype=genesis.bfloat16):
            _, loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    def evaluate(x: Any, y: Any) -> Any:
        with genesis.no_grad(), genesis.autocast("cuda", dtype=genesis.bfloat16):
            return model(x, y)[1]

    first = batch(args.batch, CONTEXT)
    genesis.cuda.synchronize()
    phase("batch")
    losses = [step(*first).item()]
    phase("first step")
    made = engine.last_plan()
    assert made is not None
    found: dict[str, Any] = {"phases": phases, "origin": made.origin, "plan_s": made.seconds,
                             "launches": len(made.plan.steps), "triton": "triton" in sys.modules,
                             "passes": "genesis.passes.fuse" in sys.modules, "torch": "torch" in sys.modules}
    found["again_ms"] = _times(lambda: step(*first).item())
    sizes = {}
    for kind, run in (("step", step), ("evaluation", evaluate)):
        if kind == "evaluation":
            run(*first).item()
        for size, length in [(int(b), CONTEXT) for b in args.sizes.split(",")] + [(args.batch, CONTEXT // 2)]:
            data = batch(size, length)
            genesis.cuda.synchronize()
            start = time.perf_counter()
            losses.append(run(*data).item())
            took = (time.perf_counter() - start) * 1e3
            made = engine.last_plan()
            assert made is not None
            later = _times(lambda run=run, data=data: run(*data).item())  # type: ignore[misc]
            sizes[f"{kind} {size}x{length}"] = {"first_ms": took, "later_ms": later, "costs_ms": took - later[-1],
                                               "plan_ms": made.seconds * 1e3, "origin": made.origin}
    return {**found, "sizes": sizes, "losses": losses}


def _times(run: Callable[[], Any]) -> list[float]:
    found = []
    for _ in range(AGAIN):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e3)
    return [*found[:2], median(found[2:])]


def run_once(args: argparse.Namespace, cache: str) -> dict[str, Any]:
    """One process."""
    command = [sys.executable, __file__, "--only", "--batch", str(args.batch), "--layers", str(args.layers),
               "--sizes", args.sizes]
    done = subprocess.run(command, capture_output=True, text=True,
                          env={**os.environ, "GENESIS_CACHE_DIR": cache, "STARTED": repr(time.time())})
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    return json.loads(line.removeprefix("RESULT "))


def show(name: str, result: dict[str, Any]) -> None:
    """One process as a few lines."""
    phases = result["phases"]
    beyond = sum(phases.values()) - phases["context"]
    print(f"\n{name}: {beyond / 1e3:.2f} s beyond the context; plan {result['origin']} in {result['plan_s']:.2f} s, "
          f"{result['launches']} launches; imported triton {result['triton']}, passes {result['passes']}")
    print("  " + ", ".join(f"{phase} {ms:.0f}" for phase, ms in phases.items()))
    print("  the same step again: " + ", ".join(f"{ms:.1f}" for ms in result["again_ms"]) + " ms")
    for size, row in result["sizes"].items():
        print(f"  {size:20} first {row['first_ms']:7.1f}  later {row['later_ms'][-1]:6.1f}"
              f"  costs {row['costs_ms']:7.1f}  plan {row['plan_ms']:7.1f} ms  {row['origin']}")


def main() -> None:
    """Cold, then warm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", action="store_true")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sizes", default="8,12,15,16,24,32")
    record.add_out(parser)
    args = parser.parse_args()
    if args.only:
        print("RESULT " + json.dumps(measure(args)))
        return
    with tempfile.TemporaryDirectory() as cache:
        results = {name: run_once(args, cache) for name in ("cold", "warm")}
        kept = [os.path.getsize(os.path.join(cache, name)) for name in os.listdir(cache)]
    for name, result in results.items():
        show(name, result)
    same = results["cold"]["losses"] == results["warm"]["losses"]
    print(f"\nthe same losses, bit for bit: {same}; the cache has {len(kept)} entries, {sum(kept) / 1e6:.1f} MB")
    if args.out:
        record.write(args.out, "start_up", same_losses=same, **results)


if __name__ == "__main__":
    main()
