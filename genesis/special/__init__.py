"""`genesis.special`: functions of mathematical physics and of probability, by torch.special's names.

In: tensors and Python numbers. Out: tensors whose nodes are recorded.

Those that are not single ops are made of others in float64 and rounded at the end.
"""

from genesis.frontend.public_functions import published as _published
from genesis.ops.exponential import exp2, expm1, log1p, xlogy
from genesis.ops.reduction import log_softmax, logsumexp, softmax
from genesis.ops.rounding import round
from genesis.ops.special import digamma, erf, erfc, erfinv, i0, logit, polygamma
from genesis.ops.special import lgamma as gammaln
from genesis.ops.special import mvlgamma as multigammaln
from genesis.ops.special import sigmoid as expit
from genesis.ops.trigonometry import sinc
from genesis.special.bessel import i0e, i1, i1e, spherical_bessel_j0
from genesis.special.incomplete_gamma import gammainc, gammaincc
from genesis.special.normal import entr, erfcx, log_ndtr, ndtr, ndtri, xlog1py
from genesis.special.polynomials import (
    chebyshev_polynomial_t,
    chebyshev_polynomial_u,
    chebyshev_polynomial_v,
    chebyshev_polynomial_w,
    hermite_polynomial_h,
    hermite_polynomial_he,
    laguerre_polynomial_l,
    legendre_polynomial_p,
    shifted_chebyshev_polynomial_t,
    shifted_chebyshev_polynomial_u,
    shifted_chebyshev_polynomial_v,
    shifted_chebyshev_polynomial_w,
)
from genesis.special.zeta import zeta

psi, modified_bessel_i0, modified_bessel_i1 = digamma, i0, i1

__getattr__, __dir__ = _published(globals(), __name__)
