"""What starting costs: the first step of GPT-2 124M, cold and warm, and the first steps at other batch sizes.

Each process (`one_start.py`) starts from nothing; cold is with an empty cache, warm is the same script again. A phase
is the time since the phase before it, in milliseconds; "beyond the context" is the sum without that of the CUDA
context. A batch size is `first` the first time that a process sees it, against the median of later steps: the
difference is what the size costs. Losses of the warm run must be those of the cold run, bit for bit.

Python keeps the bytecode of what it imports, unless PYTHONDONTWRITEBYTECODE says not to: then every start compiles
every module again, Genesis' and numpy's 400 in half a second. Here it keeps it, as it does for a user, and "with
bytecode" says of how many modules it is there: fewer than all where a folder cannot be written to. A process before
the two leaves it, so that they differ in our own cache only.

    python benchmarks/start_up.py --out
    python benchmarks/start_up.py --device idle     # without a GPU (`idle_gpu.py`): kernels are compiled, none runs
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, Final

import record

SCRIPT: Final = Path(__file__).parent / "one_start.py"


def run_once(options: argparse.Namespace, cache: str) -> dict[str, Any]:
    """One process."""
    wanted = {name: getattr(options, name) for name in ("device", "batch", "layers", "sizes")}
    done = subprocess.run([sys.executable, SCRIPT, json.dumps(wanted)], capture_output=True, text=True,
                          env={**_environment(), "GENESIS_CACHE_DIR": cache, "STARTED": repr(time.time())})
    line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
    if line is None:
        raise SystemExit(f"{done.stdout[-1500:]}\n{done.stderr[-3000:]}")
    return json.loads(line.removeprefix("RESULT "))


def _environment() -> dict[str, str]:
    """This process' own, but for what keeps Python from keeping bytecode."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def show(name: str, result: dict[str, Any]) -> None:
    """One process as a few lines."""
    phases = result["phases"]
    beyond = sum(phases.values()) - phases["context"]
    print(f"\n{name}: {beyond / 1e3:.2f} s beyond the context; plan {result['origin']} in {result['plan_s']:.2f} s, "
          f"{result['launches']} launches; imported triton {result['triton']}, passes {result['passes']}; "
          f"{result['modules']} modules, {result['bytecode']} with bytecode")
    print("  " + ", ".join(f"{phase} {ms:.0f}" for phase, ms in phases.items()))
    print("  the same step again: " + ", ".join(f"{ms:.1f}" for ms in result["again_ms"]) + " ms")
    for size, row in result["sizes"].items():
        print(f"  {size:20} first {row['first_ms']:7.1f}  later {row['later_ms'][-1]:6.1f}"
              f"  costs {row['costs_ms']:7.1f}  plan {row['plan_ms']:7.1f} ms  {row['origin']}")


def main() -> None:
    """Cold, then warm."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", choices=("cuda", "idle"), default="cuda")
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--sizes", default="8,12,15,16,24,32")
    record.add_out(parser)
    args = parser.parse_args()
    subprocess.run([sys.executable, "-c", "import numpy, genesis"], env=_environment(), check=True)
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
