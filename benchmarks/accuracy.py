"""How far functions are from the exact result, in units in the last place, beside torch on the same device.

    python benchmarks/accuracy.py --device cuda --out     writes benchmarks/results/accuracy_cuda.json
    python benchmarks/accuracy.py --markdown              prints docs/accuracy.md from what was measured

float16 and bfloat16: every bit pattern. float32: random bit patterns and random numbers near 0 and 1. The exact result
is computed in float64, with the arguments' reduction done exactly where it matters (sinc). A result that overflows,
or is not a number, must be the same in the dtype. Near a zero of the function that is not at 0 (log near 1 is none of
these: it has its own exact form) relative errors of all implementations grow; `FLOOR` says from which size on they are
counted.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import record

DEVICES = ("cuda", "cpu")
DTYPES = {"float32": (24, -126), "float16": (11, -14), "bfloat16": (8, -126)}
"""Digits of the mantissa, and the least normal exponent."""

ELEMENTARY = ("abs", "neg", "square", "sqrt", "rsqrt", "reciprocal", "exp", "exp2", "expm1", "log", "log2", "log10",
              "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh",
              "sigmoid", "erf", "erfc", "floor", "ceil", "round", "trunc", "frac", "deg2rad", "rad2deg")
SPECIAL = ("sinc", "logit", "digamma", "lgamma", "i0", "erfinv")
BINARY = ("add", "sub", "mul", "div", "pow", "atan2", "hypot", "fmod", "remainder", "floor_divide", "logaddexp",
          "logaddexp2", "xlogy", "copysign", "nextafter", "maximum", "fmax")
FLOOR = {"lgamma": 0.125, "digamma": 0.125, "logit": 0.125, "xlogy": 0.0, "logaddexp": 0.125, "logaddexp2": 0.125}
LIMITS = {"float32": 2.0, "float16": 1.0, "bfloat16": 1.0}


def points(dtype: str, arity: int) -> list[np.ndarray]:
    """Arguments as float64 numbers that the dtype holds."""
    random = np.random.default_rng(0)
    if dtype == "float32":
        bits = random.integers(0, 2**32, 1 << 18, dtype=np.uint32).view(np.float32)
        near = np.concatenate([random.uniform(-s, s, 1 << 16) for s in (1, 2, 10, 100)]).astype(np.float32)
        one = (1 + random.uniform(-1e-3, 1e-3, 1 << 16)).astype(np.float32)
        found = np.concatenate([bits[~np.isnan(bits)], near, one])
    else:
        every = np.arange(65536, dtype=np.uint16)
        found = widened(every, dtype)
        found = np.tile(found[~np.isnan(found)], 4 if arity == 2 else 1)
    with np.errstate(all="ignore"):
        wide = found.astype(np.float64)
    return [wide] if arity == 1 else [wide, random.permutation(wide)]


def widened(bits: np.ndarray, dtype: str) -> np.ndarray:
    """Bit patterns of a 16-bit dtype as float32 numbers."""
    if dtype == "float16":
        return bits.view(np.float16).astype(np.float32)
    return (bits.astype(np.uint32) << 16).view(np.float32)


def sinc(x: np.ndarray) -> np.ndarray:
    """sin(πx) / (πx) with the integer part taken out exactly."""
    nearest = np.round(x)
    sign = np.where(np.fmod(nearest, 2) == 0, 1.0, -1.0)
    return np.where(x == 0, 1.0, sign * np.sin(np.pi * (x - nearest)) / (np.pi * x))


def i0(x: np.ndarray) -> np.ndarray:
    """torch's in float64, whose exp(|x|) · p(1 / |x|) / √|x| is ∞ / ∞ at ±∞: there the limit."""
    import torch
    return np.where(np.isinf(x), np.inf, torch.i0(torch.from_numpy(x)).numpy())


NUMPY: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "rsqrt": lambda x: 1 / np.sqrt(x), "sinc": sinc,
    "sigmoid": lambda x: np.where(x < 0, np.exp(x) / (1 + np.exp(x)), 1 / (1 + np.exp(-x))),
    "erf": np.vectorize(math.erf, otypes=[float]), "erfc": np.vectorize(math.erfc, otypes=[float]),
    "frac": lambda x: x - np.trunc(x), "logit": lambda x: np.log(x) - np.log1p(-x),
    "add": np.add, "sub": np.subtract, "mul": np.multiply, "div": np.divide, "pow": np.power, "atan2": np.arctan2,
    "maximum": np.maximum, "copysign": np.copysign, "i0": i0,
    "lgamma": np.vectorize(lambda x: math.inf if math.isinf(x) or (x <= 0 and x == int(x)) else math.lgamma(x),
                           otypes=[float]),
}
TORCH = ("digamma", "erfinv", "floor_divide", "logaddexp2", "xlogy", "nextafter", "fmax")
"""Functions that numpy lacks: torch's in float64 are exact enough for these dtypes."""


def exact(name: str, arguments: list[np.ndarray], dtype: str) -> np.ndarray:
    """The result in float64."""
    import torch
    with np.errstate(all="ignore"):
        if name == "nextafter":
            kind = getattr(torch, dtype)
            return torch.nextafter(*(torch.from_numpy(x).to(kind) for x in arguments)).double().numpy()
        if name in TORCH:
            return getattr(torch, name)(*map(torch.from_numpy, arguments)).numpy()
        return NUMPY.get(name, getattr(np, name, None))(*arguments)


def worst(got: np.ndarray, want: np.ndarray, dtype: str, floor: float) -> tuple[float, int]:
    """The largest error in units in the last place of the exact result, and where."""
    digits, least = DTYPES[dtype]
    with np.errstate(all="ignore"):
        exponent = np.floor(np.log2(np.maximum(np.abs(want), 2.0**least)))
        error = np.abs(got - want) / 2.0**(exponent - digits + 1)
        top = 2.0**{"float16": 16, "float32": 128, "bfloat16": 128}[dtype]
        large = np.abs(want) >= top * (1 - 2.0**-(digits + 1))
        overflows = large & np.isinf(got) & (np.sign(got) == np.sign(want))
        same = (got == want) | (np.isnan(got) & np.isnan(want)) | overflows
        error = np.where(same, 0.0, np.where(np.isnan(error) | np.isinf(want) | np.isinf(got), np.inf, error))
        error = np.where((np.abs(want) < floor) & (np.abs(want) > 0), 0.0, error)
    at = int(np.argmax(error))
    return float(error[at]), at


def results(framework: str, name: str, arguments: list[np.ndarray], dtype: str, device: str) -> Any:
    """The function on the device, not computed yet where that is possible."""
    if framework == "torch":
        import torch
        tensors = [torch.from_numpy(x).to(getattr(torch, dtype)).to(device) for x in arguments]
        return getattr(torch, name)(*tensors)
    import genesis
    tensors = [genesis.tensor(x.astype(getattr(genesis, dtype).numpy), device=device) for x in arguments]
    return getattr(genesis, name)(*tensors)


def measure(device: str) -> dict[str, dict[str, dict[str, float]]]:
    """Function → dtype → the worst errors of both."""
    import genesis
    table: dict[str, dict[str, dict[str, float]]] = {}
    todo = [(name, dtype) for name in (*ELEMENTARY, *SPECIAL, *BINARY) for dtype in DTYPES]
    sets = {(dtype, arity): points(dtype, arity) for dtype in DTYPES for arity in (1, 2)}
    ours = {}
    for name, dtype in todo:
        ours[name, dtype] = results("genesis", name, sets[dtype, 2 if name in BINARY else 1], dtype, device)
    genesis.eval(*ours.values())  # one plan: its kernels compile side by side
    for name, dtype in todo:
        arguments = sets[dtype, 2 if name in BINARY else 1]
        want = exact(name, arguments, dtype)
        got = ours[name, dtype].double().cpu().numpy()
        theirs = results("torch", name, arguments, dtype, device).double().cpu().numpy()
        mine, at = worst(got, want, dtype, FLOOR.get(name, 0.0))
        other, _ = worst(theirs, want, dtype, FLOOR.get(name, 0.0))
        table.setdefault(name, {})[dtype] = {"genesis": round(mine, 3), "torch": round(other, 3)}
        mark = "  !" if mine > max(LIMITS[dtype], other if name in SPECIAL else 0) else ""
        print(f"{name:14} {dtype:9} genesis {mine:10.3f} torch {other:10.3f} at "
              f"{[float(x[at]) for x in arguments]} got {got[at]} want {want[at]}{mark}", flush=True)
    return table


def markdown() -> str:
    """docs/accuracy.md."""
    lines = ["# Accuracy", "",
             "The largest errors in units in the last place, of Genesis and, in parentheses, of torch on the same",
             "device and arguments: all bit patterns of float16 and bfloat16, about half a million of float32. 0.5 is",
             "correct rounding; inf means a wrong NaN or infinity. On the CPU the functions are torch's own.",
             "Written by `python benchmarks/accuracy.py --markdown`."]
    for device in DEVICES:
        path = record.RESULTS / f"accuracy_{device}.json"
        if path.is_file():
            lines += ["", *_section(device, json.loads(path.read_text(encoding="utf-8")))]
        else:
            lines += ["", f"## {device}", "", "Not measured yet."]
    return "\n".join(lines) + "\n"


def _section(device: str, found: dict[str, Any]) -> list[str]:
    """What was measured on one device."""
    where = found["gpu"] if device == "cuda" else "one machine's processor"
    lines = [f"## {device}", "", f"On {where}, {found['date']}, torch {found['torch']}.", "",
             "| function | " + " | ".join(DTYPES) + " |", "|---|" + "---|" * len(DTYPES)]
    for name, row in found["functions"].items():
        cells = [f"{row[dtype]['genesis']:g} ({row[dtype]['torch']:g})" for dtype in DTYPES]
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    """Measure, or print the page."""
    parser = argparse.ArgumentParser(description="Errors in units in the last place, beside torch's.")
    parser.add_argument("--device", default="cuda", choices=DEVICES)
    record.add_out(parser)
    parser.add_argument("--markdown", action="store_true", help="print docs/accuracy.md")
    options = parser.parse_args()
    if options.markdown:
        print(markdown(), end="")
        return
    table = measure(options.device)
    if options.out:
        record.write(options.out, f"accuracy_{options.device}", functions=table)


if __name__ == "__main__":
    main()
