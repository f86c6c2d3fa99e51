"""Sizes in a process that finds its plans on disk: what a value costs there, and whether its memory is planned for it.

    python benchmarks/sizes_from_disk.py [--steps 40] [--loop lengths]

Three processes run loops of `sizes.py` on a GPU that does nothing (`idle_gpu.py`): the first one writes templates to a
cache of its own; the second draws other values and finds the plans there; the third draws the same values as the
second and compiles. A plan is "from disk" where its template was read for it, the first of a class, and "filled in"
where another value had been there. Times are processor time of finding a plan, for 100 launches (bar: 2 ms a new
value). "memory" counts the values of which the second process plans the bytes of scratch memory that the third plans,
and whose steps have the same peak of the pool's memory.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from statistics import median
from typing import Any, Final

from idle_gpu import IdleBackend, idle_gpu
from sizes import LOOPS

import genesis
from genesis.codegen.cuda.compile import key_of
from genesis.engine import plans
from genesis.runtime.cuda.kernel_cache import KernelCache
from genesis.runtime.plan import KernelImage

ROLES: Final = {"written": (0, True), "read": (1, True), "compiled": (1, False)}
"""Process → the seed of its values, and whether it has the disk."""


def keep_kernels() -> None:
    """Let the idle GPU's kernels be on disk, as a plan there names its own: their text, without a binary."""
    make = IdleBackend.compile

    def compiled(backend: IdleBackend, sources: Sequence[Any]) -> list[KernelImage]:
        store, images = KernelCache(), []
        for source, image in zip(sources, make(backend, sources), strict=True):
            key = key_of(source, backend.gpu)
            if store.get(key) is None:
                store.put(key, b"", {"name": image.name, "num_warps": image.num_warps, "shared_bytes": 0,
                                     "source": image.source})
            images.append(replace(image, entry=store.name(key)))
        return images
    IdleBackend.compile = compiled  # type: ignore[method-assign]


def told(name: str, steps: int, seed: int) -> list[dict[str, Any]]:
    """Of each step: its plans' origins, launches, milliseconds and scratch bytes, and the peak of memory."""
    genesis.manual_seed(0)
    found: list[dict[str, Any]] = []
    seen: list[tuple[str, int, float, int]] = []
    find = plans.find

    def timed(*given: Any) -> Any:
        start = time.process_time()
        plan = find(*given)
        seen.append((plan.origin, len(plan.plan.steps), 1e3 * (time.process_time() - start), plan.plan.arena_bytes))
        return plan
    plans.find = timed  # type: ignore[assignment]
    for run in LOOPS[name](steps, random.Random(seed)):
        genesis.cuda.reset_peak_memory_stats()
        seen.clear()
        run()
        found.append({"plans": seen.copy(), "peak": genesis.cuda.max_memory_allocated()})
    plans.find = find
    return found


def in_a_process(role: str, name: str, steps: int, folder: str) -> list[dict[str, Any]]:
    """What `told` gives in a new process."""
    seed, disk = ROLES[role]
    asked = [sys.executable, __file__, "--child", str(seed), "--loop", name, "--steps", str(steps)]
    surroundings = {**os.environ, "GENESIS_CACHE_DIR": folder, "GENESIS_PLAN_CACHE": str(int(disk)),
                    "GENESIS_BACKGROUND_COMPILE": "0"}
    return json.loads(subprocess.run(asked, env=surroundings, check=True, capture_output=True, text=True).stdout)


def row(name: str, steps: int) -> str:
    """The table's row of a loop."""
    with tempfile.TemporaryDirectory() as folder:
        in_a_process("written", name, steps, folder)
        read, compiled = (in_a_process(role, name, steps, folder) for role in ("read", "compiled"))
    cells = [name]
    for origin in ("disk", "other size", "compiled"):
        times = [(ms, 100 * ms / launches) for step in read for kind, launches, ms, _ in step["plans"]
                 if kind == origin and launches > 1]
        cells.append(f"{len(times)}: " + ("–" if not times else
                                          f"{median(x for x, _ in times):.1f} ms, {median(x for _, x in times):.1f}"))
    cells.append(str(sum(kind == "compiled" and launches > 1
                         for step in compiled for kind, launches, *_ in step["plans"])))
    same = sum(a["peak"] == b["peak"] and [x[3] for x in a["plans"]] == [x[3] for x in b["plans"]]
               for a, b in zip(read, compiled, strict=True))
    return f"| {' | '.join(cells)} | {same} of {steps} |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loop", choices=LOOPS, help="only this one")
    parser.add_argument("--steps", type=int, default=40, help="values that each process draws (default: %(default)s)")
    parser.add_argument("--child", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.child is not None:
        keep_kernels()
        with idle_gpu():
            print(json.dumps(told(given.loop, given.steps, given.child)))
        return
    columns = "plans from disk: ms, for 100 launches", "filled in", "compiled", "compiled without the disk", "memory"
    print(f"| loop | {' | '.join(columns)} |")
    print("|---|---|---|---|---|---|")
    for name in [given.loop] if given.loop else LOOPS:
        print(row(name, given.steps), flush=True)


if __name__ == "__main__":
    main()
