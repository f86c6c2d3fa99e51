"""Decoding on the CPU beside eager torch, one thread each: a model of 30 M parameters, batch 1.

    python benchmarks/decode_cpu.py --out
    python benchmarks/decode_cpu.py --rows cat --rounds 8

    decoder   `Decoder.step` of genesis.models (a static cache, compiled), beside the faster of torch's two caches
    cat       a loop as a user writes it, the same lines for both: caches that grow by `cat`, nothing compiled
    static    the same model with caches of a fixed size that `index_copy_` fills, nothing compiled

A time is processor time a token, since other programs may run beside, which slow memory down all the same: the least
of any four tokens in a row, of several rounds in turns. Each round writes `--tokens` tokens behind a prompt of
`--context`; the rounds before are not counted until programs are known.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from time import process_time
from typing import Any

import record

SHAPE: dict[str, int] = {"vocab": 8192, "dim": 512, "hidden": 1536, "layers": 8, "heads": 8, "shared": 8, "size": 64}
"""31 M parameters, the table shared with the head."""

WINDOW = 4
"""Tokens in a row that a time is of."""

BARS = {"decoder": 1.05, "cat": 1.5}
"""Of torch's time by ours; of the loop with `cat` on a GPU."""


def model_in(lab: Any, s: dict[str, int] = SHAPE) -> Any:
    """The model in one of the two libraries, as a user writes it: lists of keys and values go in and out."""
    nn, F = lab.nn, lab.nn.functional

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            inner, shared = s["heads"] * s["size"], s["shared"] * s["size"]
            self.first, self.second = nn.RMSNorm(s["dim"], eps=1e-6), nn.RMSNorm(s["dim"], eps=1e-6)
            self.q_norm, self.k_norm = nn.RMSNorm(s["size"], eps=1e-6), nn.RMSNorm(s["size"], eps=1e-6)
            self.q, self.k, self.v = (nn.Linear(s["dim"], n, bias=False) for n in (inner, shared, shared))
            self.out = nn.Linear(inner, s["dim"], bias=False)
            self.gate, self.up = (nn.Linear(s["dim"], s["hidden"], bias=False) for _ in range(2))
            self.down = nn.Linear(s["hidden"], s["dim"], bias=False)

        def forward(self, x: Any, angles: Any, kept: list[Any], place: Any, mask: Any) -> Any:
            B, T, _ = x.shape
            h = self.first(x)
            q, k, v = (p(h).view(B, T, -1, s["size"]) for p in (self.q, self.k, self.v))
            q, k, v = turned(self.q_norm(q).transpose(1, 2)), turned(self.k_norm(k).transpose(1, 2)), v.transpose(1, 2)
            if place is not None:
                kept[0].index_copy_(2, place, k)
                kept[1].index_copy_(2, place, v)
                k, v = kept
            elif kept:
                k, v = lab.cat([kept[0], k], 2), lab.cat([kept[1], v], 2)
                kept[:] = [k, v]
            else:
                kept[:] = [k, v]
            y = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None and T > 1,
                                               enable_gqa=s["heads"] > s["shared"])
            x = x + self.out(y.transpose(1, 2).reshape(B, T, -1))
            h = self.second(x)
            return x + self.down(F.silu(self.gate(h)) * self.up(h))

    def turned(x: Any) -> Any:
        cos, sin = angles_now
        a, b = x.chunk(2, -1)
        return x * cos + lab.cat([-b, a], -1) * sin

    angles_now: list[Any] = []

    class Model(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(s["vocab"], s["dim"])
            self.blocks = nn.ModuleList([Block() for _ in range(s["layers"])])
            self.norm = nn.RMSNorm(s["dim"], eps=1e-6)

        def forward(self, ids: Any, start: int, kept: list[list[Any]], capacity: int) -> Any:
            T, device = ids.shape[1], ids.device
            place = lab.arange(start, start + T, device=device)
            half = lab.arange(0, s["size"], 2, device=device).float() / s["size"]
            angles = place.float()[:, None] * (1e4 ** -half)
            angles = lab.cat([angles, angles], -1)
            mask = None if not capacity else lab.arange(capacity, device=device) <= place[:, None]
            x = self.embed(ids)
            angles_now[:] = [angles.cos().to(x.dtype), angles.sin().to(x.dtype)]
            for block, layer in zip(self.blocks, kept, strict=True):
                x = block(x, angles, layer, place if capacity else None, mask)
            return F.linear(self.norm(x)[:, -1], self.embed.weight).argmax(-1)
    return Model().eval()


def loop(lab: Any, model: Any, context: int, tokens: int, static: bool, s: dict[str, int] = SHAPE,
         clock: Callable[[], float] = process_time) -> float:
    """Seconds a token; the user reads each token, as who prints them does."""
    capacity = context + tokens if static else 0
    shape, device = (1, s["shared"], capacity, s["size"]), next(model.parameters()).device
    kept = [[lab.zeros(shape, device=device), lab.zeros(shape, device=device)] if static else []
            for _ in range(s["layers"])]
    with lab.no_grad():
        token = model(lab.arange(context, device=device).view(1, -1), 0, kept, capacity)
        token.item()
        times = [clock()]
        for i in range(tokens):
            token = model(token.view(1, 1), context + i, kept, capacity)
            token.item()
            times.append(clock())
        return least(times)


def least(times: list[float]) -> float:
    """Seconds a token of the fastest `WINDOW` tokens in a row; of all where they are fewer.

    >>> least([0.0, 2.0, 3.0, 4.0, 5.0, 6.0])
    1.0
    """
    window = min(WINDOW, len(times) - 1)
    return min(end - start for start, end in zip(times, times[window:], strict=False)) / window


def decoder() -> Callable[[int, int], float]:
    """What times the compiled step of `genesis.models`."""
    import genesis
    from genesis.models import Qwen3Config, Qwen3ForCausalLM
    from genesis.models.generation.caches import cache_for
    from genesis.models.generation.decoding import Decoder
    from genesis.models.generation.sampling import Sampling
    s = SHAPE
    model = Qwen3ForCausalLM(Qwen3Config(
        vocab_size=s["vocab"], hidden_size=s["dim"], intermediate_size=s["hidden"], num_hidden_layers=s["layers"],
        num_attention_heads=s["heads"], num_key_value_heads=s["heads"], head_dim=s["size"], tie_word_embeddings=True,
        max_position_embeddings=4096)).eval()
    genesis.eval(*model.parameters())

    def timed(context: int, tokens: int) -> float:
        with genesis.no_grad():
            writer = Decoder(model, 1, 0, Sampling(temperature=0), cache=cache_for(model, 1, context + tokens + 4))
            step = writer.prefill(genesis.arange(context).view(1, -1))
            for _ in range(3):
                step = writer.step(step.tokens)
                step.tokens.item()
            times = [process_time()]
            for _ in range(tokens):
                step = writer.step(step.tokens)
                step.tokens.item()
                times.append(process_time())
            return least(times)
    return timed


def main() -> None:
    """Time the rows in turns and print them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", default="decoder,cat,static", help="comma-separated")
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=6)
    record.add_out(parser)
    args = parser.parse_args()
    import torch

    import genesis
    torch.set_num_threads(1)
    rows = args.rows.split(",")
    theirs, ours = model_in(torch), model_in(genesis)
    ours.load_state_dict({name: genesis.tensor(x.numpy()) for name, x in theirs.state_dict().items()})
    programs: dict[str, Callable[[], float]] = {
        "torch cat": lambda: loop(torch, theirs, args.context, args.tokens, False),
        "torch static": lambda: loop(torch, theirs, args.context, args.tokens, True)}
    if "cat" in rows:
        programs["cat"] = lambda: loop(genesis, ours, args.context, args.tokens, False)
    if "static" in rows:
        programs["static"] = lambda: loop(genesis, ours, args.context, args.tokens, True)
    if "decoder" in rows:
        timed = decoder()
        programs["decoder"] = lambda: timed(args.context, args.tokens)
    best = dict.fromkeys(programs, float("inf"))
    for number in range(args.rounds + 1):
        for name, run in programs.items():
            seconds = run()
            if number:
                best[name] = min(best[name], seconds)
    fastest = min(best["torch cat"], best["torch static"])
    peers = {"decoder": fastest, "cat": best["torch cat"], "static": best["torch static"]}
    found = [{"row": name, "ms": best[name] * 1e3, "torch_ms": peers[name] * 1e3, "ratio": peers[name] / best[name]}
             for name in rows]
    for row in found:
        print(f"{row['row']:10}{row['ms']:8.2f} ms a token, torch {row['torch_ms']:.2f}: {row['ratio']:.2f} x "
              f"(bar {BARS.get(row['row'], '-')})")
    if args.out:
        record.write(args.out, "decode_cpu", bars=BARS, context=args.context, rows=found)


if __name__ == "__main__":
    main()
