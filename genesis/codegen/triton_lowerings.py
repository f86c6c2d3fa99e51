"""Op → Triton expression, by the kind of dtype it computes in. The table a new pointwise op goes into.

Templates take the operands as {0}, {1}, {2}. Values of f16 and bf16 are float32 here. In float32
the exact forms are used: `tl.exp`, `/` and `tl.sqrt` are approximate instructions on the GPU.
Names starting with `g_` are helpers in `PRELUDE`; the emitter copies those that a kernel uses.
"""

from __future__ import annotations

import re
from typing import Final

from genesis.ir.types import DType, bool_, float32, float64, int8, int16, int32, uint8

_NAN = "propagate_nan=tl.PropagateNan.ALL"


def _row(any: str = "", *, float: str = "", f32: str = "", f64: str = "", int: str = "",
         bool: str = "") -> dict[str, str]:
    """Templates by column; an empty one means that the op does not exist for that kind."""
    return {"f32": f32 or float or any, "f64": f64 or float or any, "int": int or any, "bool": bool or any}


def _math(name: str) -> dict[str, str]:
    return _row(float=f"libdevice.{name}({{0}})")


POINTWISE: Final[dict[str, dict[str, str]]] = {
    "add": _row("{0} + {1}", bool="{0} | {1}"),
    "sub": _row(float="{0} - {1}", int="{0} - {1}"),
    "mul": _row("{0} * {1}", bool="{0} & {1}"),
    "div": _row(f32="tl.math.div_rn({0}, {1})", f64="{0} / {1}"),
    "floor_divide": _row(float="g_floor_divide({0}, {1})", int="g_int_floor_divide({0}, {1})"),
    "remainder": _row(float="g_remainder({0}, {1})", int="g_int_remainder({0}, {1})"),
    "fmod": _row(float="libdevice.fmod({0}, {1})", int="{0} % {1}"),
    "pow": _row(float="libdevice.pow({0}, {1})", int="g_int_pow({0}, {1})"),
    "atan2": _row(float="libdevice.atan2({0}, {1})"),
    "maximum": _row(float=f"tl.maximum({{0}}, {{1}}, {_NAN})", int="tl.maximum({0}, {1})", bool="{0} | {1}"),
    "minimum": _row(float=f"tl.minimum({{0}}, {{1}}, {_NAN})", int="tl.minimum({0}, {1})", bool="{0} & {1}"),
    "neg": _row(float="-{0}", int="-{0}"),
    "abs": _row(float="tl.abs({0})", int="tl.abs({0})"),
    "sign": _row(float="g_sign({0})", int="g_sign({0})"),
    "reciprocal": _row(f32="tl.math.div_rn(1.0, {0})", f64="1.0 / {0}"),
    "sqrt": _row(f32="tl.math.sqrt_rn({0})", f64="libdevice.sqrt({0})"),
    "rsqrt": _row(f32="tl.math.div_rn(1.0, tl.math.sqrt_rn({0}))", f64="1.0 / libdevice.sqrt({0})"),
    "sigmoid": _row(f32="tl.math.div_rn(1.0, 1.0 + libdevice.exp(-{0}))", f64="1.0 / (1.0 + libdevice.exp(-{0}))"),
    **{name: _math(name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan", "sinh",
        "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc")},
    "floor": _row(float="libdevice.floor({0})", int="{0}"),
    "ceil": _row(float="libdevice.ceil({0})", int="{0}"),
    "trunc": _row(float="libdevice.trunc({0})", int="{0}"),
    "round": _row(float="libdevice.rint({0})", int="{0}"),
    "bitwise_and": _row(int="{0} & {1}", bool="{0} & {1}"),
    "bitwise_or": _row(int="{0} | {1}", bool="{0} | {1}"),
    "bitwise_xor": _row(int="{0} ^ {1}", bool="{0} ^ {1}"),
    "bitwise_not": _row(int="g_invert({0})", bool="{0} == 0"),
    "left_shift": _row(int="g_left_shift({0}, {1})"),
    "right_shift": _row(int="g_right_shift({0}, {1})"),
    "eq": _row("{0} == {1}"),
    "ne": _row("{0} != {1}"),
    "lt": _row("{0} < {1}", bool="({0} == 0) & {1}"),
    "le": _row("{0} <= {1}", bool="({0} == 0) | {1}"),
    "gt": _row("{0} > {1}", bool="{0} & ({1} == 0)"),
    "ge": _row("{0} >= {1}", bool="{0} | ({1} == 0)"),
    "isnan": _row(float="{0} != {0}"),
    "isinf": _row(float='tl.abs({0}) == float("inf")'),
    "where": _row("tl.where({0}, {1}, {2})"),
    "relu": _row(float=f"tl.maximum({{0}}, 0.0, {_NAN})", int="tl.maximum({0}, 0)"),
}

LOOP_OPS: Final = frozenset(POINTWISE) | {
    "cast", "reshape", "permute", "expand", "slice", "pad", "flip", "concat", "assign", "const", "scalar", "input",
    "iota", "random_bits", "sum", "prod", "max", "min", "any", "all", "argmax", "argmin", "take", "gather"}
"""Ops that a loop group computes."""

LOWERED: Final = LOOP_OPS | {"matmul", "cumsum", "cumprod", "index_add", "index_copy", "scatter_add", "scatter"}
"""Every op with a CUDA lowering; legalize decomposes the others."""

TRITON_TYPE: Final = {"bool": "int1", "uint8": "uint8", "int8": "int8", "int16": "int16", "int32": "int32",
                      "int64": "int64", "float16": "float16", "bfloat16": "bfloat16", "float32": "float32",
                      "float64": "float64"}
"""IR dtype → the name in `triton.language`."""

POINTER: Final = {"bool": "*i1", "uint8": "*u8", "int8": "*i8", "int16": "*i16", "int32": "*i32", "int64": "*i64",
                  "float16": "*fp16", "bfloat16": "*bf16", "float32": "*fp32", "float64": "*fp64"}
"""IR dtype → the pointer in a kernel's signature."""


def held(dtype: DType) -> DType:
    """The dtype a value is held in inside a kernel."""
    return float32 if dtype.name in ("float16", "bfloat16") else dtype


def triton_type(dtype: DType) -> str:
    """`tl.float32` and the like."""
    return f"tl.{TRITON_TYPE[dtype.name]}"


def _column(dtype: DType) -> str:
    return {"bool": "bool", "int": "int"}.get(dtype.kind) or ("f64" if dtype is float64 else "f32")


def pointwise(op: str, compute: DType, operands: tuple[str, ...]) -> str:
    """The expression for a pointwise op on operands already in the dtype it computes in."""
    template = POINTWISE[op][_column(compute)]
    if not template:
        raise KeyError(f"{op} has no lowering for {compute!r}")
    return template.format(*operands)


def convert(value: str, source: DType, target: DType) -> str:
    """`value`, held for dtype `source`, as it is held for `target`; rounded when that is narrower."""
    if source is target:
        return value
    # f16 and bf16 are reached through float32, as torch does.
    if target is bool_:
        return f"{value} != 0"
    if source.kind == "float" and target in (uint8, int8, int16):
        value, source = f"{value}.to(tl.int32)", int32
    wide = value if held(source) is held(target) else f"{value}.to({triton_type(held(target))})"
    if held(target) is target:
        return wide
    return f"{wide}.to({triton_type(target)}).to({triton_type(held(target))})"


def to_held(value: str, source: DType, target: DType) -> str:
    """`value`, held for `source`, in the dtype that holds `target`, without rounding to `target`."""
    return convert(value, held(source), held(target))


REDUCE_IDENTITY: Final = {
    "sum": lambda d: "0.0" if d.kind == "float" else "0",
    "prod": lambda d: "1.0" if d.kind == "float" else "1",
    "max": lambda d: '-float("inf")' if d.kind == "float" else str(int(d.min)),
    "min": lambda d: 'float("inf")' if d.kind == "float" else str(int(d.max)),
}
"""What does not change a reduction: the value of elements outside the block."""

REDUCE_COMBINE: Final = {
    "sum": "{0} + {1}", "prod": "{0} * {1}",
    "max": "g_max({0}, {1})", "min": "g_min({0}, {1})",
}
"""How an accumulator takes in another block, element by element."""

REDUCE_FINISH: Final = {
    "sum": "tl.sum({0}, 1, keep_dims=True)", "prod": "tl.reduce({0}, 1, g_product, keep_dims=True)",
    "max": "g_row_max({0})", "min": "g_row_min({0})",
}
"""How a block becomes one value a row."""

PRELUDE: Final[dict[str, str]] = {
    "g_sign": '''
@triton.jit
def g_sign(x):
    """-1, 0 or 1; 0 for NaN, as torch has it."""
    return ((x > 0).to(tl.int32) - (x < 0).to(tl.int32)).to(x.dtype)
''',
    "g_invert": '''
@triton.jit
def g_invert(x):
    """All bits turned (`~` fails on unsigned integers in the interpreter)."""
    if x.dtype == tl.uint8:
        return x ^ 255
    else:
        return ~x
''',
    "g_max": '''
@triton.jit
def g_max(a, b):
    """The larger; NaN if either is."""
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "g_min": '''
@triton.jit
def g_min(a, b):
    """The smaller; NaN if either is."""
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
''',
    "g_row_max": '''
@triton.jit
def g_row_max(x):
    """The largest of each row; NaN if any is (`tl.max` skips NaN)."""
    top = tl.max(x, 1, keep_dims=True)
    if x.dtype.is_floating():
        top = tl.where(tl.max((x != x).to(tl.int32), 1, keep_dims=True) != 0, float("nan"), top)
    return top
''',
    "g_row_min": '''
@triton.jit
def g_row_min(x):
    """The smallest of each row; NaN if any is (`tl.min` skips NaN)."""
    low = tl.min(x, 1, keep_dims=True)
    if x.dtype.is_floating():
        low = tl.where(tl.max((x != x).to(tl.int32), 1, keep_dims=True) != 0, float("nan"), low)
    return low
''',
    "g_add": '''
@triton.jit
def g_add(a, b):
    """a + b, for tl.associative_scan."""
    return a + b
''',
    "g_product": '''
@triton.jit
def g_product(a, b):
    """a · b, for tl.reduce."""
    return a * b
''',
    "g_floor_divide": '''
@triton.jit
def g_floor_divide(a, b):
    """floor(a / b) from the exact remainder, so that a multiple of b is not one too small."""
    rest = libdevice.fmod(a, b)
    quotient = g_divide(a - rest, b)
    quotient = tl.where((rest != 0) & ((b < 0) != (rest < 0)), quotient - 1.0, quotient)
    whole = libdevice.floor(quotient)
    whole = tl.where(quotient - whole > 0.5, whole + 1.0, whole)
    exact = g_divide(a, b)
    whole = tl.where(quotient != 0, whole, exact * 0.0)
    return tl.where(b == 0, exact, whole)
''',
    "g_divide": '''
@triton.jit
def g_divide(a, b):
    """a / b rounded to nearest."""
    if a.dtype == tl.float32:
        return tl.math.div_rn(a, b)
    else:
        return a / b
''',
    "g_remainder": '''
@triton.jit
def g_remainder(a, b):
    """a - b·floor(a / b): the sign of b."""
    rest = libdevice.fmod(a, b)
    return tl.where((rest != 0) & ((b < 0) != (rest < 0)), rest + b, rest)
''',
    "g_int_floor_divide": '''
@triton.jit
def g_int_floor_divide(a, b):
    """floor(a / b); the machine truncates."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient).to(a.dtype)
''',
    "g_int_remainder": '''
@triton.jit
def g_int_remainder(a, b):
    """a - b·floor(a / b): the sign of b."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest).to(a.dtype)
''',
    "g_int_pow": '''
@triton.jit
def g_int_pow(a, b):
    """a to the power b by repeated squaring; a negative power of anything but 1 and -1 is 0."""
    zeros = tl.zeros_like(a + b).to(a.dtype)  # a and b may be a number and a block
    ones = zeros + 1
    result = ones
    square = a + zeros
    left = b + zeros
    for _ in range(63):
        result = tl.where((left & 1) != 0, result * square, result)
        square = square * square
        left = tl.where(left > 0, left >> 1, 0).to(b.dtype)
    odd = (b & 1) != 0
    negative = tl.where(a == ones, ones, tl.where(a == -ones, tl.where(odd, a, ones), 0))
    return tl.where(b < 0, negative, result).to(a.dtype)
''',
    "g_left_shift": '''
@triton.jit
def g_left_shift(a, b):
    """a · 2^b; 0 when b is not less than the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < width)
    return tl.where(inside, a << tl.where(inside, b, 0).to(a.dtype), 0).to(a.dtype)
''',
    "g_right_shift": '''
@triton.jit
def g_right_shift(a, b):
    """floor(a / 2^b); 0 or -1 when b is not less than the width."""
    width: tl.constexpr = a.dtype.primitive_bitwidth
    inside = (b >= 0) & (b < width)
    return tl.where(inside, a >> tl.where(inside, b, 0).to(a.dtype), tl.where(a < 0, -1, 0)).to(a.dtype)
''',
    "g_philox": '''
@triton.jit
def g_philox(seed, draw, counter, WORD: tl.constexpr):
    """Word WORD of Philox4x32-10: key = seed, counter = (counter, draw), each as low and high 32 bits."""
    k0 = (seed & 0xFFFFFFFF).to(tl.uint32)
    k1 = ((seed >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c0 = (counter & 0xFFFFFFFF).to(tl.uint32)
    c1 = ((counter >> 32) & 0xFFFFFFFF).to(tl.uint32)
    c2 = (draw & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(c0)
    c3 = ((draw >> 32) & 0xFFFFFFFF).to(tl.uint32) + tl.zeros_like(c0)
    A = tl.full((), 0xD2511F53, tl.uint32)
    B = tl.full((), 0xCD9E8D57, tl.uint32)
    RAISE_0 = tl.full((), 0x9E3779B9, tl.uint32)
    RAISE_1 = tl.full((), 0xBB67AE85, tl.uint32)
    for _ in tl.static_range(10):
        high_0 = tl.umulhi(A + tl.zeros_like(c0), c0)
        high_2 = tl.umulhi(B + tl.zeros_like(c2), c2)
        low_0 = tl.mul(A, c0, sanitize_overflow=False)
        low_2 = tl.mul(B, c2, sanitize_overflow=False)
        c0 = high_2 ^ c1 ^ k0
        c1 = low_2
        c2 = high_0 ^ c3 ^ k1
        c3 = low_0
        k0 = tl.add(k0, RAISE_0, sanitize_overflow=False)
        k1 = tl.add(k1, RAISE_1, sanitize_overflow=False)
    word = c0
    if WORD == 1:
        word = c1
    if WORD == 2:
        word = c2
    if WORD == 3:
        word = c3
    return word.to(tl.int32, bitcast=True)
''',
}
"""Helpers in Triton, by name."""


def prelude_for(body: str) -> str:
    """The helpers that a kernel's text uses, and those that they use."""
    wanted: dict[str, None] = {}
    pending = [body]
    while pending:
        for name in re.findall(r"\bg_\w+", pending.pop()):
            if name in PRELUDE and name not in wanted:
                wanted[name] = None
                pending.append(PRELUDE[name])
    return "".join(PRELUDE[name] + "\n" for name in sorted(wanted))
