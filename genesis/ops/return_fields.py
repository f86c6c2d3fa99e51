"""The fields of the named tuples that functions return."""

from typing import NamedTuple

from genesis.frontend.tensor import Tensor


class ValuesIndices(NamedTuple):
    """Elements chosen along a dimension, and where they are."""

    values: Tensor
    indices: Tensor


class MinMax(NamedTuple):
    """The least and the largest element."""

    min: Tensor
    max: Tensor


class MantissaExponent(NamedTuple):
    """x = mantissa · 2^exponent, the mantissa between 0.5 and 1."""

    mantissa: Tensor
    exponent: Tensor


class Histogram(NamedTuple):
    """How much lies between neighbouring edges."""

    hist: Tensor
    bin_edges: Tensor


class Histograms(NamedTuple):
    """How much lies in each cell, and the edges of each dimension."""

    hist: Tensor
    bin_edges: tuple[Tensor, ...]


class QR(NamedTuple):
    """Q with orthonormal columns, R upper triangular."""

    Q: Tensor
    R: Tensor


class Eigh(NamedTuple):
    """Eigenvalues in ascending order, eigenvectors as columns."""

    eigenvalues: Tensor
    eigenvectors: Tensor


class SVD(NamedTuple):
    """Singular values in descending order between two orthogonal factors."""

    U: Tensor
    S: Tensor
    Vh: Tensor


class LegacySVD(NamedTuple):
    """U @ diag(S) @ V.mT: unlike `linalg.svd` with V itself."""

    U: Tensor
    S: Tensor
    V: Tensor


class SlogDet(NamedTuple):
    """Sign and logarithm of the absolute value of a determinant."""

    sign: Tensor
    logabsdet: Tensor


class LstSq(NamedTuple):
    """A solution, the sums of its squared residuals, the rank, and the singular values that told it."""

    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


class LU(NamedTuple):
    """A = P @ L @ U: row exchanges, unit lower and upper triangular."""

    P: Tensor
    L: Tensor
    U: Tensor


class CholeskyEx(NamedTuple):
    """A factor, and the order of the first leading minor that is not positive definite, 0 where all are."""

    L: Tensor
    info: Tensor


class InverseEx(NamedTuple):
    """An inverse, and which column's pivot was 0, counted from 1, or 0."""

    inverse: Tensor
    info: Tensor


class SolutionEx(NamedTuple):
    """A solution, and which column's pivot was 0, counted from 1, or 0."""

    result: Tensor
    info: Tensor


class LUFactor(NamedTuple):
    """L and U in one matrix, and the rows that were exchanged, counted from 1."""

    LU: Tensor
    pivots: Tensor


class Solution(NamedTuple):
    """A solution, and the coefficients it is of."""

    solution: Tensor
    cloned_coefficient: Tensor
