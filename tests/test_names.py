"""Every name of torch's is here, or in the table below with the reason why not.

A name that is added here is taken off the table: an entry that no longer leaves anything out fails, too.
"""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass
from functools import reduce
from typing import Any

import pytest
import torch

import genesis

SPACES = ("", "Tensor", "nn", "nn.functional", "nn.init", "linalg", "optim", "optim.lr_scheduler", "autograd", "func",
          "special", "signal.windows", "random", "compiler")


@dataclass(frozen=True)
class Absent:
    """Names that are left out.

    Attributes:
        reason: why.
        names: regular expressions for whole names, several separated by blanks.
        space: where; "*" for everywhere.
    """

    reason: str
    names: str
    space: str = "*"


ABSENT = (
    Absent("complex numbers", r"complex(32|64|128)?|polar|eig|eigvals|view_as_(real|complex)(_copy)?|i?stft|cfloat|"
           "cdouble|chalf"),
    Absent("sparse tensors", r".*sparse.*|.*_?indices(_copy)?|indices|values(_copy)?|coalesce|is_coalesced|dense_dim|"
           "to_dense|smm|hsmm|dsmm|hspmm|saddmm|sspaddmm|spmm|SparseAdam"),
    Absent("quantization and its integer and floating-point dtypes",
           r"q?u?int\d.*|q_.*|choose_qparams.*|.*quant.*|per_(tensor|channel)_.*|float[48]_.*|bits?\d?.*|int_repr|fbgemm_.*|qscheme"),
    Absent("unsigned integers above 8 bits", r"uint(16|32|64)", ""),
    Absent("kernels of torch's own backends, behind functions that are here",
           r"cudnn_.*|miopen_.*|mkldnn_.*|native_.*|batch_norm_.*|.*_?(grid_sampler|affine_grid_generator).*|convolution|"
           r"(rnn_(tanh|relu)|lstm|gru)(_cell)?|embedding_renorm_|slice_(inverse|copy)|norm_except_dim|to_mkldnn|_?scaled_.*|"
           "hash_tensor|index|nonzero_static|segment_reduce"),
    Absent("other devices, layouts and kinds of tensors", r"ipu|mtia|xpu|is_vulkan_available|to_padded_tensor|jagged|"
           "dequantize|empty_quantized|.*nested.*"),
    Absent("TorchScript, symbolic shapes, dispatch and other machinery",
           r"sym_.*|fork|wait|parse_.*|import_ir_.*|merge_.*|"
           r"unify_type_list|SUM|AVG|PRIVATE_OPS|USE_.*|has_(lapack|mkl|openmp|spectral)|init_num_threads|classproperty|"
           "cond|while_loop|prepare_multiprocessing_environment|profiler_.*|compiled_with_cxx11_abi|get_file_path|"
           "get_device_module|thread_safe_generator|.*torch_function.*|boolean_dispatch|assert_int_or_pair|Broadcasting.*|"
           "GRID_SAMPLE_.*|.*_notes|TYPE_CHECKING|Callable|Optional|Tensor|DType|ScalingType|SwizzleType|factory_kwargs|"
           "NestedIOFunction|set_multithreading_enabled|enforce_grad_layout_policy|functionalize|debug_unwrap|rearrange|"
           "Uninitialized.*|module_load|as_subclass|grad_dtype|const_data_ptr|output_nr|record_stream|storage_type|"
           "swap_in_optimizer_params_and_state"),
    Absent("settings of torch's runtime",
           r"(get|set)_num(_interop)?_threads|set_flush_denormal|(set_|is_)warn_always.*|"
           r"(get|set)_float32_matmul_precision|(get|set)_deterministic_debug_mode|is_deterministic_.*_warn_only_enabled|"
           r".*autocast.*|.*anomaly.*|set_default_tensor_type"),
    Absent("older names that torch itself warns of or refuses", r"lstsq|symeig|solve|matrix_rank|range|typename|resize|"
           r"resize_as|new|volatile|reinforce|Variable|variable|Container|NLLLoss2d|is_storage|is_distributed|"
           r"(x|X)?(uniform|normal|constant|dirac|orthogonal|sparse)|(xavier|kaiming)_(uniform|normal)|"
           "legacy_contiguous_format|conv_tbc|nuclear_norm|frobenius_norm|lobpcg|(feature_)?dropout_|feature_dropout|"
           "(feature_)?alpha_dropout_|constant_pad_nd|to_dlpack|from_file|unsafe_split_with_sizes|split_with_sizes_copy"),
    Absent("a Python function for each element", "map_|map2_", "Tensor"),
    Absent("not there yet: functions",
           r"igammac?_?|gammaincc?|poisson|binomial|geqrf|ormqr|orgqr|narrow_copy|"
           r"airy_ai|(modified_|scaled_modified_)?bessel_.*|fractional_max_pool.*|linear_cross_entropy|grouped_mm"),
    Absent("not there yet: factors that report instead of raising, reflections, LDLᵀ", r"LinAlgError|.*_ex|"
           r"householder_product|ldl_(factor|solve)", "linalg"),
    Absent("not there yet: layers", r"AdaptiveLogSoftmaxWithLoss|Buffer|CrossMapLRN2d|DataParallel|FractionalMaxPool.*|"
           r"Lazy.*|LinearCrossEntropy.*", "nn"),
    Absent("not there yet: optimizers", "Adafactor|ASGD|LBFGS", "optim"),
    Absent("parts of torch's compiler only: its backends, guards that may be left out, files of its cache",
           r"config|assume_constant_result|substitute_in_graph|[sg]et_default_backend|wrap_numpy|"
           r"set_enable_guard_collectives|load_compiled_function|(save|load)_cache_artifacts|(skip|keep)_.*_unsafe|"
           "nested_compile_region", "compiler"),
    Absent("batch norms without running statistics", "replace_all_batch_norm_modules_", "func"),
)


def inside(root: Any, space: str) -> Any:
    """The module or class at a dotted name."""
    return reduce(getattr, filter(None, space.split(".")), root)


def missing(space: str) -> list[str]:
    """torch's public names there that Genesis does not have. Classes at torch's top level are its machinery."""
    theirs, ours = inside(torch, space), inside(genesis, space)
    listed = None if space in ("", "nn.functional") else getattr(theirs, "__all__", None)
    names = [name for name in listed or dir(theirs) if not name.startswith("_") and not hasattr(ours, name)]
    return [name for name in names if not inspect.ismodule(getattr(theirs, name))
            and not (space == "" and inspect.isclass(getattr(theirs, name)))]


def left_out(row: Absent, space: str, name: str) -> bool:
    return row.space in ("*", space) and re.fullmatch(row.names, name) is not None


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("space", SPACES)
def test_every_name_is_here_or_left_out_for_a_reason(space: str) -> None:
    assert [name for name in missing(space) if not any(left_out(row, space, name) for row in ABSENT)] == []


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ABSENT, ids=lambda row: row.reason)
def test_a_reason_leaves_something_out(row: Absent) -> None:
    assert any(left_out(row, space, name) for space in SPACES for name in missing(space))
