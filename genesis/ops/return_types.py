"""The named tuples that functions return: a type for each, under torch's names, which reads as torch's does."""

from typing import Any, Final, NamedTuple, TypeVar

from genesis.frontend.tensor import Tensor  # annotations in text would each be compiled: see `_FIELDS`

Fields = TypeVar("Fields", bound=tuple[Any, ...])


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


class LUFactor(NamedTuple):
    """L and U in one matrix, and the rows that were exchanged, counted from 1."""

    LU: Tensor
    pivots: Tensor


class Solution(NamedTuple):
    """A solution, and the coefficients it is of."""

    solution: Tensor
    cloned_coefficient: Tensor


class _Shown:
    """A named tuple that reads as torch's."""

    __slots__ = ()
    _fields: tuple[str, ...]

    def __repr__(self) -> str:
        parts = (f"{name}={getattr(self, name)!r}" for name in self._fields)
        return f"genesis.return_types.{type(self).__name__}(\n" + ",\n".join(parts) + ")"


def _of(name: str, fields: type[Fields]) -> type[Fields]:
    """The type of the results of the function of this name."""
    return type(name, (_Shown, fields), {"__slots__": (), "__doc__": fields.__doc__, "__module__": __name__})


_FIELDS: Final = {
    **dict.fromkeys(("max", "min", "sort", "topk", "mode", "kthvalue", "median", "nanmedian", "cummax", "cummin"),
                    ValuesIndices),
    "aminmax": MinMax, "frexp": MantissaExponent, "histogram": Histogram, "histogramdd": Histograms,
    "qr": QR, "linalg_qr": QR, "svd": LegacySVD, "linalg_svd": SVD, "slogdet": SlogDet, "linalg_slogdet": SlogDet,
    "linalg_eigh": Eigh, "linalg_lstsq": LstSq, "linalg_lu": LU, "lu_unpack": LU, "linalg_lu_factor": LUFactor,
    "triangular_solve": Solution,
}
"""The name of a function → the fields of its results. Their types are made when they are asked for: to make all of them
is a hundredth of the time of `import genesis`."""


def __getattr__(name: str) -> Any:
    """The type of the results of the function of this name, which is here from then on (PEP 562)."""
    if name not in _FIELDS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return globals().setdefault(name, _of(name, _FIELDS[name]))  # another thread may have made it meanwhile


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIELDS})
