"""The calls that `ops.py` measures: as a user writes them, on tensors of either framework.

Every function is here once. Its other names (`absolute` of `abs`), its method and its in-place form record the same
node and run the same kernel.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

import genesis
import genesis.nn.functional as GF


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
    found = Inputs(t, GF if t is genesis else torch.nn.functional, real(*shape), real(*shape), real(*shape),
                  t.tensor(random.uniform(0.5, 4, shape).astype(np.float32)),
                  t.tensor(random.uniform(0.05, 0.95, shape).astype(np.float32)),
                  whole(-99, 99, *shape), whole(1, 20, *shape), whole(0, 2, *shape) > 0, whole(0, 2, *shape) > 0,
                  real(rows, columns), real(columns, rows), whole(0, rows, rows), real(2, 8, side, side))
    if t is genesis:  # what is pending would run with what is measured
        genesis.eval(found.b, found.c)
    return found


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
    return found | shapes_and_indices() | products() | networks()


def shapes_and_indices() -> dict[str, Call]:
    """Calls that move, choose, write or draw elements."""
    def joined(name: str) -> Call:
        return lambda a: getattr(a.t, name)([a.x, a.y])

    def turned(name: str, *more: Any) -> Call:
        return lambda a: getattr(a.t, name)(a.m, *more) + 0
    return {
        **{name: joined(name) for name in ("hstack", "vstack", "dstack", "column_stack")},
        **{name: turned(name, *more) for name, *more in (
            ("fliplr",), ("flipud",), ("rot90",), ("movedim", 0, 1), ("diagonal",), ("unsqueeze", 1),
            ("narrow", 0, 2, 4), ("select", 1, 3), ("ravel",), ("unflatten", 0, (-1, 4)))},
        "block_diag": lambda a: a.t.block_diag(a.x[:, :100], a.y[:, :100]),
        "chunk": lambda a: a.t.chunk(a.m, 4)[1] + 0, "unbind": lambda a: a.t.unbind(a.m)[1] + 0,
        "broadcast_to": lambda a: a.t.broadcast_to(a.x[0], a.x.shape) + 0,
        "tile": lambda a: a.t.tile(a.x[:100], (2, 2)),
        "repeat_interleave": lambda a: a.t.repeat_interleave(a.x[:100], 3, 0), "trace": lambda a: a.t.trace(a.m),
        "diag_embed": lambda a: a.t.diag_embed(a.x[0]), "cartesian_prod": lambda a: a.t.cartesian_prod(a.x[0], a.y[0]),
        "meshgrid": lambda a: a.t.meshgrid(a.x[0], a.y[0], indexing="ij")[1] + 0,
        "select_scatter": lambda a: a.t.select_scatter(a.m, a.y[0], 0, 1),
        "slice_scatter": lambda a: a.t.slice_scatter(a.m, a.y[:4], 0, 0, 4),
        "diagonal_scatter": lambda a: a.t.diagonal_scatter(a.m, a.t.diagonal(a.y)),
        "argsort": lambda a: a.t.argsort(a.m), "msort": lambda a: a.t.msort(a.m), "mode": lambda a: a.t.mode(a.i)[0],
        "kthvalue": lambda a: a.t.kthvalue(a.m, 3)[0], "nanmedian": lambda a: a.t.nanmedian(a.m),
        "nanquantile": lambda a: a.t.nanquantile(a.x[:100], 0.5), "cummin": lambda a: a.t.cummin(a.m, -1)[0],
        "min(-1)": lambda a: a.m.min(-1)[0], "equal": lambda a: a.t.equal(a.x, a.x),
        "isin": lambda a: a.t.isin(a.i, a.j[0]),
        "allclose": lambda a: a.t.allclose(a.x, a.x), "bucketize": lambda a: a.t.bucketize(a.x, a.t.sort(a.y[0])[0]),
        "unique_consecutive": lambda a: a.t.unique_consecutive(a.i), "argwhere": lambda a: a.t.argwhere(a.b),
        "cumulative_trapezoid": lambda a: a.t.cumulative_trapezoid(a.m), "gradient": lambda a: a.t.gradient(a.m)[0],
        "cov": lambda a: a.t.cov(a.m[:64]), "corrcoef": lambda a: a.t.corrcoef(a.m[:64]),
        "dist": lambda a: a.t.dist(a.x, a.y),
        "renorm": lambda a: a.t.renorm(a.m, 2, 0, 1.0), "vander": lambda a: a.t.vander(a.p[0], 8),
        "mvlgamma": lambda a: a.t.mvlgamma(a.p + 1, 2), "polygamma": lambda a: a.t.polygamma(1, a.p),
        "take": lambda a: a.t.take(a.m, a.j),
        "take_along_dim": lambda a: a.t.take_along_dim(a.m, a.j % a.m.shape[1], 1),
        "put": lambda a: a.t.put(a.m, a.ids, a.x.view(-1)[:a.ids.shape[0]]),
        "index_copy": lambda a: a.t.index_copy(a.m, 0, a.ids[:1], a.x[:1]),
        "index_fill": lambda a: a.t.index_fill(a.m, 0, a.ids, 0.0),
        "index_put": lambda a: a.t.index_put(a.m, (a.ids,), a.x[:1], accumulate=False),
        "index_reduce": lambda a: a.t.index_reduce(a.m, 0, a.ids, a.x, "amax"),
        "masked_scatter": lambda a: a.t.masked_scatter(a.x, a.b, a.y),
        "scatter": lambda a: a.t.scatter(a.m, 0, a.ids.view(1, -1), a.y),
        "scatter_add": lambda a: a.t.scatter_add(a.m, 0, a.j % a.m.shape[0], a.y),
        "scatter_reduce": lambda a: a.t.scatter_reduce(a.m, 0, a.j % a.m.shape[0], a.y, "amax"),
        "bernoulli": lambda a: a.t.bernoulli(a.u), "normal": lambda a: a.t.normal(a.x, a.p),
        "multinomial": lambda a: a.t.multinomial(a.u, 4), "rand_like": lambda a: a.t.rand_like(a.x),
        "randn_like": lambda a: a.t.randn_like(a.x), "randint_like": lambda a: a.t.randint_like(a.x, 9),
        "ones": lambda a: a.t.ones(a.x.shape), "full_like": lambda a: a.t.full_like(a.x, 2.5),
        "eye": lambda a: a.t.eye(a.m.shape[0]), "logspace": lambda a: a.t.logspace(0, 1, a.x.numel()),
        "tril_indices": lambda a: a.t.tril_indices(a.m.shape[0], a.m.shape[1]),
    }


def products() -> dict[str, Call]:
    """Products of matrices, and decompositions (of 64 x 64: they go through the host)."""
    def square(a: Inputs) -> Any:
        part = a.m[:8, :8] if a.m.shape[0] < 64 else a.m[:64, :64]
        return part @ part.mT + a.t.eye(part.shape[0])

    def of_square(name: str) -> Call:
        def call(a: Inputs) -> Any:
            found = getattr(a.t.linalg, name)(square(a))
            return found if hasattr(found, "shape") else found[0]
        return call
    return {
        "bmm": lambda a: a.t.bmm(a.image[0], a.image[1]), "dot": lambda a: a.t.dot(a.x.view(-1), a.y.view(-1)),
        "baddbmm": lambda a: a.t.baddbmm(a.image[0], a.image[0], a.image[1]),
        "inner": lambda a: a.t.inner(a.m[:64], a.m),
        "addbmm": lambda a: a.t.addbmm(a.image[0, 0], a.image[0], a.image[1]),
        "addmv": lambda a: a.t.addmv(a.x[0], a.n, a.y[:, 0]), "addr": lambda a: a.t.addr(a.m, a.x[:, 0], a.y[0]),
        "kron": lambda a: a.t.kron(a.m[:8, :8], a.n[:8, :8]), "cdist": lambda a: a.t.cdist(a.m[:64], a.y),
        "tensordot": lambda a: a.t.tensordot(a.m[:64], a.n, 1),
        "cross": lambda a: a.t.linalg.cross(a.m[:, :3], a.y[:, :3]),
        **{f"linalg.{name}": of_square(name) for name in (
            "cholesky", "det", "eigh", "eigvalsh", "inv", "lu", "matrix_exp", "pinv", "qr", "slogdet", "svd",
            "svdvals")},
        "linalg.solve": lambda a: a.t.linalg.solve(square(a), square(a)),
        "linalg.vector_norm": lambda a: a.t.linalg.vector_norm(a.x),
        "linalg.matrix_norm": lambda a: a.t.linalg.matrix_norm(a.m),
        "linalg.vecdot": lambda a: a.t.linalg.vecdot(a.x, a.y),
    }


def networks() -> dict[str, Call]:
    """Functions of networks that take more than one tensor or need a window."""
    def of_image(name: str, *more: Any) -> Call:
        return lambda a: getattr(a.F, name)(a.image, *more)

    def loss(name: str, target: str = "y", given: str = "x") -> Call:
        return lambda a: getattr(a.F, name)(getattr(a, given), getattr(a, target))

    def rows(name: str, *more: Any) -> Call:
        return lambda a: getattr(a.F, name)(a.m, *more)
    found: dict[str, Call] = {
        "conv1d": lambda a: a.F.conv1d(a.image[0], a.image[1, :, :, :3]),
        "conv2d": lambda a: a.F.conv2d(a.image, a.image[:, :, :3, :3]),
        "conv3d": lambda a: a.F.conv3d(a.image.unsqueeze(2), a.image[:, :, :3, :3].unsqueeze(2)),
        "conv_transpose2d": lambda a: a.F.conv_transpose2d(
            a.image, a.image[0, :, :3, :3].unsqueeze(0).repeat(8, 1, 1, 1)),
        "batch_norm": lambda a: a.F.batch_norm(a.image, None, None, training=True),
        "embedding_bag": lambda a: a.F.embedding_bag(a.ids.view(-1, 4), a.m),
        "nll_loss": lambda a: a.F.nll_loss(a.m, a.ids % a.m.shape[1]),
        "one_hot": lambda a: a.F.one_hot(a.j.view(-1)[:4096], 99),
        "scaled_dot_product_attention": lambda a: a.F.scaled_dot_product_attention(a.image, a.image, a.image),
        "prelu": lambda a: a.F.prelu(a.x, a.y[0, :1]), "glu": lambda a: a.F.glu(a.m, 0),
        "triplet_margin_loss": lambda a: a.F.triplet_margin_loss(a.x, a.y, a.z),
        "cosine_similarity": lambda a: a.F.cosine_similarity(a.x, a.y), "fold": lambda a: a.F.fold(
            a.F.unfold(a.image, 2, stride=2), a.image.shape[-2:], 2, stride=2),
        "binary_cross_entropy": loss("binary_cross_entropy", "u", "u"), "kl_div": loss("kl_div", "p"),
        "poisson_nll_loss": loss("poisson_nll_loss", "p"), "pairwise_distance": loss("pairwise_distance"),
        **{name: loss(name) for name in (
            "l1_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "binary_cross_entropy_with_logits",
            "hinge_embedding_loss")},
        **{name: rows(name, *more) for name, *more in (
            ("normalize",), ("softmin", -1), ("gumbel_softmax",), ("threshold", 0.0, 1.0), ("hardshrink",),
            ("rrelu",))},
        **{name: of_image(name, *more) for name, *more in (
            ("group_norm", 4), ("instance_norm",), ("pixel_shuffle", 2), ("channel_shuffle", 2), ("unfold", 2),
            ("adaptive_avg_pool2d", 7), ("adaptive_max_pool2d", 7), ("lp_pool2d", 2, 2), ("local_response_norm", 3),
            ("dropout2d",))},
        "rms_norm": lambda a: a.F.rms_norm(a.m, a.m.shape[-1:]),
    }
    return {f"F.{name}": call for name, call in found.items()}
