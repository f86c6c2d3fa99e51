"""Training steps of recurrent networks beside eager torch: on the CPU by processor time of one thread, on a GPU beside
cuDNN by the clock; the least of several.

    python benchmarks/recurrent.py [--device cuda] [--out benchmarks/results/recurrent.json]

Models: a word model of two LSTM layers of 650 (35 steps, batch 20), character models of 128 (LSTM and GRU), images read
row by row (28 × 28, hidden 128, batch 100). A step is forward, backward, clipping and the update.
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import record
import torch

import genesis

RANDOM = np.random.default_rng(0)


def word_model(T: Any, compiled: bool) -> Callable[[], Any]:
    """10,000 words, two layers of 650, SGD."""
    nn = T.nn
    embedding, layers, head = nn.Embedding(10_000, 650), nn.LSTM(650, 650, 2), nn.Linear(650, 10_000)
    parameters = [p for m in (embedding, layers, head) for p in m.parameters()]
    optimizer = T.optim.SGD(parameters, lr=1.0)
    x, y = (T.tensor(RANDOM.integers(0, 10_000, (35, 20))) for _ in range(2))

    def step(x: Any, y: Any, state: Any) -> Any:
        out, state = layers(embedding(x), state)
        loss = nn.functional.cross_entropy(head(out).view(-1, 10_000), y.view(-1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(parameters, 0.25)
        optimizer.step()
        return loss, state
    return _carried(T, step, compiled, x, y, (T.zeros(2, 20, 650), T.zeros(2, 20, 650)))


def character_model(kind: str, batch: int, time: int) -> Callable[[Any, bool], Callable[[], Any]]:
    """100 characters, hidden 128, Adam."""
    def make(T: Any, compiled: bool) -> Callable[[], Any]:
        nn = T.nn
        embedding, layer, head = nn.Embedding(100, 128), getattr(nn, kind)(128, 128), nn.Linear(128, 100)
        parameters = [p for m in (embedding, layer, head) for p in m.parameters()]
        optimizer = T.optim.Adam(parameters, lr=1e-3)
        x, y = (T.tensor(RANDOM.integers(0, 100, (time, batch))) for _ in range(2))

        def step(x: Any, y: Any, state: Any) -> Any:
            out, state = layer(embedding(x), state)
            loss = nn.functional.cross_entropy(head(out).view(-1, 100), y.view(-1))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            return loss, state
        first = T.zeros(1, batch, 128)
        return _carried(T, step, compiled, x, y, (first, first.clone()) if kind == "LSTM" else first)
    return make


def image_rows(kind: str, both: bool = False) -> Callable[[Any, bool], Callable[[], Any]]:
    """28 rows of 28, two layers of 128, batch 100, Adam."""
    def make(T: Any, compiled: bool) -> Callable[[], Any]:
        nn = T.nn
        layers = getattr(nn, kind)(28, 128, 2, batch_first=True, bidirectional=both)
        head = nn.Linear(256 if both else 128, 10)
        parameters = [*layers.parameters(), *head.parameters()]
        optimizer = T.optim.Adam(parameters, lr=1e-3)
        x = T.tensor(RANDOM.standard_normal((100, 28, 28)).astype("float32"))
        y = T.tensor(RANDOM.integers(0, 10, 100))

        def step(x: Any, y: Any) -> Any:
            loss = nn.functional.cross_entropy(head(layers(x)[0][:, -1]), y)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 5.0)
            optimizer.step()
            return loss
        run = T.compile(step) if compiled else step
        return lambda: run(x, y).item()
    return make


def cells(T: Any, compiled: bool) -> Callable[[], Any]:
    """An LSTMCell in a Python loop of 20 steps, hidden 128, batch 32."""
    nn = T.nn
    cell, head = nn.LSTMCell(64, 128), nn.Linear(128, 10)
    parameters = [*cell.parameters(), *head.parameters()]
    optimizer = T.optim.Adam(parameters, lr=1e-3)
    x = T.tensor(RANDOM.standard_normal((20, 32, 64)).astype("float32"))
    y = T.tensor(RANDOM.integers(0, 10, 32))

    def step(x: Any, y: Any) -> Any:
        h, c = T.zeros(32, 128), T.zeros(32, 128)
        for t in range(20):
            h, c = cell(x[t], (h, c))
        loss = nn.functional.cross_entropy(head(h), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss
    run = T.compile(step) if compiled else step
    return lambda: run(x, y).item()


def _carried(T: Any, step: Callable[..., Any], compiled: bool, x: Any, y: Any, state: Any) -> Callable[[], Any]:
    """The state goes from step to step, detached."""
    run, held = T.compile(step) if compiled else step, [state]

    def once() -> Any:
        before = held[0]
        loss, after = run(x, y, before.detach() if not isinstance(before, tuple) else tuple(h.detach() for h in before))
        held[0] = after
        return loss.item()
    return once


MODELS: dict[str, Callable[[Any, bool], Callable[[], Any]]] = {
    "word model, LSTM 2 × 650": word_model,
    "characters, LSTM 128, batch 1": character_model("LSTM", 1, 100),
    "characters, LSTM 128, batch 32": character_model("LSTM", 32, 50),
    "characters, GRU 128, batch 1": character_model("GRU", 1, 100),
    "characters, GRU 128, batch 32": character_model("GRU", 32, 50),
    "characters, RNN 128, batch 32": character_model("RNN", 32, 50),
    "image rows, LSTM 2 × 128": image_rows("LSTM"),
    "image rows, GRU 2 × 128": image_rows("GRU"),
    "image rows, BiLSTM 2 × 128": image_rows("LSTM", both=True),
    "LSTMCell in a loop of 20": cells,
}


def seconds(run: Callable[[], Any], clock: Callable[[], float]) -> float:
    """Time of one call, which ends with reading its loss."""
    start = clock()
    run()
    return clock() - start


def main() -> None:
    """Time all, in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    record.add_out(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    clock = time.process_time if args.device == "cpu" else time.perf_counter
    record.on_device(args.device)
    rows = []
    print(f"{'':34}{'torch ms':>10}{'undecorated':>13}{'compiled':>10}")
    for name, make in MODELS.items():
        if args.only not in name:
            continue
        runs = {"torch": make(torch, False), "undecorated": make(genesis, False), "compiled": make(genesis, True)}
        best: dict[str, float] = {}
        for turn in range(4 + args.steps):
            for key, run in runs.items():
                took = seconds(run, clock)
                if turn >= 4:
                    best[key] = min(best.get(key, took), took)
        ratios = {key: best["torch"] / best[key] for key in ("undecorated", "compiled")}
        found = "".join(f"{ratio:12.2f}" for ratio in ratios.values())
        print(f"{name:34}{best['torch'] * 1e3:10.2f} {found}", flush=True)
        rows.append({"model": name, "torch_ms": best["torch"] * 1e3, **ratios})
        del runs
        gc.collect()
    if args.out:
        name = "recurrent" if args.device == "cpu" else f"recurrent_{args.device}"
        record.write(args.out, name, config={"steps": args.steps, "threads": 1, "device": args.device}, rows=rows)


if __name__ == "__main__":
    main()
