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
           r"_dynamo|_inductor", ""),
    Absent("save a state_dict with genesis.save: it is a safetensors file that other tools read",
           r"onnx|package|export"),
    Absent("pad sequences, or pack them with genesis.nn.utils.rnn", r"nested|masked"),
    Absent("there are no complex numbers yet; genesis.signal.windows has the windows", r"fft"),
    Absent("low precision is genesis.amp; there are no quantized integers",
           r"ao|quantization|quantiz.*|qat|intrinsic"),
    Absent("`genesis why` and `genesis passes` say what a program became, genesis.cuda.Event measures",
           r"monitor", ""),
    Absent("operators of a user's own are genesis.autograd.Function, and kernels genesis.cuda.triton_kernels",
           r"library|ops|_ops|classes|overrides|_library|_C", ""),
    Absent("operators of a user's own are genesis.autograd.Function, and kernels genesis.cuda.triton_kernels",
           r"cpp_extension|backend_registration|bundled_inputs|mobile_optimizer|mkldnn|jit|hipify|cpp_backtrace|file_baton",
           "utils"),
    Absent("reading a value waits for it: time.perf_counter around `y.tolist()`, or genesis.cuda.Event",
           r"benchmark|throughput_benchmark", "utils"),
    Absent("genesis.profiler counts operations and bytes of each kernel", r"flop_counter|module_tracker|viz|debug_log",
           "utils"),
    Absent("`genesis inspect file` shows what is in a file", r"model_dump|show_pickle", "utils"),
    Absent("genesis.use_deterministic_algorithms is the switch", r"deterministic", "utils"),
    Absent("torch itself no longer uses it", r"backcompat|weak|collect_env", "utils"),
    Absent("torch deprecated pipes of data: genesis.utils.data has datasets, samplers and DataLoader",
           r"datapipes|graph|graph_settings|backward_compatibility", "utils.data"),
    Absent("nn.functional.scaled_dot_product_attention takes any mask, and is compiled with what makes it",
           r"flex_attention|bias|experimental|varlen", "nn.attention"),
    Absent("genesis.autograd.grad gives the gradients of any function", r"grad", "nn"),
    Absent("pruning is not there yet: multiply weights by masks, with nn.utils.parametrize", r"prune", "nn.utils"),
    Absent("it is a part of torch itself; nothing stands in its place", r"backends|cpp", "nn"),
    Absent("SummaryWriter.add_scalar and the like make the records", r"summary", "utils.tensorboard"),
    Absent("tensors are sent by value", r"reductions", "multiprocessing"),
    Absent("genesis.sparse.sparse_coo_tensor makes sparse matrices", r"semi_structured", "sparse"),
    Absent("it belongs to torch's libraries", r"rnn", "backends.cudnn"),
    Absent("genesis.signal.windows has the windows", r"windows", "signal.windows"),
    Absent("torch.nn.utils.parametrizations has it as spectral_norm and weight_norm", r"(weight|spectral)_norm",
           "nn.utils"),
    Absent("forward mode is not there: genesis.func.jvp, vjp and jacrev differentiate", r"forward_ad", "autograd"),
    Absent("replays of compiled functions are CUDA graphs, and genesis.cuda has streams, events and memory",
           r"comm|gds|green_contexts|jiterator|nccl|sparse|tunable", "cuda"),
    Absent("replays of compiled functions are CUDA graphs", r"graphs", "accelerator"),
    Absent("there is no such device here", r".*", "mps"),
    Absent("there is no such device here", r".*", "xpu"),
    Absent("genesis.config is the settings' object", r"config"),
    Absent("models are Python: there is no bytecode of TorchScript's",
           r"generate_bytecode|mobile|supported_ops|annotations|frontend|unsupported_tensor_ops", "jit"),
    Absent("`torchrun`, or `genesis launch`, starts processes; nn.parallel.DistributedDataParallel trains with them",
           r"elastic|launch|launcher|argparse_util|logging_handlers|c10d_logger|constants|utils|collective_utils|"
           r"remote_device|debug|flight_recorder", "distributed"),
    Absent("genesis.distributed.functional has collectives that gradients flow through", r"nn", "distributed"),
    Absent("it is not there yet: genesis.distributed.fsdp.fully_shard shares out a model over ranks",
           r"pipelining|autograd", "distributed"),
    Absent("optimizers of genesis.optim are steps of the program; ZeroRedundancyOptimizer shares out their state",
           r"functional_\w+|named_optimizer|optimizer|apply_optimizer_in_backward|post_localSGD_optimizer|utils",
           "distributed.optim"),
    Absent("genesis.checkpointing saves runs; genesis.distributed.checkpoint.state_dict gathers what to save",
           r"api|default_planner|filesystem|format_utils|hf_storage|logger|metadata|optimizer|planner|planner_helpers|"
           r"resharding|staging|state_dict_(loader|saver)|stateful|logging_handlers|utils", "distributed.checkpoint"),
    Absent("genesis.distributed.fsdp.fully_shard shards a module's parameters",
           r"api|fully_sharded_data_parallel|sharded_grad_scaler|wrap", "distributed.fsdp"),
    Absent("ranks with fewer batches are DistributedDataParallel.join's", r"join", "distributed.algorithms"),
    Absent("it is not there yet: DistributedDataParallel takes means of gradients at each step", r"model_averaging",
           "distributed.algorithms"),
    Absent("genesis.distributed.algorithms.ddp_comm_hooks has default_hooks", r"ddp_zero_hook|debugging_hooks|"
           r"mixed_precision_hooks|optimizer_overlap_hooks|post_localSGD_hook|powerSGD_hook",
           "distributed.algorithms.ddp_comm_hooks"),
    Absent("there is no DTensor: genesis.distributed.tensor.parallel shards modules",
           r"debug|device_mesh|experimental|placement_types", "distributed.tensor"),
    Absent("there is no DTensor: genesis.distributed.tensor.parallel shards modules",
           r"api|ddp|fsdp|style|input_reshard|loss", "distributed.tensor.parallel"),
    Absent("genesis.profiler.profile has the events", r"python_tracer", "profiler"),
    Absent("it is a part of torch itself; nothing stands in its place",
           r"_(?!dynamo$|inductor$).*|futures|quasirandom|return_types|storage|torch_version|contrib|nativert|numa|windows|"
           r"cpp|utils_.*"),
)
"""Modules."""

NAMES = (
    Absent("there are no complex numbers yet", r"complex(32|64|128)?|polar|eig|eigvals|view_as_(real|complex)(_copy)?|"
           r"i?stft|cfloat|cdouble|chalf|Complex.*"),
    Absent("sparse_coo_tensor makes matrices, and genesis.sparse has mm, sum and softmax; all else is dense",
           r".*[sS]parse.*|.*_?indices(_copy)?|indices|values(_copy)?|coalesce|is_coalesced|dense_dim|smm|hsmm|dsmm|hspmm|"
           r"saddmm|sspaddmm|as_sparse_gradcheck|check_sparse_tensor_invariants|sampled_addmm"),
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
           r"module_load|as_subclass|grad_dtype|const_data_ptr|output_nr|storage_type|"
           r"swap_in_optimizer_params_and_state|[A-Z]\w*(Type|Storage|Stream|Event|Graph|Code|Unit|Module|Function|Value|"
           r"Node|Block|Argument|Schema|Dict|Error|Base|Future|Guard|Key|Set|Await|Capsule|Usage|Property|Info|Method|"
           r"Object|Reader|Writer|Observer|Logger|Use|Gradient|Tag|View|Config|Backend|Mode|Plan)|"
           r"ThroughputBenchmark|DisableTorch.*|Disable.*|Benchmark.*|AliasDb|Allocator.*|CallStack|Ident\w*|ListInit\w*|"
           r"Deserial\w*|Concrete\w*|LoggingTensor\w*|TracingState|Scripting.*|LiteScript.*|FileCheck|Capsule|"
           r"ClassType|Size|Generator|ErrorReport|ExecutionPlan|AcceleratorError|LockingLogger|NoopLogger|Return"),
    Absent("it is a setting of torch's runtime that nothing here asks",
           r"(set_|is_)warn_always.*|(get|set)_deterministic_debug_mode|is_deterministic_.*_warn_only_enabled|"
           r"autocast_.*|set_autocast.*|.*_autocast_(ipu|xla)_.*|.*anomaly.*"),
    Absent("torch has removed it: genesis.linalg has lstsq, eigh, solve and matrix_rank",
           r"lstsq|symeig|solve|matrix_rank"),
    Absent("torch itself warns of the name, or raises: use the one it names",
           r"resize|resize_as|volatile|reinforce|Container|NLLLoss2d|nuclear_norm|frobenius_norm"),
    Absent("genesis.nn.functional has it by its plain name, with inplace=True where the name ends in _; "
           "feature_dropout is dropout2d", r"(feature_)?(alpha_)?dropout_|feature_dropout"),
    Absent("genesis.nn.functional.pad is it", "constant_pad_nd"),
    Absent("genesis.nn.functional.conv1d is it, of x.permute(1, 2, 0)", "conv_tbc"),
    Absent("genesis.linalg.eigh finds all eigenvalues", "lobpcg"),
    Absent("genesis.split is it, and clone() makes copies", "unsafe_split_with_sizes|split_with_sizes_copy"),
    Absent("genesis.from_dlpack takes any array, and x.__dlpack__() is the capsule", "to_dlpack"),
    Absent("genesis.from_numpy(numpy.memmap(...)) shares a file", "from_file"),
    Absent("no tensor here is one, so that the answer is False", "is_storage|is_distributed"),
    Absent("memory formats are those of `x.to(memory_format=...)`", "legacy_contiguous_format"),
    Absent("write the function with tensors: it is called for each element in Python", "map_|map2_", "Tensor"),
    Absent("it is not there yet",
           r"geqrf|ormqr|orgqr|airy_ai|"
           r"(modified_|scaled_modified_)?bessel_.*|fractional_max_pool.*|linear_cross_entropy"),
    Absent("genesis.special.gammainc is it", r"igamma_?"),
    Absent("genesis.special.gammaincc is it", r"igammac_?"),
    Absent("the factors that raise are here", r"(lu|ldl)_factor_ex|householder_product|ldl_(factor|solve)", "linalg"),
    Absent("it is not there yet", r"CrossMapLRN2d|FractionalMaxPool.*|LinearCrossEntropy.*"),
    Absent("it belongs to torch's compiler alone",
           r"config|substitute_in_graph|[sg]et_default_backend|wrap_numpy|"
           r"set_enable_guard_collectives|load_compiled_function|(save|load)_cache_artifacts|(skip|keep)_.*_unsafe",
           "compiler"),
    Absent("use nn.BatchNorm2d(..., track_running_stats=False)", "replace_all_batch_norm_modules_", "func"),
    Absent("keep the state_dict, with genesis.save and genesis.load: Python is the format of the program",
           r"annotations|frontend|save|load|set_fusion_strategy|fuser|enable_onednn_fusion|onednn_fusion_enabled|last_executed_.*|"
           r"run_frozen_.*|trace_module|to_backend.*|set_module|strict_fusion|Attribute|ONNX.*|TracedModule|"
           r"TracerWarning|TracingCheckError|TopLevelTracedModule|CompilationUnit|wrap_check_inputs|\w+_jit\w*|contextlib|"
           r"export_opnames|jit_module_from_flatbuffer|DataType", "jit"),
    Absent("there is no such device here", r".*", "mps"),
    Absent("there is no such device here", r".*", "xpu"),
    Absent("memory is counted by genesis.cuda, and graphs are made by genesis.compile", r"Graph|graph.*|memory|"
           r"empty_host_cache|reset_accumulated_memory_stats|get_device_index.*|is_.*", "accelerator"),
    Absent("it belongs to torch's loader of pipes", r".*[pP]ipe.*|DataChunk|runtime_.*|guaranteed_.*|non_deterministic|"
           r"argument_validation|dataloader|graph.*|distributed", "utils.data"),
    Absent("memory formats are those of `x.to(memory_format=...)`", r"convert_conv[23]d_weight_memory_format"),
    Absent("nn.attention.sdpa_kernel and nn.attention.SDPBackend are accepted", r".*flash_attention_impls?|WARN_.*"),
    Absent("one way computes each product: genesis.set_float32_matmul_precision is the switch",
           r"cu(FFT|fft|BLAS|blas).*|preferred_.*|blas_.*|is_ck_.*|SDPAParams|.*reduction_math_sdp.*|can_use_.*|"
           r"is_flash_attention_available|sdp_kernel", "backends.cuda"),
    Absent("there is no such library here", r"VERBOSE_.*|verbose|get_core_count|get_name|is_macos.*"),
    Absent("genesis.cuda.memory_summary and genesis.cuda.memory_stats say what memory is used for; the pool is one",
           r"caching_allocator_.*|.*_as_nested_dict|.*host_memory_stats|reset_accumulated_.*|get_allocator_backend|"
           r"CUDAPluggableAllocator|change_current_allocator|MemPool|use_mem_pool|ipc_collect|device_memory_used"),
    Absent("replays of compiled functions are CUDA graphs: genesis.compile",
           r"CUDAGraph|graph|graph_pool_handle|make_graphed_callables|GreenContext", "cuda"),
    Absent("`nvidia-smi` tells", r"temperature|power_draw|clock_rate|utilization|memory_usage|list_gpu_processes"),
    Absent("it belongs to torch's libraries: what fails on a GPU is an error with the line that asked for it",
           r"Cuda(Error)?|cuda(rt|Status)|DeferredCudaCallError|check_error|current_(blas|solver)_handle|get_gencode_flags|"
           r"(get|set)_sync_debug_mode|has_(half|magma)|ExternalStream|get_stream_from_external|default_generators",
           "cuda"),
    Absent("a tensor on a GPU is made with device='cuda'", r"\w+(Storage|Tensor)", "cuda"),
    Absent("a tensor's memory is the engine's: x.data_ptr(), x.numpy() and genesis.from_dlpack share it",
           r"(\w*|Typed|Untyped)Storage"),
    Absent("it is a part of torch itself; nothing stands in its place",
           r"ThroughputBenchmark|cmake_prefix_path|generate_methods_.*|get_cpp_backtrace|rename_privateuse1_.*|set_module|"
           r"swap_tensors", "utils"),
    Absent("genesis.testing has assert_close and make_tensor", r"FileCheck|assert_allclose", "testing"),
    Absent("there are no saved tensors: a graph is a value, and what its backward reads is planned; "
           "genesis.utils.checkpoint computes anew",
           r"saved_tensors_hooks|save_on_cpu|disable_saved_tensors_hooks|allow_mutation_on_saved_tensors|GradientEdge|"
           r"get_gradient_edge|increment_version|region_activation_memory_budget|set_warn_on_.*|set_override_.*",
           "autograd.graph"),
    Absent("genesis.autograd.Function is the class to derive from", r"BackwardCFunction|FunctionMeta|InplaceFunction|"
           r"NestedIOFunction|traceable", "autograd.function"),
    Absent("it is a part of torch's engine; the plan of backward decides what is computed anew",
           r"Checkpoint(Error|Function|Policy)|check_backward_validity|detach_variable|[gs]et_device_states|"
           r"noop_context_fn|set_checkpoint_.*|DefaultDeviceType|SelectiveCheckpointContext|"
           r"create_selective_checkpoint_contexts|SAC_IGNORED_OPS|GraphExecGroup", "utils.checkpoint"),
    Absent("genesis.amp.GradScaler keeps it", r"OptState", "amp.grad_scaler"),
    Absent("SummaryWriter writes the files", r"FileWriter", "utils.tensorboard.writer"),
    Absent("the CPU has one queue: what is read has been computed", r"Stream(Context)?|Event|get_capabilities", "cpu"),
    Absent("genesis.cuda.Event and genesis.cuda.Stream are those of GPUs", r"Event|Stream", ""),
    Absent("torchrun starts processes; init_process_group asks for their number",
           r"DefaultLogsSpecs|LaunchConfig|LogsSpecs|REMAINDER|Std|check_env|config_from_args|determine_local_world_size|elastic_launch|env|get_args_parser|"
           r"get_logger|get_rdzv_endpoint|get_use_env|macros|main|parse_args|parse_min_max_nnodes|record|run|"
           r"run_script_path", "distributed.run"),
    Absent("it is a part of torch's process groups; here a collective is an op of the program",
           r"\w*Options|BackendConfig|BuiltinCommHookType|DebugLevel|FileStore|GradBucket|GroupName|HashStore|Logger|"
           r"ProcessGroupGloo|QueueEmptyError|Reducer|Store|all_gather_coalesced|breakpoint|"
           r"default_pg_timeout|[gs]et_debug_level.*|record_comm|register_rendezvous_handler|rendezvous|shrink_group|"
           r"supports_complex", "distributed"),
    Absent("genesis.profiler.profile has the events",
           r"ExecutionTraceObserver|DeviceType|kineto_available|emit_.*|load_nvprof|EnforceUnique|\w+(Tracker|Mixin|Avg)|"
           r"EventList|EventMetadata|MemRecordsAcc|Interval|Kernel|StringTable", "profiler"),
    Absent("genesis.cuda.nvtx.range_push and range_pop nest", r"range_(start|end)", "profiler.nvtx"),
    Absent("it is a part of torch itself; nothing stands in its place",
           r"DeepCopyMemoTable|GraphExecutorState|IODescriptor|JITException|\w*Script\w*|SerializationStorageContext|Tag|"
           r"Argument(Spec)?|Code|CompleteArgumentSpec|Graph|Node|Block|Type|Use|Value|Gradient|Future", ""),
    Absent("genesis.distributed.get_backend tells", r"register_rendezvous_handler", "distributed.rendezvous"),
    Absent("nn.Lazy... layers are made by genesis.nn", r"is_lazy|UninitializedTensorMixin", "nn.parameter"),
    Absent("genesis.amp.autocast and genesis.amp.GradScaler are there", r"amp_definitely_not_available", "cuda.amp"),
    Absent("they are private to torch's module; genesis.distributions has RelaxedBernoulli and "
           "RelaxedOneHotCategorical", r"LogitRelaxedBernoulli|ExpRelaxedCategorical"),
    Absent("genesis.multiprocessing.spawn starts processes",
           r"Process(Context|Exception|ExitedException|RaisedException)|SpawnContext|start_processes",
           "multiprocessing.spawn"),
    Absent("genesis.load reads tensors and plain containers only", r"register_package|location_tag|\w*safe_globals\w*|"
           r"storage_to_tensor_type|skip_data", "serialization"),
    Absent("they are annotations: Python's numbers.Number, genesis.device and os.PathLike",
           r"Number|Device|FileLike", "types"),
    Absent("each tensor is a Variable", r"VariableMeta", "autograd.variable"),
    Absent("genesis.nn.parallel.scatter hands on its keywords", r"scatter_kwargs"),
    Absent("genesis.profiler.profile is a context", r"profile", "cuda.profiler"),
    Absent("genesis.cuda.mem_get_info has it", r"empty_host_cache|get_memory_info", "accelerator.memory"),
    Absent("genesis.checkpointing saves runs; genesis.distributed.checkpoint.state_dict gathers what to save",
           r"\w+(Metadata|Planner|Reader|Writer|Plan|Item)|Metadata|CheckpointException|async_save|load|save|"
           r"(load|save)_state_dict|load_sharded_optimizer_state_dict", "distributed.checkpoint"),
    Absent("they are annotations of torch's", r"FQNS_T|\w*(Primitive|Value|State)Type",
           "distributed.checkpoint.state_dict"),
    Absent("genesis.distributed.fsdp.fully_shard shards a module's parameters",
           r"BackwardPrefetch|CPUOffload(Policy)?|OffloadPolicy|\w*StateDict(Config|Settings|Type)|OptimStateKeyType|"
           r"FullyShardedDataParallel|MixedPrecision|ShardingStrategy|DataParallelMeshDims|UnshardHandle|"
           r"share_comm_ctx", "distributed.fsdp"),
    Absent("optimizers of genesis.optim are steps of the program; ZeroRedundancyOptimizer shares out their state",
           r"DistributedOptimizer|PostLocalSGDOptimizer|apply_optimizer_in_backward|as_functional_optim|functional_\w+|"
           r"named_optimizer|optimizer|post_localSGD_optimizer|utils", "distributed.optim"),
    Absent("ranks with fewer batches are DistributedDataParallel.join's", r"Join(Hook|able)?",
           "distributed.algorithms"),
    Absent("DistributedDataParallel.register_comm_hook takes the functions of default_hooks",
           r"DDPCommHookType|register_ddp_comm_hook", "distributed.algorithms.ddp_comm_hooks"),
    Absent("there is no DTensor: genesis.distributed.tensor.parallel shards modules",
           r"DTensor|distribute_(tensor|module)|ones|empty|full|rand|randn|zeros", "distributed.tensor"),
    Absent("there is no DTensor: a model's tp_plan(ranks, loss_parallel=True), or VocabularyParallel of the head and "
           "split_cross_entropy, leave logits where they are made", r"loss_parallel",
           "distributed.tensor.parallel"),
    Absent("it is a name of an annotation of torch's", r"T_destination|call_super_init|dump_patches", "nn.Module"),
    Absent("it is not there yet", "MixtureSameFamilyConstraint"),
    Absent("it is TorchScript's", r"Error|Future", "jit"),
    Absent("it is not there: version.cuda and version.git_version are", r"rocm", "version"),
)
"""Names of modules and classes."""


@cache
def why(space: str, name: str) -> str | None:
    """The sentence for a name of torch's, None for any other.

    >>> why("", "fx")
    'genesis.explain(f) shows what was captured, and `genesis dump script.py` every stage of a program'
    """
    for row in (*NAMES, *MODULES) if space else (*MODULES, *NAMES):
        if row.space in ("*", space) and re.fullmatch(row.names, name):
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
        sys.meta_path.append(AbsentModules())
