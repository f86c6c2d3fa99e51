"""Training steps of ordinary models at the sizes that people train them with on a CPU, beside eager torch.

    python benchmarks/ordinary_steps.py [--only unet,mobilenet] [--rounds 6] [--out]
    python benchmarks/ordinary_steps.py --first [--only experts] [--out]

Milliseconds of processor time a step (zero_grad, forward, loss, backward, step, the loss read), the least of several,
libraries in turn, one thread. Columns behind are ratios to torch, above 1 faster: undecorated, and with the step
compiled. With `--first` instead: seconds of the first step, and of the first twenty together, each way in a process of
its own whose cache of plans is empty; imports are not counted. `benchmarks/programs.py` times the tests' programs,
whose sizes are so small that most of a step is Python.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import geometric_mean
from time import process_time
from typing import Any

import record
import torch

import genesis

Shape = tuple[int, ...]
BAR = 1.0


def _convolved(nn: Any, ins: int, outs: int, window: int = 3, stride: int = 1, groups: int = 1, act: Any = None) -> Any:
    """A convolution without bias, batch norm and an activation (none: False)."""
    layers = [nn.Conv2d(ins, outs, window, stride, window // 2, groups=groups, bias=False), nn.BatchNorm2d(outs)]
    return nn.Sequential(*layers, *([] if act is False else [act or nn.ReLU(inplace=True)]))


def mobilenet(lib: Any) -> tuple[Any, Shape]:
    """Inverted residuals with depthwise convolutions, CIFAR's images."""
    nn = lib.nn

    class Inverted(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, ins: int, outs: int, stride: int, factor: int) -> None:
            super().__init__()
            wide, self.residual = ins * factor, stride == 1 and ins == outs
            self.layers = nn.Sequential(_convolved(nn, ins, wide, 1, act=nn.ReLU6(inplace=True)),
                                        _convolved(nn, wide, wide, 3, stride, wide, act=nn.ReLU6(inplace=True)),
                                        _convolved(nn, wide, outs, 1, act=False))

        def forward(self, x: Any) -> Any:
            return x + self.layers(x) if self.residual else self.layers(x)
    blocks, ins = [_convolved(nn, 3, 32)], 32
    for factor, outs, count, stride in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 2, 2), (6, 96, 2, 1)):
        for k in range(count):
            blocks.append(Inverted(ins, outs, stride if k == 0 else 1, factor))
            ins = outs
    return nn.Sequential(*blocks, _convolved(nn, ins, 320, 1), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(320, 10)), (32, 3, 32, 32)


def senet(lib: Any) -> tuple[Any, Shape]:
    """Residual blocks whose channels are weighted, CIFAR's images."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, ins: int, outs: int, stride: int = 1) -> None:
            super().__init__()
            self.first, self.second = _convolved(nn, ins, outs, 3, stride), _convolved(nn, outs, outs, act=False)
            self.squeeze, self.excite = nn.Conv2d(outs, outs // 16, 1), nn.Conv2d(outs // 16, outs, 1)
            same = stride == 1 and ins == outs
            self.shortcut = nn.Sequential() if same else _convolved(nn, ins, outs, 1, stride, act=False)

        def forward(self, x: Any) -> Any:
            out = self.second(self.first(x))
            weight = self.excite(F.relu(self.squeeze(F.avg_pool2d(out, out.size(2))))).sigmoid()
            out = out * weight
            out += self.shortcut(x)
            return F.relu(out)
    return nn.Sequential(_convolved(nn, 3, 32), Block(32, 32), Block(32, 32), Block(32, 64, 2), Block(64, 64),
                         Block(64, 128, 2), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 10)), (32, 3, 32, 32)


def googlenet(lib: Any) -> tuple[Any, Shape]:
    """Branches of several widths, CIFAR's images."""
    nn = lib.nn

    class Inception(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, ins: int, one: int, three: tuple[int, int], five: tuple[int, int], pool: int) -> None:
            super().__init__()
            self.branches = nn.ModuleList([
                _convolved(nn, ins, one, 1),
                nn.Sequential(_convolved(nn, ins, three[0], 1), _convolved(nn, *three)),
                nn.Sequential(_convolved(nn, ins, five[0], 1), _convolved(nn, *five), _convolved(nn, five[1], five[1])),
                nn.Sequential(nn.MaxPool2d(3, 1, 1), _convolved(nn, ins, pool, 1))])

        def forward(self, x: Any) -> Any:
            return lib.cat([branch(x) for branch in self.branches], 1)
    return nn.Sequential(_convolved(nn, 3, 48), Inception(48, 16, (24, 32), (4, 8), 8),
                         Inception(64, 32, (32, 48), (8, 24), 16), nn.MaxPool2d(3, 2, 1),
                         Inception(120, 48, (24, 52), (4, 12), 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                         nn.Linear(128, 10)), (16, 3, 32, 32)


def unet(lib: Any) -> tuple[Any, Shape]:
    """Down and up again with skips, small medical images; its classes are averaged to one row an image."""
    nn = lib.nn

    def twice(ins: int, outs: int) -> Any:
        return nn.Sequential(*(layer for i, o in ((ins, outs), (outs, outs)) for layer in (
            nn.Conv2d(i, o, 3, padding=1), nn.BatchNorm2d(o), nn.ReLU(inplace=True))))

    class UNet(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, wide: int = 16) -> None:
            super().__init__()
            self.down = nn.ModuleList([twice(3, wide), twice(wide, 2 * wide), twice(2 * wide, 4 * wide)])
            self.wider = nn.ModuleList([nn.ConvTranspose2d(4 * wide, 2 * wide, 2, 2),
                                        nn.ConvTranspose2d(2 * wide, wide, 2, 2)])
            self.up = nn.ModuleList([twice(4 * wide, 2 * wide), twice(2 * wide, wide)])
            self.pool, self.out = nn.MaxPool2d(2), nn.Conv2d(wide, 10, 1)

        def forward(self, x: Any) -> Any:
            kept = []
            for k, layers in enumerate(self.down):
                x = layers(self.pool(x) if k else x)
                kept.append(x)
            for skip, wider, layers in zip((kept[1], kept[0]), self.wider, self.up, strict=True):
                x = layers(lib.cat([wider(x), skip], 1))
            return self.out(x).mean((2, 3))
    return UNet(), (8, 3, 64, 64)


def diffusion(lib: Any) -> tuple[Any, Shape]:
    """Group norm and SiLU, down by a stride and up by interpolation, small images."""
    nn, F = lib.nn, lib.nn.functional

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, ins: int, outs: int) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.GroupNorm(8, ins), nn.GroupNorm(8, outs)])
            self.layers = nn.ModuleList([nn.Conv2d(ins, outs, 3, padding=1), nn.Conv2d(outs, outs, 3, padding=1)])
            self.shortcut = nn.Conv2d(ins, outs, 1) if ins != outs else nn.Identity()

        def forward(self, x: Any) -> Any:
            out = x
            for norm, layer in zip(self.norms, self.layers, strict=True):
                out = layer(F.silu(norm(out)))
            return out + self.shortcut(x)

    class Diffusion(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, wide: int = 32) -> None:
            super().__init__()
            self.first, self.out = nn.Conv2d(3, wide, 3, padding=1), nn.Conv2d(wide, 10, 3, padding=1)
            self.down = nn.Conv2d(wide, 2 * wide, 3, stride=2, padding=1)
            self.blocks = nn.ModuleList([Block(wide, wide), Block(2 * wide, 2 * wide), Block(3 * wide, wide)])

        def forward(self, x: Any) -> Any:
            first, middle, last = self.blocks
            kept = first(self.first(x))
            x = F.interpolate(middle(self.down(kept)), scale_factor=2, mode="nearest")
            return self.out(last(lib.cat([x, kept], 1))).mean((2, 3))
    return Diffusion(), (8, 3, 32, 32)


def experts(lib: Any) -> tuple[Any, Shape]:
    """Two layers of eight experts, of which each row takes two, as Mixtral's first code has them."""
    nn, F = lib.nn, lib.nn.functional

    class Experts(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, width: int = 128, hidden: int = 256, count: int = 8) -> None:
            super().__init__()
            self.gate = nn.Linear(width, count)
            self.experts = nn.ModuleList([nn.Sequential(nn.Linear(width, hidden), nn.SiLU(), nn.Linear(hidden, width))
                                          for _ in range(count)])

        def forward(self, x: Any) -> Any:
            weights, chosen = lib.topk(F.softmax(self.gate(x), dim=-1), 2, dim=-1)
            weights = weights / weights.sum(-1, keepdim=True)
            out = lib.zeros_like(x)
            for k, expert in enumerate(self.experts):
                rows, place = lib.where(chosen == k)
                out[rows] += weights[rows, place, None] * expert(x[rows])
            return out
    return nn.Sequential(nn.Linear(64, 128), Experts(), Experts(), nn.Linear(128, 10)), (512, 64)


def transformer(lib: Any) -> tuple[Any, Shape]:
    """A small vision transformer's encoder on rows of features: four layers of width 128, 64 tokens."""
    nn = lib.nn

    class Block(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self, width: int = 128, heads: int = 4) -> None:
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.qkv, self.proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

        def forward(self, x: Any) -> Any:
            n, t, c = x.shape
            q, k, v = (y.view(n, t, self.heads, c // self.heads).transpose(1, 2)
                       for y in self.qkv(self.norms[0](x)).split(c, dim=2))
            y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).reshape(n, t, c))
            return x + self.mlp(self.norms[1](x))

    class Head(nn.Module):  # type: ignore[misc,name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(128, 10)

        def forward(self, x: Any) -> Any:
            return self.linear(x.mean(1))
    return nn.Sequential(nn.Linear(48, 128), *[Block() for _ in range(4)], nn.LayerNorm(128), Head()), (12, 64, 48)


MODELS: dict[str, Callable[[Any], tuple[Any, Shape]]] = {f.__name__: f for f in (
    mobilenet, senet, googlenet, unet, diffusion, experts, transformer)}


def step_of(lib: Any, name: str, compiled: bool = False) -> Callable[[], Any]:
    """The model's training step with SGD and momentum, on one batch of random data."""
    lib.manual_seed(0)
    model, shape = MODELS[name](lib)
    optimizer = lib.optim.SGD(model.parameters(), lr=1e-2, momentum=0.9)
    x, target = lib.randn(*shape), lib.randint(0, 10, (shape[0],))

    def step() -> Any:
        optimizer.zero_grad()
        loss = lib.nn.functional.cross_entropy(model(x), target)
        loss.backward()
        optimizer.step()
        return loss
    return lib.compile(step) if compiled else step  # type: ignore[no-any-return]


def least(name: str, rounds: int) -> dict[str, float]:
    """Seconds of processor time a step takes in each way."""
    steps = {"torch": step_of(torch, name), "undecorated": step_of(genesis, name),
             "compiled": step_of(genesis, name, compiled=True)}
    for step in steps.values():
        for _ in range(4):
            step().item()
    found = dict.fromkeys(steps, float("inf"))
    for _ in range(rounds):
        for way, step in steps.items():
            for _ in range(2):
                start = process_time()
                step().item()
                found[way] = min(found[way], process_time() - start)
    return found


WAYS = ("torch", "undecorated", "compiled")
FIRST_STEPS = 20
FIRST_BAR, TOTAL_BAR = 1.0, 1.5
"""Seconds that a first step may take beyond torch's, and how many times torch's the first twenty may take."""


def first_steps(name: str, way: str) -> tuple[float, float]:
    """Processor seconds of this process's first step, and of the first twenty together."""
    step = step_of(torch if way == "torch" else genesis, name, way == "compiled")
    start = process_time()
    step().item()
    first = process_time() - start
    for _ in range(FIRST_STEPS - 1):
        step().item()
    return first, process_time() - start


def from_nothing(name: str, way: str) -> tuple[float, float]:
    """`first_steps` in a new process whose cache is empty."""
    with tempfile.TemporaryDirectory() as cache:
        done = subprocess.run([sys.executable, __file__, "--alone", way, "--only", name], text=True, check=True,
                              capture_output=True, env={**os.environ, "GENESIS_CACHE_DIR": cache})
    first, total = map(float, done.stdout.split()[-2:])
    return first, total


def time_first_steps(names: list[str], out: Path | None) -> None:
    """Time the first steps of each model in each way, print them beside torch's, and write them."""
    rows = {}
    print(f"{'':14}" + "".join(f"{way:>12}{f'of {FIRST_STEPS}':>8}" for way in WAYS) + "  (seconds)")
    for name in names:
        row = rows[name] = {way: from_nothing(name, way) for way in WAYS}
        missed = [way for way in WAYS[1:] if row[way][0] > row["torch"][0] + FIRST_BAR
                  or row[way][1] > row["torch"][1] * TOTAL_BAR]
        print(f"{name:14}" + "".join(f"{row[way][0]:12.2f}{row[way][1]:8.2f}" for way in WAYS)
              + (f"  below the bar: {', '.join(missed)}" if missed else ""), flush=True)
    if out:
        record.write(out, "ordinary_first_steps", bars={"first_s": FIRST_BAR, "total": TOTAL_BAR}, rows=rows)


def main() -> None:
    """Time all and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="models, by their names and commas")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--first", action="store_true", help="the first steps, from an empty cache")
    parser.add_argument("--alone", choices=WAYS, help=argparse.SUPPRESS)
    record.add_out(parser)
    args = parser.parse_args()
    torch.set_num_threads(1)
    if args.alone:
        print(*first_steps(args.only, args.alone))
        return
    if args.first:
        time_first_steps([name for name in MODELS if not args.only or name in args.only.split(",")], args.out)
        return
    rows = {}
    print(f"{'':14}{'torch ms':>10}{'undecorated':>13}{'compiled':>10}")
    for name in MODELS:
        if not args.only or name in args.only.split(","):
            row = rows[name] = least(name, args.rounds)
            print(f"{name:14}{row['torch'] * 1e3:10.2f}{row['torch'] / row['undecorated']:13.2f}"
                  f"{row['torch'] / row['compiled']:10.2f}", flush=True)
    for way in ("undecorated", "compiled"):
        print(f"{way}: {geometric_mean([row['torch'] / row[way] for row in rows.values()]):.2f} in the geometric mean")
    if args.out:
        record.write(args.out, "ordinary_steps", bar=BAR, rows=rows)


if __name__ == "__main__":
    main()
