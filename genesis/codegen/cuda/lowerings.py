"""Op → Triton expression, by the kind of dtype it computes in. The table a new pointwise op goes into.

Templates take the operands as {0}, {1}, {2}. Values of f16 and bf16 are float32 here. In float32
the exact forms are used: `tl.exp`, `/` and `tl.sqrt` are approximate instructions on the GPU. Column
`low` has what is good enough for a value that will be rounded to 11 bits or fewer: such kernels would
otherwise wait for arithmetic, not for memory.
Names starting with `g_` are helpers of `prelude.py`; the emitter copies those that a kernel uses.
"""

from __future__ import annotations

from typing import Final

from genesis.ir.types import DType, bool_, float32, int8, int16, int32, uint8

_NAN = "propagate_nan=tl.PropagateNan.ALL"


def _row(any: str = "", *, float: str = "", low: str = "", f32: str = "", f64: str = "", int: str = "",
         bool: str = "") -> dict[str, str]:
    """Templates by column; an empty one means that the op does not exist for that kind."""
    f32 = f32 or float or any
    return {"low": low or f32, "f32": f32, "f64": f64 or float or any, "int": int or any, "bool": bool or any}


def _math(name: str, low: str = "", f32: str = "") -> dict[str, str]:
    library = f"libdevice.{name}({{0}})"
    return _row(float=library, low=low or library, f32=f32)


POINTWISE: Final[dict[str, dict[str, str]]] = {
    "add": _row("{0} + {1}", bool="{0} | {1}"),
    "sub": _row(float="{0} - {1}", int="{0} - {1}"),
    "mul": _row("{0} * {1}", bool="{0} & {1}"),
    "div": _row(low="{0} / {1}", f32="tl.math.div_rn({0}, {1})", f64="{0} / {1}"),
    "floor_divide": _row(float="g_floor_divide({0}, {1})", int="g_int_floor_divide({0}, {1})"),
    "remainder": _row(float="g_remainder({0}, {1})", int="g_int_remainder({0}, {1})"),
    "fmod": _row(float="libdevice.fmod({0}, {1})", int="{0} % {1}"),
    "pow": _row(low="libdevice.pow({0}, {1})", f32="g_pow({0}, {1})", f64="libdevice.pow({0}, {1})",
                int="g_int_pow({0}, {1})"),
    "atan2": _row(low="libdevice.atan2({0}, {1})", f32="g_atan2({0}, {1})", f64="libdevice.atan2({0}, {1})"),
    "maximum": _row(float=f"tl.maximum({{0}}, {{1}}, {_NAN})", int="tl.maximum({0}, {1})", bool="{0} | {1}"),
    "minimum": _row(float=f"tl.minimum({{0}}, {{1}}, {_NAN})", int="tl.minimum({0}, {1})", bool="{0} & {1}"),
    "neg": _row(float="{0} * -1.0", int="-{0}"),  # `-x` is 0 - x to Triton, and so 0 for 0
    "abs": _row(float="tl.abs({0})", int="tl.abs({0})"),
    "sign": _row(float="g_sign({0})", int="g_sign({0})"),
    "reciprocal": _row(low="1.0 / {0}", f32="tl.math.div_rn(1.0, {0})", f64="1.0 / {0}"),
    "sqrt": _row(low="tl.sqrt({0})", f32="tl.math.sqrt_rn({0})", f64="libdevice.sqrt({0})"),
    "rsqrt": _row(low="tl.rsqrt({0})", f32="tl.math.div_rn(1.0, tl.math.sqrt_rn({0}))",
                  f64="1.0 / libdevice.sqrt({0})"),
    "sigmoid": _row(low="g_low_sigmoid({0})", f32="g_exact_sigmoid({0})", f64="g_sigmoid({0})"),
    "logsigmoid": _row(low="g_low_logsigmoid({0})", f32="g_logsigmoid({0})", f64="g_wide_logsigmoid({0})"),
    **{name: _math(name) for name in ("expm1", "log", "log2", "log1p", "sin", "cos", "asinh")},
    **{name: _math(name, f32=f"g_{name}({{0}})") for name in (
        "exp2", "log10", "tan", "asin", "acos", "atan", "sinh", "cosh", "acosh", "atanh", "erfc")},
    "exp": _math("exp", low="tl.exp({0})"),
    "erf": _math("erf", low="g_low_erf({0})"),
    "ndtr": _row(float="0.5 * libdevice.erfc({0} * -0.7071067811865476)", low="g_low_ndtr({0})"),
    "tanh": _math("tanh", low="g_low_tanh({0})"),
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
    "hypot": _row(low="libdevice.hypot({0}, {1})", f32="g_hypot({0}, {1})", f64="libdevice.hypot({0}, {1})"),
    "logaddexp": _row(f32="g_logaddexp({0}, {1})"),
    "logaddexp2": _row(f32="g_logaddexp2({0}, {1})"),
    "gcd": _row(int="g_gcd({0}, {1})"),
    "erfinv": _math("erfinv"),
    "lgamma": _math("lgamma"),
    "entr": _row(float='tl.where({0} == 0, 0.0, tl.where({0} < 0, float("-inf"), {0} * libdevice.log({0}) * -1.0))'),
    "i0": _math("cyl_bessel_i0"),
    "i1": _math("cyl_bessel_i1"),
}

ROUNDED: Final = {"exp": "g_low_exp({0})", "sigmoid": "g_rounded_sigmoid({0})"}
"""Forms of column `low` that are cheaper still, for steps of a computation: subnormal results are 0."""

LOOP_OPS: Final = frozenset(POINTWISE) | {
    "cast", "bitcast", "reshape", "permute", "expand", "slice", "pad", "flip", "concat", "assign", "recompute", "const",
    "scalar", "input", "iota", "random_bits", "sum", "prod", "max", "min", "any", "all", "argmax", "argmin",
    "reduce_splits", "take", "gather", "in_range", "row_put"}
"""Ops that a loop group computes."""

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


def _column(dtype: DType, rounded: bool) -> str:
    if dtype.kind != "float":
        return dtype.kind
    return {8: "f64", 4: "low" if rounded else "f32", 2: "low"}[dtype.itemsize]


def pointwise(op: str, compute: DType, operands: tuple[str, ...], rounded: bool = False) -> str:
    """The expression for a pointwise op on operands already in the dtype it computes in.

    Args:
        rounded: the result is a float32 that nobody sees before it is rounded to 16 bits.
    """
    template = ROUNDED.get(op) if rounded else None
    template = template or POINTWISE[op][_column(compute, rounded)]
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
    upcast = value if held(source) is held(target) else f"{value}.to({triton_type(held(target))})"
    if held(target) is target:
        return upcast
    return f"{upcast}.to({triton_type(target)}).to({triton_type(held(target))})"


def reinterpret(value: str, source: DType, target: DType) -> str:
    """The bits of `value`, rounded to `source` first, as they are held for `target`."""
    exact = value if held(source) is source else f"{value}.to({triton_type(source)})"
    bits = f"{exact}.to({triton_type(target)}, bitcast=True)"
    return bits if held(target) is target else f"{bits}.to({triton_type(held(target))})"


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
    "sum": "tl.sum({0}, {1}, keep_dims=True)", "prod": "tl.reduce({0}, {1}, g_product, keep_dims=True)",
    "max": "g_row_max({0}, {1})", "min": "g_row_min({0}, {1})",
}
"""How a block becomes one value along an axis."""
