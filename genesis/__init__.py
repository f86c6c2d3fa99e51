"""Genesis: a lazy tensor compiler, and a deep-learning framework that looks like PyTorch on top."""

from typing import Any

from genesis.autograd import grad, value_and_grad
from genesis.config import config
from genesis.engine import materialize as eval
from genesis.gradmode import enable_grad, inference_mode, is_grad_enabled, no_grad, set_grad_enabled
from genesis.ir.types import Device as device
from genesis.ir.types import DType as dtype
from genesis.ir.types import (
    bfloat16,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    promote_types,
    uint8,
)
from genesis.ir.types import bool_ as bool
from genesis.ops.common import broadcast_shapes, get_default_dtype, result_type, set_default_dtype
from genesis.ops.creation import (
    arange,
    as_tensor,
    asarray,
    empty,
    empty_like,
    eye,
    from_numpy,
    full,
    full_like,
    linspace,
    normal,
    ones,
    ones_like,
    rand,
    rand_like,
    randint,
    randn,
    randn_like,
    set_default_device,
    zeros,
    zeros_like,
)
from genesis.ops.indexing import (
    IndexKind,
    IndexPlan,
    gather,
    index_add,
    index_select,
    masked_fill,
    masked_select,
    nonzero,
    scatter,
    scatter_add,
)
from genesis.ops.linalg import addmm, bmm, dot, matmul, mm, mv, outer
from genesis.ops.math import (
    abs,
    absolute,
    acos,
    acosh,
    add,
    addcdiv,
    addcmul,
    allclose,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    ceil,
    clamp,
    clip,
    cos,
    cosh,
    div,
    divide,
    eq,
    equal,
    erf,
    erfc,
    exp,
    exp2,
    expm1,
    floor,
    floor_divide,
    fmod,
    ge,
    greater,
    greater_equal,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    le,
    lerp,
    less,
    less_equal,
    log,
    log1p,
    log2,
    log10,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    lt,
    maximum,
    minimum,
    mul,
    multiply,
    ne,
    neg,
    negative,
    not_equal,
    pow,
    reciprocal,
    relu,
    remainder,
    round,
    rsqrt,
    sigmoid,
    sign,
    sin,
    sinh,
    sqrt,
    square,
    sub,
    subtract,
    tan,
    tanh,
    true_divide,
    trunc,
    where,
)
from genesis.ops.reduction import (
    all,
    amax,
    amin,
    any,
    argmax,
    argmin,
    cumprod,
    cumsum,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    norm,
    prod,
    softmax,
    std,
    sum,
    var,
)
from genesis.ops.shape import (
    broadcast_tensors,
    broadcast_to,
    cat,
    chunk,
    clone,
    concat,
    concatenate,
    flatten,
    flip,
    movedim,
    narrow,
    permute,
    repeat,
    reshape,
    select,
    split,
    squeeze,
    stack,
    t,
    tile,
    transpose,
    tril,
    triu,
    unbind,
    unflatten,
    unsqueeze,
    view_as,
)
from genesis.random import Generator, get_rng_state, initial_seed, manual_seed, seed, set_rng_state
from genesis.tensor import Size, Tensor

from genesis import amp, autograd, cuda, nn, optim, random  # isort: skip  (they are written with the names above)
from genesis.amp import autocast  # isort: skip
from genesis.compiled import compile, explain  # isort: skip
from genesis.utils.serialization import load, save  # isort: skip

from genesis.ops.creation import tensor  # isort: skip  (last: the module genesis.tensor has the same name)

half, double, long = float16, float64, int64
__version__ = "0.1.0"


def cuda_available() -> Any:
    """True if a GPU can be used: `genesis.cuda.is_available()` by its older name."""
    return cuda.is_available()
