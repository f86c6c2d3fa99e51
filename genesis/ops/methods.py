"""The ops as methods of tensors: each family's file has its own, and tensors get them when this is imported."""

from __future__ import annotations

from genesis.frontend.tensor import install
from genesis.ops.activation import ActivationMethods
from genesis.ops.conversion import ConversionMethods
from genesis.ops.copying import CopyingMethods
from genesis.ops.covariance import CovarianceMethods
from genesis.ops.creation import CreationMethods
from genesis.ops.diagonals import DiagonalMethods
from genesis.ops.histograms import HistogramMethods
from genesis.ops.indexing import IndexingMethods
from genesis.ops.inplace_views import InplaceViewMethods
from genesis.ops.linalg import LinalgMethods
from genesis.ops.mantissa import MantissaMethods
from genesis.ops.norms import NormMethods
from genesis.ops.operators import MathMethods
from genesis.ops.parts import PartMethods
from genesis.ops.products import ProductMethods
from genesis.ops.queries import QueryMethods
from genesis.ops.random import RandomMethods
from genesis.ops.ranks import RankMethods
from genesis.ops.real import RealMethods
from genesis.ops.rearrange import RearrangeMethods
from genesis.ops.reduction import ReductionMethods
from genesis.ops.scans import ScanMethods
from genesis.ops.searching import SearchMethods
from genesis.ops.sets import SetMethods
from genesis.ops.shape import ShapeMethods
from genesis.ops.sharing import SharingMethods
from genesis.ops.sorting import SortingMethods
from genesis.ops.statistics import StatisticsMethods
from genesis.ops.strided import StridedMethods
from genesis.ops.triangles import TriangleMethods
from genesis.ops.typed_tensors import TypeMethods
from genesis.ops.writing import WritingMethods


@install
class OpMethods(MathMethods, ReductionMethods, StatisticsMethods, ScanMethods, SortingMethods, RankMethods,
                SearchMethods, SetMethods, ShapeMethods, PartMethods, TriangleMethods,
                RearrangeMethods, DiagonalMethods, IndexingMethods, WritingMethods, ActivationMethods, LinalgMethods,
                ProductMethods, CreationMethods, ConversionMethods, RandomMethods, SharingMethods, CopyingMethods,
                QueryMethods, RealMethods, InplaceViewMethods, CovarianceMethods, HistogramMethods, StridedMethods,
                MantissaMethods, NormMethods, TypeMethods):
    """All ops that are methods too."""

    __slots__ = ()
