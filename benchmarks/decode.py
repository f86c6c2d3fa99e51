"""Tokens a second of language models that write: batches of 1 and 64, short and long contexts; random weights.

    python benchmarks/decode.py --out                 # every row, on the GPU
    python benchmarks/decode.py --rows 0.6B@128 --profile
    python benchmarks/decode.py --peer                # torch beside: a static cache under torch.compile
    python benchmarks/decode.py --rows "" --cat       # a user's loop with caches that grow by `cat`, beside eager torch

A row is `shape@context` or `shape@contextxbatch`. A time is the least of several rounds of `--tokens` steps, each of
which reads the token that the one before chose, on the device; the host waits at a round's end. "copied" is how many
bytes of weights and cache a step has to read, over its time, as a fraction of the GPU's copy rate (4258 GB/s of an
H200, measured); the embedding table is not counted where it is not the head.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from time import perf_counter
from typing import Any

import record

COPY_RATE = 4258e9
"""Bytes a second of a copy on an H200, both directions counted."""

SHAPES: dict[str, dict[str, Any]] = {
    "0.6B": {"vocab_size": 151936, "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28,
             "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": True},
    "8B": {"vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
           "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "tie_word_embeddings": False},
}
"""Fields of a Qwen3's config; of 8B those of Llama 3.1, whose step has the same products."""

ROWS = ("0.6B@128", "0.6B@4096", "0.6B@512x64", "8B@128")
BARS = {"0.6B@128": 1500, "0.6B@4096": 1200, "0.6B@512x64": 16000}

CAT_BAR = 1.5
"""Of eager torch's time by ours in a user's loop."""


def parsed(row: str) -> tuple[str, int, int]:
    """(shape, context, batch).

    >>> parsed("0.6B@512x64")
    ('0.6B', 512, 64)
    """
    shape, _, rest = row.partition("@")
    context, _, batch = rest.partition("x")
    return shape, int(context), int(batch or 1)


def model_of(shape: str) -> Any:
    """The model, made on the GPU."""
    import genesis
    from genesis.models.qwen3 import Qwen3Config, Qwen3ForCausalLM
    genesis.set_default_device("cuda")
    genesis.manual_seed(0)
    model = Qwen3ForCausalLM(Qwen3Config(**SHAPES[shape], max_position_embeddings=8192)).to(genesis.bfloat16).eval()
    genesis.eval(*model.parameters())
    return model


def measured(model: Any, row: str, tokens: int, rounds: int) -> dict[str, Any]:
    """Seconds a token, and what a step has to read."""
    import genesis
    from genesis.models.generation.caches import cache_for
    from genesis.models.generation.decoding import Decoder
    from genesis.models.generation.sampling import Sampling
    _, context, batch = parsed(row)
    with genesis.no_grad():
        cache = cache_for(model, batch, context + tokens * (rounds + 1))
        decoder = Decoder(model, batch, 0, Sampling(temperature=0), cache=cache)
        ids = genesis.randint(0, 1000, (batch, context), device="cuda")
        start = perf_counter()
        step = decoder.prefill(ids)
        genesis.eval(step.tokens)
        genesis.cuda.synchronize()
        prefill = perf_counter() - start
        times, host = [], []
        for _ in range(rounds + 1):
            start = perf_counter()
            for _ in range(tokens):
                step = decoder.step(step.tokens)
            host.append((perf_counter() - start) / tokens)
            step.tokens.tolist()
            times.append((perf_counter() - start) / tokens)
    held = sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())
    if not model.spec.tied:
        held -= model.model.embed_tokens.weight.numel() * 2
    best = min(times)
    return {"row": row, "tokens_per_second": batch / best, "ms": best * 1e3, "host_ms": min(host) * 1e3,
            "copied": (held + cache.nbytes) / best / COPY_RATE, "prefill_s": prefill,
            "captures": genesis.explain(decoder._next).captures}


def profile() -> list[tuple[str, float, int]]:
    """(kernel, ms, launches) of the last plan, each launch timed alone."""
    import genesis
    from genesis.engine import last_plan
    from genesis.runtime.cuda.stream import current_stream
    plan = last_plan()
    assert plan is not None
    stream = current_stream(0).handle
    begin, end = genesis.cuda.Event(enable_timing=True), genesis.cuda.Event(enable_timing=True)
    spent: dict[str, list[float]] = defaultdict(list)
    for _ in range(3):
        spent.clear()
        for (label, start), step in zip(plan.executor.launches(), plan.plan.steps, strict=False):
            begin.record()
            start(stream)
            end.record()
            end.synchronize()
            spent[f"{label} {getattr(step, 'grid', ('',))[0]}"].append(begin.elapsed_time(end))
    return sorted(((label, sum(times), len(times)) for label, times in spent.items()), key=lambda x: -x[1])


def user_loop(context: int, tokens: int, rounds: int) -> dict[str, Any]:
    """Milliseconds a token of the same lines in both libraries: caches that grow by `cat`, nothing compiled, each token
    read as it comes. The least of the rounds after the first; in each the caches begin anew."""
    import torch
    from decode_cpu import loop, model_in

    import genesis
    c = SHAPES["0.6B"]
    shape = {"vocab": c["vocab_size"], "dim": c["hidden_size"], "hidden": c["intermediate_size"],
             "layers": c["num_hidden_layers"], "heads": c["num_attention_heads"], "shared": c["num_key_value_heads"],
             "size": c["head_dim"]}
    found: dict[str, list[float]] = {}
    for name, lab in (("torch", torch), ("genesis", genesis)):
        with lab.device("cuda"):
            model = model_in(lab, shape).to(lab.bfloat16)
        found[name] = [loop(lab, model, context, tokens, False, shape, perf_counter) * 1e3 for _ in range(rounds + 1)]
    ours, theirs = min(found["genesis"][1:]), min(found["torch"][1:])
    return {"row": f"cat@{context}", "ms": ours, "torch_ms": theirs, "ratio": theirs / ours,
            "first_round_ms": found["genesis"][0]}


def peer(rows: list[str], tokens: int) -> None:
    """The same shapes in torch, in a process of its own: prints a JSON line a row."""
    from torch_decode import tokens_per_second
    for row in rows:
        shape, context, batch = parsed(row)
        speed, compile_seconds = tokens_per_second(SHAPES[shape], context, batch, tokens)
        print(json.dumps({"row": row, "tokens_per_second": speed, "compile_s": compile_seconds}), flush=True)


def main() -> None:
    """Time the rows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated")
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--profile", action="store_true", help="the kernels of each row's step")
    parser.add_argument("--peer", action="store_true", help="torch beside")
    parser.add_argument("--cat", action="store_true", help="a user's loop with caches that grow, beside eager torch")
    parser.add_argument("--as-peer", action="store_true", help=argparse.SUPPRESS)
    record.add_out(parser)
    args = parser.parse_args()
    rows = list(filter(None, args.rows.split(",")))
    if args.as_peer:
        peer(rows, args.tokens)
        return
    found: list[dict[str, Any]] = []
    models: dict[str, Any] = {}
    for row in rows:
        shape = parsed(row)[0]
        if shape not in models:
            models.clear()
            models[shape] = model_of(shape)
        result = measured(models[shape], row, args.tokens, args.rounds)
        found.append(result)
        print(f"{row:14}{result['tokens_per_second']:9.0f} tokens/s (bar {BARS.get(row, '-')}), {result['ms']:.3f} ms, "
              f"host {result['host_ms']:.3f} ms, {result['copied']:.2f} of the copy rate, "
              f"prefill {result['prefill_s']:.2f} s, {result['captures']} captures", flush=True)
        if args.profile:
            for label, ms, count in profile()[:24]:
                print(f"    {ms:8.3f} ms {count:4d} x {ms / count * 1e3:7.1f} us  {label}")
    models.clear()
    if args.cat:
        found.append(row := user_loop(128, args.tokens, args.rounds))
        print(f"a user's loop with cat: {row['ms']:.2f} ms a token ({row['first_round_ms']:.1f} at first), eager torch "
              f"{row['torch_ms']:.2f}: {row['ratio']:.2f} x (bar {CAT_BAR})", flush=True)
    if args.peer:
        command = [sys.executable, str(Path(__file__)), "--as-peer", "--rows", args.rows, "--tokens", str(args.tokens)]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
        for line in done.stdout.splitlines():
            theirs = json.loads(line)
            mine = next(x for x in found if x["row"] == theirs["row"])
            mine["peer"] = theirs
            print(f"{theirs['row']:14}torch {theirs['tokens_per_second']:9.0f} tokens/s: "
                  f"{mine['tokens_per_second'] / theirs['tokens_per_second']:.2f} x")
    if args.out:
        record.write(args.out, "decode", bars=BARS, rows=found)


if __name__ == "__main__":
    main()
