"""Gamma variables, and what is made of them: beta, chi-squared, Dirichlet, F and Student's t."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import genesis
from genesis.autograd import Function
from genesis.distributions import constraints
from genesis.distributions.distribution import Distribution, broadcast_all
from genesis.distributions.exp_family import ExponentialFamily
from genesis.distributions.location_scale import noise, open_uniform
from genesis.frontend.tensor import Tensor

ROUNDS = 12
"""Proposals that are drawn for each sample: one is accepted with 95 % at least, so that 1 of 10^15 samples has none."""

TERMS = 160
"""Terms of the series below: enough up to NORMAL_FROM."""

NORMAL_FROM = 60.0
"""Shapes and samples from which a root of the variable is taken for normal (Wilson and Hilferty 1931)."""


def standard_gamma(alpha: Tensor) -> Tensor:
    """Samples of gamma variables with these shapes and rate 1, differentiable by them."""
    return _Sample.apply(alpha)


def _draw(alpha: Tensor) -> Tensor:
    """Marsaglia and Tsang (2000): the cube of a normal variable, accepted or drawn again; shapes below 1 are
    boosted."""
    boosted = genesis.where(alpha < 1, alpha + 1, alpha)
    d = boosted - 1 / 3
    c = 1 / (9 * d).sqrt()
    shape = (ROUNDS, *alpha.shape)
    x = noise(genesis.randn, shape, alpha)
    v = (1 + c * x).pow(3)
    u = open_uniform(shape, alpha)
    accepted = (v > 0) & (u.log() < 0.5 * x * x + d - d * v + d * v.clamp(min=1e-30).log())
    first = accepted.to(genesis.int8).argmax(0, keepdim=True)
    found = d * v.gather(0, first).squeeze(0).abs()
    scale = open_uniform(alpha.shape, alpha).pow(1 / alpha)
    return (genesis.where(alpha < 1, found * scale, found)).clamp(min=genesis.finfo(alpha.dtype).tiny)


class _Sample(Function):
    """A sample x(α) with the implicit gradient -∂F/∂α / ∂F/∂x of its cdf F (Figurnov, Mohamed and Mnih 2018)."""

    @staticmethod
    def forward(ctx: Any, alpha: Tensor) -> Tensor:
        """Samples."""
        x = _draw(alpha)
        ctx.save_for_backward(alpha, x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        """The gradient times dx/dα."""
        alpha, x = ctx.saved_tensors
        return gradient * _implicit(alpha.double(), x.double()).to(alpha.dtype)


def _implicit(alpha: Tensor, x: Tensor) -> Tensor:
    """dx/dα: the cdf's power series, x^α e^-x Σ x^k / Γ(α + k + 1), differentiated and divided by the density."""
    term = x / alpha
    gap = x.log() - (alpha + 1).digamma()
    total = term * gap
    for k in range(1, TERMS):
        term = term * x / (alpha + k)
        gap = gap - 1 / (alpha + k)
        total = total + term * gap
    root = (x / alpha).pow(1 / 3)
    z = (root - 1 + 1 / (9 * alpha)) * 3 * alpha.sqrt()
    slope = root.pow(3) + 3 * alpha * root.pow(2) * (1 / (9 * alpha * alpha) - z / (6 * alpha.pow(1.5)))
    return genesis.where((alpha > NORMAL_FROM) | (x > NORMAL_FROM), slope, -total)


class Gamma(ExponentialFamily):
    """The sum of waiting times.

    Args:
        concentration: how many.
        rate: events per unit.
    """

    arg_constraints = {"concentration": constraints.positive, "rate": constraints.positive}
    support = constraints.nonnegative
    has_rsample = True
    _by_batch = ("concentration", "rate")

    def __init__(self, concentration: Any, rate: Any, validate_args: bool | None = None):
        self.concentration, self.rate = broadcast_all(concentration, rate)
        super().__init__(self.concentration.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """concentration / rate."""
        return self.concentration / self.rate

    @property
    def mode(self) -> Tensor:
        """(concentration - 1) / rate, at least 0."""
        return ((self.concentration - 1) / self.rate).clamp(min=0)

    @property
    def variance(self) -> Tensor:
        """concentration / rate²."""
        return self.concentration / self.rate.pow(2)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Drawn by rejection, with an implicit gradient."""
        shape = self._extended_shape(sample_shape)
        return standard_gamma(self.concentration.expand(shape)) / self.rate.expand(shape)

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        value = genesis.as_tensor(self._checked(value), dtype=self.rate.dtype, device=self.rate.device)
        a, b = self.concentration, self.rate
        return (genesis.special.xlogy(a, b) + genesis.special.xlogy(a - 1, value) - b * value
                - a.lgamma())

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        a = self.concentration
        return a - self.rate.log() + a.lgamma() + (1.0 - a) * a.digamma()

    def cdf(self, value: Tensor) -> Tensor:
        """The incomplete gamma function."""
        return genesis.special.gammainc(self.concentration, self.rate * self._checked(value))


class Chi2(Gamma):
    """The sum of `df` squared standard normal variables."""

    arg_constraints = {"df": constraints.positive}
    _looked_at = Gamma.arg_constraints

    def __init__(self, df: Any, validate_args: bool | None = None):
        super().__init__(0.5 * df, 0.5, validate_args=validate_args)

    @property
    def df(self) -> Tensor:
        """Degrees of freedom."""
        return self.concentration * 2


class Dirichlet(ExponentialFamily):
    """Probabilities of several classes.

    Args:
        concentration: (..., classes).
    """

    arg_constraints = {"concentration": constraints.independent(constraints.positive, 1)}
    support = constraints.simplex
    has_rsample = True

    def __init__(self, concentration: Tensor, validate_args: bool | None = None):
        if concentration.dim() < 1:
            raise ValueError("`concentration` parameter must be at least one-dimensional.")
        self.concentration = concentration
        super().__init__(concentration.shape[:-1], concentration.shape[-1:], validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = self._get_checked_instance(type(self))
        new.concentration = self.concentration.expand((*batch_shape, *self._event_shape))
        Distribution.__init__(new, batch_shape, self._event_shape)
        return new

    @property
    def mean(self) -> Tensor:
        """Shares of the concentration."""
        return self.concentration / self.concentration.sum(-1, True)

    @property
    def mode(self) -> Tensor:
        """Shares of what is above 1."""
        above = (self.concentration - 1).clamp(min=0.0)
        return above / above.sum(-1, True)

    @property
    def variance(self) -> Tensor:
        """Each class's."""
        total = self.concentration.sum(-1, True)
        return self.concentration * (total - self.concentration) / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Gamma variables over their sum."""
        drawn = standard_gamma(self.concentration.expand(self._extended_shape(sample_shape)))
        return drawn / drawn.sum(-1, keepdim=True)

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        a = self.concentration
        return (genesis.special.xlogy(a - 1.0, self._checked(value)).sum(-1) + a.sum(-1).lgamma()
                - a.lgamma().sum(-1))

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        a, k = self.concentration, self.concentration.size(-1)
        total = a.sum(-1)
        return (a.lgamma().sum(-1) - total.lgamma() - (k - total) * total.digamma()
                - ((a - 1.0) * a.digamma()).sum(-1))


class Beta(ExponentialFamily):
    """A probability.

    Args:
        concentration1, concentration0: of successes and of failures.
    """

    arg_constraints = {"concentration1": constraints.positive, "concentration0": constraints.positive}
    support = constraints.unit_interval
    has_rsample = True

    def __init__(self, concentration1: Any, concentration0: Any, validate_args: bool | None = None):
        one, zero = broadcast_all(concentration1, concentration0)
        self._dirichlet = Dirichlet(genesis.stack([one, zero], -1), validate_args=validate_args)
        super().__init__(self._dirichlet._batch_shape, validate_args=validate_args)

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> Any:
        """The distribution with parameters of another shape."""
        new = self._get_checked_instance(type(self))
        new._dirichlet = self._dirichlet.expand(batch_shape)
        Distribution.__init__(new, batch_shape)
        return new

    @property
    def concentration1(self) -> Tensor:
        """The concentration of successes."""
        return self._dirichlet.concentration[..., 0]

    @property
    def concentration0(self) -> Tensor:
        """The concentration of failures."""
        return self._dirichlet.concentration[..., 1]

    @property
    def mean(self) -> Tensor:
        """The share of successes."""
        return self.concentration1 / (self.concentration1 + self.concentration0)

    @property
    def mode(self) -> Tensor:
        """The first class's share in the mode."""
        return self._dirichlet.mode[..., 0]

    @property
    def variance(self) -> Tensor:
        """ab / (a + b)² (a + b + 1)."""
        total = self.concentration1 + self.concentration0
        return self.concentration1 * self.concentration0 / (total.pow(2) * (total + 1))

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """The first one's share of two classes."""
        return self._dirichlet.rsample(sample_shape)[..., 0]

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        value = self._checked(value)
        return self._dirichlet.log_prob(genesis.stack([value, 1.0 - value], -1))

    def entropy(self) -> Tensor:
        """The entropy of two classes."""
        return self._dirichlet.entropy()


class StudentT(Distribution):
    """A normal variable over the root of a chi-squared one.

    Args:
        df: degrees of freedom.
        loc, scale: of the normal variable.
    """

    arg_constraints = {"df": constraints.positive, "loc": constraints.real, "scale": constraints.positive}
    support = constraints.real
    has_rsample = True
    _by_batch = ("df", "loc", "scale")

    def __init__(self, df: Any, loc: Any = 0.0, scale: Any = 1.0, validate_args: bool | None = None):
        self.df, self.loc, self.scale = broadcast_all(df, loc, scale)
        super().__init__(self.df.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """loc, where there is a mean."""
        return genesis.where(self.df <= 1, math.nan, self.loc)

    @property
    def mode(self) -> Tensor:
        """loc."""
        return self.loc

    @property
    def variance(self) -> Tensor:
        """scale² df / (df - 2), where there is one."""
        found = genesis.where(self.df > 2, self.scale.pow(2) * self.df / (self.df - 2), math.inf)
        return genesis.where(self.df <= 1, math.nan, found)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Computed by its definition."""
        shape = self._extended_shape(sample_shape)
        chi2 = 2 * standard_gamma((0.5 * self.df).expand(shape))
        return self.loc + self.scale * noise(genesis.randn, shape, self.df) * (chi2 / self.df).rsqrt()

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        y = (self._checked(value) - self.loc) / self.scale
        constant = (self.scale.log() + 0.5 * self.df.log() + 0.5 * math.log(math.pi) + (0.5 * self.df).lgamma()
                    - (0.5 * (self.df + 1.0)).lgamma())
        return -0.5 * (self.df + 1.0) * (y**2.0 / self.df).log1p() - constant

    def entropy(self) -> Tensor:
        """Computed by digamma."""
        half, more = 0.5 * self.df, 0.5 * (self.df + 1)
        beta = half.lgamma() + math.lgamma(0.5) - more.lgamma()
        return (self.scale.log() + more * (more.digamma() - half.digamma()) + 0.5 * self.df.log()
                + beta)


class FisherSnedecor(Distribution):
    """The ratio of two chi-squared variables over their degrees of freedom.

    Args:
        df1, df2: degrees of freedom.
    """

    arg_constraints = {"df1": constraints.positive, "df2": constraints.positive}
    support = constraints.positive
    has_rsample = True
    _by_batch = ("df1", "df2")

    def __init__(self, df1: Any, df2: Any, validate_args: bool | None = None):
        self.df1, self.df2 = broadcast_all(df1, df2)
        super().__init__(self.df1.shape, validate_args=validate_args)

    @property
    def mean(self) -> Tensor:
        """df2 / (df2 - 2), where there is one."""
        return genesis.where(self.df2 > 2, self.df2 / (self.df2 - 2), math.nan)

    @property
    def mode(self) -> Tensor:
        """Where the density is highest."""
        found = (self.df1 - 2) / self.df1 * self.df2 / (self.df2 + 2)
        return genesis.where(self.df1 <= 2, math.nan, found)

    @property
    def variance(self) -> Tensor:
        """Where there is one."""
        a, b = self.df1, self.df2
        return genesis.where(b > 4, 2 * b.pow(2) * (a + b - 2) / (a * (b - 2).pow(2) * (b - 4)), math.nan)

    def rsample(self, sample_shape: Sequence[int] = ()) -> Tensor:
        """Computed by its definition."""
        shape = self._extended_shape(sample_shape)
        one, two = (standard_gamma((df * 0.5).expand(shape)) / df for df in (self.df1, self.df2))
        return one / two.clamp(min=genesis.finfo(self.df1.dtype).tiny)

    def log_prob(self, value: Tensor) -> Tensor:
        """The density's logarithm."""
        value, a, b = self._checked(value), self.df1 * 0.5, self.df2 * 0.5
        ratio = self.df1 / self.df2
        return ((a + b).lgamma() - a.lgamma() - b.lgamma() + a * ratio.log() + (a - 1) * value.log()
                - (a + b) * (ratio * value).log1p())
