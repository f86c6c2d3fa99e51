"""Names of torch's that are left out, each with a sentence that says why, or what to use instead.

The sentence is part of the error that asking for the name raises: AttributeError of a name, so that `hasattr` is False,
ImportError of a module. `tests/test_names.py` holds the table against all of torch's public names.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple


class Absent(NamedTuple):
    """Names that are left out.

    Attributes:
        sentence: what to use instead, or why there is nothing.
        names: a regular expression for whole names.
        space: the module under `genesis` that they would be in: "" for the top, "nn", ...; "*" for any.
    """

    sentence: str
    names: str
    space: str = "*"


MODULES = (
    Absent("genesis.explain(f) shows what was captured, and `genesis dump script.py` every stage of a program", r"fx"),
    Absent("genesis.compiler has reset, disable, is_compiling and what else is around genesis.compile",
           r"_dynamo|_inductor"),
    Absent("save a state_dict with genesis.save: it is a safetensors file that other tools read",
           r"onnx|package|export"),
    Absent("it would run downloaded code: clone the repository, import its model, and genesis.load the weights",
           r"hub"),
    Absent("pad sequences, or pack them with genesis.nn.utils.rnn", r"nested|masked"),
    Absent("use dense tensors, index_add and scatter_add along edges", r"sparse"),
    Absent("there are no complex numbers yet; genesis.signal.windows has the windows", r"fft"),
    Absent("low precision is genesis.amp; there are no quantized integers", r"ao|quantization|quantiz.*|qat|intrinsic"),
    Absent("`genesis why` and `genesis passes` say what a program became, genesis.cuda.Event measures",
           r"monitor"),
    Absent("operators of a user's own are genesis.autograd.Function, and kernels genesis.cuda.triton_kernels",
           r"library|ops|_ops|classes|overrides|_library|_C"),
    Absent("its functions are genesis' own, at the top", r"functional|torch", ""),
    Absent("a GPU is genesis.cuda, the processor genesis.cpu", r"mtia|hpu|privateuse.*", ""),
    Absent("it is a part of torch itself; nothing stands in its place",
           r"_.*|futures|quasirandom|return_types|storage|torch_version|types|contrib|nativert|numa|windows|serialization|"
           r"cpp|backcompat|utils_.*"),
)
"""Modules."""

NAMES = (
    Absent("there are no complex numbers yet", r"complex(32|64|128)?|polar|eig|eigvals|view_as_(real|complex)(_copy)?|"
           r"i?stft|cfloat|cdouble|chalf|Complex.*"),
    Absent("use dense tensors",
           r".*sparse.*|.*_?indices(_copy)?|indices|values(_copy)?|coalesce|is_coalesced|dense_dim|"
           "to_dense|smm|hsmm|dsmm|hspmm|saddmm|sspaddmm|spmm|SparseAdam"),
    Absent("there are no quantized integers; low precision is genesis.amp",
           r"q?u?int\d.*|q_.*|choose_qparams.*|.*quant.*|per_(tensor|channel)_.*|float[48]_.*|bits?\d?.*|int_repr|"
           r"fbgemm_.*|qscheme|Q(U?)Int.*|quint.*"),
    Absent("use int64", r"uint(16|32|64)", ""),
    Absent("it is a kernel of torch's behind a function that is here by its plain name",
           r"cudnn_.*|miopen_.*|mkldnn_.*|native_.*|batch_norm_.*|.*_?(grid_sampler|affine_grid_generator).*|convolution|"
           r"(rnn_(tanh|relu)|lstm|gru)(_cell)?|embedding_renorm_|slice_(inverse|copy)|norm_except_dim|to_mkldnn|_?scaled_.*|"
           "hash_tensor|index|nonzero_static|segment_reduce"),
    Absent("a GPU is genesis.cuda, the processor genesis.cpu", r"ipu|mtia|xpu|hpu|maia|vulkan|is_vulkan_available"),
    Absent("pad sequences, or pack them with genesis.nn.utils.rnn", r"to_padded_tensor|jagged|.*nested.*"),
    Absent("there are no quantized integers", r"dequantize|empty_quantized"),
    Absent("it belongs to TorchScript, torch's dispatcher or symbolic shapes; Python is captured by genesis.compile",
           r"sym_.*|Sym.*|fork|wait|parse_.*|import_ir_.*|merge_.*|unify_type_list|SUM|AVG|PRIVATE_OPS|USE_.*|"
           r"has_(lapack|mkl|openmp|spectral)|init_num_threads|classproperty|cond|while_loop|"
           r"prepare_multiprocessing_environment|profiler_.*|compiled_with_cxx11_abi|get_file_path|get_device_module|"
           r"thread_safe_generator|.*torch_function.*|boolean_dispatch|assert_int_or_pair|Broadcasting.*|GRID_SAMPLE_.*|"
           r".*_notes|TYPE_CHECKING|Callable|Optional|Tensor|DType|ScalingType|SwizzleType|factory_kwargs|"
           r"NestedIOFunction|set_multithreading_enabled|enforce_grad_layout_policy|functionalize|debug_unwrap|rearrange|"
           r"module_load|as_subclass|grad_dtype|const_data_ptr|output_nr|record_stream|storage_type|"
           r"swap_in_optimizer_params_and_state|[A-Z]\w*(Type|Storage|Stream|Event|Graph|Code|Unit|Module|Function|Value|"
           r"Node|Block|Argument|Schema|Dict|Error|Base|Future|Guard|Key|Set|Await|Capsule|Usage|Property|Info|Method|"
           r"Object|Reader|Writer|Observer|Logger|Use|Gradient|Tag|View|Config|Backend|Mode|Plan)|"
           r"ThroughputBenchmark|DisableTorch.*|Disable.*|Benchmark.*|AliasDb|Allocator.*|CallStack|Ident\w*|ListInit\w*|"
           r"Deserial\w*|Concrete\w*|LoggingTensor\w*|TracingState|Scripting.*|LiteScript.*|FileCheck|Capsule|"
           r"ClassType|Size|Generator|ErrorReport|ExecutionPlan|AcceleratorError|LockingLogger|NoopLogger|Return"),
    Absent("it is a setting of torch's runtime that nothing here asks",
           r"(set_|is_)warn_always.*|(get|set)_deterministic_debug_mode|is_deterministic_.*_warn_only_enabled|"
           r".*autocast.*|.*anomaly.*"),
    Absent("torch itself warns of the name: use the one it names", r"lstsq|symeig|solve|matrix_rank|resize|"
           r"resize_as|new|volatile|reinforce|Container|NLLLoss2d|is_storage|is_distributed|"
           r"(x|X)?(uniform|normal|constant|dirac|orthogonal|sparse)|(xavier|kaiming)_(uniform|normal)|"
           "legacy_contiguous_format|conv_tbc|nuclear_norm|frobenius_norm|lobpcg|(feature_)?dropout_|feature_dropout|"
           "(feature_)?alpha_dropout_|constant_pad_nd|to_dlpack|from_file|unsafe_split_with_sizes|split_with_sizes_copy"),
    Absent("write the function with tensors: it is called for each element in Python", "map_|map2_", "Tensor"),
    Absent("it is not there yet",
           r"igammac?_?|gammaincc?|poisson|binomial|geqrf|ormqr|orgqr|narrow_copy|airy_ai|"
           r"(modified_|scaled_modified_)?bessel_.*|fractional_max_pool.*|linear_cross_entropy|grouped_mm"),
    Absent("the factors that raise are here", r"LinAlgError|.*_ex|householder_product|ldl_(factor|solve)", "linalg"),
    Absent("it is not there yet", r"AdaptiveLogSoftmaxWithLoss|CrossMapLRN2d|FractionalMaxPool.*|LinearCrossEntropy.*|"
           r"SyncBatchNorm", "nn"),
    Absent("Adam, AdamW and the others under genesis.optim are, and any that derives from Optimizer as in torch",
           "Adafactor|ASGD|Muon", "optim"),
    Absent("it belongs to torch's compiler alone",
           r"config|assume_constant_result|substitute_in_graph|[sg]et_default_backend|wrap_numpy|"
           r"set_enable_guard_collectives|load_compiled_function|(save|load)_cache_artifacts|(skip|keep)_.*_unsafe|"
           "nested_compile_region", "compiler"),
    Absent("use nn.BatchNorm2d(..., track_running_stats=False)", "replace_all_batch_norm_modules_", "func"),
    Absent("keep the state_dict, with genesis.save and genesis.load: Python is the format of the program",
           r"save|load|set_fusion_strategy|fuser|enable_onednn_fusion|onednn_fusion_enabled|last_executed_.*|"
           r"run_frozen_.*|trace_module|to_backend.*|set_module|strict_fusion|Attribute|ONNX.*|TracedModule|"
           r"TracerWarning|TracingCheckError|TopLevelTracedModule|CompilationUnit|wrap_check_inputs|\w+_jit\w*|contextlib|"
           r"export_opnames|jit_module_from_flatbuffer|DataType", "jit"),
    Absent("there is no such device here", r".*", "mps"),
    Absent("there is no such device here", r".*", "xpu"),
    Absent("it belongs to torch's libraries", r".*", "backends"),
    Absent("it belongs to torch's libraries", r".*", "backends.cuda"),
    Absent("it belongs to torch's libraries", r".*", "backends.cudnn"),
    Absent("memory is counted by genesis.cuda, and graphs are made by genesis.compile", r"Graph|graph.*|memory|"
           r"empty_host_cache|reset_accumulated_memory_stats|get_device_index.*|is_.*", "accelerator"),
    Absent("genesis.testing has assert_close", r".*", "testing"),
    Absent("each of these is Python's own, or a part of torch's", r".*", "multiprocessing"),
    Absent("replays of compiled functions are CUDA graphs, and genesis.cuda has streams, events and memory",
           r".*", "cuda"),
    Absent("it belongs to torch's loader of pipes", r".*[pP]ipe.*|DataChunk|runtime_.*|guaranteed_.*|non_deterministic|"
           r"argument_validation|dataloader|graph.*|distributed", "utils.data"),
    Absent("it is a part of torch itself", r".*", "utils"),
    Absent("it is a part of torch itself", r"[a-z_]*(backend|impl|impls)[a-z_]*|can_use_.*|WARN_.*|Iterable|Union|warn|"
           r"contextlib|SDPAParams|varlen|bias|flex_attention|experimental", "nn.attention"),
    Absent("it is a part of torch itself", r".*", "nn.utils"),
)
"""Names of modules and classes."""


@cache
def why(space: str, name: str, whole: bool = True) -> str | None:
    """The sentence for a name of torch's, None for any other.

    Without `whole`, rows that leave out all other names of a module do not count: the name may be a misspelt one.

    >>> why("", "fx")
    'genesis.explain(f) shows what was captured, and `genesis dump script.py` every stage of a program'
    """
    for row in (*NAMES, *MODULES) if space else (*MODULES, *NAMES):
        if row.space in ("*", space) and re.fullmatch(row.names, name) and (whole or row.names != ".*"):
            return row.sentence
    return None


_ROOT = os.path.dirname(os.path.dirname(__file__))


class AbsentModules:
    """The last finder of imports: `import genesis.fx` raises ImportError with the sentence for it.

    Not derived from `importlib.abc`, whose import takes longer than all else that `import genesis` does not need.
    """

    @staticmethod
    def find_spec(fullname: str, path: Sequence[str] | None = None, target: object = None) -> None:
        """Raises for a module that is left out; None for any other."""
        package, _, name = fullname.rpartition(".")
        if package.partition(".")[0] != "genesis" or (name.startswith("_") and name != "_dynamo"):
            return
        place = os.path.join(_ROOT, *fullname.split(".")[1:])
        if os.path.isdir(place) or os.path.isfile(place + ".py"):  # a folder of Genesis' own of that name
            return
        space = package.partition(".")[2]
        sentence = next((row.sentence for row in MODULES if row.space in ("*", space)
                         and re.fullmatch(row.names, name)), None)
        if sentence is not None:
            raise ModuleNotFoundError(f"there is no module '{fullname}': {sentence}", name=fullname)


def install() -> None:
    """Put the finder behind all others."""
    if not any(isinstance(finder, AbsentModules) for finder in sys.meta_path):
        sys.meta_path.append(AbsentModules())  # type: ignore[arg-type]
