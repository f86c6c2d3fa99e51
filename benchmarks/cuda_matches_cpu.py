"""The same program and seed on the CPU and on CUDA: a small GPT's float32 losses over 20 steps.

Prints both curves and their largest relative difference; exit status 1 above 1e-3. Each device runs in a
process of its own, and the CUDA one must not import torch.

    python benchmarks/cuda_matches_cpu.py --out
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import record


def losses(device: str, steps: int) -> list[float]:
    """Losses of the training steps on a device."""
    import genesis
    from genesis.models import GPT, GPTConfig
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=256, context=64, layers=4, heads=4, dim=128, dropout=0.1)).to(device)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    text = np.frombuffer(Path(argparse.__file__).read_bytes(), np.uint8).astype(np.int64)
    rng = np.random.default_rng(0)
    found = []
    for _ in range(steps):
        starts = rng.integers(0, len(text) - 65, 16)
        windows = np.stack([text[s:s + 65] for s in starts])
        _, loss = model(genesis.tensor(windows[:, :-1], device=device), genesis.tensor(windows[:, 1:], device=device))
        optimizer.zero_grad()
        loss.backward()
        genesis.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        found.append(loss.item())
    return found


def main() -> int:
    """Run both, compare."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device")
    parser.add_argument("--steps", type=int, default=20)
    record.add_out(parser)
    args = parser.parse_args()
    if args.device:
        start = time.perf_counter()
        found = losses(args.device, args.steps)
        seconds = time.perf_counter() - start
        print("RESULT " + json.dumps({"losses": found, "torch": "torch" in sys.modules, "s": seconds}))
        return 0
    results = {}
    for device in ("cpu", "cuda"):
        command = [sys.executable, __file__, "--device", device, "--steps", str(args.steps)]
        done = subprocess.run(command, capture_output=True, text=True)
        line = next((x for x in done.stdout.splitlines() if x.startswith("RESULT ")), None)
        if line is None:
            print(f"{device} failed:\n{done.stdout[-2000:]}\n{done.stderr[-6000:]}")
            return 1
        results[device] = json.loads(line.removeprefix("RESULT "))
    pairs = list(zip(results["cpu"]["losses"], results["cuda"]["losses"], strict=True))
    worst = max(abs(a - b) / abs(a) for a, b in pairs)
    for step, (a, b) in enumerate(pairs):
        print(f"step {step:3d}  cpu {a:.6f}  cuda {b:.6f}  {abs(a - b) / abs(a):.1e}")
    print(f"largest relative difference {worst:.2e}; torch imported on CUDA: {results['cuda']['torch']}; "
          f"seconds {results['cpu']['s']:.1f} cpu, {results['cuda']['s']:.1f} cuda")
    if args.out:
        record.write(args.out, "cuda_matches_cpu", worst=worst, **results)
    return 0 if worst <= 1e-3 and not results["cuda"]["torch"] else 1


if __name__ == "__main__":
    sys.exit(main())
