"""`genesis.array_api`: the Python array API standard, 2024.12, over genesis tensors (https://data-apis.org/array-api).

Its names and signatures, which differ from torch's here and there. Real dtypes only; of the unsigned ones uint8.
"""

from math import e, inf, nan, pi

from genesis import Tensor as Array
from genesis import (
    abs,
    acos,
    acosh,
    add,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_left_shift,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    bool,
    ceil,
    copysign,
    cos,
    cosh,
    exp,
    expm1,
    finfo,
    float32,
    float64,
    floor,
    floor_divide,
    from_dlpack,
    hypot,
    iinfo,
    int8,
    int16,
    int32,
    int64,
    isfinite,
    isinf,
    isnan,
    linalg,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    matmul,
    maximum,
    minimum,
    nextafter,
    positive,
    pow,
    reciprocal,
    remainder,
    sign,
    signbit,
    sin,
    sinh,
    sqrt,
    square,
    tan,
    tanh,
    tensordot,
    trunc,
    uint8,
)
from genesis import bitwise_not as bitwise_invert
from genesis import div as divide
from genesis import eq as equal
from genesis import ge as greater_equal
from genesis import gt as greater
from genesis import le as less_equal
from genesis import lt as less
from genesis import mul as multiply
from genesis import ne as not_equal
from genesis import neg as negative
from genesis import sub as subtract
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
from genesis.array_api.dtypes import astype, can_cast, isdtype, result_type
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
    vecdot,
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
    where,
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

__array_api_version__ = "2024.12"
newaxis = None
