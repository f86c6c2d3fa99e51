"""Drawn cases of families of ops: Genesis, torch eager and torch.compile in one process, device time.

`sweep_cases.py` draws them. Both libraries have the same values, each in memory of its own. Results are forced by
`genesis.eval`, gradients come by `backward()`, calls are queued behind a long copy so that the host is ahead, and sets
of operands take turns (`bars.py`). Results are checked against torch's in float64. Of a case of less than 1 MB the
host's time is told, and counts for nothing.

    python benchmarks/sweep.py --out                                         # 8 cases of every family
    python benchmarks/sweep.py --processes 12 --seeds 0,1 --out              # compile on 12 cores, then time in turn
    python benchmarks/sweep.py --families softmax,norm --seed 3 --part 1/4   # cases 1, 5, … of two of them
    python benchmarks/sweep.py --only 43/transpose/5,3/pool/0                # these two, by seed, family and number
    python benchmarks/sweep.py --device cpu --scale 0.01                     # only whether results are right

What was measured is appended to a file for each seed, and is not measured again: the same command goes on where it was
stopped. A case during which the process died is told as one that failed. With `--processes` as many processes compile,
run and check their cases at once, and then time them one process after another, so that the GPU is nobody else's.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

import record
import torch
from in_turn import run_in_turn, wait_for_turn
from sweep_cases import FAMILIES, LEAST_BYTES, MEMORY_BOUND, Case, Operand, draw_case

import genesis
from genesis.runtime.contexts import uncollected

SETS: Final = 3
AHEAD_MS: Final = 10
MOST_AHEAD_MS: Final = 200
"""How long the host has to queue a round of a case, at least and at most."""

WORKERS: Final = 2
"""Compilers of one of several processes."""

TOLERANCE: Final = {"float64": 1e-9, "float32": 2e-5, "bfloat16": 2 ** -6, "float16": 2 ** -9}
"""Of the largest value of a result: a few roundings to the dtype. What torch's own result is off is allowed, twice."""

DIED: Final = "the process died"
"""The problem of a case that a process began, and did not come to an end with."""

Row = dict[str, Any]


class Bench:
    """A case's operands in both libraries' eyes.

    Args:
        to_genesis: a torch tensor → the same values in Genesis, in memory of its own: what is shared may change, so
            that each op that reads it is computed at once.
    """

    def __init__(self, case: Case, device: str, to_genesis: Callable[[torch.Tensor], Any], sets: int = SETS):
        self.case = case
        generator = torch.Generator(device).manual_seed(case.number)
        self.torch_sets, self.sets = [], []
        for _ in range(sets):
            memories = [memory_of(x, generator, device) for x in case.operands]
            pairs = list(zip(case.operands, memories, strict=True))
            self.torch_sets.append([x.view(memory) for x, memory in pairs])
            self.sets.append([x.view(to_genesis(memory)) for x, memory in pairs])
        wants = [case.both and x.grad and not x.below for x in case.operands]
        self.torch_sets = [leaves(xs, wants) for xs in self.torch_sets]
        self.sets = [leaves(xs, wants) for xs in self.sets]
        self.torch_gradients: list[torch.Tensor] = []
        self.gradients: list[Any] = []
        if case.both:
            y = case.function(torch, *self.torch_sets[0]).detach()
            self.torch_gradients = [torch.randn(y.shape, generator=generator, device=device).to(y.dtype) + 0.5]
            self.gradients = [to_genesis(g) for g in self.torch_gradients]

        self.functions: dict[str, Callable[..., Any]] = {}

    def genesis_results(self, position: int = 0) -> list[Any]:
        """Genesis' results, computed or on their way."""
        found = call(genesis, self.case, self.case.function, self.sets[position], self.gradients)
        genesis.eval(*found)
        return found

    def torch_results(self, function: Callable[..., Any], position: int = 0) -> list[torch.Tensor]:
        """torch's results."""
        return call(torch, self.case, function, self.torch_sets[position], self.torch_gradients)

    def error(self, to_torch: Callable[[Any], torch.Tensor]) -> float:
        """Genesis' largest error over what is allowed; above 1 is wrong."""
        got = [to_torch(x.detach()) for x in self.genesis_results()]
        eager = [x.detach() for x in self.torch_results(self.case.function)]
        doubled = [x.detach().double() if x.is_floating_point() else x for x in self.torch_sets[0]]
        doubled = leaves(doubled, [x.requires_grad for x in self.torch_sets[0]])
        want = call(torch, self.case, self.case.function, doubled, [g.double() for g in self.torch_gradients])
        axis, source = self.case.picks, doubled[0].detach()
        worst = 0.0
        for position, (g, e, w) in enumerate(zip(got, eager, want, strict=True)):
            if g.shape != e.shape or g.dtype != e.dtype:
                raise TypeError(f"result {position} is {g.dtype} {list(g.shape)}, torch's {e.dtype} {list(e.shape)}")
            w = w.detach()
            if position and axis is not None:
                g, e, w = (picked(source, axis, x) for x in (g, e, w))
            worst = max(worst, relative_error(g, e, w, self.case.tolerance))
        return worst


def own_memory(x: torch.Tensor) -> Any:
    """The same values in Genesis' memory."""
    found = genesis.from_dlpack(x).clone()
    genesis.eval(found)
    return found


def memory_of(operand: Operand, generator: torch.Generator, device: str) -> torch.Tensor:
    """The memory of an operand: normal numbers around 0.5, so that sums are not near zero, or integers."""
    shape, dtype = operand.memory_shape, getattr(torch, operand.dtype)
    if operand.below:
        return torch.randint(0, operand.below, shape, generator=generator, device=device, dtype=dtype)
    return (torch.randn(shape, generator=generator, device=device) + 0.5).to(dtype)


def call(library: Any, case: Case, function: Callable[..., Any], inputs: list[Any], gradients: list[Any]) -> list[Any]:
    """The results, and where gradients come in those of the operands that want one: as a step finds them in `grad`,
    where torch copies what `autograd.grad` would return as a view of what came in, unless it is in one piece there."""
    if not case.both:
        found = function(library, *inputs)
        return list(found) if isinstance(found, tuple) else [found]
    wanted = [x for x in inputs if x.requires_grad]
    for x in wanted:
        x.grad = None
    y = function(library, *inputs)
    y.backward(gradients[0])
    return [y, *[x.grad for x in wanted]]


def leaves(inputs: list[Any], wants: list[bool]) -> list[Any]:
    """The operands, of which some want gradients."""
    return [x.detach().requires_grad_() if want else x for x, want in zip(inputs, wants, strict=True)]


def picked(source: torch.Tensor, axis: int, positions: torch.Tensor) -> torch.Tensor:
    """The elements at positions along an axis, which the result may have lost."""
    if positions.dim() < source.dim():
        positions = positions.unsqueeze(axis)
    return source.gather(axis, positions)


def relative_error(got: torch.Tensor, eager: torch.Tensor, want: torch.Tensor, factor: float) -> float:
    """The largest error in units of what is allowed: the dtype's tolerance of the largest value, or twice torch's."""
    dtype = str(got.dtype).removeprefix("torch.")
    g, e, w = got.double(), eager.double(), want.double()
    if not torch.equal(g.isnan(), w.isnan()):
        return math.inf
    finite = w.isfinite()
    if not torch.equal(torch.where(finite, 0, g).nan_to_num(), torch.where(finite, 0, w).nan_to_num()):
        return math.inf
    g, e, w = (torch.where(finite, x, 0) for x in (g, e, w))
    if not w.numel():
        return 0.0
    largest = max(float(w.abs().max()), 1e-30)
    allowed = TOLERANCE.get(dtype, 0.0) * factor + 2 * float((e - w).abs().max()) / largest
    off = float((g - w).abs().max()) / largest
    return off / allowed if allowed else math.inf if off else 0.0


# Times

def device_times(bench: Bench, spin: tuple[Any, Any]) -> dict[str, float]:
    """Milliseconds of device time a call, by contestant."""
    from bars import copies_ahead, sleep_ahead, timed
    ahead = ahead_ms(bench.genesis_results, genesis.cuda.synchronize)
    found = {"genesis": timed(bench.genesis_results, partial(copies_ahead, spin, ahead),
                              partial(genesis.cuda.Event, enable_timing=True))}
    for name, function in bench.functions.items():
        run = partial(bench.torch_results, function)
        ahead = ahead_ms(run, torch.cuda.synchronize)
        found[name] = timed(run, partial(sleep_ahead, ahead), partial(torch.cuda.Event, enable_timing=True))
    return found


def ahead_ms(run: Callable[[int], Any], wait: Callable[[], None]) -> int:
    """How long a round is held back: three times what the host needs to queue it, which takes a millisecond for each
    call with many operands and gradients."""
    from bars import REPEATS, SETS
    for position in range(SETS):
        run(position)
    wait()
    return min(max(AHEAD_MS, math.ceil(3 * REPEATS * queueing_time(run, wait))), MOST_AHEAD_MS)


def queueing_time(run: Callable[[int], Any], wait: Callable[[], None], count: int = 3) -> float:
    """Milliseconds of the host a call that waits for no result."""
    start = time.perf_counter()
    for position in range(count):
        run(position)
    found = (time.perf_counter() - start) / count * 1e3
    wait()
    return found


def host_times(bench: Bench) -> dict[str, float]:
    """Milliseconds of the host a call, with the device's last result waited for."""
    found = {"genesis": host_time(bench.genesis_results, genesis.cuda.synchronize)}
    for name, function in bench.functions.items():
        found[name] = host_time(partial(bench.torch_results, function), torch.cuda.synchronize)
    return found


def kernel_times(bench: Bench) -> list[tuple[str, float]]:
    """Every launch of Genesis' plan with its microseconds, alone and from the cache."""
    from bars import timed

    from genesis.engine import last_plan
    from genesis.runtime.cuda.stream import current_stream
    held = bench.genesis_results()
    stream, plan = current_stream(0).handle, last_plan()
    launches = plan.executor.launches()  # type: ignore[union-attr]
    event = partial(genesis.cuda.Event, enable_timing=True)
    found = [(label, timed(lambda _, start=start: start(stream), lambda: None, event) * 1e3)
             for label, start in launches]
    del held
    return found


def functions_of(case: Case, peers: list[str]) -> dict[str, Callable[..., Any]]:
    """torch's contestants."""
    every = {"eager": case.function, "compile": torch.compile(case.function, dynamic=False)}
    return {name: every[name] for name in peers if name}


def forget_no_compiled_case() -> None:
    """Of all cases of this process: torch's limit of programs of one function would make further ones eager."""
    import torch._dynamo
    torch._dynamo.config.recompile_limit = torch._dynamo.config.accumulated_recompile_limit = 1 << 20


def host_time(run: Callable[[], Any], wait: Callable[[], None], count: int = 50) -> float:
    for _ in range(5):
        run()
    wait()
    start = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return (time.perf_counter() - start) / count * 1e3


# The cases

class Journal:
    """Rows in a file, a line each, written as they are measured.

    A line {"begun": key} without a row or {"prepared": key} behind it is a case during which the process died.
    """

    def __init__(self, path: Path):
        self.path = path
        self.rows: dict[str, Row] = {}
        if not path.exists():
            return
        begun: dict[str, str] = {}
        for line in path.read_text(encoding="utf-8").splitlines():
            entry = json.loads(line)
            if "begun" in entry:
                begun[entry["begun"]] = entry["text"]
            elif "prepared" in entry:
                begun.pop(entry["prepared"], None)
            else:
                self.rows[entry["key"]] = entry
        for key, text in begun.items():
            self.rows.setdefault(key, {"key": key, "text": text, "problem": DIED})

    def write(self, entry: Row) -> None:
        """Append a line."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
        if "key" in entry:
            self.rows[entry["key"]] = entry


@dataclass
class Prepared:
    """A case that everything was compiled for, and whose results were looked at; `bench` is None if that failed."""

    case: Case
    row: Row
    bench: Bench | None = None


def prepared(case: Case, args: argparse.Namespace) -> Prepared:
    """Compile a case for every contestant, run it and compare the results. One that fails has a `problem`."""
    small = case.nbytes < LEAST_BYTES
    found = Prepared(case, {"small": small, "bytes": case.nbytes})
    on_gpu = args.device == "cuda"
    try:
        bench = Bench(case, args.device, own_memory, SETS if on_gpu else 1)
        if on_gpu:
            genesis.cuda.synchronize()
            bench.functions = functions_of(case, args.peers.split(","))
        found.row["error"] = bench.error(as_torch if on_gpu else lambda x: torch.from_dlpack(x.contiguous()))
        found.row |= without_failing_peers(bench)
        found.bench = bench
    except Exception as error:  # the other cases are still worth their time
        found.row["problem"] = f"{type(error).__name__}: {str(error)[:400]}"
    finally:
        release(args)
    return found


def without_failing_peers(bench: Bench) -> Row:
    """Run torch's contestants once. One that fails takes no part: which and why, {} if none does."""
    failed = {}
    for name, function in list(bench.functions.items()):
        try:
            bench.torch_results(function)
        except Exception as error:  # torch.compile refuses some cases that eager torch computes
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            del bench.functions[name]
    return {"failed": failed} if failed else {}


def time_it(found: Prepared, args: argparse.Namespace, spin: Any) -> Row:
    """The row of a prepared case, with times on a GPU; its memory is let go."""
    bench, found.bench = found.bench, None
    if bench is None or args.device != "cuda":
        return found.row
    try:
        found.row["ms"] = host_times(bench) if found.row["small"] else device_times(bench, spin)
        ratio = speedup(found.row)
        if ratio is not None and ratio < args.kernels_below:
            found.row["kernels"] = kernel_times(bench)
    except Exception as error:  # the other cases are still worth their time
        found.row["problem"] = f"{type(error).__name__}: {str(error)[:400]}"
    finally:
        del bench
        release(args)
    return found.row


def release(args: argparse.Namespace) -> None:
    """Give both libraries' free memory back."""
    if args.device == "cuda":
        torch.cuda.empty_cache()
        genesis.cuda.empty_cache()


def as_torch(x: Any) -> torch.Tensor:
    """A Genesis tensor's values on the GPU, computed."""
    genesis.cuda.synchronize()
    return torch.from_dlpack(x)


def speedup(row: Row) -> float | None:
    """Times as fast as the faster peer; None where there is no peer or no right result."""
    peers = [ms for name, ms in row.get("ms", {}).items() if name != "genesis"]
    return min(peers) / row["ms"]["genesis"] if peers and "problem" not in row and row["error"] <= 1 else None


def line_of(row: Row) -> str:
    """A row for people."""
    if "problem" in row:
        return f"{row['key']:20} {row['text'][:90]}: {row['problem']}"
    wrong = f"  WRONG, {row['error']:.2g} × what is allowed" if row["error"] > 1 else ""
    shown = "  ".join(f"{name} {ms * 1e3:.1f}" for name, ms in row.get("ms", {}).items())
    ratio = speedup(row)
    told = f"{ratio:.2f}" if ratio is not None else "-"
    rate = f"{row['bytes'] / row['ms']['genesis'] / 1e6:5.0f} GB/s" if "ms" in row else ""
    kind = ("host µs" if row["small"] else "µs") if shown else "" if wrong else "right"
    kernels = "".join(f"\n{'':24}{us:8.1f}  {label}" for label, us in row.get("kernels", ()))
    failed = "".join(f"  {name} failed: {why}" for name, why in row.get("failed", {}).items())
    return f"{row['key']:20} {told:>6}  {rate}  {shown} {kind}  {row['text']}{wrong}{failed}{kernels}"


def summary(rows: list[Row]) -> list[Row]:
    """Of each family, and of the memory-bound ones together: geometric mean, worst, cases, wrong or failed ones."""
    found = []
    for name in (*FAMILIES, "memory-bound"):
        mine = [r for r in rows if (r["family"] in MEMORY_BOUND if name == "memory-bound" else r["family"] == name)]
        if not mine:
            continue
        ratios = [ratio for r in mine if not r.get("small") and (ratio := speedup(r)) is not None]
        bad = sum("problem" in r or r["error"] > 1 for r in mine)
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios)) if ratios else None
        found.append({"family": name, "geometric_mean": mean, "worst": min(ratios, default=None), "cases": len(ratios),
                      "wrong": bad})
    return found


def wanted_cases(args: argparse.Namespace, seed: int) -> list[Case]:
    """The cases of this part, one of each family first."""
    part, parts = map(int, args.part.split("/"))
    if args.only:
        chosen = [each.split("/") for each in args.only.split(",")]
        return [draw_case(family, seed, int(number), args.scale) for at, (of, family, number) in enumerate(chosen)
                if int(of) == seed and at % parts == part % parts]
    names = families(args)
    numbers = [int(args.number)] if args.number else list(range(args.cases))
    return [draw_case(name, seed, number, args.scale) for number in numbers for at, name in enumerate(names)
            if (number * len(names) + at) % parts == part % parts]


def families(args: argparse.Namespace) -> list[str]:
    """The names of `--families`."""
    names = args.families.split(",") if args.families else list(FAMILIES)
    unknown = [name for name in names if name not in FAMILIES]
    if unknown:
        raise SystemExit(f"there is no family {unknown[0]}; there are {', '.join(FAMILIES)}")
    return names


def journal_of(args: argparse.Namespace, seed: int) -> Journal:
    """What was measured of a seed before."""
    folder = args.state or Path("build/sweep")
    return Journal(folder / f"{seed}-{args.device}-{args.scale:g}.jsonl")


def measure(args: argparse.Namespace, turn: Callable[[], bool] | None) -> None:
    """Measure what is not measured yet, and print rows: case by case, or with a `turn` all that is timed at the end."""
    started, spin = time.monotonic(), None
    if args.device == "cuda":
        forget_no_compiled_case()
        if turn is not None:
            from genesis.codegen.cuda import compile as compilers
            compilers.MOST_WORKERS = WORKERS  # type: ignore[misc]
        from bars import COPY_BYTES
        spin = tuple(genesis.zeros(COPY_BYTES, dtype=genesis.int8, device="cuda") for _ in range(2))
        genesis.eval(*spin)
    waiting: list[tuple[Journal, str, Prepared]] = []

    def finish(journal: Journal, key: str, found: Prepared) -> None:
        journal.write({"begun": key, "text": found.case.text})
        journal.write({"key": key, "family": found.case.family, "text": found.case.text,
                       **time_it(found, args, spin)})
        print(line_of(journal.rows[key]), flush=True)

    for journal, key, case in to_measure(args):
        if time.monotonic() - started > args.budget:
            break
        journal.write({"begun": key, "text": case.text})
        found = prepared(case, args)
        journal.write({"prepared": key})
        if turn is None:
            finish(journal, key, found)
        else:
            waiting.append((journal, key, found))
    if turn is not None and turn():
        gc.collect()
        with uncollected:  # which goes through all that torch has compiled while the GPU waits for work
            for each in waiting:
                finish(*each)


def to_measure(args: argparse.Namespace) -> list[tuple[Journal, str, Case]]:
    """The cases of this part that have no row yet."""
    found = []
    for seed in map(int, args.seeds.split(",")):
        journal = journal_of(args, seed)
        for case in wanted_cases(args, seed):
            key = f"{case.family}/{case.number}"
            if args.again or key not in journal.rows:
                found.append((journal, key, case))
    return found


def in_processes(args: argparse.Namespace) -> None:
    """The same by several processes, which prepare at once and take turns for timing."""
    commands = [[sys.executable, __file__, *sys.argv[1:], "--part", f"{i}/{args.processes}", "--in-turn"]
                for i in range(args.processes)]
    children = run_in_turn(commands, args.ready_within)
    for number, child in enumerate(children):
        for seed in map(int, args.seeds.split(",")) if child.late else ():
            args.part = f"{number}/{args.processes}"
            leave(journal_of(args, seed), [f"{case.family}/{case.number}" for case in wanted_cases(args, seed)])


def leave(journal: Journal, keys: Sequence[str]) -> None:
    """Of these cases those that a process had begun when it was killed for being late are left: none of them died."""
    for key in keys:
        if journal.rows.get(key, {}).get("problem") == DIED:
            journal.write({"prepared": key})


def report(args: argparse.Namespace) -> int:
    """Print what families came to, and write it; returns 1 if a result was wrong."""
    wrong = False
    for seed in map(int, args.seeds.split(",")):
        journal, args.part = journal_of(args, seed), "0/1"
        wanted = [(case.family, f"{case.family}/{case.number}") for case in wanted_cases(args, seed)]
        rows = [{"family": family, **journal.rows[key]} for family, key in wanted if key in journal.rows]
        found = summary(rows)
        print(f"seed {seed}")
        for each in found:
            mean, worst = ("-" if x is None else f"{x:.2f}" for x in (each["geometric_mean"], each["worst"]))
            bad = f", {each['wrong']} wrong" if each["wrong"] else ""
            print(f"{each['family']:16} geometric mean {mean}, worst {worst} of {each['cases']}{bad}")
        if len(rows) < len(wanted):
            print(f"{len(wanted) - len(rows)} cases are left: the same command goes on with them")
        if args.out:
            record.write(args.out, f"sweep_{seed}", seed=seed, families=found, rows=rows)
        wrong |= any(each["wrong"] for each in found)
    return int(wrong)


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", default="", help="comma-separated; every one by default")
    parser.add_argument("--seeds", "--seed", default="0", help="comma-separated")
    parser.add_argument("--cases", type=int, default=8, help="of each family")
    parser.add_argument("--only", default="", help="these cases, seed/family/number, comma-separated")
    parser.add_argument("--part", default="0/1", help="i/n: every n-th case, from the i-th")
    parser.add_argument("--number", default="", help="one case of each family, by its number")
    parser.add_argument("--peers", default="eager,compile", help="torch's contestants")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu: only checks results")
    parser.add_argument("--scale", type=float, default=1.0, help="of the bytes that are drawn")
    parser.add_argument("--budget", type=float, default=math.inf, help="seconds after which no case is begun")
    parser.add_argument("--state", type=Path, help="folder where rows are kept (build/sweep)")
    parser.add_argument("--again", action="store_true", help="measure again what was measured")
    parser.add_argument("--kernels-below", type=float, default=0.0, help="also time the kernels of slower cases")
    parser.add_argument("--processes", type=int, default=0, help="that compile at the same time")
    parser.add_argument("--ready-within", type=float, default=180.0, help="seconds, of processes; others are ended")
    parser.add_argument("--in-turn", action="store_true", help="prepare, then wait for a line of stdin (internal)")
    record.add_out(parser)
    args = parser.parse_args()
    if args.only:
        args.seeds = ",".join(dict.fromkeys(each.split("/")[0] for each in args.only.split(",")))
    return args


def main() -> int:
    """Measure what is not measured yet, print rows and what each family comes to."""
    args = arguments()
    warnings.filterwarnings("ignore")
    families(args)
    if args.processes and not args.in_turn:
        in_processes(args)
    else:
        measure(args, wait_for_turn if args.in_turn else None)
    return 0 if args.in_turn else report(args)


if __name__ == "__main__":
    sys.exit(main())
