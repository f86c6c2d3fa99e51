"""Random tensors. A draw is recorded with its generator's seed and count, so it gives the same bits on every device,
whenever it is computed, whatever it is fused with."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import wraps
from typing import TYPE_CHECKING, Any, TypeVar

from genesis.frontend.default_dtypes import default_dtype
from genesis.frontend.draw_parts import layout_of, sharded, shown_part
from genesis.frontend.generator import Generator, draw_numbers
from genesis.frontend.public_functions import bound
from genesis.frontend.recording import TensorBase, emit, wrap
from genesis.ir.errors import failure, is_foreign, not_a_tensor
from genesis.ir.numbers import number
from genesis.ir.ops import random as r
from genesis.ir.suggest import did_you_mean
from genesis.ir.types import DType, float32, float64, int64
from genesis.ops.common import required, shape_of
from genesis.ops.creation import DeviceLike, as_laid_out, device_from, empty, finish, overwrite
from genesis.ops.formats import MemoryFormat
from genesis.ops.out import into, made_like
from genesis.ops.searching import searchsorted
from genesis.ops.sorting import argsort, topk

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["bernoulli", "multinomial", "normal", "rand", "rand_like", "randint", "randint_like", "randn",
           "randn_like", "randperm"]


_Draw = TypeVar("_Draw", bound=Callable[..., Any])


def _drawn(op: Any, size: tuple[Any, ...], dtype: DType | None, device: DeviceLike, generator: Generator | None,
           requires_grad: bool) -> Tensor:
    dtype = dtype or default_dtype("float")
    if dtype.kind != "float":
        raise failure(op.name, f"not implemented for {dtype!r}, only for floating-point dtypes",
                      hint="randint draws integers", error=NotImplementedError)
    attrs = (shape_of(size), dtype, device_from(device))
    return finish(wrap(emit(op, tuple(draw_numbers(generator)), attrs)), requires_grad)


def rand(*sizes: Any, size: Any = None, generator: Generator | None = None, dtype: DType | None = None,
         device: DeviceLike = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Uniform in [0, 1): multiples of 2^-24, in float64 of 2^-53, in float16 2^-11, in bfloat16 2^-8.

    >>> import genesis
    >>> genesis.rand(2, 3, generator=genesis.Generator().manual_seed(0)).shape
    genesis.Size([2, 3])
    """
    dtype, device = made_like(out, dtype, device)
    return into(out, _drawn(r.uniform, sizes if size is None else (size,), dtype, device, generator, requires_grad))


def randn(*sizes: Any, size: Any = None, generator: Generator | None = None, dtype: DType | None = None,
          device: DeviceLike = None, requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """Standard normal."""
    dtype, device = made_like(out, dtype, device)
    return into(out, _drawn(r.normal, sizes if size is None else (size,), dtype, device, generator, requires_grad))


def randint(low: int, high: Any = None, size: Any = None, *, generator: Generator | None = None,
            dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False,
            out: Tensor | None = None) -> Tensor:
    """Integers in [low, high), or in [0, low) when called as randint(high, size)."""
    dtype, device = made_like(out, dtype, device)
    if size is None:
        low, high, size = 0, low, high
    drawn = _integers(int(low), int(high), shape_of((size,)), dtype or int64, device, generator)
    return into(out, finish(drawn, requires_grad))


def _integers(low: int, high: int, shape: tuple[int, ...], dtype: DType, device: DeviceLike,
              generator: Generator | None) -> Tensor:
    """Integers in [low, high), which the dtype must hold."""
    if low >= high:
        raise failure("random_", f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    least, most = ((dtype.min, dtype.max) if dtype.kind != "float" else (-2**63, 2**63 - 1))
    if low < least or high - 1 > most:
        name, value = ("from", low) if low < least else ("to - 1", high - 1)
        raise failure("random_", f"{name} is out of bounds for {dtype!r}: {value}")
    operands = (*draw_numbers(generator), number(low), number(high))
    return wrap(emit(r.integers, operands, (shape, dtype, device_from(device))))


def rand_like(input: Tensor, *, generator: Generator | None = None, dtype: DType | None = None,
              device: DeviceLike = None, requires_grad: bool = False,
              memory_format: MemoryFormat | None = None) -> Tensor:
    """Uniform in [0, 1), with the input's shape, dtype, device and layout."""
    made = rand(input.spec.shape, generator=generator, dtype=dtype or input.spec.dtype,
                device=device or input.spec.device)
    return finish(as_laid_out("rand_like", made, input, memory_format), requires_grad)


def randn_like(input: Tensor, *, generator: Generator | None = None, dtype: DType | None = None,
               device: DeviceLike = None, requires_grad: bool = False,
               memory_format: MemoryFormat | None = None) -> Tensor:
    """Standard normal, with the input's shape, dtype, device and layout."""
    made = randn(input.spec.shape, generator=generator, dtype=dtype or input.spec.dtype,
                 device=device or input.spec.device)
    return finish(as_laid_out("randn_like", made, input, memory_format), requires_grad)


def randint_like(input: Tensor, low: int, high: int | None = None, *, generator: Generator | None = None,
                 dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False,
                 memory_format: MemoryFormat | None = None) -> Tensor:
    """Integers in [low, high), or in [0, low), with the input's shape, dtype, device and layout."""
    low, high = (0, low) if high is None else (low, high)
    made = randint(low, high, input.spec.shape, generator=generator, dtype=dtype or input.spec.dtype,
                   device=device or input.spec.device)
    return finish(as_laid_out("randint_like", made, input, memory_format), requires_grad)


def normal(mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: Generator | None = None,
           dtype: DType | None = None, device: DeviceLike = None, requires_grad: bool = False,
           out: Tensor | None = None) -> Tensor:
    """Normal with this mean and standard deviation: numbers and a size, or tensors that give an element each its own.

    No gradient flows to the mean and the standard deviation.

    >>> import genesis
    >>> genesis.normal(genesis.zeros(3), 1.0).shape
    genesis.Size([3])
    """
    dtype, device = made_like(out, dtype, device)
    for given in (mean, std):
        if is_foreign(given):
            raise not_a_tensor(given)
    if not isinstance(std, TensorBase) and std < 0:
        raise failure("normal", f"normal expects std >= 0.0, but found std {std}")
    if size is not None:
        mean, std = (x.item() if isinstance(x, TensorBase) else x for x in (mean, std))  # type: ignore[attr-defined]
    tensors = [x for x in (mean, std) if isinstance(x, TensorBase)]
    if not tensors:
        return into(out, finish(_shifted(randn(size or (), generator=generator, dtype=dtype, device=device), std, mean),
                                requires_grad))
    like = mean * 1 + std * 0 if len(tensors) == 2 else tensors[0]
    shape, kind = like.spec.shape, (tensors[0].spec.dtype)
    drawn = randn(shape, generator=generator, dtype=dtype or kind, device=tensors[0].spec.device)
    mean, std = (x.detach() if isinstance(x, TensorBase) else x for x in (mean, std))  # type: ignore[attr-defined]
    if isinstance(std, TensorBase):
        std = required("normal", std, std >= 0, "normal expects all elements of std >= 0.0")  # type: ignore[operator]
    return into(out, finish(_shifted(drawn, std, mean), requires_grad))


def _shifted(drawn: Any, scale: Any, shift: Any) -> Any:
    """drawn · scale + shift, in the dtype of what was drawn."""
    result = drawn if _is(scale, 1) else drawn * scale
    return (result if _is(shift, 0) else result + shift).to(drawn.spec.dtype)


def _is(x: Any, value: int) -> bool:
    return not isinstance(x, TensorBase) and x == value


def bernoulli(input: Tensor, p: float | None = None, *, generator: Generator | None = None,
              out: Tensor | None = None) -> Tensor:
    """1 with the probability that the input (or p, for all elements) gives, else 0; floating-point.

    >>> import genesis
    >>> genesis.bernoulli(genesis.tensor([0.0, 1.0]))
    tensor([0., 1.])
    """
    dtype = input.spec.dtype
    if p is None and dtype.kind != "float":
        raise failure("bernoulli", f"not implemented for {dtype!r}", [("input", input)],
                      hint="probabilities are floating-point")
    heads = _coin(input.spec.shape, input.detach() if p is None else p, input.spec.device, generator)
    return into(out, heads.to(dtype))


def randperm(n: int, *, generator: Generator | None = None, dtype: DType | None = None, device: DeviceLike = None,
             requires_grad: bool = False, out: Tensor | None = None) -> Tensor:
    """The integers from 0 to n - 1 in random order: the order of n random 63-bit keys.

    >>> import genesis
    >>> sorted(genesis.randperm(5).tolist())
    [0, 1, 2, 3, 4]
    """
    dtype, device = made_like(out, dtype, device)
    dtype = dtype or int64
    if n < 0:
        raise failure("randperm", f"n must be non-negative, got {n}")
    most = dtype.max if dtype.kind != "float" else 2 / dtype.eps  # type: ignore[operator]
    if n - 1 > most:
        raise failure("randperm", f"n is too large for result tensor type {dtype!r}: {n}")
    keys = _integers(0, 2**63 - 1, (n,), int64, device, generator)
    return into(out, finish(argsort(keys).to(dtype), requires_grad))


def multinomial(input: Tensor, num_samples: int, replacement: bool = False, *, generator: Generator | None = None,
                out: Tensor | None = None) -> Tensor:
    """Indices drawn with the weights in each row of the input, which are not negative and need not sum to 1.

    Without replacement the indices of a row differ: those of the largest weight / exponential draw (Efraimidis and
    Spirakis 2006). With it each is where a uniform draw falls in the running sums. On the CPU weights that are
    negative, infinite or NaN, or only zeros, are a RuntimeError when the result is computed; a GPU does not look.

    >>> import genesis
    >>> genesis.multinomial(genesis.tensor([0.0, 3.0, 0.0]), 2, replacement=True)
    tensor([1, 1])
    """
    named = [("input", input)]
    if input.spec.ndim not in (1, 2):
        raise failure("multinomial", "prob_dist must be 1 or 2 dim", named)
    if input.spec.dtype.kind != "float":
        raise failure("multinomial", f"only supports floating-point dtypes for input, got: {input.spec.dtype!r}", named)
    if num_samples <= 0:
        raise failure("multinomial", "cannot sample n_sample <= 0 samples", named)
    categories = input.spec.shape[-1]
    if categories > 2**24:
        raise failure("multinomial", f"number of categories cannot exceed 2^24, but there are {categories}", named)
    if not replacement and num_samples > categories:
        raise failure("multinomial", f"cannot sample n_sample > prob_dist.size(-1) samples without replacement: "
                      f"{num_samples} of {categories}", named, hint="replacement=True")
    weights: Any = input.detach()
    weights = required("multinomial", weights, (weights >= 0) & (weights < math.inf),
                       "probability tensor contains either inf, nan or element < 0")
    if categories:
        weights = required("multinomial", weights, weights.amax(-1) > 0,
                           "invalid multinomial distribution (sum of probabilities <= 0)")
    if not replacement:
        upcast = weights.to(float64 if weights.spec.dtype is float64 else float32)
        rates = rand(upcast.spec.shape, generator=generator, dtype=upcast.spec.dtype, device=upcast.spec.device)
        return into(out, topk(upcast / -(1 - rates).log().clamp_max(-_least(upcast.spec.dtype)), num_samples).indices)
    sums = weights.double().cumsum(-1)
    shape = (*input.spec.shape[:-1], num_samples)
    drawn = rand(shape, generator=generator, dtype=float64, device=input.spec.device) * sums[..., -1:]
    return into(out, searchsorted(sums, drawn, right=True).clamp_max(categories - 1))


def _coin(shape: tuple[int, ...], p: Any, device: Any, generator: Generator | None) -> Any:
    """True with probability p."""
    if not isinstance(p, TensorBase) and not 0 <= p <= 1:
        raise failure("bernoulli", f"bernoulli_ expects p to be in [0, 1], but got p={p}")
    exact = isinstance(p, TensorBase) and p.spec.dtype is float64
    if isinstance(p, TensorBase):
        chance: Any = p
        p = required("bernoulli", chance, (chance >= 0) & (chance <= 1), "probabilities have to be in [0, 1]")
    return rand(shape, generator=generator, dtype=float64 if exact else float32, device=device) < p


def _of_the_whole(draw: _Draw) -> _Draw:
    """The method, which writes to a parameter that is a part of a larger tensor what the whole gets there: ranks with
    the same seed draw different bits, and the same ones whatever their number."""
    @wraps(draw)
    def drawing(self: Any, *args: Any, **options: Any) -> Tensor:
        # It tells a wrong keyword; made at the first call, as most programs draw by few of these.
        own = bound(draw, "genesis", f"Tensor.{draw.__name__}")  # type: ignore[arg-type]
        layout = layout_of(self) if sharded else None
        if layout is None:
            return own(self, *args, **options)
        shown = shown_part(layout, self)
        if shown is None and not _is_all_in_order(self, layout):
            raise failure(draw.__name__, "this view shows a slice of what ranks share out of a parameter of shape "
                          f"{list(layout.shape)}: which elements of the whole these are is not known",
                          [("tensor", self)], hint="draw the parameter itself, or slices of its other dimensions")
        shape = layout.shape if shown is None else shown.shape
        whole = own(empty(shape, dtype=self.spec.dtype, device=self.spec.device), *args, **options)
        return overwrite(self, layout.own(whole).reshape(self.spec.shape) if shown is None else shown.own(whole))
    return drawing  # type: ignore[return-value]


def _is_all_in_order(x: Any, layout: Any) -> bool:
    """Whether a tensor shows all of a rank's part, in row-major order: the bits of an element follow from its number
    alone, whatever the shape."""
    return x.is_contiguous() and x.numel() == math.prod([last - first for first, last in layout.region()])


class RandomMethods(TensorBase):
    """Methods that fill a tensor with random numbers, or draw by it."""

    __slots__ = ()

    bernoulli = bernoulli
    multinomial = multinomial

    @_of_the_whole
    def normal_(self: Any, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Write normal random numbers."""
        return overwrite(self, normal(mean, std, self.spec.shape, generator=generator, dtype=self.spec.dtype,
                                      device=self.spec.device))

    @_of_the_whole
    def uniform_(self: Any, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None,
                 **ends: float) -> Tensor:
        """Write uniform random numbers in [a, b); torch's names for the ends, `from` and `to`, are taken too."""
        a, b = ends.pop("from", a), ends.pop("to", b)
        if ends:
            raise _unknown("uniform_", self, ends, "a", "b")
        if a > b:
            raise failure("uniform_", f"uniform_ expects to return a [from, to) range, but found from={a} > to={b}",
                          [("tensor", self)])
        drawn = rand(self.spec.shape, generator=generator, dtype=self.spec.dtype, device=self.spec.device)
        return overwrite(self, _shifted(drawn, b - a, a))

    @_of_the_whole
    def bernoulli_(self: Any, p: Any = 0.5, *, generator: Generator | None = None) -> Tensor:
        """Write 1 with probability p, a number or a tensor, else 0."""
        p = p.detach().expand(self.spec.shape) if isinstance(p, TensorBase) else p  # type: ignore[attr-defined]
        return overwrite(self, _coin(self.spec.shape, p, self.spec.device, generator).to(self.spec.dtype))

    @_of_the_whole
    def random_(self: Any, low: int | None = None, high: int | None = None, *, generator: Generator | None = None,
                **ends: int) -> Tensor:
        """Write integers in [low, high), in [0, low), or without arguments from 0 to the largest that the dtype holds
        exactly. torch's names for the ends, `from` and `to`, are taken too."""
        low, high = ends.pop("from", low), ends.pop("to", high)
        if ends:
            raise _unknown("random_", self, ends, "low", "high")
        dtype = self.spec.dtype
        if low is None and high is None:
            most = int(2 / dtype.eps) if dtype.kind == "float" else int(dtype.max)
            low, high = 0, min(most + 1, 2**63 - 1)
        elif high is None or low is None:
            low, high = 0, low if high is None else high
        assert low is not None and high is not None
        return overwrite(self, _integers(int(low), int(high), self.spec.shape, dtype, self.spec.device, generator))

    @_of_the_whole
    def exponential_(self: Any, lambd: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Write exponentially distributed numbers with rate lambd, > 0: -log(1 - u) / lambd."""
        if lambd <= 0:
            raise failure("exponential_", f"exponential_ expects lambda > 0.0, but found lambda={lambd}",
                          [("tensor", self)])
        drawn = (1 - _drawn_for(rand, self, generator)).log() / -float(lambd)
        return overwrite(self, drawn.to(self.spec.dtype).clamp_min(_least(self.spec.dtype)))

    @_of_the_whole
    def geometric_(self: Any, p: float, *, generator: Generator | None = None) -> Tensor:
        """Write the number of trials up to the first success of probability p: ⌈log(1 - u) / log(1 - p)⌉, ≥ 1."""
        if not 0 < p < 1:
            raise failure("geometric_", f"geometric_ expects p to be in (0, 1), but got p={p}", [("tensor", self)])
        trials = ((1 - _drawn_for(rand, self, generator)).log() / math.log1p(-p)).ceil().clamp_min(1)
        return overwrite(self, trials.to(self.spec.dtype))

    @_of_the_whole
    def log_normal_(self: Any, mean: float = 1.0, std: float = 2.0, *, generator: Generator | None = None) -> Tensor:
        """Write exp of normal numbers with this mean and standard deviation."""
        if std <= 0:
            raise failure("log_normal_", f"log_normal_ expects std > 0.0, but found std={std}", [("tensor", self)])
        return overwrite(self, _shifted(_drawn_for(randn, self, generator), std, mean).exp().to(self.spec.dtype))

    @_of_the_whole
    def cauchy_(self: Any, median: float = 0.0, sigma: float = 1.0, *, generator: Generator | None = None) -> Tensor:
        """Write Cauchy distributed numbers: median + sigma · tan(π (u - 1/2))."""
        if sigma <= 0:
            raise failure("cauchy_", f"cauchy_ expects sigma > 0.0, but found sigma={sigma}", [("tensor", self)])
        drawn = ((_drawn_for(rand, self, generator) - 0.5) * math.pi).tan()
        return overwrite(self, _shifted(drawn, sigma, median).to(self.spec.dtype))


def _unknown(name: str, tensor: Any, given: Iterable[str], low: str, high: str) -> Exception:
    """The error for a keyword of a draw that is none of the ends' names."""
    wrong = next(iter(given))
    problem = f"got an unexpected keyword argument {wrong!r}{did_you_mean(wrong, (low, high, *_ENDS, 'generator'))}"
    return failure(name, problem, [("self", tensor)], hint=f"{name}({low}, {high}, *, generator)", error=TypeError)


_ENDS = ("from", "to")
"""torch's names for the ends of a range, which are words of Python's."""


def _drawn_for(draw: Any, tensor: Any, generator: Generator | None) -> Any:
    """A draw for each element, in float64 for a float64 tensor and else in float32."""
    drawn_in = float64 if tensor.spec.dtype is float64 else float32
    return draw(tensor.spec.shape, generator=generator, dtype=drawn_in, device=tensor.spec.device)


def _least(dtype: DType) -> float:
    """The smallest normal number of a floating-point dtype."""
    return {"float16": 2.0**-14, "float64": 2.0**-1022}.get(dtype.name, 2.0**-126)


