"""`genesis.distributions`, with torch's names: densities, samples, moments, entropies and divergences.

    parameters ─▶ Distribution ─ sample, rsample ─▶ tensors ─ log_prob, cdf ─▶ tensors

`distribution` is the base, `exp_family` what has natural parameters, then a family a file; `transforms` and
`constraints` are functions with inverses and the sets that they map; `kl` is a table over pairs of classes,
of which `kl_across` has those of two families.
A seed gives the same samples on one device; they are other ones than torch's.

>>> import genesis
>>> from genesis.distributions import Normal, kl_divergence
>>> Normal(0.0, 1.0).log_prob(genesis.tensor(0.0)).item()
-0.9189385175704956
>>> kl_divergence(Normal(0.0, 1.0), Normal(1.0, 1.0)).item()
0.5
"""

from genesis.distributions import constraints, transforms, utils
from genesis.distributions import kl_across as _kl_across  # its rules enter kl's table
from genesis.distributions.categorical import (
    Categorical,
    Multinomial,
    OneHotCategorical,
    OneHotCategoricalStraightThrough,
)
from genesis.distributions.composed import Independent, MixtureSameFamily, TransformedDistribution
from genesis.distributions.constraint_registry import biject_to, transform_to
from genesis.distributions.continuous_bernoulli import ContinuousBernoulli
from genesis.distributions.counts import Bernoulli, Binomial, Geometric, NegativeBinomial, Poisson
from genesis.distributions.derived import (
    Gumbel,
    HalfCauchy,
    HalfNormal,
    InverseGamma,
    Kumaraswamy,
    LogisticNormal,
    LogNormal,
    Pareto,
    Weibull,
)
from genesis.distributions.distribution import Distribution
from genesis.distributions.exp_family import ExponentialFamily
from genesis.distributions.gamma_family import Beta, Chi2, Dirichlet, FisherSnedecor, Gamma, StudentT
from genesis.distributions.generalized_pareto import GeneralizedPareto
from genesis.distributions.kl import kl_divergence, register_kl
from genesis.distributions.lkj_cholesky import LKJCholesky
from genesis.distributions.location_scale import Cauchy, Exponential, Laplace, Normal, Uniform
from genesis.distributions.multivariate import LowRankMultivariateNormal, MultivariateNormal
from genesis.distributions.relaxed import RelaxedBernoulli, RelaxedOneHotCategorical
from genesis.distributions.transforms import *  # noqa: F403
from genesis.distributions.transforms import __all__ as _transforms
from genesis.distributions.von_mises import VonMises
from genesis.distributions.wishart import Wishart
from genesis.ir.suggest import suggesting

__all__ = ["Bernoulli", "Beta", "Binomial", "Categorical", "Cauchy", "Chi2", "ContinuousBernoulli", "Dirichlet",
           "Distribution", "Exponential", "ExponentialFamily", "FisherSnedecor", "Gamma", "GeneralizedPareto",
           "Geometric", "Gumbel", "HalfCauchy", "HalfNormal", "Independent", "InverseGamma", "Kumaraswamy",
           "LKJCholesky", "Laplace", "LogNormal", "LogisticNormal", "LowRankMultivariateNormal", "MixtureSameFamily",
           "Multinomial", "MultivariateNormal", "NegativeBinomial", "Normal", "OneHotCategorical",
           "OneHotCategoricalStraightThrough", "Pareto", "Poisson", "RelaxedBernoulli", "RelaxedOneHotCategorical",
           "StudentT", "TransformedDistribution", "Uniform", "VonMises", "Weibull", "Wishart", "biject_to",
           "constraints", "kl_divergence", "register_kl", "transform_to", "transforms", "utils", *_transforms]

__getattr__ = suggesting(__name__)
