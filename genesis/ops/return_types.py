"""The named tuples that functions return: a type for each, under torch's names, which reads as torch's does."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from genesis.ops.return_fields import (  # noqa: F401  names that type checkers read in annotations
        LU,
        QR,
        SVD,
        CholeskyEx,
        Eigh,
        Histogram,
        Histograms,
        InverseEx,
        LegacySVD,
        LstSq,
        LUFactor,
        MantissaExponent,
        MinMax,
        SlogDet,
        Solution,
        SolutionEx,
        ValuesIndices,
    )

Fields = TypeVar("Fields", bound=tuple[Any, ...])


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


_FIELDS: Final[dict[str, str]] = {
    **dict.fromkeys(("max", "min", "sort", "topk", "mode", "kthvalue", "median", "nanmedian", "cummax", "cummin"),
                    "ValuesIndices"),
    "aminmax": "MinMax", "frexp": "MantissaExponent", "histogram": "Histogram", "histogramdd": "Histograms",
    "qr": "QR", "linalg_qr": "QR", "svd": "LegacySVD", "linalg_svd": "SVD", "slogdet": "SlogDet",
    "linalg_slogdet": "SlogDet", "linalg_eigh": "Eigh", "linalg_lstsq": "LstSq", "linalg_lu": "LU", "lu_unpack": "LU",
    "linalg_lu_factor": "LUFactor", "linalg_cholesky_ex": "CholeskyEx", "linalg_inv_ex": "InverseEx",
    "linalg_solve_ex": "SolutionEx", "triangular_solve": "Solution",
}
"""The name of a function → the fields of its results, a class of `return_fields`. Types are made, and that is imported,
when they are asked for: to make all of them is a thirtieth of the time of `import genesis`."""


def __getattr__(name: str) -> Any:
    """The type of the results of the function of this name, which is here from then on (PEP 562)."""
    fields = import_module("genesis.ops.return_fields")
    if name in _FIELDS:
        found = _of(name, getattr(fields, _FIELDS[name]))
    elif name in _FIELDS.values():
        found = getattr(fields, name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return globals().setdefault(name, found)  # another thread may have made it meanwhile


def __dir__() -> list[str]:
    return sorted({*globals(), *_FIELDS})
