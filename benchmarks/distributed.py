"""Collectives and data-parallel training on the GPUs of one host: are they right, and how fast beside torch's.

Four parts, each in processes of their own, one a GPU:
  check      every collective on every GPU, several times (so that CUDA graphs are replayed), against its definition;
             a GPT trained by DistributedDataParallel against one GPU on the same global batches;
  bandwidth  bus bandwidth of all_reduce, reduce_scatter and all_gather of 1 MB to 1 GB, and torch.distributed's;
  gpt        tokens a second of GPT-2 124M, 16 × 1024 a GPU, bf16, on one GPU and on all; and torch.compile + DDP's.

    python benchmarks/distributed.py --gpus 2 --out
    python benchmarks/distributed.py --gpus 2 --parts check
    python benchmarks/distributed.py --gpus 4 --parts bandwidth --sizes 1,4 --torch-forms graph
    NCCL_GRAPH_REGISTER=1 python benchmarks/distributed.py --gpus 4 --parts bandwidth --sizes 1 --contestants genesis

A small collective's time is NCCL's kernel and what is between two of them: `--torch-forms` says whether torch has a
graph or calls in a row, GENESIS_NCCL_GRAPHS=0 has calls in a row here, and NCCL_GRAPH_REGISTER=1 or 0 tells NCCL in
both whether a graph's buffers are registered (torch leaves it to NCCL, Genesis sets 0).

NVLink multicast stays off: NCCL_NVLS_ENABLE=0 is set for all processes, unless it is set already.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, Final

import numpy as np
import record
from gpu_rounds import gpu_rounds, step_of

SIZES: Final = tuple(1 << shift for shift in (20, 22, 24, 26, 28, 30))
"""Bytes of the larger side of a collective."""

IN_A_ROW: Final = 20
"""Collectives of a program, or graph, that waits for nothing in between."""

AT_ONCE: Final = 1 << 30
"""Bytes that are moved at least between two events: where 80 MiB were, in 1.3 ms, figures differed by 3 %."""

ROUNDS: Final = 5

TIMED: Final = 7
"""Rounds of the part gpt: with three, figures of one plan differed by 1.5 %, as GPUs get warm."""

VOCAB, CONTEXT, LAYERS, HEADS, DIM = 50304, 1024, 12, 12, 768
LR, BETAS, DECAY = 3e-4, (0.9, 0.95), 0.1
LIMIT: Final = 420
"""Seconds that the processes of a part may take."""

TRAINED: Final = 50
"""Steps over which losses on several GPUs are compared with those on one."""

CLOSE: Final = 2e-3
"""Relative difference of losses over `TRAINED` steps of several GPUs and of one on the same samples: sums in another
order, in float32, of which AdamW's division makes more where a gradient is near 0."""


# Processes

def main() -> None:
    """Run the parts, print what they found."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--parts", default="check,bandwidth,gpt")
    parser.add_argument("--rank-of", help=argparse.SUPPRESS)
    parser.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True,
                        help="genesis' GPT step through genesis.compile (the default)")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--counts", help="numbers of GPUs that the part gpt runs on (1 and --gpus)")
    parser.add_argument("--contestants", default="genesis,torch", help="of the parts bandwidth and gpt")
    parser.add_argument("--sizes", default=",".join(str(size >> 20) for size in SIZES),
                        help="of the part bandwidth, MiB of the larger side")
    parser.add_argument("--torch-forms", default="row,graph", help="of the part bandwidth: the better of these")
    parser.add_argument("--in-a-row", type=int, default=IN_A_ROW,
                        help="of the part bandwidth, collectives of a program, or graph")
    record.add_out(parser)
    args = parser.parse_args()
    if args.rank_of:
        found = RANKS[args.rank_of](args)
        if int(os.environ["RANK"]) == 0:
            print("RESULT " + json.dumps(found), flush=True)
        return
    results: dict[str, Any] = {}
    parts = args.parts.split(",")
    if "check" in parts:
        _check(args, results)
    if "bandwidth" in parts:
        _bandwidth(args, results)
    if "gpt" in parts:
        _gpt(args, results)
    if args.out:
        record.write(args.out, f"distributed_{args.gpus}", results=results)


def run(name: str, count: int, args: argparse.Namespace, file: str = __file__, limit: float = LIMIT,
        more: Sequence[str] = ()) -> Any:
    """What rank 0 of `count` processes found; None, and their output shown, if one failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, file, "--rank-of", name, "--steps", str(args.steps), "--batch", str(args.batch),
               *more]
    command += [] if args.compile else ["--no-compile"]
    processes = []
    for rank in range(count):
        variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_ADDR": "127.0.0.1",
                     "MASTER_PORT": str(port)}
        environment = {"NCCL_NVLS_ENABLE": "0", **os.environ, **variables}
        processes.append(subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                          text=True))
    outputs, begun = [], time.monotonic()
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=max(1.0, begun + limit - time.monotonic())))
        except subprocess.TimeoutExpired:
            for other in processes:
                other.kill()
            outputs.append(process.communicate())
    line = next((x for x in outputs[0][0].splitlines() if x.startswith("RESULT ")), None)
    if line is None or any(process.returncode for process in processes):
        for rank, (process, (out, error)) in enumerate(zip(processes, outputs, strict=True)):
            print(f"{name}: rank {rank} ended with {process.returncode}\n{out[-1500:]}\n{error[-3000:]}", flush=True)
        return None
    return json.loads(line.removeprefix("RESULT "))


def _check(args: argparse.Namespace, results: dict[str, Any]) -> None:
    found = results["check"] = run("check", args.gpus, args)
    if found is not None:
        print(f"NCCL {found['nccl']}; torch imported: {found['torch_imported']}")
        for name, fine in found["collectives"].items():
            print(f"  {name:24} {'right' if fine else 'WRONG'}")
    torn, alone = run("train", args.gpus, args), run("train", 1, args)
    results["train"] = {"ranks": torn, "alone": alone}
    if torn is not None and alone is not None:
        off = max(abs(a - b) / abs(b) for a, b in zip(torn["losses"], alone["losses"], strict=True))
        results["train"]["off"] = off
        verdict = "fine" if off < CLOSE else f"WRONG: more than {CLOSE}"
        print(f"GPT over {len(alone['losses'])} steps on {args.gpus} GPUs and on one: losses differ by at most "
              f"{off:.2e} ({verdict}); {torn['losses'][0]:.4f} to {torn['losses'][-1]:.4f}; its plan has "
              f"{torn['steps']}", flush=True)


def _bandwidth(args: argparse.Namespace, results: dict[str, Any]) -> None:
    more = ["--sizes", args.sizes, "--torch-forms", args.torch_forms, "--in-a-row", str(args.in_a_row)]
    parts = {"genesis": "bandwidth", "torch": "torch_bandwidth"}
    found = results["bandwidth"] = {name: run(parts[name], args.gpus, args, more=more)
                                    for name in args.contestants.split(",")}
    if any(each is None for each in found.values()):
        return
    print(f"bus bandwidth in GB/s on {args.gpus} GPUs: {', '.join(found)}{', ratio' if len(found) == 2 else ''}")
    first = next(iter(found.values()))
    for name in first:
        for size in first[name]:
            values = [each[name][size] for each in found.values()]
            ratio = f"{values[0] / values[1]:8.3f}" if len(values) == 2 else ""
            print(f"  {name:16}{int(size) >> 20:6} MiB{''.join(f'{value:9.1f}' for value in values)}{ratio}",
                  flush=True)


def _gpt(args: argparse.Namespace, results: dict[str, Any]) -> None:
    counts = [int(x) for x in args.counts.split(",")] if args.counts else [1, args.gpus]
    parts = {"genesis": "gpt", "torch": "torch_gpt"}
    rows = {f"{name} on {count}": run(parts[name], count, args) for name in args.contestants.split(",")
            for count in counts}
    results["gpt"] = rows
    print(f"GPT-2 124M, {args.batch} × {CONTEXT} a GPU, bf16: tokens/s, efficiency (- where one GPU was not "
          "among --counts), ms a step")
    for name, row in rows.items():
        alone = rows.get(f"{name.split()[0]} on 1")
        if row is not None:
            share = row["tokens"] / (int(name.split()[-1]) * alone["tokens"]) if alone else None
            print(f"  {name:14}{row['tokens']:12.0f}{'-' if share is None else f'{share:.3f}':>8}{row['ms']:9.2f}",
                  flush=True)
    for count in counts:
        ours, theirs = rows.get(f"genesis on {count}"), rows.get(f"torch on {count}")
        if ours and theirs:
            print(f"  genesis / torch on {count}: {ours['tokens'] / theirs['tokens']:.3f}", flush=True)


# What ranks do, with Genesis

def _join() -> tuple[int, int]:
    from genesis import cuda
    from genesis import distributed as dist
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    cuda.set_device(int(os.environ["LOCAL_RANK"]))
    dist.init_process_group("nccl")
    return rank, size


def check(args: argparse.Namespace) -> dict[str, Any]:
    """Every collective, for several dtypes, four times each."""
    import genesis
    from genesis import distributed as dist
    from genesis.runtime.cuda.nccl import nccl
    rank, size = _join()
    found: dict[str, bool] = {}

    def expect(name: str, got: Any, wanted: Any) -> None:
        found[name] = found.get(name, True) and got.float().cpu().flatten().tolist() == [float(x) for x in wanted]

    total, ranks = size * (size + 1) // 2, range(size)
    for dtype in (genesis.float32, genesis.bfloat16, genesis.int64, genesis.float64):
        for i in range(4):
            base = [1 + i, 2 + i]
            x = genesis.tensor(base, dtype=dtype, device="cuda") * (rank + 1)
            y = x.clone()
            dist.all_reduce(y)
            expect("all_reduce sum", y, [b * total for b in base])
            y = x.clone()
            dist.all_reduce(y, dist.ReduceOp.MAX)
            expect("all_reduce max", y, [b * size for b in base])
            if dtype.is_floating_point:
                y = x.clone()
                dist.all_reduce(y, dist.ReduceOp.AVG)
                expect("all_reduce avg", y, [b * total / size for b in base])
            y = x.clone()
            dist.broadcast(y, src=size - 1)
            expect("broadcast", y, [b * size for b in base])
            y = x.clone()
            dist.reduce(y, dst=0)
            if rank == 0:
                expect("reduce", y, [b * total for b in base])
            y = genesis.empty(size, 2, dtype=dtype, device="cuda")
            dist.all_gather_into_tensor(y, x)
            expect("all_gather", y, [b * (r + 1) for r in ranks for b in base])
            rows = genesis.cat([x + r for r in ranks])
            y = genesis.empty(2, dtype=dtype, device="cuda")
            dist.reduce_scatter_tensor(y, rows)
            expect("reduce_scatter", y, [b * total + rank * size for b in base])
            y = genesis.empty(2 * size, dtype=dtype, device="cuda")
            dist.all_to_all_single(y, rows)
            expect("all_to_all", y, [b * (r + 1) + rank for r in ranks for b in base])
            parts = [genesis.empty(2, dtype=dtype, device="cuda") for _ in ranks] if rank == 0 else None
            dist.gather(x, parts, dst=0)
            if parts is not None:
                expect("gather", genesis.cat(parts), [b * (r + 1) for r in ranks for b in base])
            y = genesis.empty(2, dtype=dtype, device="cuda")
            dist.scatter(y, [x * 0 + r for r in ranks] if rank == 0 else None, src=0)
            expect("scatter", y, [rank, rank])
            if rank < 2 <= size:
                y = genesis.empty(2, dtype=dtype, device="cuda")
                if rank == 0:
                    dist.send(x, 1)
                    dist.recv(y, 1)
                else:
                    dist.recv(y, 0)
                    dist.send(x, 0)
                expect("send and recv", y, [b * (2 - rank) for b in base])
    gathered: list[Any] = [None] * size
    dist.all_gather_object(gathered, {"rank": rank})
    found["all_gather_object"] = gathered == [{"rank": r} for r in ranks]
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, found)
    version = nccl().version
    dist.destroy_process_group()
    names = dict.fromkeys(name for each in everyone for name in each)
    return {"collectives": {name: all(each.get(name, True) for each in everyone) for name in names}, "nccl": version,
            "torch_imported": "torch" in sys.modules}


def train(args: argparse.Namespace) -> dict[str, Any]:
    """Losses of a small GPT in float32, 8 sequences in all, on so many GPUs."""
    import genesis
    from genesis import distributed as dist
    from genesis import engine, nn
    from genesis.models import GPT, GPTConfig
    rank, size = _join()
    genesis.manual_seed(0)
    model: Any = GPT(GPTConfig(512, 128, 4, 4, 256)).to("cuda")
    if size > 1:
        model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)
    losses = []
    for x, y in batches(TRAINED, 8, 128, 512):
        mine = slice(rank * len(x) // size, (rank + 1) * len(x) // size)
        _, loss = model(genesis.tensor(x[mine], device="cuda"), genesis.tensor(y[mine], device="cuda"))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        plan = engine.last_plan()
        mean = loss.detach().clone()
        dist.all_reduce(mean, dist.ReduceOp.AVG)
        losses.append(mean.item())
    assert plan is not None
    kinds = [type(step).__name__ for step in plan.plan.steps]
    dist.destroy_process_group()
    return {"losses": losses, "steps": {kind: kinds.count(kind) for kind in dict.fromkeys(kinds)}}


def bandwidth(args: argparse.Namespace) -> dict[str, Any]:
    """Bus bandwidths; collectives in a row are one program."""
    import genesis
    from genesis import cuda
    from genesis import distributed as dist
    _, size = _join()

    def timed(nbytes: int, call: Callable[[], None], *targets: Any) -> float:
        times, programs = [], _programs(nbytes, args.in_a_row)

        @genesis.compile
        def many() -> None:
            for _ in range(args.in_a_row):
                call()

        begin, end = cuda.Event(enable_timing=True), cuda.Event(enable_timing=True)
        for i in range(ROUNDS + 3):  # the first are launched one by one, the graph is built
            many()
            genesis.eval(*targets)  # does not wait; the GPU works while the host prepares the next
            begin.record()
            for _ in range(programs):
                many()
                genesis.eval(*targets)
            end.record()
            cuda.synchronize()
            if i >= 3:
                times.append(begin.elapsed_time(end) / 1e3 / (programs * args.in_a_row))
        return median(times)

    def tensors(nbytes: int) -> tuple[Any, Any]:
        return tuple(genesis.zeros(count, device="cuda") for count in (nbytes // 4, nbytes // 4 // size))  # type: ignore

    found = _bandwidths(args, size, timed, tensors, dist.all_reduce, dist.reduce_scatter_tensor,
                        dist.all_gather_into_tensor)
    dist.destroy_process_group()
    return found


def _bandwidths(args: argparse.Namespace, size: int, timed: Callable[..., float],
                tensors: Callable[[int], tuple[Any, Any]], all_reduce: Any, reduce_scatter: Any,
                all_gather: Any) -> dict[str, dict[int, float]]:
    """GB/s that each GPU sends and receives, as nccl-tests count them."""
    found: dict[str, dict[int, float]] = {"all_reduce": {}, "reduce_scatter": {}, "all_gather": {}}
    for nbytes in (int(mebibytes) << 20 for mebibytes in args.sizes.split(",")):
        whole, part = tensors(nbytes)
        share = (size - 1) / size * nbytes / 1e9
        found["all_reduce"][nbytes] = 2 * share / timed(nbytes, lambda whole=whole: all_reduce(whole), whole)
        found["reduce_scatter"][nbytes] = share / timed(
            nbytes, lambda whole=whole, part=part: reduce_scatter(part, whole), part)
        found["all_gather"][nbytes] = share / timed(
            nbytes, lambda whole=whole, part=part: all_gather(whole, part), whole)
    return found


def _programs(nbytes: int, in_a_row: int) -> int:
    """How many programs of collectives of so many bytes are timed together: the same on all ranks."""
    return max(4, AT_ONCE // (nbytes * in_a_row))


def gpt(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of all GPUs together."""
    import genesis
    from genesis import cuda, nn
    from genesis import distributed as dist
    from genesis.models import GPT, GPTConfig
    rank, size = _join()
    genesis.manual_seed(0)
    model: Any = GPT(GPTConfig(VOCAB, CONTEXT, LAYERS, HEADS, DIM)).to("cuda")
    if size > 1:
        model = nn.parallel.DistributedDataParallel(model)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY)

    step = step_of(genesis, model, optimizer)
    run_step = genesis.compile(step) if args.compile else step
    data = [(genesis.tensor(x, device="cuda"), genesis.tensor(y, device="cuda"))
            for x, y in batches(10, args.batch, CONTEXT, VOCAB, seed=rank)]
    losses = [run_step(*pair).item() for pair in data]
    times = gpu_rounds(cuda, TIMED, args.steps, lambda i: run_step(*data[i % len(data)]))
    dist.destroy_process_group()
    return {**_tokens(times, size, args.batch, losses), "told": str(genesis.explain(run_step)) if args.compile else ""}


def _tokens(times: Sequence[float], size: int, batch: int, losses: Sequence[float]) -> dict[str, Any]:
    ms = median(times)
    return {"ms": ms, "all_ms": list(times), "tokens": size * batch * CONTEXT / ms * 1e3, "losses": list(losses)}


def batches(count: int, batch: int, context: int, vocab: int, seed: int = 0) -> list[tuple[np.ndarray, np.ndarray]]:
    """Token windows with some structure: each token is a function of the one before, or random."""
    rng, follow = np.random.default_rng(seed), np.random.default_rng(1234).integers(0, vocab, vocab)
    found = []
    for _ in range(count):
        tokens = np.empty((batch, context + 1), np.int64)
        tokens[:, 0] = rng.integers(0, vocab, batch)
        for t in range(context):
            fresh = rng.random(batch) < 0.2
            tokens[:, t + 1] = np.where(fresh, rng.integers(0, 512, batch), follow[tokens[:, t]] % 512)
        found.append((tokens[:, :-1].copy(), tokens[:, 1:].copy()))
    return found


# What ranks do, with torch

def _join_torch() -> tuple[int, int]:
    import torch
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    torch.distributed.init_process_group("nccl", device_id=torch.device("cuda", local))
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def torch_bandwidth(args: argparse.Namespace) -> dict[str, Any]:
    """Bus bandwidths; the better of calls in a row and of a CUDA graph of them."""
    import torch
    from torch import distributed as dist
    _, size = _join_torch()

    def timed(nbytes: int, call: Callable[[], None], *targets: Any) -> float:
        programs = _programs(nbytes, args.in_a_row)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        for _ in range(3):
            call()
        torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            for _ in range(args.in_a_row):
                call()

        def in_a_row() -> None:
            for _ in range(args.in_a_row):
                call()
        best = float("inf")
        for many in [form for name, form in (("row", in_a_row), ("graph", graph.replay)) if name in args.torch_forms]:
            times = []
            for i in range(ROUNDS + 2):
                many()
                begin.record()
                for _ in range(programs):
                    many()
                end.record()
                torch.cuda.synchronize()
                if i >= 2:
                    times.append(begin.elapsed_time(end) / 1e3 / (programs * args.in_a_row))
            best = min(best, median(times))
        return best

    def tensors(nbytes: int) -> tuple[Any, Any]:
        return tuple(torch.zeros(count, device="cuda") for count in (nbytes // 4, nbytes // 4 // size))  # type: ignore

    found = _bandwidths(args, size, timed, tensors, dist.all_reduce, dist.reduce_scatter_tensor,
                        dist.all_gather_into_tensor)
    dist.destroy_process_group()
    return found


def torch_gpt(args: argparse.Namespace) -> dict[str, Any]:
    """Tokens a second of torch.compile, with DDP on several GPUs."""
    import torch
    from torch import distributed as dist
    from torch_gpt2 import TorchGPT
    rank, size = _join_torch()
    torch.manual_seed(0)
    model: Any = TorchGPT(VOCAB, CONTEXT, LAYERS, HEADS, DIM).cuda()
    for p in model.parameters():
        if p.ndim > 1:
            torch.nn.init.normal_(p, std=0.02)
    if size > 1:
        model = torch.nn.parallel.DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])],
                                                          gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, betas=BETAS, weight_decay=DECAY, fused=True)
    step = step_of(torch, torch.compile(model), optimizer)
    data = [(torch.tensor(x).cuda(), torch.tensor(y).cuda())
            for x, y in batches(10, args.batch, CONTEXT, VOCAB, seed=rank)]
    losses = [step(*pair).item() for pair in data]
    times = gpu_rounds(torch.cuda, TIMED, args.steps, lambda i: step(*data[i % len(data)]))
    dist.destroy_process_group()
    return _tokens(times, size, args.batch, losses)


RANKS: Final[dict[str, Callable[[argparse.Namespace], dict[str, Any]]]] = {
    "check": check, "train": train, "bandwidth": bandwidth, "gpt": gpt, "torch_bandwidth": torch_bandwidth,
    "torch_gpt": torch_gpt}
"""What the processes of a part do, by the part's name."""

if __name__ == "__main__":
    main()
