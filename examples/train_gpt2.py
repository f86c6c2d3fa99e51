"""Train GPT-2 124M and print the time of each step.

    python examples/train_gpt2.py --device cuda                    # random tokens: a speed test
    python examples/train_gpt2.py --device cuda --data book.txt    # the bytes of a file

Matrix products run in bfloat16 on CUDA, the rest and the weights in float32.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

import genesis
from genesis import optim
from genesis.models import GPT, GPTConfig
from genesis.nn.utils import clip_grad_norm_


def main() -> None:
    """Parse the options and train."""
    options = parse()
    genesis.manual_seed(options.seed)
    config = replace(GPTConfig.gpt2(padded=True), layers=options.layers, context=options.context)
    model = GPT(config).to(options.device)
    optimizer = optim.AdamW(model.parameters(), lr=options.lr, betas=(0.9, 0.95), weight_decay=0.1)
    print(f"{model.parameter_count() / 1e6:.1f} M parameters on {options.device}, "
          f"batch {options.batch} × {options.context}, {options.dtype} products")

    low = options.dtype != "float32"
    dtype = getattr(genesis, options.dtype) if low else genesis.bfloat16
    for step, (ids, targets) in enumerate(batches(options, config.vocab_size), start=1):
        start = time.perf_counter()
        with genesis.autocast(options.device, dtype=dtype, enabled=low):
            _, loss = model(ids, targets)
        loss.backward()
        clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        value = loss.item()  # waits for the step
        seconds = time.perf_counter() - start
        print(f"step {step:4}  loss {value:7.4f}  {seconds * 1e3:8.1f} ms  "
              f"{options.batch * options.context / seconds:10,.0f} tokens/s")


def batches(options: argparse.Namespace, vocab_size: int) -> Iterator[tuple[genesis.Tensor, genesis.Tensor]]:
    """(ids, targets), both (batch, context): targets are the tokens that follow."""
    rng = np.random.default_rng(options.seed)
    text = np.frombuffer(Path(options.data).read_bytes(), np.uint8) if options.data else None
    for _ in range(options.steps):
        if text is None:
            rows = rng.integers(0, vocab_size, (options.batch, options.context + 1))
        else:
            starts = rng.integers(0, len(text) - options.context, options.batch)
            rows = np.stack([text[s:s + options.context + 1] for s in starts]).astype(np.int64)
        yield (genesis.tensor(rows[:, :-1], device=options.device), genesis.tensor(rows[:, 1:], device=options.device))


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if genesis.cuda_available() else "cpu")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--dtype", default="bfloat16", choices=["bfloat16", "float16", "float32"])
    parser.add_argument("--data", help="a file whose bytes to learn; random tokens without it")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


if __name__ == "__main__":
    main()
