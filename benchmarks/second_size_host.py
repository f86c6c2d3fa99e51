"""What another batch size costs the host: a training step of GPT-2 124M on a GPU that does nothing (`idle_gpu.py`).

    python benchmarks/second_size_host.py [--layers 12] [--out]

The step is compiled at one batch size; then come sizes that fit into the memory planned for it ("smaller") and sizes
for which memory is planned anew ("larger"). Of each the first call binds the plan and launches its kernels one by
one, the second builds the CUDA graph, later ones replay it. A row is a stage of a call: milliseconds of its own,
without the stages inside it, the least over the sizes. The bar is for the first call beyond a replay, which records
the step too: 20 ms.

There is no GPU here, so these are times of the host's own work only, as processor time of the calling thread: what
CUDA's calls and the kernels take is not in them, and cuda-python's objects are plain ones.
"""

from __future__ import annotations

import argparse
import gc
import importlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from time import thread_time
from typing import Any, Final

import numpy as np
import record
from gpu_rounds import step_of
from idle_gpu import idle_gpu

import genesis
from genesis import engine
from genesis.models import GPT, GPTConfig

BAR: Final = 20.0
VOCAB, CONTEXT, DIM, HEADS = 50304, 1024, 768, 12
FIRST: Final = 24
SIZES: Final = {"smaller": (23, 22, 21, 20, 19, 18), "larger": (25, 26, 27, 28, 29, 30)}
"""Batch sizes after the first, of its class."""

USES: Final = ("first call", "second call", "replay")
REPLAYS: Final = 4

STAGES: Final = {
    "walk": "genesis.engine.preparation:walk",
    "capture": "genesis.engine.preparation:capture",
    "what to keep": "genesis.engine.flushing:prepare",
    "shape-erased key": "genesis.engine.plans:shape_erased_key",
    "template look-up": "genesis.engine.plans:find",
    "sizes' formulas": "genesis.runtime.plan_form:PlanForm.evaluate",
    "guards": "genesis.runtime.plan_form:PlanForm.fits",
    "memory plan": "genesis.engine.symbolic.filling:ArenaRequests.planned",
    "filling in": "genesis.runtime.plan_form:PlanForm.fill",
    "executor": "genesis.engine.plans:ready",
    "memory of outputs": "genesis.runtime.cuda.executor:_PlanOnStream._replace_held_outputs",
    "binding": "genesis.runtime.cuda.bound_plan:BoundPlan.__init__",
    "moved memory": "genesis.runtime.cuda.bound_plan:BoundPlan.move",
    "launches": "genesis.runtime.cuda.bound_plan:BoundPlan.launch_each",
    "graph's edges": "genesis.runtime.plan_edges:edges_of",
    "graph": "genesis.runtime.cuda.cuda_python_driver:CudaDriver.build_graph",
    "settling": "genesis.engine.flushing:run",
    "flush": "genesis.frontend.engine_protocol:engine.flush",
}
"""Stage → "module:function". What is in none of them is recording."""


class Stopwatch:
    """Time spent in functions, each without the others that it calls.

    Attributes:
        spent: stage → milliseconds since `start`.
    """

    def __init__(self) -> None:
        self.spent: dict[str, float] = {}
        self._inside: list[float] = []
        self._kept: Any = None

    @contextmanager
    def on(self, stages: dict[str, str]) -> Iterator[None]:
        """Inside, these functions are timed."""
        kept = []
        for stage, where in stages.items():
            module, _, name = where.partition(":")
            owner: Any = importlib.import_module(module)
            *path, last = name.split(".")
            for part in path:
                owner = getattr(owner, part)
            kept.append((owner, last, getattr(owner, last)))
            setattr(owner, last, self._timed(stage, kept[-1][2]))
        try:
            yield
        finally:
            for owner, name, function in kept:
                setattr(owner, name, function)

    def _timed(self, stage: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*args: Any, **more: Any) -> Any:
            self._inside.append(0.0)
            start = thread_time()
            try:
                return function(*args, **more)
            finally:
                took = thread_time() - start
                self.spent[stage] = self.spent.get(stage, 0.0) + (took - self._inside.pop()) * 1e3
                if self._inside:
                    self._inside[-1] += took
        return timed

    def time(self, call: Callable[[], Any]) -> dict[str, float]:
        """Milliseconds of a call, by stage; "all" is the whole. The result is held until the next call, as a loop's
        loss is."""
        self.spent = {}
        start = thread_time()
        self._kept = call()
        whole = (thread_time() - start) * 1e3
        return {"all": whole, "recording": whole - sum(self.spent.values()), **self.spent}


def training_step(layers: int) -> Callable[[int], Callable[[], Any]]:
    """Batch size → a training step at that size."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(VOCAB, CONTEXT, layers, HEADS, DIM)).to("cuda")
    genesis.eval(*model.parameters())
    optimizer = genesis.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1)
    step = step_of(genesis, model, optimizer)

    def at(size: int) -> Callable[[], Any]:
        tokens = np.zeros((size, CONTEXT + 1), np.int64)
        x, y = (genesis.tensor(part, device="cuda") for part in (tokens[:, :-1], tokens[:, 1:]))
        return lambda: step(x, y)
    return at


def measure(layers: int) -> dict[str, Any]:
    """Stages of the calls, by kind of size and use; the compiled plan's; and where each size's plan comes from."""
    found: dict[str, Any] = {"origins": {}}
    watch = Stopwatch()
    with idle_gpu(), watch.on(STAGES):
        at = training_step(layers)
        step = at(FIRST)
        found["compiled"] = {use: watch.time(step) for use in ("first call", "second call")}
        found["launches"] = len(last_plan().plan.steps)
        for kind, sizes in SIZES.items():
            calls: dict[str, list[dict[str, float]]] = {use: [] for use in USES}
            for size in sizes:
                step = at(size)
                gc.collect()  # a full collection comes when it likes, and takes longer than all of this
                times = [watch.time(step) for _ in range(2 + REPLAYS)]
                found["origins"][size] = last_plan().origin
                if last_plan().origin == "other size":
                    for use, row in zip((*USES, *[USES[-1]] * (REPLAYS - 1)), times, strict=True):
                        calls[use].append(row)
            found[kind] = {use: least(rows) for use, rows in calls.items()}
    return found


def last_plan() -> Any:
    """What ran last."""
    found = engine.last_plan()
    assert found is not None
    return found


def least(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    """The smallest number of each stage."""
    return {stage: round(min(row.get(stage, 0.0) for row in rows), 3) for stage in dict.fromkeys(
        stage for row in rows for stage in row)}


def table(found: dict[str, Any]) -> str:
    """The rows as text."""
    columns = [(kind, use) for kind in SIZES for use in USES]
    stages = ["all", "recording", *STAGES]
    lines = [f"{'ms':20}" + "".join(f"{f'{kind}, {use}':>22}" for kind, use in columns)]
    for stage in stages:
        row = [found[kind][use].get(stage, 0.0) for kind, use in columns]
        if any(row):
            lines.append(f"{stage:20}" + "".join(f"{ms:22.2f}" if ms >= 0.005 else f"{'':22}" for ms in row))
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write with --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    record.add_out(parser)
    options = parser.parse_args()
    found = measure(options.layers)
    print(table(found))
    for kind in SIZES:
        if "all" not in found[kind]["replay"]:
            print(f"no {kind} size had a plan that was there: {found['origins']}")
            continue
        beyond = {use: round(found[kind][use]["all"] - found[kind]["replay"]["all"], 2) for use in USES[:2]}
        found[kind]["beyond a replay"] = beyond
        print(f"a {kind} size costs {beyond['first call']} ms at its first call and {beyond['second call']} ms at its "
              f"second; the bar is {BAR:.0f} ms")
    if options.out is not None:
        record.write(options.out, "second_size_host", note="host time only: no GPU, CUDA's calls answer at once",
                     layers=options.layers, first_size=FIRST, milliseconds=found)


if __name__ == "__main__":
    main()
