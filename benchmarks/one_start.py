"""The training script whose start `start_up.py` measures, in a process of its own.

It imports what a user's script would: all that it imports counts. Prints what it found as a line of JSON.

    STARTED=$(date +%s.%N) python one_start.py '{"device": "cuda", "batch": 16, "layers": 12, "sizes": "8,12"}'
"""

from __future__ import annotations

import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import SimpleNamespace
    from typing import Any

VOCAB, CONTEXT, DIM, HEADS = 50304, 1024, 768, 12
AGAIN = 5


def measure(options: SimpleNamespace) -> dict[str, Any]:
    """Everything, phase by phase."""
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
    from genesis.runtime.cuda import cuda_python_driver
    if options.device == "idle":
        from idle_gpu import IdleDriver
        cuda_python_driver.install(IdleDriver())
    driver = cuda_python_driver.driver
    driver().use(0)
    driver().synchronize()
    phase("context")
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(0)
    model = GPT(GPTConfig(VOCAB, CONTEXT, options.layers, HEADS, DIM)).to("cuda")
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

    first = batch(options.batch, CONTEXT)
    genesis.cuda.synchronize()
    phase("batch")
    losses = [step(*first).item()]
    phase("first step")
    made = engine.last_plan()
    assert made is not None
    kept = [path for module in list(sys.modules.values()) if (path := getattr(module, "__cached__", None))]
    found: dict[str, Any] = {"phases": phases, "origin": made.origin, "plan_s": made.seconds,
                             "launches": len(made.plan.steps), "triton": "triton" in sys.modules,
                             "passes": "genesis.passes.fusion.fuse" in sys.modules, "torch": "torch" in sys.modules,
                             "modules": len(kept), "bytecode": sum(map(os.path.exists, kept))}
    found["again_ms"] = _times(lambda: step(*first).item())
    sizes = {}
    for kind, run in (("step", step), ("evaluation", evaluate)):
        if kind == "evaluation":
            run(*first).item()
        for size, length in [(int(b), CONTEXT) for b in options.sizes.split(",")] + [(options.batch, CONTEXT // 2)]:
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
    from statistics import median
    found = []
    for _ in range(AGAIN):
        start = time.perf_counter()
        run()
        found.append((time.perf_counter() - start) * 1e3)
    return [*found[:2], median(found[2:])]


def main() -> None:
    """Measure what the options say, and print it."""
    from json import dumps, loads
    from types import SimpleNamespace
    print("RESULT " + dumps(measure(SimpleNamespace(**loads(sys.argv[1])))))


if __name__ == "__main__":
    main()
