"""Genesis: a lazy tensor compiler, and a deep-learning framework that looks like PyTorch on top."""

import sys
from importlib import import_module
from math import e, inf, nan, pi
from typing import TYPE_CHECKING, Any, Final

import genesis.autograd.methods
import genesis.ops.methods  # tensors have all methods from here on
from genesis.autograd import grad, value_and_grad
from genesis.config import are_deterministic_algorithms_enabled, config, use_deterministic_algorithms
from genesis.engine import materialize as eval
from genesis.frontend.default_dtypes import get_default_dtype, set_default_dtype
from genesis.frontend.generator import (
    Generator,
    default_generator,
    get_rng_state,
    initial_seed,
    manual_seed,
    seed,
    set_rng_state,
)
from genesis.frontend.grad_mode import (
    enable_grad,
    inference_mode,
    is_grad_enabled,
    is_inference_mode_enabled,
    no_grad,
    set_grad_enabled,
)
from genesis.frontend.tensor import Size, Tensor, install_later
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
from genesis.ops.activation import relu
from genesis.ops.arithmetic import (
    abs,
    absolute,
    add,
    addcdiv,
    addcmul,
    copysign,
    div,
    divide,
    floor_divide,
    fmod,
    gcd,
    heaviside,
    lcm,
    lerp,
    mul,
    multiply,
    neg,
    negative,
    nextafter,
    positive,
    reciprocal,
    remainder,
    rsub,
    sign,
    signbit,
    sub,
    subtract,
    true_divide,
)
from genesis.ops.common import broadcast_shapes, result_type
from genesis.ops.comparison import (
    allclose,
    eq,
    equal,
    ge,
    greater,
    greater_equal,
    gt,
    isclose,
    isfinite,
    isinf,
    isnan,
    isneginf,
    isposinf,
    le,
    less,
    less_equal,
    lt,
    ne,
    not_equal,
    where,
)
from genesis.ops.covariance import corrcoef, cov, dist, renorm
from genesis.ops.creation import (
    as_tensor,
    asarray,
    empty,
    empty_like,
    fill,
    full,
    full_like,
    get_default_device,
    ones,
    ones_like,
    scalar_tensor,
    set_default_device,
    tensor,
    zeros,
    zeros_like,
)
from genesis.ops.diagonals import (
    as_strided,
    as_strided_scatter,
    diag,
    diag_embed,
    diagflat,
    diagonal,
    diagonal_scatter,
    select_scatter,
    slice_scatter,
    trace,
)
from genesis.ops.einsum import einsum
from genesis.ops.exponential import (
    exp,
    exp2,
    expm1,
    float_power,
    hypot,
    ldexp,
    log,
    log1p,
    log2,
    log10,
    logaddexp,
    logaddexp2,
    pow,
    rsqrt,
    sqrt,
    square,
    xlogy,
)
from genesis.ops.formats import channels_last, channels_last_3d, contiguous_format, preserve_format, strided
from genesis.ops.histograms import histogram, histogramdd
from genesis.ops.index_plan import IndexKind, IndexPlan, index_plan
from genesis.ops.indexing import (
    gather,
    index_add,
    index_select,
    masked_fill,
    scatter,
    scatter_add,
)
from genesis.ops.interop import from_dlpack, from_numpy
from genesis.ops.limits import can_cast, finfo, iinfo
from genesis.ops.linalg import addmm, bmm, dot, matmul, mm, mv, outer
from genesis.ops.logic import (
    bitwise_and,
    bitwise_left_shift,
    bitwise_not,
    bitwise_or,
    bitwise_right_shift,
    bitwise_xor,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
)
from genesis.ops.mantissa import frexp
from genesis.ops.norms import norm
from genesis.ops.products import (
    addbmm,
    addmv,
    addr,
    baddbmm,
    cdist,
    chain_matmul,
    cross,
    ger,
    inner,
    kron,
    matrix_power,
    tensordot,
    vdot,
)
from genesis.ops.queries import (
    get_device,
    is_complex,
    is_conj,
    is_floating_point,
    is_inference,
    is_neg,
    is_nonzero,
    is_same_size,
    is_signed,
    is_tensor,
    numel,
)
from genesis.ops.random import (
    bernoulli,
    multinomial,
    normal,
    rand,
    rand_like,
    randint,
    randint_like,
    randn,
    randn_like,
    randperm,
)
from genesis.ops.ranges import arange, eye, linspace, logspace, meshgrid, tril_indices, triu_indices
from genesis.ops.ranks import kthvalue, median, mode, nanmedian, nanquantile, quantile
from genesis.ops.real import adjoint, angle, conj, conj_physical, imag, isreal, real, resolve_conj, resolve_neg, sgn
from genesis.ops.rearrange import (
    atleast_1d,
    atleast_2d,
    atleast_3d,
    block_diag,
    cartesian_prod,
    column_stack,
    dsplit,
    dstack,
    fliplr,
    flipud,
    hsplit,
    hstack,
    moveaxis,
    ravel,
    roll,
    rot90,
    row_stack,
    swapaxes,
    swapdims,
    tensor_split,
    unravel_index,
    vsplit,
    vstack,
)
from genesis.ops.reduction import (
    all,
    amax,
    amin,
    aminmax,
    any,
    argmax,
    argmin,
    count_nonzero,
    log_softmax,
    logsumexp,
    max,
    mean,
    min,
    nanmean,
    nansum,
    prod,
    softmax,
    sum,
)
from genesis.ops.rounding import (
    ceil,
    clamp,
    clamp_max,
    clamp_min,
    clip,
    fix,
    floor,
    fmax,
    fmin,
    frac,
    maximum,
    minimum,
    nan_to_num,
    round,
    trunc,
)
from genesis.ops.scans import cummax, cummin, cumprod, cumsum, logcumsumexp
from genesis.ops.searching import argwhere, bucketize, masked_select, nonzero, repeat_interleave, searchsorted
from genesis.ops.sets import bincount, histc, isin, unique, unique_consecutive
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
    split_with_sizes,
    squeeze,
    stack,
    t,
    tile,
    transpose,
    tril,
    triu,
    unbind,
    unflatten,
    unsafe_chunk,
    unsafe_split,
    unsqueeze,
    view_as,
)
from genesis.ops.sorting import argsort, msort, sort, topk
from genesis.ops.special import (
    digamma,
    erf,
    erfc,
    erfinv,
    i0,
    lgamma,
    logit,
    mvlgamma,
    polygamma,
    sigmoid,
)
from genesis.ops.statistics import cumulative_trapezoid, diff, std, std_mean, trapezoid, trapz, var, var_mean
from genesis.ops.strided import empty_permuted, empty_strided, frombuffer
from genesis.ops.trigonometry import (
    acos,
    acosh,
    arccos,
    arccosh,
    arcsin,
    arcsinh,
    arctan,
    arctan2,
    arctanh,
    asin,
    asinh,
    atan,
    atan2,
    atanh,
    cos,
    cosh,
    deg2rad,
    rad2deg,
    sin,
    sinc,
    sinh,
    tan,
    tanh,
)
from genesis.ops.writing import (
    index_copy,
    index_fill,
    index_put,
    index_reduce,
    masked_scatter,
    put,
    scatter_reduce,
    take,
    take_along_dim,
)

from genesis import amp, autograd, nn, optim, random  # isort: skip  (they are written with the names above)
from genesis.amp import autocast  # isort: skip
from genesis.ops.inplace_functions import (  # isort: skip  (torch has these as functions too)
    abs_,
    acos_,
    acosh_,
    addmv_,
    arccos_,
    arccosh_,
    arcsin_,
    arcsinh_,
    arctan_,
    arctanh_,
    as_strided_,
    asin_,
    asinh_,
    atan_,
    atanh_,
    ceil_,
    clamp_,
    clamp_max_,
    clamp_min_,
    clip_,
    conj_physical_,
    cos_,
    cosh_,
    deg2rad_,
    detach,
    detach_,
    erf_,
    erfc_,
    exp2_,
    exp_,
    expm1_,
    fill_,
    fix_,
    floor_,
    frac_,
    gcd_,
    i0_,
    index_put_,
    lcm_,
    ldexp_,
    log1p_,
    log2_,
    log10_,
    log_,
    logit_,
    nan_to_num_,
    neg_,
    negative_,
    rad2deg_,
    reciprocal_,
    resize_as_,
    round_,
    rsqrt_,
    sigmoid_,
    sin_,
    sinc_,
    sinh_,
    sqrt_,
    square_,
    tan_,
    tanh_,
    trunc_,
    xlogy_,
    zero_,
)
from genesis.nn.functional import (  # isort: skip  (torch has these both here and there)
    adaptive_avg_pool1d,
    adaptive_max_pool1d,
    alpha_dropout,
    avg_pool1d,
    batch_norm,
    bilinear,
    binary_cross_entropy_with_logits,
    celu,
    celu_,
    channel_shuffle,
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    cosine_embedding_loss,
    cosine_similarity,
    ctc_loss,
    dropout,
    embedding,
    embedding_bag,
    feature_alpha_dropout,
    group_norm,
    hardshrink,
    hinge_embedding_loss,
    instance_norm,
    kl_div,
    layer_norm,
    margin_ranking_loss,
    max_pool1d,
    max_pool1d_with_indices,
    max_pool2d,
    max_pool3d,
    pairwise_distance,
    pdist,
    pixel_shuffle,
    pixel_unshuffle,
    poisson_nll_loss,
    prelu,
    relu_,
    rms_norm,
    rrelu,
    rrelu_,
    selu,
    selu_,
    threshold,
    threshold_,
    triplet_margin_loss,
)

if TYPE_CHECKING:  # what `__getattr__` brings, for editors and type checkers
    from genesis import array_api, cuda, func, linalg, models, signal, special
    from genesis.frontend.printing import get_printoptions, printoptions, set_printoptions
    from genesis.func import vmap
    from genesis.linalg.legacy import (
        cholesky,
        cholesky_inverse,
        cholesky_solve,
        det,
        inverse,
        logdet,
        lu,
        lu_solve,
        lu_unpack,
        matrix_exp,
        pca_lowrank,
        pinverse,
        qr,
        slogdet,
        svd,
        svd_lowrank,
        triangular_solve,
    )
    from genesis.ops.combinations import combinations, vander
    from genesis.ops.finite_differences import gradient
    from genesis.ops.view_copies import (
        alias_copy,
        as_strided_copy,
        detach_copy,
        diagonal_copy,
        expand_copy,
        narrow_copy,
        permute_copy,
        select_copy,
        split_copy,
        squeeze_copy,
        t_copy,
        transpose_copy,
        unbind_copy,
        unfold_copy,
        unsqueeze_copy,
        view_copy,
    )
    from genesis.signal.legacy import bartlett_window, blackman_window, hamming_window, hann_window, kaiser_window
    from genesis.tracing.compiled import compile, explain
    from genesis.utils.checkpoint import checkpoint
    from genesis.utils.serialization import load, save

LATER: Final[dict[str, str]] = {
    **dict.fromkeys(("array_api", "cuda", "func", "linalg", "models", "signal", "special"), "genesis"),
    **dict.fromkeys(("compile", "explain"), "genesis.tracing.compiled"),
    "vmap": "genesis.func",
    **dict.fromkeys((
        "cholesky", "cholesky_inverse", "cholesky_solve", "det", "inverse", "logdet", "lu", "lu_solve",
        "lu_unpack", "matrix_exp", "pca_lowrank", "pinverse", "qr", "slogdet", "svd", "svd_lowrank",
        "triangular_solve"
    ), "genesis.linalg.legacy"),
    **dict.fromkeys(("combinations", "vander"), "genesis.ops.combinations"),
    "gradient": "genesis.ops.finite_differences",
    **dict.fromkeys((
        "alias_copy", "as_strided_copy", "detach_copy", "diagonal_copy", "expand_copy", "narrow_copy",
        "permute_copy", "select_copy", "split_copy", "squeeze_copy", "t_copy", "transpose_copy", "unbind_copy",
        "unfold_copy", "unsqueeze_copy", "view_copy"
    ), "genesis.ops.view_copies"),
    **dict.fromkeys(("get_printoptions", "printoptions", "set_printoptions"), "genesis.frontend.printing"),
    **dict.fromkeys((
        "bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window"
    ), "genesis.signal.legacy"),
    "checkpoint": "genesis.utils.checkpoint",
    **dict.fromkeys(("load", "save"), "genesis.utils.serialization"),
}
"""Name → the module that it is from, which is imported when the name is first asked for: not every program needs it."""

install_later("genesis.linalg.methods", "MatrixMethods", (
    "det", "slogdet", "logdet", "inverse", "matrix_exp", "pinverse", "cholesky", "cholesky_solve", "cholesky_inverse",
    "qr", "svd", "lu", "lu_solve", "triangular_solve"))
install_later("genesis.array_api.methods", "ArrayMethods", ("__array_namespace__",))

half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
newaxis = None
__version__ = "0.1.0"


def cuda_available() -> Any:
    """True if a GPU can be used: `genesis.cuda.is_available()` by its older name."""
    from genesis import cuda
    return cuda.is_available()


def __dir__() -> list[str]:
    return sorted({*globals(), *LATER})


if not TYPE_CHECKING:  # a type checker that saw it would believe every name
    def __getattr__(name: str) -> Any:
        """A name of `LATER`, from its module; from then on it is in this one (PEP 562)."""
        if name not in LATER:
            from genesis.ir.suggest import MissingName
            raise MissingName(f"module 'genesis' has no attribute {name!r}", name, lambda: {*globals(), *LATER})
        place = LATER[name]
        found = import_module(f"genesis.{name}") if place == "genesis" else getattr(import_module(place), name)
        globals()[name] = found
        return found
