"""Cases that nobody chose: shapes, dtypes, axes, strides and directions of families of ops, drawn from a seed.

A case is a function of a library (genesis and torch have the names it uses) and tensors, and how its operands lie in
memory. Case `number` of a family depends on the seed, the family and the number alone, so that any part of a sweep can
be run by itself, and again.

    case = draw_case("softmax", seed=0, number=3)
    case.text                                           # log_softmax(f32[3000, 20000], dim=0)
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Final

LEAST_BYTES: Final = 1 << 20
"""Bytes of a case below which only the host's time is told."""

MOST_BYTES: Final = 256 << 20
"""The most bytes of operands, results and gradients together."""

LONGEST: Final = 100_000
"""The largest size of an axis."""

DTYPES: Final = ("float32", "float32", "bfloat16", "bfloat16", "float16")
ITEMSIZE: Final = {"float32": 4, "bfloat16": 2, "float16": 2, "int64": 8, "int32": 4, "bool": 1, "uint8": 1}
SHORT: Final = {"float32": "f32", "bfloat16": "bf16", "float16": "f16", "int64": "i64", "int32": "i32", "bool": "b1"}


@dataclass(frozen=True)
class Operand:
    """One tensor, and the memory that it is a view of.

    Attributes:
        shape: the tensor's.
        order: its axes as they lie in memory, outermost first; () is row-major.
        more: elements of the innermost axis in memory that the tensor leaves out: rows then begin anywhere.
        below: of integers, which are drawn from range(below); 0 draws normal numbers around 0.5.
        grad: whether its gradient is asked for.
    """

    shape: tuple[int, ...]
    dtype: str = "float32"
    order: tuple[int, ...] = ()
    more: int = 0
    below: int = 0
    grad: bool = True

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * ITEMSIZE[self.dtype]

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The row-major memory's shape."""
        sizes = [self.shape[axis] for axis in self.order] if self.order else list(self.shape)
        return (*sizes[:-1], sizes[-1] + self.more) if sizes else ()

    def view(self, memory: Any) -> Any:
        """The tensor in its memory, for either library."""
        if self.more:
            memory = memory.narrow(-1, 0, memory.shape[-1] - self.more)
        if not self.order:
            return memory
        return memory.permute(*[self.order.index(axis) for axis in range(len(self.order))])

    def __str__(self) -> str:
        lies = f" as {list(self.order)}" if self.order else ""
        return f"{SHORT[self.dtype]}{list(self.shape)}{lies}{f' of rows + {self.more}' if self.more else ''}"


Function = Callable[..., Any]


@dataclass(frozen=True)
class Case:
    """One op or formula on drawn operands.

    Attributes:
        family, number: which case it is.
        name: the formula, with its arguments.
        function: (library, *tensors) → a tensor, or a tuple of them.
        operands: what it is called with.
        both: with its backward.
        picks: the axis along which a second result says where the first's elements are in the operand. Equal elements
            may be told from each other by neither library.
        results: bytes of its results.
        tolerance: how many times the dtype's tolerance its results may be off: of long sums and products.
    """

    family: str
    number: int
    name: str
    function: Function
    operands: tuple[Operand, ...]
    both: bool = False
    picks: int | None = None
    results: int = 0
    tolerance: float = 1.0

    @property
    def text(self) -> str:
        return f"{self.name}({', '.join(map(str, self.operands))}){' both' if self.both else ''}"

    @property
    def nbytes(self) -> int:
        """Operands, results, and with the backward the gradients of both."""
        gradients = sum(x.nbytes for x in self.operands if x.grad and not x.below) if self.both else 0
        return sum(x.nbytes for x in self.operands) + self.results * (2 if self.both else 1) + gradients


def draw_case(family: str, seed: int, number: int, scale: float = 1.0) -> Case:
    """Case `number` of a family.

    Args:
        scale: of the bytes drawn; small for a machine without a GPU.
    """
    rng = Random(f"{seed}/{family}/{number}")
    return replace(FAMILIES[family](Draw(rng, scale)), family=family, number=number)


class Draw:
    """Sizes, dtypes and layouts from one generator."""

    def __init__(self, rng: Random, scale: float):
        self.rng, self.scale = rng, scale
        self.dtype = rng.choice(DTYPES)
        self.both = rng.random() < 0.5

    def elements(self, tensors: float, dtype: str = "") -> int:
        """Elements of each of so many equally large tensors: log-uniform in their bytes."""
        least, most = math.log(0.7 * LEAST_BYTES), math.log(MOST_BYTES)
        nbytes = math.exp(self.rng.uniform(least, most)) * self.scale
        return max(1, int(nbytes / tensors / ITEMSIZE[dtype or self.dtype]))

    def size(self, about: float, least: int = 1) -> int:
        """A size near a number: a power of two, a multiple of 8 or 100, a prime, or any."""
        n = int(min(max(about, least), LONGEST))
        kind = self.rng.choice(("power", "aligned", "round", "prime", "any", "any"))
        if kind == "power":
            n = 1 << max(round(math.log2(n)), 0)
        elif kind == "aligned":
            n = n // 8 * 8
        elif kind == "round" and n >= 200:
            n = n // 100 * 100
        elif kind == "prime":
            n = next((m for m in range(n, 1, -1) if all(m % d for d in range(2, math.isqrt(m) + 1))), n)
        return max(min(n, LONGEST), least)

    def shape(self, elements: int, axes: int = 0, least: int = 1) -> tuple[int, ...]:
        """1 to 5 axes with about so many elements; each size is log-uniform in what is left."""
        axes = axes or self.rng.choice((1, 2, 2, 3, 3, 4, 5))
        axes = max(axes, math.ceil(math.log(max(elements, 2)) / math.log(LONGEST) - 1e-9))
        parts = [self.rng.random() + 0.15 for _ in range(axes)]
        sizes, left = [], float(elements)
        for i, part in enumerate(parts):
            fraction = part / sum(parts[i:])
            sizes.append(self.size(min(left ** fraction, LONGEST), least))
            left = max(left / sizes[-1], 1)
        self.rng.shuffle(sizes)
        return tuple(sizes)

    def axis(self, shape: Sequence[int], least: int = 2) -> int:
        """An axis that has at least so many elements, if one has; the last as often as all others."""
        fit = [i for i, size in enumerate(shape) if size >= least] or [max(range(len(shape)), key=shape.__getitem__)]
        return fit[-1] if self.rng.random() < 0.4 else self.rng.choice(fit)

    def operand(self, shape: tuple[int, ...], dtype: str = "", **more: Any) -> Operand:
        """A tensor of that shape: mostly row-major, else permuted or part of longer rows."""
        order: tuple[int, ...] = ()
        extra = 0
        kind = self.rng.random()
        if kind < 0.15 and len(shape) > 1:
            drawn = tuple(self.rng.sample(range(len(shape)), len(shape)))
            order = drawn if drawn != tuple(range(len(shape))) else ()
        elif kind < 0.3 and len(shape) > 1:
            extra = self.rng.choice((1, 3, 8, 64))
        return Operand(shape, dtype or self.dtype, order, extra, **more)

    def plain(self, shape: tuple[int, ...], dtype: str = "", **more: Any) -> Operand:
        """A row-major tensor."""
        return Operand(shape, dtype or self.dtype, **more)

    def case(self, name: str, function: Function, operands: Sequence[Operand], results: int, **more: Any) -> Case:
        """The case; without its backward where no operand has a gradient."""
        floats = any(x.grad and not x.below for x in operands)
        return Case("", 0, name, function, tuple(operands), more.pop("both", self.both) and floats, results=results,
                    **more)


def nn(library: Any) -> Any:
    """Functions of layers."""
    return library.nn.functional


# Pointwise

CHAINS: Final[tuple[tuple[str, int, Function], ...]] = (
    ("a + b", 2, lambda t, a, b: a + b),
    ("a * b + c", 3, lambda t, a, b, c: a * b + c),
    ("gelu(a * b + c)", 3, lambda t, a, b, c: nn(t).gelu(a * b + c)),
    ("silu(a) * b", 2, lambda t, a, b: nn(t).silu(a) * b),
    ("tanh(a) * sigmoid(b)", 2, lambda t, a, b: t.tanh(a) * t.sigmoid(b)),
    ("where(a > b, a, b * 2)", 2, lambda t, a, b: t.where(a > b, a, b * 2)),
    ("exp(-a * a)", 1, lambda t, a: t.exp(-a * a)),
    ("relu(a)", 1, lambda t, a: nn(t).relu(a)),
    ("a.float() * 0.5", 1, lambda t, a: a.float() * 0.5),
    ("clamp(a, -1, 1) + b", 2, lambda t, a, b: t.clamp(a, -1, 1) + b),
    ("a / (1 + abs(b))", 2, lambda t, a, b: a / (1 + t.abs(b))),
    ("lerp(a, b, 0.3)", 2, lambda t, a, b: t.lerp(a, b, 0.3)),
)


def draw_pointwise(draw: Draw) -> Case:
    """A chain of pointwise ops; operands may be broadcast along some axes."""
    name, count, function = draw.rng.choice(CHAINS)
    shape = draw.shape(draw.elements((count + 1) * (2 if draw.both else 1)))
    operands = [draw.operand(shape)]
    for _ in range(count - 1):
        kept = draw.rng.random() < 0.5
        sizes = tuple(n if kept or draw.rng.random() < 0.5 else 1 for n in shape)
        operands.append(draw.operand(sizes))
    return draw.case(name, function, operands, math.prod(shape) * ITEMSIZE[draw.dtype])


# Reductions, norms, softmax, scans

REDUCTIONS: Final = ("sum", "mean", "amax", "amin", "var", "std", "logsumexp", "norm", "max", "min", "any",
                     "sum of squares")


def draw_reduction(draw: Draw) -> Case:
    """A reduction over some axes, at least one of which is longer than 1."""
    name = draw.rng.choice(REDUCTIONS)
    shape = draw.shape(draw.elements(2 if draw.both else 1))
    axes = {draw.axis(shape, 8 if name in ("var", "std") else 2)}
    if name not in ("max", "min", "any"):
        axes |= {i for i in range(len(shape)) if draw.rng.random() < 0.3}
    dims = tuple(sorted(axes))
    keep = draw.rng.random() < 0.3
    results = math.prod(n for i, n in enumerate(shape) if i not in axes) * ITEMSIZE[draw.dtype]
    functions: dict[str, Function] = {
        "norm": lambda t, x: t.linalg.vector_norm(x, dim=dims, keepdim=keep),
        "any": lambda t, x: (x > 3).any(dim=dims[0], keepdim=keep),
        "max": lambda t, x: tuple(x.max(dim=dims[0], keepdim=keep)),
        "min": lambda t, x: tuple(x.min(dim=dims[0], keepdim=keep)),
        "sum of squares": lambda t, x: (x * x).sum(dim=dims, keepdim=keep),
    }
    function = functions.get(name, lambda t, x: getattr(t, name)(x, dim=dims, keepdim=keep))
    picks = dims[0] if name in ("max", "min") else None
    return draw.case(f"{name} {dims}", function, [draw.operand(shape)], results, picks=picks,
                     **({"both": False} if name in ("any", "max", "min") else {}))


def draw_norm(draw: Draw) -> Case:
    """A normalization, of layers' kinds or written out over any axis."""
    kind = draw.rng.choice(("layer_norm", "rms_norm", "batch_norm", "group_norm", "written out", "normalize"))
    elements = draw.elements(4 if draw.both else 2)
    if kind in ("layer_norm", "rms_norm"):
        rows = draw.shape(max(1, elements // 768), draw.rng.choice((1, 2)))
        columns = draw.size(max(16, elements / math.prod(rows)), 16)
        weights = [draw.plain((columns,)) for _ in range(2 if kind == "layer_norm" else 1)]
        x = draw.operand((*rows, columns))
        return draw.case(kind, lambda t, x, *w: getattr(nn(t), kind)(x, (columns,), *w), [x, *weights], x.nbytes)
    if kind in ("batch_norm", "group_norm"):
        channels = 8 * draw.size(draw.rng.choice((4, 8, 16, 32)))
        side = draw.size(draw.rng.choice((7, 14, 28, 56)), 2)
        n = max(2, elements // (channels * side * side))
        x = draw.plain((min(n, 1024), channels, side, side))
        weights = [draw.plain((channels,)) for _ in range(2)]
        if kind == "batch_norm":
            return draw.case(kind, lambda t, x, w, b: nn(t).batch_norm(x, None, None, w, b, training=True),
                             [x, *weights], x.nbytes)
        return draw.case(kind, lambda t, x, w, b: nn(t).group_norm(x, 8, w, b), [x, *weights], x.nbytes)
    shape = draw.shape(elements)
    dim = draw.axis(shape, 16)
    x = draw.operand(shape)
    if kind == "normalize":
        return draw.case(f"normalize dim={dim}", lambda t, x: nn(t).normalize(x, dim=dim), [x], x.nbytes)
    return draw.case(f"(x - mean) / (std + 0.1) dim={dim}",
                     lambda t, x: (x - x.mean(dim, keepdim=True)) / (x.std(dim, keepdim=True) + 0.1), [x], x.nbytes)


def draw_softmax(draw: Draw) -> Case:
    """softmax or log_softmax over any axis."""
    name = draw.rng.choice(("softmax", "log_softmax"))
    shape = draw.shape(draw.elements(4 if draw.both else 2))
    dim = draw.axis(shape)
    x = draw.operand(shape)
    return draw.case(f"{name} dim={dim}", lambda t, x: getattr(t, name)(x, dim), [x], x.nbytes)


def draw_scan(draw: Draw) -> Case:
    """A scan along any axis."""
    name = draw.rng.choice(("cumsum", "cumsum", "logcumsumexp", "cummax", "cumprod"))
    shape = draw.shape(draw.elements(4 if draw.both else 2))
    dim = draw.axis(shape)
    x = draw.operand(shape)
    if name == "cummax":
        return draw.case(f"{name} dim={dim}", lambda t, x: tuple(t.cummax(x, dim)), [x], x.nbytes, picks=dim,
                         both=False)
    if name == "cumprod":
        return draw.case(f"{name} dim={dim}", lambda t, x: t.cumprod(1 + x * 1e-3, dim), [x], x.nbytes, tolerance=64,
                         both=False)
    return draw.case(f"{name} dim={dim}", lambda t, x: getattr(t, name)(x, dim), [x], x.nbytes, tolerance=16)


# Order, places

def draw_sort(draw: Draw) -> Case:
    """sort or topk along any axis."""
    name = draw.rng.choice(("sort", "topk", "sort descending"))
    shape = draw.shape(draw.elements(6))
    dim = draw.axis(shape, 4)
    x = draw.operand(shape)
    if name == "topk":
        k = min(draw.rng.choice((1, 5, 8, 50, 200)), shape[dim])
        return draw.case(f"topk {k} dim={dim}", lambda t, x: tuple(t.topk(x, k, dim)), [x],
                         x.nbytes * k // shape[dim], picks=dim, both=False)
    descending = name != "sort"
    return draw.case(f"{name} dim={dim}", lambda t, x: tuple(t.sort(x, dim, descending)), [x], 4 * x.nbytes,
                     picks=dim, both=False)


def draw_gather(draw: Draw) -> Case:
    """A read or a sum at places that are data."""
    name = draw.rng.choice(("gather", "index_select", "scatter_add", "index_add", "x[index]"))
    shape = draw.shape(draw.elements(6))
    dim = draw.axis(shape)
    x = draw.plain(shape)
    if name in ("gather", "scatter_add"):
        count = draw.size(max(1, shape[dim] * draw.rng.choice((0.25, 1, 1))))
        places = (*shape[:dim], count, *shape[dim + 1:])
        index = Operand(places, "int64", below=shape[dim], grad=False)
        nbytes = math.prod(places) * ITEMSIZE[draw.dtype]
        if name == "gather":
            return draw.case(f"gather dim={dim}", lambda t, x, i: t.gather(x, dim, i), [x, index], nbytes, tolerance=4)
        return draw.case(f"scatter_add dim={dim}", lambda t, x, i, y: t.scatter_add(x, dim, i, y),
                         [x, index, draw.plain(places)], x.nbytes, tolerance=4)
    dim = 0 if name == "x[index]" else dim
    count = draw.size(max(1, shape[dim] * draw.rng.choice((0.25, 1, 1))))
    rows = (*shape[:dim], count, *shape[dim + 1:])
    index = Operand((count,), "int64", below=shape[dim], grad=False)
    nbytes = math.prod(rows) * ITEMSIZE[draw.dtype]
    if name == "index_add":
        return draw.case(f"index_add dim={dim}", lambda t, x, i, y: t.index_add(x, dim, i, y),
                         [x, index, draw.plain(rows)], x.nbytes, tolerance=4)
    function: Function = ((lambda t, x, i: x[i]) if name == "x[index]" else
                          (lambda t, x, i: t.index_select(x, dim, i)))
    return draw.case(f"{name} dim={dim}", function, [x, index], nbytes, tolerance=4)


def draw_embedding(draw: Draw) -> Case:
    """Rows of a table."""
    width = draw.size(draw.rng.choice((32, 64, 300, 768, 1024)), 4)
    elements = draw.elements(4 if draw.both else 2)
    rows = draw.size(max(2, elements / width * draw.rng.choice((0.1, 0.5, 1))), 2)
    count = max(1, int(elements / width))
    batch = draw.size(draw.rng.choice((1, 8, 64)))
    index = Operand((batch, min(max(1, count // batch), LONGEST)), "int64", below=rows, grad=False)
    nbytes = math.prod(index.shape) * width * ITEMSIZE[draw.dtype]
    return draw.case("embedding", lambda t, i, w: nn(t).embedding(i, w), [index, draw.plain((rows, width))], nbytes,
                     tolerance=8)


# Movement

def draw_transpose(draw: Draw) -> Case:
    """A copy in another order, alone or with arithmetic."""
    shape = draw.shape(draw.elements(2), draw.rng.choice((2, 3, 4, 5)))
    order = tuple(draw.rng.sample(range(len(shape)), len(shape)))
    if list(order) == sorted(order):  # nothing would be left to do
        order = order[::-1]
    x = draw.operand(shape)
    turned = tuple(shape[axis] for axis in order)
    if draw.rng.random() < 0.3:
        return draw.case(f"x.permute{order} + y", lambda t, x, y: x.permute(*order) + y,
                         [x, draw.plain(turned)], x.nbytes, both=False)
    scale = draw.rng.choice((1, 2))
    return draw.case(f"(x * {scale}).permute{order}.contiguous()",
                     lambda t, x: (x if scale == 1 else x * scale).permute(*order).contiguous(), [x], x.nbytes,
                     both=False)


def draw_concat(draw: Draw) -> Case:
    """cat, stack, pad, flip or roll."""
    name = draw.rng.choice(("cat", "stack", "pad", "flip", "roll"))
    shape = draw.shape(draw.elements(4 if draw.both else 2))
    dim = draw.axis(shape)
    if name in ("cat", "stack"):
        count = draw.rng.choice((2, 3, 8))
        each = tuple(max(1, n // count) if i == dim else n for i, n in enumerate(shape))
        parts = [draw.operand(each) for _ in range(count)]
        return draw.case(f"{name} dim={dim}", lambda t, *parts: getattr(t, name)(parts, dim), parts,
                         sum(x.nbytes for x in parts))
    x = draw.operand(shape)
    if name == "pad":
        low, high = draw.rng.choice((0, 1, 7)), draw.rng.choice((1, 3, 16))
        padding = (0, 0) * (len(shape) - 1 - dim) + (low, high)
        return draw.case(f"pad {padding}", lambda t, x: nn(t).pad(x, padding), [x], x.nbytes)
    function: Function = ((lambda t, x: t.flip(x, (dim,))) if name == "flip" else
                          (lambda t, x: t.roll(x, 1 + shape[dim] // 3, dim)))
    return draw.case(f"{name} dim={dim}", function, [x], x.nbytes)


def draw_pool(draw: Draw) -> Case:
    """A pool over images or sequences."""
    name = draw.rng.choice(("max_pool2d", "avg_pool2d", "max_pool1d", "avg_pool1d", "adaptive_avg_pool2d"))
    elements = draw.elements(4 if draw.both else 2)
    if name.endswith("1d"):
        length = draw.size(draw.rng.choice((50, 500, 5000)), 8)
        channels = draw.size(draw.rng.choice((16, 64, 256)))
        shape: tuple[int, ...] = (max(1, min(elements // (length * channels), LONGEST)), channels, length)
    else:
        side, channels = draw.size(draw.rng.choice((14, 28, 56, 112)), 8), draw.size(draw.rng.choice((16, 64, 256)))
        shape = (max(1, min(elements // (side * side * channels), LONGEST)), channels, side, draw.size(side, 8))
    x = draw.plain(shape)
    if name.startswith("adaptive"):
        return draw.case(name, lambda t, x: nn(t).adaptive_avg_pool2d(x, 1), [x], x.nbytes // 64)
    window, step = draw.rng.choice(((2, 2), (3, 2), (3, 1)))
    return draw.case(f"{name} {window} by {step}", lambda t, x: getattr(nn(t), name)(x, window, step), [x],
                     x.nbytes // step)


def draw_loss(draw: Draw) -> Case:
    """A loss of predictions."""
    name = draw.rng.choice(("cross_entropy", "cross_entropy", "mse_loss", "smooth_l1_loss", "bce_with_logits",
                            "kl_div"))
    shape = draw.shape(draw.elements(3 if draw.both else 1), 2, 2)
    x = draw.operand(shape)
    if name == "cross_entropy":
        target = Operand(shape[:1], "int64", below=shape[1], grad=False)
        return draw.case(name, lambda t, x, y: nn(t).cross_entropy(x.float(), y), [x, target], 4)
    y = replace(draw.plain(shape), grad=False)
    functions: dict[str, Function] = {
        "mse_loss": lambda t, x, y: nn(t).mse_loss(x, y),
        "smooth_l1_loss": lambda t, x, y: nn(t).smooth_l1_loss(x, y),
        "bce_with_logits": lambda t, x, y: nn(t).binary_cross_entropy_with_logits(x, t.sigmoid(y)),
        "kl_div": lambda t, x, y: nn(t).kl_div(t.log_softmax(x, -1), t.softmax(y, -1), reduction="batchmean"),
    }
    return draw.case(name, functions[name], [x, y], 4, tolerance=4)


# Products

def draw_matmul(draw: Draw) -> Case:
    """A product of matrices, either of which may lie transposed; or a linear layer."""
    m, k, n = (draw.size(math.exp(draw.rng.uniform(math.log(16), math.log(8192))) * draw.scale ** 0.5, 1)
               for _ in range(3))
    a, b = (replace(draw.plain(shape), order=draw.rng.choice(((), (1, 0)))) for shape in ((m, k), (k, n)))
    nbytes = m * n * ITEMSIZE[draw.dtype]
    if draw.rng.random() < 0.4:
        weight, bias = draw.plain((n, k)), draw.plain((n,))
        return draw.case("linear", lambda t, x, w, b: nn(t).linear(x, w, b), [draw.plain((m, k)), weight, bias], nbytes,
                         tolerance=4)
    return draw.case("a @ b", lambda t, a, b: a @ b, [a, b], nbytes, tolerance=4)


def draw_batched_matmul(draw: Draw) -> Case:
    """A product for each of a batch."""
    batch = draw.size(draw.rng.choice((4, 12, 96)))
    m, k, n = (draw.size(math.exp(draw.rng.uniform(math.log(16), math.log(1024))) * draw.scale ** 0.25, 1)
               for _ in range(3))
    a = replace(draw.plain((batch, m, k)), order=draw.rng.choice(((), (0, 2, 1), (1, 0, 2))))
    b = replace(draw.plain((batch, k, n)), order=draw.rng.choice(((), (0, 2, 1), (1, 0, 2))))
    return draw.case("a @ b", lambda t, a, b: a @ b, [a, b], batch * m * n * ITEMSIZE[draw.dtype], tolerance=4)


def draw_attention(draw: Draw) -> Case:
    """Scaled dot-product attention of any head size."""
    dtype = draw.rng.choice(("bfloat16", "float16"))
    width = draw.rng.choice((16, 32, 64, 64, 80, 96, 128, 128, 256))
    heads, batch = draw.rng.choice((1, 4, 12, 16)), draw.rng.choice((1, 2, 8))
    length = max(8, int(draw.size(draw.rng.choice((128, 500, 1024, 2048, 4096)), 16) * draw.scale ** 0.5))
    causal = draw.rng.random() < 0.6
    operands = [draw.plain((batch, heads, length, width), dtype) for _ in range(3)]
    return draw.case(f"attention{' causal' if causal else ''}",
                     lambda t, q, k, v: nn(t).scaled_dot_product_attention(q, k, v, is_causal=causal), operands,
                     operands[0].nbytes, tolerance=2)


FAMILIES: Final[dict[str, Callable[[Draw], Case]]] = {
    "pointwise": draw_pointwise, "reduction": draw_reduction, "norm": draw_norm, "softmax": draw_softmax,
    "scan": draw_scan, "sort": draw_sort, "gather": draw_gather, "embedding": draw_embedding,
    "transpose": draw_transpose, "concat": draw_concat, "pool": draw_pool, "loss": draw_loss, "matmul": draw_matmul,
    "batched_matmul": draw_batched_matmul, "attention": draw_attention,
}
"""What draws a family's cases, by the name for `--families`."""

MEMORY_BOUND: Final = tuple(name for name in FAMILIES if name not in ("matmul", "batched_matmul", "attention"))
"""The families that the bars for memory-bound cases are over."""
