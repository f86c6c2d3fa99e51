"""`genesis.array_api`: the Python array API standard, 2024.12, over genesis tensors (https://data-apis.org/array-api).

In: arrays, which are tensors, and numbers. Out: arrays, by the standard's rules for dtypes and shapes.

Its names and signatures, which differ from torch's here and there. Real dtypes only; of the unsigned ones uint8.
"""

from math import e, inf, nan, pi

from genesis import Tensor as Array
from genesis import (
    abs,
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    bool,
    ceil,
    cos,
    cosh,
    exp,
    expm1,
    float32,
    float64,
    floor,
    from_dlpack,
    int8,
    int16,
    int32,
    int64,
    isfinite,
    isinf,
    isnan,
    log,
    log1p,
    log2,
    log10,
    logical_not,
    positive,
    reciprocal,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    trunc,
    uint8,
)
from genesis import bitwise_not as bitwise_invert
from genesis import neg as negative
from genesis.array_api import linalg
from genesis.array_api.creation import (
    arange,
    asarray,
    empty,
    empty_like,
    eye,
    full,
    full_like,
    linspace,
    meshgrid,
    ones,
    ones_like,
    tril,
    triu,
    zeros,
    zeros_like,
)
from genesis.array_api.dtypes import astype, can_cast, finfo, iinfo, isdtype, result_type
from genesis.array_api.elementwise import (
    add,
    atan2,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    copysign,
    divide,
    equal,
    floor_divide,
    greater,
    greater_equal,
    hypot,
    less,
    less_equal,
    logaddexp,
    logical_and,
    logical_or,
    logical_xor,
    matmul,
    maximum,
    minimum,
    multiply,
    nextafter,
    not_equal,
    pow,
    remainder,
    sign,
    subtract,
    tensordot,
    vecdot,
    where,
)
from genesis.array_api.info import __array_namespace_info__
from genesis.array_api.manipulation import (
    broadcast_arrays,
    broadcast_to,
    concat,
    expand_dims,
    flip,
    matrix_transpose,
    moveaxis,
    permute_dims,
    repeat,
    reshape,
    roll,
    squeeze,
    stack,
    take,
    take_along_axis,
    tile,
    unstack,
)
from genesis.array_api.searching import (
    argmax,
    argmin,
    argsort,
    clip,
    count_nonzero,
    nonzero,
    round,
    searchsorted,
    sort,
    unique_all,
    unique_counts,
    unique_inverse,
    unique_values,
)
from genesis.array_api.statistics import (
    all,
    any,
    cumulative_prod,
    cumulative_sum,
    diff,
    max,
    mean,
    min,
    prod,
    std,
    sum,
    var,
)
from genesis.ir.suggest import suggesting

__array_api_version__ = "2024.12"
newaxis = None

__getattr__ = suggesting(__name__)
