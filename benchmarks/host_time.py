"""Host time of a training step: what Python spends beside the kernels.

    python benchmarks/host_time.py [--device cuda | idle] [--layers 12] [--dim 64] [--out]

A GPT with a context of 8 tokens trains one sequence. "whole" is a step as it runs, "host" the same with
the executor replaced by one that returns the memories of its last real run: what is left is recording,
keys, guards and bookkeeping. With `--device cuda` "host" is what a call takes, its launches included, while the
GPU has room for more; with `--device idle` the same as processor time on a GPU that does nothing (`idle_gpu.py`), so
without what CUDA's calls take. The bars: 4 ms for a step that is not compiled, 50 µs for one that is, 20 µs for guards.
Times are the smallest of several rounds' means; torch's eager step is given beside.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter, thread_time
from typing import Any

import record

import genesis
from genesis.models.gpt import GPT, GPTConfig
from genesis.runtime.cpu.executor import CPUExecutor, Started
from genesis.tracing.signature import signature

BARS = {"step": 4e-3, "step, compiled": 50e-6, "guards of the compiled step": 20e-6}
ROUNDS = 30  # of the host's times, of which the smallest counts: others may share the machine
QUEUED = 20  # calls that a GPU takes in without making the host wait


@contextmanager
def executor_stubbed() -> Iterator[None]:
    """Inside, a plan that has run before returns its last outputs and computes nothing."""
    start = CPUExecutor.start
    outputs: dict[CPUExecutor, Started] = {}

    def stub(self: CPUExecutor, inputs: Any, numbers: Any) -> Started:
        if self not in outputs:
            found = start(self, inputs, numbers)
            outputs[self] = Started(found.outputs, [])
            return found
        return outputs[self]
    CPUExecutor.start = stub  # type: ignore[method-assign]
    try:
        yield
    finally:
        CPUExecutor.start = start  # type: ignore[method-assign]


def mean_seconds(call: Callable[[], Any], budget: float = 1.0, rounds: int = 7,
                 most: int = 1 << 30, settle: Callable[[], None] = lambda: None,
                 finish: Callable[[], None] = lambda: None, clock: Callable[[], float] = perf_counter) -> float:
    """The smallest mean of several rounds of calls, which together take about `budget` seconds.

    `most`: calls in a round; `settle` is called between rounds, `finish` at the end of each, in its time.
    """
    for _ in range(4):
        call()
    settle()
    start = clock()
    call()
    count = min(most, max(3, int(budget / rounds / max(clock() - start, 1e-7))))
    found = []
    for _ in range(rounds):
        settle()
        start = clock()
        for _ in range(count):
            call()
        finish()
        found.append((clock() - start) / count)
    return min(found)


def programs(layers: int, dim: int, context: int, device: str = "cpu") -> dict[str, Callable[[], Any]]:
    """The calls to time, by name."""
    genesis.manual_seed(0)
    model = GPT(GPTConfig(vocab_size=64, context=context, layers=layers, heads=4, dim=dim)).to(device)
    optimizer = genesis.optim.AdamW(model.parameters(), lr=1e-3)
    ids = genesis.zeros(1, context, dtype=genesis.int64, device=device)
    genesis.eval(ids)

    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        _, loss = model(x, y)
        loss.backward()
        optimizer.step()
        return loss

    whole = genesis.compile(step)
    forward = genesis.compile(lambda x, y: model(x, y))

    def forward_only(function: Callable[..., Any]) -> Callable[[], Any]:
        def call() -> Any:
            with genesis.no_grad():
                return function(ids, ids)
        return call
    return {
        "step": lambda: step(ids, ids),
        "step, compiled": lambda: whole(ids, ids),
        "recording the forward": forward_only(model),
        "the compiled forward's call": forward_only(forward),
        "guards of the compiled step": lambda: _guards_of(whole).hold(),
        "signature of the call": lambda: signature((ids, ids), {}),
    }


def _guards_of(function: Any) -> Any:
    ((kept,),) = function._entries.values()
    return kept.guards


def torch_step(layers: int, dim: int, context: int, device: str = "cpu") -> Callable[[], Any]:
    """About the same step in eager torch."""
    import torch
    torch.set_num_threads(1)
    layer = torch.nn.TransformerEncoderLayer(dim, 4, 4 * dim, 0.0, "gelu", batch_first=True, norm_first=True)
    layers_of = torch.nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)
    model = torch.nn.Sequential(torch.nn.Embedding(64, dim), layers_of, torch.nn.LayerNorm(dim),
                                torch.nn.Linear(dim, 64, bias=False)).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    ids = torch.zeros(1, context, dtype=torch.int64, device=device)

    def step() -> Any:
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        loss.backward()
        optimizer.step()
        return loss
    return step


def measure(layers: int, dim: int, context: int) -> list[dict[str, Any]]:
    """A row for each program: its name, seconds as it runs and without the executor, and its bar."""
    import torch
    torch.set_num_threads(1)
    rows = []
    calls = programs(layers, dim, context)
    for name, call in calls.items():
        whole = mean_seconds(call)
        with executor_stubbed():
            host = mean_seconds(call)
        rows.append({"name": name, "whole": whole, "host": host, "bar": BARS.get(name)})
    rows.append({"name": "torch's eager step", "whole": mean_seconds(torch_step(layers, dim, context)), "host": None,
                 "bar": None})
    return rows


def measure_cuda(layers: int, dim: int, context: int) -> list[dict[str, Any]]:
    """The same on a GPU."""
    def row(name: str, call: Callable[[], Any], settle: Callable[[], None]) -> dict[str, Any]:
        return {"name": name, "whole": mean_seconds(call, settle=settle, finish=settle), "bar": BARS.get(name),
                "host": mean_seconds(call, 3.0, ROUNDS, most=QUEUED, settle=settle)}
    rows = [row(name, call, genesis.cuda.synchronize)
            for name, call in programs(layers, dim, context, "cuda").items()]
    import torch
    return [*rows, row("torch's eager step", torch_step(layers, dim, context, "cuda"), torch.cuda.synchronize)]


def measure_idle(layers: int, dim: int, context: int) -> list[dict[str, Any]]:
    """Processor time on a GPU that does nothing."""
    from idle_gpu import idle_gpu
    with idle_gpu():
        calls = programs(layers, dim, context, "cuda")
        return [{"name": name, "whole": None, "bar": BARS.get(name),
                 "host": mean_seconds(call, 3.0, ROUNDS, clock=thread_time)} for name, call in calls.items()]


NOTES = {"cpu": "", "cuda": "", "idle": "host time only: no GPU, CUDA's calls answer at once; processor time"}
FILES = {"cpu": "host_time", "cuda": "host_time_cuda", "idle": "host_time_host"}
MEASURES = {"cpu": measure, "cuda": measure_cuda, "idle": measure_idle}


def table(rows: list[dict[str, Any]]) -> str:
    """The rows as text, in microseconds."""
    def shown(seconds: float | None) -> str:
        return "" if seconds is None else f"{seconds * 1e6:,.1f}"
    lines = [f"{'':32}{'whole µs':>12}{'host µs':>12}{'bar µs':>12}"]
    for row in rows:
        missed = row["bar"] is not None and row["host"] > row["bar"]
        lines.append(f"{row['name']:32}{shown(row['whole']):>12}{shown(row['host']):>12}{shown(row['bar']):>12}"
                     + ("  missed" if missed else ""))
    return "\n".join(lines)


def main() -> None:
    """Measure, print, and write with --out."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--context", type=int, default=8)
    parser.add_argument("--device", choices=sorted(MEASURES), default="cpu")
    record.add_out(parser)
    options = parser.parse_args()
    rows = MEASURES[options.device](options.layers, options.dim, options.context)
    print(table(rows))
    if options.out is not None:
        shape = {name: getattr(options, name) for name in ("device", "layers", "dim", "context")}
        record.write(options.out, FILES[options.device], note=NOTES[options.device], **shape, seconds=rows)


if __name__ == "__main__":
    main()
