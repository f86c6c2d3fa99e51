"""Genesis: a lazy tensor compiler, and a deep-learning framework that looks like PyTorch on top.

A public function is listed once, in `__all__` of the file that has it, or here with the name that it gets (`x as x` is
how type checkers see that a name is meant for users).
"""

from importlib import import_module as _import_module
from math import e as e
from math import inf as inf
from math import nan as nan
from math import pi as pi
from types import FunctionType as _FunctionType
from types import ModuleType as _ModuleType
from typing import TYPE_CHECKING, Any

from genesis.runtime.contexts import importing as _importing

with _importing:  # the collector finds nothing among modules that stay, in a quarter of the time that these take
    import genesis.autograd.methods
    import genesis.engine
    import genesis.ops.methods  # tensors have all methods from here on
from genesis import autograd as autograd
from genesis import random as random
from genesis.autograd import grad as grad
from genesis.autograd import value_and_grad as value_and_grad
from genesis.config import are_deterministic_algorithms_enabled as are_deterministic_algorithms_enabled
from genesis.config import config as config
from genesis.config import use_deterministic_algorithms as use_deterministic_algorithms
from genesis.engine import materialize as _materialize
from genesis.frontend.default_dtypes import *
from genesis.frontend.generator import *
from genesis.frontend.grad_mode import *
from genesis.frontend.later import imported as _later
from genesis.frontend.later import later_names as _later_names
from genesis.frontend.public_functions import bound as _bound
from genesis.frontend.public_functions import publish as _publish
from genesis.frontend.runtime_settings import *
from genesis.frontend.tensor import *
from genesis.frontend.tensor import install_later as _install_later
from genesis.ir import types as _types
from genesis.ir.absent import install as _install_absent_modules
from genesis.ir.torch_modules import install as _install_torch_paths
from genesis.ir.torch_paths import is_path as _is_path
from genesis.ir.types import *
from genesis.ops.activation import *
from genesis.ops.arithmetic import *
from genesis.ops.common import broadcast_shapes as broadcast_shapes
from genesis.ops.common import result_type as result_type
from genesis.ops.comparison import *
from genesis.ops.covariance import *
from genesis.ops.creation import *
from genesis.ops.diagonals import *
from genesis.ops.einops_backend import install as _install_einops
from genesis.ops.exponential import *
from genesis.ops.formats import *
from genesis.ops.histograms import *
from genesis.ops.index_plan import *
from genesis.ops.indexing import *
from genesis.ops.inplace_functions import *  # methods that torch has as functions too
from genesis.ops.interop import *
from genesis.ops.linalg import *
from genesis.ops.logic import *
from genesis.ops.mantissa import *
from genesis.ops.norms import *
from genesis.ops.parts import *
from genesis.ops.products import *
from genesis.ops.queries import *
from genesis.ops.random import *
from genesis.ops.ranges import *
from genesis.ops.ranks import *
from genesis.ops.real import *
from genesis.ops.rearrange import *
from genesis.ops.reduction import *
from genesis.ops.rounding import *
from genesis.ops.scans import *
from genesis.ops.searching import *
from genesis.ops.sets import *
from genesis.ops.shape import *
from genesis.ops.sorting import *
from genesis.ops.special import *
from genesis.ops.statistics import *
from genesis.ops.strided import *
from genesis.ops.triangles import *
from genesis.ops.trigonometry import *
from genesis.ops.typed_tensors import *
from genesis.ops.writing import *

# isort: off
if TYPE_CHECKING:  # imported when first asked for, by `__getattr__`: not every program needs them
    from genesis import (
        accelerator as accelerator,
        amp as amp,
        array_api as array_api,
        backends as backends,
        checkpointing as checkpointing,
        compiler as compiler,
        cpu as cpu,
        cuda as cuda,
        distributed as distributed,
        distributions as distributions,
        func as func,
        hub as hub,
        jit as jit,
        linalg as linalg,
        models as models,
        mps as mps,
        multiprocessing as multiprocessing,
        nn as nn,
        optim as optim,
        profiler as profiler,
        signal as signal,
        sparse as sparse,
        special as special,
        testing as testing,
        utils as utils,
        version as version,
        xpu as xpu,
    )
    from genesis.amp.autocast import (
        autocast as autocast,
        clear_autocast_cache as clear_autocast_cache,
        get_autocast_cpu_dtype as get_autocast_cpu_dtype,
        get_autocast_dtype as get_autocast_dtype,
        get_autocast_gpu_dtype as get_autocast_gpu_dtype,
        is_autocast_cache_enabled as is_autocast_cache_enabled,
        is_autocast_cpu_enabled as is_autocast_cpu_enabled,
        is_autocast_enabled as is_autocast_enabled,
    )
    from genesis.amp.grad_scaler import GradScaler as GradScaler
    from genesis.checkpointing.one_file import (
        load_checkpoint as load_checkpoint,
        save_checkpoint as save_checkpoint,
    )
    from genesis.frontend.printing import (
        get_printoptions as get_printoptions,
        printoptions as printoptions,
        set_printoptions as set_printoptions,
    )
    from genesis.func import vmap as vmap
    from genesis.linalg.legacy import (
        cholesky as cholesky,
        cholesky_inverse as cholesky_inverse,
        cholesky_solve as cholesky_solve,
        det as det,
        inverse as inverse,
        logdet as logdet,
        lu as lu,
        lu_solve as lu_solve,
        lu_unpack as lu_unpack,
        matrix_exp as matrix_exp,
        pca_lowrank as pca_lowrank,
        pinverse as pinverse,
        qr as qr,
        slogdet as slogdet,
        svd as svd,
        svd_lowrank as svd_lowrank,
        triangular_solve as triangular_solve,
    )
    from genesis.nn.functional import (  # torch has these both here and there
        adaptive_avg_pool1d as adaptive_avg_pool1d,
        adaptive_max_pool1d as adaptive_max_pool1d,
        alpha_dropout as alpha_dropout,
        avg_pool1d as avg_pool1d,
        bilinear as bilinear,
        channel_shuffle as channel_shuffle,
        conv1d as conv1d,
        conv2d as conv2d,
        conv3d as conv3d,
        conv_transpose1d as conv_transpose1d,
        conv_transpose2d as conv_transpose2d,
        conv_transpose3d as conv_transpose3d,
        cosine_similarity as cosine_similarity,
        dropout as dropout,
        embedding_bag as embedding_bag,
        feature_alpha_dropout as feature_alpha_dropout,
        max_pool1d as max_pool1d,
        max_pool1d_with_indices as max_pool1d_with_indices,
        max_pool2d as max_pool2d,
        max_pool3d as max_pool3d,
        pairwise_distance as pairwise_distance,
        pdist as pdist,
        pixel_shuffle as pixel_shuffle,
        pixel_unshuffle as pixel_unshuffle,
        rms_norm as rms_norm,
    )
    from genesis.nn.functional.low_level import (
        batch_norm as batch_norm,
        embedding as embedding,
        group_norm as group_norm,
        instance_norm as instance_norm,
        layer_norm as layer_norm,
    )
    from genesis.nn.functional.low_level_losses import (
        binary_cross_entropy_with_logits as binary_cross_entropy_with_logits,
        cosine_embedding_loss as cosine_embedding_loss,
        ctc_loss as ctc_loss,
        hinge_embedding_loss as hinge_embedding_loss,
        kl_div as kl_div,
        margin_ranking_loss as margin_ranking_loss,
        poisson_nll_loss as poisson_nll_loss,
        triplet_margin_loss as triplet_margin_loss,
    )
    from genesis.ops.combinations import (
        combinations as combinations,
        vander as vander,
    )
    from genesis.ops.counted_events import binomial as binomial, poisson as poisson
    from genesis.ops.einsum import einsum as einsum
    from genesis.ops.fake_quantize import (
        fake_quantize_per_channel_affine as fake_quantize_per_channel_affine,
        fake_quantize_per_tensor_affine as fake_quantize_per_tensor_affine,
    )
    from genesis.ops.finite_differences import gradient as gradient
    from genesis.ops.legacy import (
        range as range,
        typename as typename,
    )
    from genesis.ops.limits import (
        can_cast as can_cast,
        finfo as finfo,
        iinfo as iinfo,
        promote_types as promote_types,
    )
    from genesis.ops.view_copies import (
        alias_copy as alias_copy,
        as_strided_copy as as_strided_copy,
        detach_copy as detach_copy,
        diagonal_copy as diagonal_copy,
        expand_copy as expand_copy,
        narrow_copy as narrow_copy,
        permute_copy as permute_copy,
        select_copy as select_copy,
        split_copy as split_copy,
        squeeze_copy as squeeze_copy,
        t_copy as t_copy,
        transpose_copy as transpose_copy,
        unbind_copy as unbind_copy,
        unfold_copy as unfold_copy,
        unsqueeze_copy as unsqueeze_copy,
        view_copy as view_copy,
    )
    from genesis.signal.legacy import (
        bartlett_window as bartlett_window,
        blackman_window as blackman_window,
        hamming_window as hamming_window,
        hann_window as hann_window,
        kaiser_window as kaiser_window,
    )
    from genesis.sparse.functions import spmm as spmm
    from genesis.sparse.tensor import sparse_coo as sparse_coo, sparse_coo_tensor as sparse_coo_tensor
    from genesis.tracing.compiled import (
        compile as compile,
        explain as explain,
    )
    from genesis.utils.checkpoint import checkpoint as checkpoint
    from genesis.utils.serialization import (
        load as load,
        save as save,
    )
# isort: on

_install_later("genesis.linalg.methods", "MatrixMethods", (
    "det", "slogdet", "logdet", "inverse", "matrix_exp", "pinverse", "cholesky", "cholesky_solve", "cholesky_inverse",
    "qr", "svd", "lu", "lu_solve", "triangular_solve"))
_install_later("genesis.sparse.tensor", "SparseMethods", ("to_sparse", "to_dense"))
_install_later("genesis.array_api.methods", "ArrayMethods", ("__array_namespace__",))

eval = _materialize
_waiting = _publish(globals())
device = _types.Device
dtype = _types.DType
bool = _types.bool_
half, float, double = float16, float32, float64
short, int, long = int16, int32, int64
newaxis = None
__version__ = "0.1.0"


def cuda_available() -> Any:
    """True if a GPU can be used: `genesis.cuda.is_available()` by its older name."""
    from genesis import cuda
    return cuda.is_available()


_install_torch_paths()
_install_einops()
_install_absent_modules()


_WITH_A_STAR = {"amp", "autograd", "nn", "optim", "random"}
"""Rooms that `from genesis import *` takes, beside functions and types."""


def __dir__() -> list[str]:
    return sorted({*globals(), *_waiting, *_later_names(__name__)})


if not TYPE_CHECKING:  # a type checker that saw it would believe every name
    def __getattr__(name: str) -> Any:
        """A public function, bound; a room, or a name of the block for type checkers, imported. From then on it is here
        (PEP 562)."""
        found = _waiting.get(name) or _imported(name)
        if found.__class__ is _FunctionType:
            found = _bound(found, __name__, name)
        globals()[name] = found
        return found


def _imported(name: str) -> Any:
    if name == "__all__":  # what `from genesis import *` takes
        rooms = {x for x, place in _later_names(__name__).items() if place == __name__}
        rooms.update(x for x, value in globals().items() if isinstance(value, _ModuleType))
        return [x for x in __dir__() if not x.startswith("_") and x not in rooms - _WITH_A_STAR]
    found = _later(__name__, name)
    if found is not None:
        return found
    if _is_path(f"genesis.{name}"):
        return _import_module(f"genesis.{name}")
    if name.startswith("_foreach_"):
        from genesis.ops.foreach import foreach
        found = foreach(name)
        if found is not None:
            return found
    from genesis.ir.suggest import MissingName
    raise MissingName(f"module 'genesis' has no attribute {name!r}", name, __dir__, "")
