"""Each function beside torch's on the CPU at a million elements, and what recording it costs.

    python benchmarks/ops.py                    everything; about four minutes
    python benchmarks/ops.py --only softmax     names that contain this
    python benchmarks/ops.py --out              also writes benchmarks/results/ops.json

Both frameworks run the same call. `ratio` is torch's time over Genesis's, which records, looks its plan up, runs
and allocates; rounds of the two alternate, and medians are compared. `record` is the time of a call on small tensors
that computes nothing, freeing its result included; every call makes a node that does not exist yet.
"""

from __future__ import annotations

import argparse
import gc
import json
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter_ns, strftime
from typing import Any

import numpy as np
import torch

import genesis
import genesis.nn.functional as GF

ROUNDS, LEAST_NS = 9, 4_000_000  # a round runs a call for at least this long
WANTED_RATIO, LIMIT_NS = 0.9, 8000
RESULTS = Path(__file__).resolve().parent / "results"


@dataclass
class Inputs:
    """Tensors of one framework: reals, positives, probabilities, integers, truth values, a matrix, indices.

    `t` is the framework and `F` its functions of networks.
    """

    t: Any
    F: Any
    x: Any
    y: Any
    z: Any
    p: Any
    u: Any
    i: Any
    j: Any
    b: Any
    c: Any
    m: Any
    n: Any
    ids: Any
    image: Any


def inputs(t: Any, rows: int, columns: int, seed: int = 0) -> Inputs:
    """The same values for either framework."""
    random = np.random.default_rng(seed)
    shape = (rows, columns)
    side = max(int((rows * columns // 16) ** 0.5), 1)

    def real(*sizes: int) -> Any:
        return t.tensor(random.standard_normal(sizes, np.float32))

    def whole(low: int, high: int, *sizes: int) -> Any:
        return t.tensor(random.integers(low, high, sizes))
    return Inputs(t, GF if t is genesis else torch.nn.functional, real(*shape), real(*shape), real(*shape),
                  t.tensor(random.uniform(0.5, 4, shape).astype(np.float32)),
                  t.tensor(random.uniform(0.05, 0.95, shape).astype(np.float32)),
                  whole(-99, 99, *shape), whole(1, 20, *shape), whole(0, 2, *shape) > 0, whole(0, 2, *shape) > 0,
                  real(rows, columns), real(columns, rows), whole(0, rows, rows), real(2, 8, side, side))


Call = Callable[[Inputs], Any]


def along(name: str, dim: int) -> Call:
    """A method over one dimension of the matrix."""
    return lambda a: getattr(a.m, name)(dim)


def activation(name: str) -> Call:
    """A function of networks, of x."""
    return lambda a: getattr(a.F, name)(a.x)


def cases() -> dict[str, Call]:
    """Every call, by how a user writes it. A name that either framework lacks is left out by `measure`."""
    found: dict[str, Call] = {}

    def add(group: str, field: str, names: str, *more: str) -> None:
        for name in names.split():
            def call(a: Inputs, name: str = name) -> Any:
                return getattr(a.t, name)(getattr(a, field), *(getattr(a, other) for other in more))
            found[f"{group}{name}"] = call

    add("", "x", "abs neg positive sign signbit square exp expm1 exp2 sin cos tan atan sinh cosh tanh asinh erf "
                 "erfc sigmoid floor ceil round trunc frac nan_to_num deg2rad rad2deg isnan isinf isfinite isposinf "
                 "isneginf sinc i0 relu logical_not clone")
    add("", "p", "sqrt rsqrt reciprocal log log2 log10 log1p lgamma digamma")
    add("", "u", "asin acos atanh logit erfinv")
    add("", "x", "add sub mul div true_divide floor_divide remainder fmod rsub maximum minimum fmax fmin atan2 "
                 "hypot copysign nextafter ldexp logaddexp logaddexp2 heaviside eq ne lt le gt ge isclose", "y")
    add("", "p", "pow xlogy float_power", "y")
    add("", "i", "gcd lcm", "j")
    add("int ", "i", "add mul floor_divide remainder fmod bitwise_and bitwise_or bitwise_xor", "j")
    add("", "i", "bitwise_not")
    add("", "b", "logical_and logical_or logical_xor", "c")
    add("", "x", "lerp addcmul addcdiv", "y", "p")
    add("", "x", "sum prod mean amax amin argmax argmin std var var_mean std_mean aminmax nansum nanmean count_nonzero "
                 "norm any all median")
    found |= {
        "x * 2.0": lambda a: a.x * 2.0, "2.0 - x": lambda a: 2.0 - a.x, "x ** 2": lambda a: a.x ** 2,
        "x ** 0.5": lambda a: a.p ** 0.5, "acosh": lambda a: a.t.acosh(a.p + 1),
        "add(alpha=2)": lambda a: a.t.add(a.x, a.y, alpha=2),
        "div(trunc)": lambda a: a.t.div(a.x, a.p, rounding_mode="trunc"),
        "clamp": lambda a: a.t.clamp(a.x, -1, 1), "clamp_min": lambda a: a.t.clamp_min(a.x, 0.5),
        "clamp(tensors)": lambda a: a.t.clamp(a.x, a.y, a.p),
        "where": lambda a: a.t.where(a.b, a.x, a.y), "where(number)": lambda a: a.t.where(a.b, a.x, 0.0),
        "masked_fill": lambda a: a.x.masked_fill(a.b, 0.0), "to(bfloat16)": lambda a: a.x.bfloat16(),
        "to(int64)": lambda a: a.x.long(), "bitwise_left_shift": lambda a: a.t.bitwise_left_shift(a.i, 2),
        **{f"{name}(-1)": along(name, -1)
           for name in ("sum", "mean", "amax", "argmax", "std", "var", "logsumexp", "softmax", "log_softmax", "cumsum",
                        "cumprod", "any", "prod")},
        **{f"{name}(0)": along(name, 0)
           for name in ("sum", "mean", "amax", "argmin", "std", "softmax", "cumsum")},
        "max(-1)": lambda a: a.m.max(-1)[0], "cummax": lambda a: a.t.cummax(a.m, -1)[0],
        "logcumsumexp": lambda a: a.t.logcumsumexp(a.m, -1), "diff": lambda a: a.t.diff(a.m),
        "trapezoid": lambda a: a.t.trapezoid(a.m), "sort": lambda a: a.t.sort(a.m)[0],
        "topk": lambda a: a.t.topk(a.m, 8)[0], "quantile": lambda a: a.t.quantile(a.x[:100], 0.5),
        "histc": lambda a: a.t.histc(a.x, 100, -3, 3), "bincount": lambda a: a.t.bincount(a.j.view(-1)),
        "unique": lambda a: a.t.unique(a.i), "searchsorted": lambda a: a.t.searchsorted(a.u.view(-1), a.p),
        "cat": lambda a: a.t.cat([a.x, a.y]), "stack": lambda a: a.t.stack([a.x, a.y]),
        "transpose": lambda a: a.m.t().contiguous(), "flip": lambda a: a.t.flip(a.x, (0,)),
        "roll": lambda a: a.t.roll(a.x, 3, 0), "repeat": lambda a: a.x[:100].repeat(2, 2),
        "tril": lambda a: a.t.tril(a.m), "triu": lambda a: a.t.triu(a.m), "x[1:-1]": lambda a: a.x[1:-1] + 0,
        "x[ids]": lambda a: a.m[a.ids], "x[:, ids]": lambda a: a.n[:, a.ids],
        "index_select": lambda a: a.t.index_select(a.m, 0, a.ids),
        "gather": lambda a: a.t.gather(a.m, 0, a.ids.view(1, -1)),
        "index_add": lambda a: a.t.index_add(a.m, 0, a.ids, a.x), "nonzero": lambda a: a.t.nonzero(a.b),
        "masked_select": lambda a: a.t.masked_select(a.x, a.b),
        "matmul": lambda a: a.m @ a.n, "mv": lambda a: a.t.mv(a.n, a.x[:, 0]), "outer": lambda a: a.t.outer(
            a.x[0], a.x[1]), "addmm": lambda a: a.t.addmm(a.t.mm(a.m[:64], a.n), a.m[:64], a.n),
        "einsum": lambda a: a.t.einsum("ij,jk->ik", a.m, a.n),
        "rand": lambda a: a.t.rand(a.x.shape), "randn": lambda a: a.t.randn(a.x.shape),
        "randint": lambda a: a.t.randint(0, 9, a.x.shape), "randperm": lambda a: a.t.randperm(a.x.numel()),
        "zeros": lambda a: a.t.zeros(a.x.shape), "full": lambda a: a.t.full(a.x.shape, 2.5),
        "arange": lambda a: a.t.arange(a.x.numel()), "linspace": lambda a: a.t.linspace(0, 1, a.x.numel()),
        "x.add_(y)": lambda a: a.x.add_(a.y), "x.mul_(0.5)": lambda a: a.x.mul_(0.5),
        **{f"F.{name}": activation(name)
           for name in ("gelu", "silu", "relu", "elu", "leaky_relu", "selu", "celu", "mish", "softplus", "softsign",
                        "hardswish", "hardsigmoid", "hardtanh", "relu6", "logsigmoid", "tanhshrink", "softshrink")},
        "F.layer_norm": lambda a: a.F.layer_norm(a.m, a.m.shape[-1:]),
        "F.linear": lambda a: a.F.linear(a.m, a.m[:64]), "F.mse_loss": lambda a: a.F.mse_loss(a.x, a.y),
        "F.cross_entropy": lambda a: a.F.cross_entropy(a.m, a.ids), "F.dropout": lambda a: a.F.dropout(a.x, 0.5),
        "F.embedding": lambda a: a.F.embedding(a.ids, a.m),
        "F.avg_pool2d": lambda a: a.F.avg_pool2d(a.image, 2), "F.max_pool2d": lambda a: a.F.max_pool2d(a.image, 2),
        "F.interpolate": lambda a: a.F.interpolate(a.image, scale_factor=2), "F.pad": lambda a: a.F.pad(a.x, (1, 1)),
    }
    return found


def timed(call: Call, a: Inputs, count: int) -> int:
    """Nanoseconds for `count` calls, computed."""
    ours = a.t is genesis
    start = perf_counter_ns()
    for _ in range(count):
        result = call(a)
        if ours:
            genesis.eval(*result) if isinstance(result, tuple) else genesis.eval(result)
    return perf_counter_ns() - start


def ratio(call: Call, ours: Inputs, theirs: Inputs) -> dict[str, float]:
    """Medians of both and torch's over ours; the first calls, which compile and warm up, do not count."""
    timed(call, ours, 2)
    once = max(min(timed(call, theirs, 1), timed(call, theirs, 1)), 1)
    count = max(LEAST_NS // once, 1)
    rounds = [(timed(call, ours, count), timed(call, theirs, count)) for _ in range(ROUNDS)]
    mine, torchs = (statistics.median(x) / count for x in zip(*rounds, strict=True))
    return {"genesis_us": round(mine / 1000, 2), "torch_us": round(torchs / 1000, 2), "ratio": round(torchs / mine, 3)}


def recording(call: Call, batch: int = 200) -> int:
    """Median nanoseconds of a call that only records."""
    found = []
    for _ in range(ROUNDS):
        fresh = [inputs(genesis, 8, 16, seed) for seed in range(batch)]
        gc.collect()
        gc.disable()
        start = perf_counter_ns()
        kept = [call(a) for a in fresh]
        del kept
        found.append((perf_counter_ns() - start) / batch)
        gc.enable()
    return round(statistics.median(found))


READS = ("nonzero", "masked_select", "unique", "bincount")
"""Calls that read values: their recording computes."""


def measure(only: str = "") -> dict[str, dict[str, float]]:
    """All calls that both frameworks have."""
    ours, theirs = inputs(genesis, 1024, 1024), inputs(torch, 1024, 1024)
    table = {}
    for name, call in cases().items():
        if only not in name:
            continue
        try:
            call(ours)
        except (AttributeError, NotImplementedError) as error:
            print(f"{name:24} left out: {error}".split("\n")[0], flush=True)
            continue
        row = ratio(call, ours, theirs)
        if name not in READS:
            row["record_ns"] = recording(call)
        table[name] = row
        print(line(name, row), flush=True)
    return table


def line(name: str, row: dict[str, float]) -> str:
    """A row of the printed table."""
    marks = ("  slow" if row["ratio"] < WANTED_RATIO else "") + (
        "  records slowly" if row.get("record_ns", 0) > LIMIT_NS else "")
    return (f"{name:24} {row['genesis_us']:10.1f} us {row['torch_us']:10.1f} us   ratio {row['ratio']:5.2f}   "
            f"record {row.get('record_ns', 0):6.0f} ns{marks}")


def main() -> None:
    """Measure, print, and with --out write the table as JSON."""
    parser = argparse.ArgumentParser(description="Each function beside torch's on the CPU.")
    parser.add_argument("--only", default="", help="names that contain this")
    parser.add_argument("--out", action="store_true", help="write benchmarks/results/ops.json as well")
    options = parser.parse_args()
    with torch.no_grad():
        table = measure(options.only)
    ratios = [row["ratio"] for row in table.values()]
    records = [row["record_ns"] for row in table.values() if "record_ns" in row]
    print(f"{len(table)} calls: median ratio {statistics.median(ratios):.2f}, least {min(ratios):.2f}; "
          f"recording {statistics.median(records):.0f} ns, most {max(records):.0f} ns")
    if options.out:
        about = {"when": strftime("%Y-%m-%d"), "python": platform.python_version(), "machine": platform.machine(),
                 "torch": torch.__version__, "elements": 1 << 20, "wanted_ratio": WANTED_RATIO, "limit_ns": LIMIT_NS}
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / "ops.json").write_text(json.dumps({**about, "ops": table}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
