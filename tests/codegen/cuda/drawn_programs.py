"""Programs that nobody wrote, of sizes that nobody chose, for the kernels that they have: nothing is computed.

A program is drawn from a number: a shape of primes, ones, powers of two and their neighbours; a dtype; tensors that lie
in memory somehow; an op, or a chain of up to thirty operands; perhaps its gradients.

    draw(7)                                 # records and plans one program on the GPU at hand
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any, Final

import genesis
from genesis.nn import functional as F

SIZES: Final = (1, 1, 2, 3, 5, 7, 8, 9, 13, 16, 17, 31, 33, 48, 64, 65, 97, 100, 127, 129, 256, 257, 500, 513, 768,
                1009, 1024, 2047, 2049, 3000, 4097, 5003, 8192, 10007, 16385, 20000, 50257, 65537, 100003, 262144,
                1000003)
"""What a dimension has."""

MOST_ELEMENTS: Final = 1 << 25
"""Elements of a tensor, at most."""

REALS: Final = (genesis.float32, genesis.float32, genesis.bfloat16, genesis.float16, genesis.float64)
OTHERS: Final = (genesis.int64, genesis.int32, genesis.int16, genesis.int8, genesis.uint8, genesis.bool)

Shape = tuple[int, ...]


class Draw:
    """One program's choices."""

    def __init__(self, number: int):
        self.random = random = Random(number)
        axes = random.choice((1, 2, 2, 3, 3, 4, 5))
        self.shape: Shape = (1 << 26,) * 2
        while math.prod(self.shape) > MOST_ELEMENTS:
            self.shape = tuple(random.choice(SIZES) for _ in range(axes))
        self.dtype = random.choice(REALS)
        self.differentiated = random.random() < 0.4
        self.leaves: list[Any] = []

    def axis(self) -> int:
        """One of the shape's axes."""
        return self.random.randrange(len(self.shape))

    def count(self, each: int) -> int:
        """How many rows of so many elements are picked or written."""
        return min(self.random.choice((1, 2, 7, 30, 257, 1000, 5000, 16384, 30000)), MOST_ELEMENTS // each)

    def memory(self, shape: Shape, dtype: Any) -> Any:
        """A tensor with memory of its own."""
        found = genesis.empty(shape, dtype=dtype, device="cuda")
        genesis.eval(found)
        return found

    def tensor(self, shape: Shape | None = None, dtype: Any = None) -> Any:
        """A tensor of this shape, which lies in memory somehow; perhaps one whose gradient is asked for."""
        shape, dtype, random = self.shape if shape is None else shape, dtype or self.dtype, self.random
        how = random.choice(("plain", "plain", "plain", "permuted", "narrow", "odd", "expanded", "stepped"))
        axis = random.randrange(len(shape)) if shape else 0
        if how == "permuted":
            order = random.sample(range(len(shape)), len(shape))
            found = self.memory(tuple(shape[i] for i in order), dtype)
            return found.permute(*(order.index(i) for i in range(len(shape))))
        if how == "narrow" and shape:
            more = random.choice((1, 2, 3, 8))
            whole = (*shape[:axis], shape[axis] + more, *shape[axis + 1:])
            return self.memory(whole, dtype).narrow(axis, random.randint(0, more), shape[axis])
        if how == "odd":
            before = random.choice((1, 2, 3, 4, 8))
            return self.memory((math.prod(shape) + before,), dtype)[before:].view(shape)
        if how == "expanded":
            return self.memory(tuple(1 if random.random() < 0.4 else n for n in shape), dtype).expand(*shape)
        if how == "stepped" and shape and shape[-1] < 5000:
            return self.memory((*shape[:-1], 2 * shape[-1]), dtype)[..., ::2]
        found = self.memory(shape, dtype)
        if self.differentiated and dtype.is_floating_point and random.random() < 0.7:
            self.leaves.append(found.requires_grad_())
        return found

    def index(self, *shape: int) -> Any:
        """Indices; what they are nobody asks."""
        return self.memory(shape, genesis.int64)


def chain(d: Draw) -> list[Any]:
    """One to thirty operands, and perhaps their sum over some axes."""
    found = d.tensor()
    for _ in range(d.random.randint(0, 30)):
        other = d.tensor()
        found = d.random.choice((lambda x, y: x * y + 1.5, genesis.maximum, lambda x, y: x - y))(found, other)
    axes = d.random.sample(range(len(d.shape)), d.random.randint(1, len(d.shape)))
    return d.random.choice((lambda: [found], lambda: [found, found.sum(axes)], lambda: [found.sum(axes)]))()


def mixed(d: Draw) -> list[Any]:
    """Operands of any dtype."""
    found = d.tensor(dtype=genesis.float32)
    for _ in range(d.random.randint(1, 6)):
        other = d.tensor(dtype=d.random.choice((*REALS, *OTHERS)))
        found = genesis.where(other > 0, found, other) if d.random.random() < 0.4 else found + other
    return [found.to(d.dtype), found > 0]


def turned(d: Draw) -> list[Any]:
    """Operands along each other's axes."""
    order = d.random.sample(range(len(d.shape)), len(d.shape))
    found = d.tensor().permute(*order)
    for _ in range(d.random.randint(0, 11)):
        found = found * d.memory(tuple(found.shape), d.dtype) + d.tensor().permute(*order)
    return [found, found.flip(0)] if d.random.random() < 0.3 else [found]


def reductions(d: Draw) -> list[Any]:
    x, axis = d.tensor() * d.tensor(), d.axis()
    axes = d.random.sample(range(len(d.shape)), d.random.randint(1, len(d.shape)))
    every: list[Callable[[], Any]] = [
        lambda: x.sum(axes), lambda: x.amax(axes), lambda: x.var(axes), lambda: x.argmax(axis), lambda: x.prod(axis),
        lambda: (x > 0).any(axis), lambda: genesis.logsumexp(x, axes), lambda: (x > 0).sum(axes)]
    return [make() for make in d.random.sample(every, d.random.randint(1, 3))]


def norms(d: Draw) -> list[Any]:
    x, last = d.tensor(), d.shape[-1:]
    every: list[Callable[[], Any]] = [lambda: F.softmax(x, d.axis()), lambda: F.log_softmax(x, d.axis()),
                                      lambda: F.layer_norm(x, last, d.tensor(last), d.tensor(last)),
                                      lambda: F.rms_norm(x, last, d.tensor(last)), lambda: F.normalize(x, dim=d.axis())]
    if len(d.shape) > 1 and math.prod(d.shape) > d.shape[1]:
        every.append(lambda: F.batch_norm(x, None, None, d.tensor(d.shape[1:2]), d.tensor(d.shape[1:2]), training=True))
    return [d.random.choice(every)()]


def joined(d: Draw) -> list[Any]:
    """Parts of a few rows each."""
    axis = d.axis()
    parts = [d.tensor((*d.shape[:axis], d.random.choice((1, 2, 3, 8, 16, 64)), *d.shape[axis + 1:]))
             for _ in range(d.random.randint(2, 12)) if math.prod(d.shape) < 1 << 22] or [d.tensor(), d.tensor()]
    found = genesis.cat(parts, axis)
    return [found * 2, found.sum(axis)] if d.random.random() < 0.4 else [found]


def reads(d: Draw) -> list[Any]:
    x, axis = d.tensor(), d.axis()
    count = d.count(math.prod(d.shape) // d.shape[axis])
    if d.random.random() < 0.5:
        return [genesis.gather(x, axis, d.index(*d.shape[:axis], count, *d.shape[axis + 1:]))]
    return [genesis.index_select(x, axis, d.index(count)) * 2]


def writes(d: Draw) -> list[Any]:
    x, axis = d.tensor(), d.axis()
    count = d.count(math.prod(d.shape) // d.shape[axis])
    shape = (*d.shape[:axis], count, *d.shape[axis + 1:])
    if d.random.random() < 0.5:
        return [d.random.choice((x.index_add, x.index_copy))(axis, d.index(count), d.tensor(shape))]
    return [d.random.choice((x.scatter_add, x.scatter))(axis, d.index(*shape), d.tensor(shape))]


def scans(d: Draw) -> list[Any]:
    function = d.random.choice((genesis.cumsum, genesis.cumprod, genesis.cummax, genesis.logcumsumexp))
    found = function(d.tensor(), d.axis())
    return list(found) if isinstance(found, tuple) else [found]


def sorts(d: Draw) -> list[Any]:
    x, axis = d.tensor(dtype=d.random.choice((*REALS, *OTHERS))), d.axis()
    if d.random.random() < 0.5 and x.dtype is not genesis.bool:
        return list(genesis.topk(x, min(d.random.choice((1, 5, 50, 600)), d.shape[axis]), axis))
    return list(genesis.sort(x, axis, descending=d.random.random() < 0.5))


def products(d: Draw) -> list[Any]:
    rows, columns, depth = (d.random.choice([n for n in SIZES if n <= 4097]) for _ in range(3))
    batch = d.random.choice(((), (), (1,), (3,), (17,)))
    found = d.tensor((*batch, rows, depth)) @ d.tensor((*batch, columns, depth)).transpose(-1, -2)
    results = [F.gelu(found + d.tensor((columns,))) if d.random.random() < 0.5 else found, found.sum(-2)]
    return results[:d.random.randint(1, 2)]


def windows(d: Draw) -> list[Any]:
    channels, height, width = (d.random.choice((1, 3, 16, 17, 64)), *(d.random.choice((7, 13, 28, 57)) for _ in "hw"))
    x = d.tensor((d.random.choice((1, 3, 16)), channels, height, width))
    size, step = ((d.random.randint(1, 5), d.random.randint(1, 5)) for _ in range(2))
    every: list[Callable[[], Any]] = [
        lambda: F.max_pool2d(x, size, step), lambda: F.avg_pool2d(x, size, step), lambda: F.pad(x, (1, 2, 0, 3)) * 2,
        lambda: F.interpolate(x, scale_factor=2, mode="bilinear"),
        lambda: F.conv2d(x, d.tensor((channels * 2, 1, *size)), stride=step, padding=2, groups=channels)]
    return [d.random.choice(every)()]


def losses(d: Draw) -> list[Any]:
    rows, classes = d.random.choice(((7, 50257), (64, 1000), (1000, 19051), (4096, 10), (8191, 54), (300, 1)))
    x = d.tensor((rows, classes))
    if d.random.random() < 0.6:
        return [F.cross_entropy(x, d.index(rows))]
    return [d.random.choice((F.mse_loss, F.smooth_l1_loss, F.kl_div))(x, d.tensor((rows, classes)))]


def attention(d: Draw) -> list[Any]:
    queries, head = d.random.choice((1, 17, 128, 1000)), d.random.choice((16, 40, 64, 128, 256))
    d.dtype = d.random.choice((genesis.float32, genesis.bfloat16))
    q, k, v = (d.tensor((2, 3, queries, head)) for _ in range(3))
    return [F.scaled_dot_product_attention(q, k, v, is_causal=d.random.random() < 0.5)]


def noise(d: Draw) -> list[Any]:
    found = F.dropout(d.tensor(), 0.3) + genesis.rand(d.shape, device="cuda")
    return [found, found.sum(d.axis())]


FAMILIES: Final[tuple[Callable[[Draw], list[Any]], ...]] = (
    chain, mixed, turned, reductions, norms, joined, reads, writes, scans, sorts, products, windows, losses, attention,
    noise)
"""By the number of a program: each is the next one's after another."""


def draw(number: int) -> str:
    """Record the program of this number, and plan it; returns its family's name."""
    d, family = Draw(number), FAMILIES[number % len(FAMILIES)]
    found = family(d)
    tracked = [x.float().sum() for x in found if x.requires_grad]
    if tracked:
        sum(tracked).backward()
    genesis.eval(*found, *(x.grad for x in d.leaves if x.grad is not None))
    return family.__name__
