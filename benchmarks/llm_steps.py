"""Reading a prompt and fine-tuning at the shapes of the bars: Genesis beside torch.compile. Random weights.

    python benchmarks/llm_steps.py --out
    python benchmarks/llm_steps.py --rows prefill,full
    python benchmarks/llm_steps.py --rows full --sides torch --seconds 400    # compiles for minutes at first
    python benchmarks/llm_steps.py --rows full,lora --parts                   # torch compiles a block once
    python benchmarks/llm_steps.py --tiny              # on the CPU: does the script work?

`prefill` reads 2,048 tokens into a fixed cache with a Qwen3 of 0.6B in bfloat16, to the first token; `full` is a step
of AdamW on all weights of that model, float32 with bfloat16 autocast, on 8 rows of 2,048; `lora` one on low-rank
layers (rank 16) beside a Llama of 8B in bfloat16, on 2 rows. Each library runs in a process of its own; a time is the
median of the rounds' means, the device waited for at the ends of a round. Memory is the most that a step has
allocated, beyond weights and the optimizer's state. With `--parts` torch compiles each block, and the head with the
loss, apart (torchtitan's way of training), not the whole model. `--mode reduce-overhead` replays torch's prompt as a
CUDA graph, whose memory is not in torch's count.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, Final

import record
from decode import SHAPES

ROWS: Final[dict[str, tuple[str, int, int]]] = {"prefill": ("0.6B", 1, 2048), "full": ("0.6B", 8, 2048),
                                                "lora": ("8B", 2, 2048)}
"""Row → (shape, rows, tokens)."""

BARS: Final = {"prefill": 1.1, "full": 1.05, "lora": 1.05, "memory": 0.9}
"""torch's time over ours; our memory over torch's."""

RANK: Final = 16

TINY: Final[dict[str, Any]] = {"vocab_size": 97, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
                               "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}


def shape_of(row: str, tiny: bool) -> tuple[dict[str, Any], int, int]:
    """(fields of the configuration, rows, tokens)."""
    shape, batch, length = ROWS[row]
    tied = {"tie_word_embeddings": SHAPES[shape]["tie_word_embeddings"]}
    return ({**TINY, **tied}, batch, 24) if tiny else (SHAPES[shape], batch, length)


def rounds(run: Callable[[], Any], wait: Callable[[], None], count: int, steps: int) -> tuple[float, float]:
    """(milliseconds a run, seconds of the first one)."""
    start = perf_counter()
    run()
    wait()
    first = perf_counter() - start
    run()
    times = []
    for _ in range(count):
        wait()
        start = perf_counter()
        for _ in range(steps):
            run()
        wait()
        times.append((perf_counter() - start) / steps)
    return median(times) * 1e3, first


def genesis_side(row: str, tiny: bool) -> tuple[Any, Callable[[], Any], int]:
    """(the library, what is timed, bytes of weights and states)."""
    import genesis
    from genesis.models import LlamaConfig, LlamaForCausalLM, LoRA, Qwen3Config, Qwen3ForCausalLM
    from genesis.models.generation import cache_for
    from genesis.models.generation.decoding import Decoder
    from genesis.models.generation.sampling import Sampling
    fields, batch, length = shape_of(row, tiny)
    device = "cpu" if tiny else "cuda"
    genesis.manual_seed(0)
    ids = genesis.randint(0, fields["vocab_size"], (batch, length), device=device)
    with genesis.device(device):
        kind, config = (LlamaForCausalLM, LlamaConfig) if row == "lora" else (Qwen3ForCausalLM, Qwen3Config)
        model = kind(config(**fields, max_position_embeddings=8192))
        model = model if row == "full" else model.to(genesis.bfloat16)
    genesis.eval(*model.parameters())
    if row == "prefill":
        cache = cache_for(model.eval(), batch, length + 8)
        decoder = Decoder(model, batch, length, Sampling(temperature=0), cache=cache)

        def read() -> Any:
            cache.clear()
            with genesis.no_grad():
                return decoder.prefill(ids).tokens.tolist()
        return genesis, read, bytes_of(model) + cache.nbytes
    learnt = list((LoRA(model.train(), RANK) if row == "lora" else model.train()).parameters())
    optimizer = genesis.optim.AdamW(learnt, lr=1e-5)

    def step() -> Any:
        with genesis.autocast(device, dtype=genesis.bfloat16):
            loss = model(ids, labels=ids).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return genesis, genesis.compile(step), bytes_of(model) + 8 * sum(p.numel() for p in learnt)


def torch_side(row: str, tiny: bool, parts: bool, mode: str) -> tuple[Any, Callable[[], Any], int]:
    """The same in torch, compiled in this mode: whole, or the parts of a step apart."""
    import torch
    from torch_llm import Model, with_low_rank
    fields, batch, length = shape_of(row, tiny)
    device = "cpu" if tiny else "cuda"
    torch.manual_seed(0)
    compiled = (lambda f: f) if tiny else partial(torch.compile, mode=mode)
    ids = torch.randint(0, fields["vocab_size"], (batch, length), device=device)
    with torch.device(device):
        model = Model(fields, row != "lora")
        model = model if row == "full" else model.to(torch.bfloat16)
        if row == "prefill":
            slots = batch, fields["num_key_value_heads"], length + 8, fields["head_dim"]
            caches = [(torch.zeros(slots, dtype=torch.bfloat16), torch.zeros(slots, dtype=torch.bfloat16))
                      for _ in range(fields["num_hidden_layers"])]
            for x in (x for pair in caches for x in pair):  # a graph writes to these themselves
                torch._dynamo.mark_static_address(x)
            following = compiled(model.eval().following)

            def read() -> Any:
                with torch.no_grad():
                    return following(ids, caches).tolist()
            return torch, read, bytes_of(model) + sum(x.nbytes for pair in caches for x in pair)
        if row == "lora":
            with_low_rank(model, RANK)
    learnt = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=1e-5, fused=True)
    forward = model.train() if parts else compiled(model.train())
    if parts and not tiny:
        model.compile_parts(mode=mode)

    def step() -> Any:
        with torch.autocast(device, dtype=torch.bfloat16):
            loss = forward(ids)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()
    return torch, step, bytes_of(model) + 8 * sum(p.numel() for p in learnt)


def bytes_of(model: Any) -> int:
    """Of its weights, a shared one once."""
    return sum(p.numel() * p.element_size() for p in {id(p): p for p in model.parameters()}.values())


def side(name: str, row: str, tiny: bool, parts: bool, mode: str, count: int) -> dict[str, Any]:
    """What one library takes for a row."""
    library, run, held = genesis_side(row, tiny) if name == "genesis" else torch_side(row, tiny, parts, mode)
    cuda = None if tiny else library.cuda
    ms, first = rounds(run, (lambda: None) if cuda is None else cuda.synchronize, count, 1 if tiny else 5)
    above = 0.0
    if cuda is not None:
        cuda.reset_peak_memory_stats()
        run()
        cuda.synchronize()
        above = (cuda.max_memory_allocated() - held) / 1e9
    found = run()
    return {"ms": ms, "first_s": first, "above_gb": above, "value": found if row == "prefill" else found.item()}


def answered(command: list[str], seconds: float) -> dict[str, Any]:
    """The last line that a command prints, of JSON; or why there is none. At the limit its compilers end, too."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        out, _ = process.communicate(timeout=seconds)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return {"failed": f"it took more than {seconds:g} s"}
    lines = out.splitlines()
    return json.loads(lines[-1]) if process.returncode == 0 and lines else {"failed": f"exit {process.returncode}"}


def main() -> None:
    """Time the rows and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default=",".join(ROWS), help="comma-separated")
    parser.add_argument("--sides", default="genesis,torch", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=240, help="that a library may take for a row")
    parser.add_argument("--mode", default="default", help="of torch.compile")
    parser.add_argument("--parts", action="store_true", help="torch compiles each block and the loss apart")
    parser.add_argument("--tiny", action="store_true", help="small models on the CPU")
    parser.add_argument("--as", dest="name", help=argparse.SUPPRESS)
    record.add_out(parser)
    args = parser.parse_args()
    if args.name:
        print(json.dumps(side(args.name, args.rows, args.tiny, args.parts, args.mode, args.rounds)))
        return
    found = []
    for row in args.rows.split(","):
        result: dict[str, Any] = {"row": row, "mode": args.mode, "parts": args.parts}
        for name in args.sides.split(","):
            command = [sys.executable, str(Path(__file__)), "--as", name, "--rows", row, "--rounds", str(args.rounds),
                       "--mode", args.mode, *(["--tiny"] if args.tiny else []), *(["--parts"] if args.parts else [])]
            result[name] = answered(command, args.seconds)
            print(f"{row:8}{name:8}{json.dumps(result[name])}", flush=True)
        ours, theirs = result.get("genesis", {}), result.get("torch", {})
        if "ms" in ours and "ms" in theirs:
            result["speed"] = theirs["ms"] / ours["ms"]
            result["memory"] = ours["above_gb"] / theirs["above_gb"] if theirs["above_gb"] else None
            print(f"{row:8}{result['speed']:.2f} x torch's speed (bar {BARS[row]})" + (
                f", memory {result['memory']:.2f} of its (bar {BARS['memory']})" if result["memory"] else ""),
                  flush=True)
        found.append(result)
        if args.out:  # what a time limit of a caller's cannot take away
            record.write(args.out, "llm_steps", bars=BARS, rows=found)


if __name__ == "__main__":
    main()
