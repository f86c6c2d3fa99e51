"""Training steps of whole models: Genesis beside torch eager and torch.compile in its default mode.

Each model is one text for both libraries (`step_models.py`): bfloat16 autocast, gradient clipping, fused AdamW. A row
is a process of its own with a limit. There Genesis takes its first step with an empty cache, and torch.compile its own;
all contestants start from the same weights and their losses over 20 steps are compared; then rounds of steps alternate,
the device waited for at the ends of a round. A last process, without torch, takes Genesis' first step with the cache
that is there by then. Memory is the most that was allocated during a step beyond 16 bytes a parameter: weights,
gradients and two moments in float32.

    python benchmarks/model_steps.py --out
    python benchmarks/model_steps.py --rows vit-b,moe --contestants eager,genesis --profile
    python benchmarks/model_steps.py --tiny            # on the CPU: does the script work?
    python benchmarks/model_steps.py --idle            # no GPU: launches and memory of Genesis' plans at full size

With `--together` the rows prepare torch's side at the same time, on all cores, and take turns from there on:
torch.compile's first step is then that of a busy machine.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import Any, Final

import numpy as np
import record
from in_turn import run_in_turn, wait_for_turn
from step_models import ROWS, Sizes

CONTESTANTS: Final = ("eager", "compile", "genesis")
LOSSES, BATCHES = 20, 4
"""Steps whose losses are compared, and how many batches they go round."""

BYTES_OF_A_PARAMETER: Final = 16
"""Its weight, its gradient and AdamW's two moments."""

MOST_ROWS: Final = 16
"""Lines that are printed of what is alive at a plan's peak."""


def step_of(torch: Any, model: Any, forward: Callable[..., Any], device: str) -> tuple[Any, Callable[..., Any]]:
    """The optimizer and the training step, the same text for both libraries."""
    parameters = list(model.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)

    def step(*batch: Any) -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = forward(*batch)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        return loss

    return optimizer, step


def sizes_of(args: argparse.Namespace, name: str) -> Sizes:
    """The row's, with fewer layers if so asked."""
    sizes = dict(ROWS[name].tiny if args.tiny else ROWS[name].sizes)
    if args.layers and "layers" in sizes:
        sizes["layers"] = args.layers
    return sizes


def arrays_of(name: str, sizes: Sizes) -> list[tuple[np.ndarray, ...]]:
    """The batches of a row."""
    rng = np.random.default_rng(7)
    return [ROWS[name].batch(rng, sizes) for _ in range(BATCHES)]


class Side:
    """A library's model, its data and what it allocates.

    Attributes:
        library: torch or genesis.
    """

    library: Any
    model: Any
    device: str
    data: list[tuple[Any, ...]]

    def synchronize(self) -> None:
        """Wait for the device."""
        if self.device == "cuda":
            self.library.cuda.synchronize()

    def above(self, step: Callable[[], Any]) -> float:
        """Bytes that a step allocates beyond what its parameters have."""
        if self.device != "cuda":
            return 0.0
        cuda = self.library.cuda
        cuda.synchronize()
        cuda.reset_peak_memory_stats()
        step()
        cuda.synchronize()
        return float(cuda.max_memory_allocated() - self.held(self.data))

    def held(self, batches: list[tuple[Any, ...]]) -> int:
        """Bytes of these batches, and of what the model holds: parameters, gradients, moments, buffers."""
        return (sum(x.nbytes for batch in batches for x in batch) + sum(x.nbytes for x in self.model.buffers())
                + BYTES_OF_A_PARAMETER * sum(x.numel() for x in self.model.parameters()))


class TorchSide(Side):
    """torch's model, which eager and compiled steps share: each begins with the same weights and no moments."""

    def __init__(self, name: str, sizes: Sizes, device: str):
        import torch
        self.library, self.device = torch, device
        torch.set_float32_matmul_precision("high")
        torch.manual_seed(0)
        with torch.device(device):
            self.model = ROWS[name].make(torch, sizes)
        self.weights = {key: value.detach().cpu().clone() for key, value in self.model.state_dict().items()}
        self.data = [tuple(torch.tensor(x, device=device) for x in arrays) for arrays in arrays_of(name, sizes)]
        self.optimizer, self.eager = step_of(torch, self.model, self.model, device)
        self.compiled_model: Any = None

    def begin_again(self) -> None:
        """The first weights, and an optimizer that has seen nothing."""
        self.model.load_state_dict(self.weights)
        self.optimizer.state.clear()

    def step(self, contestant: str) -> Callable[..., Any]:
        """The training step of `eager` or `compile`."""
        if contestant == "eager":
            return self.eager
        if self.compiled_model is None:
            self.compiled_model = self.library.compile(self.model)
            _, self.compiled = step_of(_WithOptimizer(self.library, self.optimizer), self.model, self.compiled_model,
                                       self.device)
        return self.compiled


class _WithOptimizer:
    """A library whose optimizer is made already."""

    def __init__(self, library: Any, optimizer: Any):
        self._library = library
        self.optim = argparse.Namespace(AdamW=lambda parameters, **options: optimizer)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._library, name)


class GenesisSide(Side):
    """Genesis' model and its compiled step."""

    def __init__(self, name: str, sizes: Sizes, device: str, weights: dict[str, Any] | None):
        import genesis
        self.library, self.device = genesis, device
        genesis.set_float32_matmul_precision("high")
        genesis.manual_seed(0)
        self.model: Any = ROWS[name].make(genesis, sizes)
        if weights is not None:
            kept = self.model.state_dict()
            self.model.load_state_dict({key: genesis.tensor(_value(weights, key)) for key in kept})
        self.model = self.model.to(device)
        genesis.eval(*self.model.parameters(), *self.model.buffers())
        self.data = [tuple(genesis.tensor(x, device=device) for x in arrays) for arrays in arrays_of(name, sizes)]
        self.optimizer, step = step_of(genesis, self.model, self.model, device)
        self.run = genesis.compile(step)
        self.synchronize()


def _value(weights: dict[str, Any], key: str) -> Any:
    """A weight's array; the tied head of a GPT-2 has a name of its own here."""
    found = weights.get(key)
    return (weights[key.replace("lm_head", "token")] if found is None else found).numpy()


def measure(args: argparse.Namespace, name: str) -> dict[str, Any]:
    """A row: losses, times, memory and first steps of its contestants."""
    sizes, device = sizes_of(args, name), "cpu" if args.tiny else "cuda"
    wanted = args.contestants.split(",")
    found: dict[str, Any] = {x: {} for x in wanted}
    ours: GenesisSide | None = None
    theirs = TorchSide(name, sizes, device) if {"eager", "compile"} & set(wanted) else None
    runs: dict[str, Callable[[int], Any]] = {}
    sides: dict[str, TorchSide | GenesisSide] = {}
    if theirs is not None:
        for contestant in CONTESTANTS[:2]:
            if contestant in wanted:
                step = theirs.step(contestant)
                sides[contestant] = theirs
                runs[contestant] = lambda i, step=step, data=theirs.data: step(*data[i % BATCHES])  # type: ignore[misc]
                theirs.begin_again()
                start = time.perf_counter()
                losses = [runs[contestant](0).item()]
                found[contestant]["first_s"] = time.perf_counter() - start
                losses += [runs[contestant](i).item() for i in range(1, LOSSES)]
                found[contestant].update(losses=losses, above=theirs.above(lambda c=contestant: runs[c](0)))  # type: ignore[misc]
                print(f"{name}: {contestant} began in {found[contestant]['first_s']:.1f} s", flush=True)
        theirs.optimizer.zero_grad()
        if device == "cuda":
            theirs.library.cuda.empty_cache()
    if "genesis" in wanted:
        ours = sides["genesis"] = GenesisSide(name, sizes, device, theirs.weights if theirs is not None else None)
        runs["genesis"] = lambda i, run=ours.run, data=ours.data: run(*data[i % BATCHES])  # type: ignore[misc]
    if args.turns and not wait_for_turn():
        raise SystemExit(1)
    if ours is not None:
        start = time.perf_counter()
        losses = [runs["genesis"](0).item()]
        found["genesis"]["first_s"] = time.perf_counter() - start
        found["genesis"].update(_of_plan())
        losses += [runs["genesis"](i).item() for i in range(1, LOSSES)]
        found["genesis"].update(losses=losses, above=ours.above(lambda: runs["genesis"](0)))
        print(f"{name}: genesis began in {found['genesis']['first_s']:.1f} s", flush=True)
    times: dict[str, list[float]] = {x: [] for x in runs}
    for _ in range(args.rounds):
        for contestant, run in runs.items():
            run(0)
            sides[contestant].synchronize()
            start = time.perf_counter()
            for i in range(args.steps):
                run(i)
            sides[contestant].synchronize()
            times[contestant].append((time.perf_counter() - start) / args.steps * 1e3)
    for contestant, rounds in times.items():
        found[contestant].update(ms=median(rounds), rounds=rounds)
    if args.profile and ours is not None and device == "cuda":
        found["genesis"]["launches"] = profile(ours, lambda: runs["genesis"](0))
    return found


def _of_plan() -> dict[str, Any]:
    """What the plan of the last step is."""
    from genesis.engine import last_plan
    made = last_plan()
    if made is None:
        return {}
    kernels = Counter(getattr(step, "label", type(step).__name__) for step in made.plan.steps)
    memory = made.plan.arena_bytes + sum(x.nbytes for x in (*made.plan.inputs, *made.plan.outputs))
    return {"steps": len(made.plan.steps), "arena": made.plan.arena_bytes, "live": made.plan.max_live_bytes,
            "memory": memory,
            "origin": made.origin, "plan_s": made.seconds, "kernels": dict(kernels.most_common())}


def profile(side: GenesisSide, run: Callable[[], Any]) -> dict[str, Any]:
    """Milliseconds of each launch of a step between two events, by label and operands."""
    from launches import timed_launches
    run()
    side.synchronize()
    return timed_launches()


def warm(args: argparse.Namespace, name: str) -> dict[str, float]:
    """Genesis' first step in a process without torch, with the cache that is there."""
    side = GenesisSide(name, sizes_of(args, name), "cpu" if args.tiny else "cuda", None)
    if not wait_for_turn():
        raise SystemExit(1)
    start = time.perf_counter()
    side.run(*side.data[0]).item()
    return {"warm_s": time.perf_counter() - start, "torch": float("torch" in sys.modules), **_of_plan()}


def idle(args: argparse.Namespace, name: str) -> None:
    """Print what Genesis would launch on an H200, and what is alive where that takes the most memory."""
    from idle_gpu import idle_gpu

    from genesis.cli.inspect import last_step
    from genesis.cli.peak import peak_text
    with idle_gpu():
        side = GenesisSide(name, sizes_of(args, name), "cuda", None)
        start = time.perf_counter()
        side.run(*side.data[0])
        side.synchronize()
        plan, seconds = _of_plan(), time.perf_counter() - start
        above, peak = plan["memory"] - side.held(side.data[:1]), peak_text(last_step())
    print(f"{name}: {plan['steps']} steps, arena {plan['arena'] / 1e9:.2f} GB (most alive {plan['live'] / 1e9:.2f}), "
          f"above {above / 1e9:.2f} GB{_beside_compile(name, above)}, made in {seconds:.1f} s")
    for label, count in plan["kernels"].items():
        print(f"  {count:5d}  {label}")
    print("\n".join(peak.splitlines()[:MOST_ROWS]))


def _beside_compile(name: str, above: float) -> str:
    """The share of what torch.compile's step was measured to allocate."""
    path = Path(__file__).parent / "results" / "model_steps.json"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"] if path.exists() else {}
    theirs = rows.get(name, {}).get("contestants", {}).get("compile", {}).get("above")
    return f" ({above / theirs:.2f} of torch.compile's)" if theirs else ""


def report(name: str, found: dict[str, Any]) -> None:
    """A row as a few lines; ratios and differences are added to it. Speed is against the faster peer."""
    peers = [found[x]["ms"] for x in CONTESTANTS[:2] if "ms" in found.get(x, {})]
    reference = next((found[x] for x in CONTESTANTS[:2] if "losses" in found.get(x, {})), None)
    for contestant, row in found.items():
        if "ms" not in row:
            continue
        if peers:
            row["speed"] = min(peers) / row["ms"]
        if reference is not None:
            row["loss_off"] = max(abs(a - b) / abs(b) for a, b in zip(row["losses"], reference["losses"], strict=True))
        if row["above"] and found.get("compile", {}).get("above"):
            row["memory"] = row["above"] / found["compile"]["above"]
        print(f"{name:10}{contestant:9}{row['ms']:9.2f} ms"
              + (f"  {row['speed']:5.2f} x (bar {ROWS[name].bar:.2f})" if "speed" in row else "")
              + f"  above {row['above'] / 1e9:6.2f} GB"
              + (f" ({row['memory']:.2f})" if "memory" in row else "") + f"  first {row['first_s']:5.1f} s"
              f"  loss {row['losses'][0]:.4f} → {row['losses'][-1]:.4f}"
              + (f", off {row['loss_off']:.1e}" if "loss_off" in row else "")
              + (f"  {row['steps']} steps" if "steps" in row else ""), flush=True)
        for label, launch in list(row.get("launches", {}).items())[:22]:
            print(f"    {launch['ms']:8.3f} ms {launch['count']:4d} x {launch['ms'] / launch['count'] * 1e3:8.1f} us  "
                  f"{label}")


def rows_of(args: argparse.Namespace, names: list[str]) -> dict[str, dict[str, Any]]:
    """Measure each row in its own process."""
    found: dict[str, dict[str, Any]] = {}
    with tempfile.TemporaryDirectory() as folder:
        def command(name: str, *more: str) -> list[str]:
            return [sys.executable, __file__, "--row", name, "--contestants", args.contestants, "--steps",
                    str(args.steps), "--rounds", str(args.rounds), "--layers", str(args.layers),
                    *(["--tiny"] if args.tiny else []), *(["--profile"] if args.profile else []), *more]

        def result(path: Path) -> dict[str, Any]:
            return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

        os.environ["GENESIS_CACHE_DIR"] = os.path.join(folder, "cache")
        batches = [names] if args.together else [[name] for name in names]
        for batch in batches:
            with suppress(KeyboardInterrupt):  # what is there by then is told
                run_in_turn([command(name, "--turns", "--to", f"{folder}/{name}") for name in batch], args.limit,
                            args.limit)
            for name in batch:
                found[name] = result(Path(folder, name))
        for batch in batches:
            started = [x for x in batch if "genesis" in found[x]]
            run_in_turn([command(name, "--warm", "--to", f"{folder}/{name}.warm") for name in started], args.limit,
                        args.limit)
            for name in started:
                found[name]["genesis"].update({k: v for k, v in result(Path(folder, f"{name}.warm")).items()
                                               if k in ("warm_s", "torch")})
    return found


def main() -> None:
    """Measure the rows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS))
    parser.add_argument("--contestants", default=",".join(CONTESTANTS))
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=0, help="of every model that has some: a few, to try")
    parser.add_argument("--limit", type=float, default=180, help="seconds a row may take to prepare, and to be timed")
    for flag, words in (("--tiny", "small models on the CPU"), ("--idle", "Genesis' plans, on no GPU"),
                        ("--together", "rows prepare at the same time"), ("--profile", "Genesis' launches, timed")):
        parser.add_argument(flag, action="store_true", help=words)
    for flag in ("--row", "--to"):
        parser.add_argument(flag, help=argparse.SUPPRESS)
    for flag in ("--turns", "--warm"):
        parser.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    record.add_out(parser)
    args = parser.parse_args()
    if args.row:
        if args.warm:
            one = warm(args, args.row)
        else:
            one = measure(args, args.row)
            report(args.row, one)
        Path(args.to).write_text(json.dumps(one), encoding="utf-8")
        return
    names = args.rows.split(",")
    if args.idle:
        for name in names:
            idle(args, name)
        return
    found = rows_of(args, names)
    for name, row in found.items():
        if not row:
            print(f"{name:10}failed")
        elif "warm_s" in row.get("genesis", {}):
            print(f"{name:10}genesis' first step: {row['genesis']['first_s']:.1f} s, with a cache "
                  f"{row['genesis']['warm_s']:.2f} s")
    if args.out:
        record.write(args.out, "model_steps", rows={
            name: {"sizes": sizes_of(args, name), "bar": ROWS[name].bar, "contestants": row}
            for name, row in found.items() if row})


if __name__ == "__main__":
    main()
