"""Triton kernels run on the host by Triton's interpreter, over addresses. For `HostDriver`, so for tests.

Obstacles in Triton 3.6, and what takes their place while a kernel is read or run:
 * `triton.jit` decides what it makes when it decorates: it is told to make interpreted functions.
 * Triton's own library (`tl.sum`, `tl.zeros`) was decorated when triton was imported, for the compiler
   unless TRITON_INTERPRET was set: interpreted twins take its place.
 * libdevice cannot be called: numpy computes it, in float64, rounded once.
 * A scalar repeated over a block takes the dtype that it says it has: a comparison of floats becomes a float.
 * `tl.dot` multiplies the bits of bfloat16, as numpy has no such dtype: they are widened before.
 * `tl.fma` rounds its product: in float32 it is computed in float64, which holds the product exactly.
 * `gdc_wait` and `gdc_launch_dependents` are instructions of the GPU: nothing runs beside a kernel here.
 * A conversion of float32 to bfloat16 cuts the last bits off: ml_dtypes rounds, to nearest even as a GPU does.
   The way back adds to subnormal numbers: their bits are moved up instead.
 * It reduces and scans with a function of the kernel's own element by element: `along_axis.py` goes slice by slice.
 * It looks through the language for what to patch at each call of a function inside a kernel: once a process is enough
   (`patches.py`). It makes each shape and number anew: once a launch is (`known_shapes.py`). Between two plain operands
   it asks a dozen questions whose answers are known: numpy computes these at once (`plain_operands.py`).
 * Assembly cannot be run: what there is of it is known by its instruction, or as words in shared memory
   (`shared_words.py`).
Afterwards everything is as it was, and the same process can go on compiling.

A GPU may or may not notice an access outside a kernel's arguments, or a race; here they are errors (`accesses.py`).
So are addresses that are not what the kernel tells the compiler of them (`claims.py`).
"""

from __future__ import annotations

import ast
import ctypes
import functools
import hashlib
import linecache
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import ModuleType
from typing import TYPE_CHECKING

import numpy as np

from genesis.runtime.cuda.driver import MappedMatrix, Pointer
from genesis.runtime.fake_cuda import along_axis, claims
from genesis.runtime.fake_cuda import special_functions as host_special
from genesis.runtime.fake_cuda.accesses import Accesses, watch
from genesis.runtime.fake_cuda.assignments import rewrite
from genesis.runtime.fake_cuda.known_shapes import KnownShapes
from genesis.runtime.fake_cuda.patches import Change, LanguagePatches, Patches, patch_attr
from genesis.runtime.fake_cuda.shared_words import SharedWords

if TYPE_CHECKING:
    from triton import language
    from triton.runtime import jit
    from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle
    from triton.tools.tensor_descriptor import TensorDescriptor


class HostPointer:
    """An address that the interpreter takes for a tensor: it asks a tensor for its address and dtype.

    It also copies tensors to the host before a kernel and back after it. This memory is on the host,
    so the methods it does that with all answer with the same memory.
    """

    def __init__(self, pointer: Pointer):
        self._address, self.dtype = pointer.address, pointer.dtype

    def data_ptr(self) -> int:
        """The address of the first element."""
        return self._address

    def untyped_storage(self) -> HostPointer:
        """The memory below the tensor: itself, as no view is ever made."""
        return self

    def cpu(self) -> HostPointer:
        """The tensor on the host: itself."""
        return self

    def new_empty(self, *_: object, **__: object) -> HostPointer:
        """The tensor that the interpreter then calls `set_` on: itself."""
        return HostPointer(Pointer(self._address, self.dtype))

    def set_(self, *_: object) -> None:
        """Do nothing: the tensor shows its memory already."""

    def copy_(self, _: HostPointer) -> None:
        """Do nothing: source and destination are the same memory."""

    def storage_offset(self) -> int:
        """The offset of the first element, which is 0."""
        return 0

    def size(self) -> tuple[int, ...]:
        """A shape that nobody looks at; the real one is not known here."""
        return ()

    def stride(self) -> tuple[int, ...]:
        """Strides that nobody looks at; the real ones are not known here."""
        return ()


@functools.lru_cache(maxsize=1024)
def load_source(source: str) -> ModuleType:
    """The module of this text, with interpreted kernels, for all that load it.

    The interpreter changes assignments in functions, each when it first runs, whose text it looks for in the module's.
    They are changed here, before the module is compiled. `inspect`, which it asks for more, finds the text.
    """
    from triton.runtime import interpreter
    name = f"<interpreted kernel {hashlib.sha256(source.encode()).hexdigest()[:16]}>"
    linecache.cache[name] = len(source), None, source.splitlines(keepends=True), name
    module = ModuleType(name)
    vars(module).update((key, value) for key, value in vars(interpreter).items()  # what changed code asks
                        if not key.startswith("__"))
    tree = ast.parse(source)
    for function in tree.body:
        if isinstance(function, ast.FunctionDef):
            rewrite(function.body, interpreter.FunctionRewriter.ast_transformer)
    with interpreting():
        exec(compile(tree, name, "exec"), vars(module))
    for made in vars(module).values():
        if isinstance(made, interpreter.InterpretedFunction):
            made.rewritten_fn[made.fn] = made.fn
    return module


def bind(kernel: InterpretedFunction, grid: tuple[int, int, int], arguments: Sequence[Pointer | MappedMatrix | int],
         constexprs: dict[str, object]) -> Callable[[], None]:
    """A function that runs the kernel with these arguments for its parameters that are not `tl.constexpr`, in order.

    Raises:
        TypeError: they are too many or too few.
    """
    names = parameters_of(kernel)
    fixed = set(kernel.arg_names).difference(names)
    if len(names) != len(arguments):
        raise TypeError(f"{kernel.__name__} takes {len(names)} arguments {names}, got {len(arguments)}")
    values = [argument if isinstance(argument, int) else _descriptor(argument) if isinstance(argument, MappedMatrix)
              else HostPointer(argument) for argument in arguments]
    values_of = dict(zip(names, values, strict=True)) | {name: constexprs[name] for name in fixed & constexprs.keys()}

    pointers = [argument.pointer if isinstance(argument, MappedMatrix) else argument
                for argument in arguments if not isinstance(argument, int)]
    spans = [span for pointer in pointers for span in pointer.reach]
    known = all(pointer.reach for pointer in pointers)

    def run() -> None:
        with interpreting():
            if known:
                watch(Accesses(spans, math.prod(grid)))
            kernel.run(**values_of, grid=grid, warmup=False)
    return run


def parameters_of(kernel: InterpretedFunction) -> list[str]:
    """A kernel's parameters that are not `tl.constexpr`, in order."""
    return [name for name in kernel.arg_names if not _is_constexpr(kernel.fn.__annotations__.get(name))]


def _descriptor(matrix: MappedMatrix) -> TensorDescriptor:
    """A matrix's map as Triton's own launcher takes it."""
    from triton.tools.tensor_descriptor import TensorDescriptor
    return TensorDescriptor(HostPointer(matrix.pointer), list(matrix.shape), list(matrix.strides), list(matrix.block))


_LANGUAGE = LanguagePatches()
_KNOWN = KnownShapes()


@contextmanager
def interpreting() -> Iterator[None]:
    """Inside, `triton.jit` makes interpreted functions, from which Triton's library and libdevice can be called."""
    import triton
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, interpreter_builder

    # The interpreter patches modules and does not undo all of its patches.
    patches, there = Patches(), _LANGUAGE.there
    _KNOWN.forget()
    try:
        patches.set(_stand_ins())
        patches.set([
            (interpreter, "_patch_lang", _LANGUAGE.patch_lang(_interpreters_patches(), patches)),
            # `accesses.watch` sets them anew for a launch.
            (InterpreterBuilder, "create_masked_load", InterpreterBuilder.create_masked_load),
            (InterpreterBuilder, "create_masked_store", InterpreterBuilder.create_masked_store),
            # Looking for overflows that nobody is told of would take a third of the time.
            (interpreter_builder, "options", replace(interpreter_builder.options, sanitize_overflow=False))])
        with triton.knobs.runtime.scope(), np.errstate(all="ignore"), warnings.catch_warnings():
            triton.knobs.runtime.interpret = True
            warnings.simplefilter("ignore", RuntimeWarning)
            warnings.simplefilter("ignore", DeprecationWarning)  # the interpreter's own, of numpy
            yield
    finally:
        patches.undo()
        _LANGUAGE.there = there
        _KNOWN.forget()


@functools.cache
def _interpreters_patches() -> Callable[[Callable], object]:
    """The interpreter's `_patch_lang`, as it was when nothing was interpreted yet."""
    from triton.runtime import interpreter
    return interpreter._patch_lang


@functools.cache
def _stand_ins() -> tuple[Change, ...]:
    """What takes the place of parts of Triton in each launch. Made once, while nothing is interpreted."""
    import triton.experimental.gluon.language  # noqa: F401  else imported inside, where it would keep what is patched
    import triton.language as tl
    from triton.language.extra import cuda, libdevice
    from triton.language.semantic import TritonSemantic
    from triton.runtime import interpreter
    from triton.runtime.interpreter import InterpreterBuilder, ReduceOps, ScanOps, TensorHandle
    replaced = {id(original): twin for original, twin in _library_twins()}
    semantic = {name: getattr(_KNOWN, name)(getattr(TritonSemantic, name))
                for name in ("scalar_constant", "binary_op_type_checking_impl", "broadcast_impl_value")}

    def nothing() -> None:
        """Kernels run one after the other here."""
    return (
        *((place, name, replaced[id(value)]) for place in (tl, tl.standard, tl.tensor)
          for name, value in vars(place).items() if id(value) in replaced),
        *((libdevice, name, _stand_in(function)) for name, function in _LIBDEVICE.items()),
        (cuda, "gdc_wait", nothing), (cuda, "gdc_launch_dependents", nothing),
        (InterpreterBuilder, "create_dot", _dot),
        (InterpreterBuilder, "create_fma", _fma),
        (InterpreterBuilder, "create_inline_asm", _assembly),
        (InterpreterBuilder, "create_splat", _splat),
        (InterpreterBuilder, "cast_impl", _rounding(InterpreterBuilder.cast_impl)),
        (ReduceOps, "apply_impl", along_axis.reducing(ReduceOps.apply_impl)),
        (ScanOps, "generic_scan", along_axis.scan),
        (tl.block_type, "__init__", _KNOWN.block_type_init(tl.block_type.__init__)),
        (tl.tensor, "__init__", _KNOWN.tensor_init(tl.tensor.__init__)),
        *((TritonSemantic, name, function) for name, function in semantic.items()),
        (TensorHandle, "set_attr", claims.set_attr),
        (interpreter, "_get_np_dtype", _dtypes_of_numpy(interpreter._get_np_dtype)),
        (tl.core, "_unwrap_if_constexpr", _unwrapping(tl.core._unwrap_if_constexpr)),
        (tl.dtype, "__eq__", _equality(tl.dtype.__eq__)),
        (interpreter, "_patch_attr", patch_attr))


def _dtypes_of_numpy(dtype_of: Callable[[language.dtype], np.dtype]) -> Callable[[language.dtype], np.dtype]:
    """The interpreter's numpy dtype of an IR type. It writes down a table of all of them each time."""
    known: dict[str, np.dtype] = {}

    def call(kind: language.dtype) -> np.dtype:
        name = kind.scalar.name
        if name not in known:
            known[name] = dtype_of(kind.scalar)
        return known[name]
    return call


def _unwrapping(unwrap: Callable[[object], object]) -> Callable[[object], object]:
    """The language's values of constants, which it asks of each operand. Most are tensors, numbers and dtypes, which it
    knows last: a class that is neither a constant's nor a sequence's is remembered."""
    import triton.language as tl
    plain: set[type] = set()

    def call(value: object) -> object:
        kind = value.__class__
        if kind in plain:
            return value
        if not issubclass(kind, (tl.constexpr, tl.tuple, list, tuple)):
            plain.add(kind)
        return unwrap(value)
    return call


def _equality(equal: Callable[[object, object], bool]) -> Callable[[language.dtype, object], bool]:
    """Whether two dtypes are equal, which each conversion asks several times: nearly always of one object, or of two
    scalar ones."""
    import triton.language as tl

    def call(dtype: language.dtype, other: object) -> bool:
        if dtype is other:
            return True
        if other.__class__ is tl.dtype:
            return dtype.name == other.name  # type: ignore[attr-defined]
        return equal(dtype, other)
    return call


@functools.cache
def _library_twins() -> tuple[tuple[jit.JITFunction, InterpretedFunction], ...]:
    """Functions of Triton's library that were made for the compiler, and their interpreted twins."""
    import triton.language as tl
    from triton.runtime.interpreter import InterpretedFunction
    from triton.runtime.jit import JITFunction
    return tuple((value, InterpretedFunction(value.fn)) for value in vars(tl.standard).values()
                 if isinstance(value, JITFunction))


def _elementwise(function: Callable[[float], float]) -> Callable[..., np.ndarray]:
    return np.vectorize(function, otypes=[np.float64])


_LIBDEVICE: dict[str, Callable[..., np.ndarray]] = {
    **{name: getattr(np, name) for name in (
        "exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "sinh", "cosh", "tanh", "sqrt",
        "floor", "ceil", "trunc", "rint", "fmod")},
    "asin": np.arcsin, "acos": np.arccos, "atan": np.arctan, "atan2": np.arctan2,
    "asinh": np.arcsinh, "acosh": np.arccosh, "atanh": np.arctanh,
    "pow": np.power, "rsqrt": lambda x: 1 / np.sqrt(x), "fma": lambda x, y, z: x * y + z,
    "erf": _elementwise(math.erf), "erfc": _elementwise(math.erfc), "lgamma": host_special.lgamma,
    "hypot": np.hypot, "erfinv": host_special.erfinv,
    "cyl_bessel_i0": functools.partial(host_special.bessel, 0),
    "cyl_bessel_i1": functools.partial(host_special.bessel, 1),
}


def _stand_in(function: Callable[..., np.ndarray]) -> Callable[..., language.tensor]:
    """A numpy function as the interpreter's version of libdevice's; its result has the first tensor's dtype."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(*operands: language.tensor | float, **_: object) -> language.tensor:
        tensors = [operand for operand in operands if isinstance(operand, tl.tensor)]
        values = [operand.handle.data if isinstance(operand, tl.tensor) else operand for operand in operands]
        result = np.asarray(function(*(np.asarray(value, np.float64) for value in values)))
        scalar = tensors[0].dtype.scalar
        shape = np.broadcast_shapes(*(tuple(int(size) for size in tensor.shape) for tensor in tensors))
        handle = TensorHandle(result.astype(tensors[0].handle.data.dtype), scalar)
        return tl.tensor(handle, tl.block_type(scalar, list(shape)) if shape else scalar)
    return call


def _dot(builder: InterpreterBuilder, a: TensorHandle, b: TensorHandle, total: TensorHandle,
         *_: object) -> TensorHandle:
    """total + a·b in the dtype of the total."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    upcast = [builder.create_fp_to_fp(x, tl.float32, None).data if x.dtype.scalar == tl.bfloat16 else x.data
            for x in (a, b)]
    product = np.matmul(*(x.astype(total.data.dtype) for x in upcast))
    return TensorHandle(product + total.data, total.dtype.scalar)


def _fma(builder: InterpreterBuilder, x: TensorHandle, y: TensorHandle, z: TensorHandle) -> TensorHandle:
    """x·y + z, in float32 rounded once (but for a sum that float64 rounds to a tie of float32's)."""
    from triton.runtime.interpreter import TensorHandle
    a, b, c = (operand.data.astype(np.float64) for operand in (x, y, z))
    return TensorHandle((a * b + c).astype(z.data.dtype), z.dtype.scalar)


class _Assembled:
    """The results of an assembly line, as the interpreter asks for them."""

    def __init__(self, *results: TensorHandle):
        self.results = results

    def get_result(self, index: int) -> TensorHandle:
        """One of the results."""
        return self.results[index]


_ASSEMBLY: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "cp.async.bulk.prefetch.L2": np.zeros_like,  # a prefetch does nothing: the host has one memory
    "mov.b32": lambda x: x,
    "mov.b64": lambda x: x,
    "ex2.approx.ftz.f32": lambda x: _flushed(np.exp2(x)),
    "lg2.approx.ftz.f32": lambda x: np.log2(x).astype(np.float32),
    "rcp.approx.ftz.f32": lambda x: _flushed(1 / x),
}
"""Instruction in the assembly of a generated kernel → the function of its last operand that does the same in numpy."""


def _flushed(x: np.ndarray) -> np.ndarray:
    """float32 numbers with 0 in place of subnormal ones."""
    return np.where(np.abs(x) < np.finfo(np.float32).tiny, np.copysign(np.float32(0), x), x).astype(np.float32)


def _assembly(builder: InterpreterBuilder, text: str, constraints: str, values: Sequence[TensorHandle],
              *_: object) -> _Assembled:
    """The result of an assembly line for the operands of one call."""
    from triton.runtime.interpreter import TensorHandle
    if "// shared " in text:
        return _Assembled(*_shared(text, values))
    if "// report" in text:
        return _Assembled(_reported(*[x.data for x in values]))
    for instruction, function in _ASSEMBLY.items():
        if instruction in text:
            return _Assembled(TensorHandle(function(values[-1].data), values[-1].dtype.scalar))
    raise NotImplementedError(f"the interpreter cannot run {text!r}")


def _reported(index: np.ndarray, wrong: np.ndarray, report: np.ndarray) -> TensorHandle:
    """What `g_in_range` tells of the indices that are wrong: the first one, if nothing was told before."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    index, wrong, report = np.broadcast_arrays(index, wrong != 0, report)
    if wrong.any():
        word, told = (ctypes.c_int64 * 2).from_address(int(report[wrong][0]))
        memory = ctypes.c_int64.from_address(word)
        memory.value = memory.value or told + int(np.clip(index[wrong][0], -2**42, 2**42 - 1))
    return TensorHandle(np.zeros(index.shape, np.int32), tl.int32)


_SHARED_WORDS = SharedWords()


def _shared(text: str, values: Sequence[TensorHandle]) -> list[TensorHandle]:
    """The results of an assembly line over a program's shared memory."""
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle
    kinds = {"f": {4: tl.float32, 8: tl.float64}, "i": {2: tl.int16, 4: tl.int32, 8: tl.int64}}
    return [TensorHandle(found, kinds[found.dtype.kind][found.dtype.itemsize])
            for found in _SHARED_WORDS.run(text, [x.data for x in values])]


def _splat(builder: InterpreterBuilder, kind: language.block_type, x: TensorHandle) -> TensorHandle:
    """A scalar repeated over a block. It keeps its numpy dtype: a comparison's IR type is that of what it compared."""
    from triton.runtime.interpreter import TensorHandle
    block = np.empty(tuple(kind.shape.values), x.data.dtype)
    block.fill(x.data.flat[0])
    return TensorHandle(block, x.dtype.scalar)


def _rounding(convert: Callable[..., TensorHandle]) -> Callable[..., TensorHandle]:
    """The interpreter's conversion, but float32 becomes the nearest bfloat16, and a bfloat16 the same float32."""
    import ml_dtypes
    import triton.language as tl
    from triton.runtime.interpreter import TensorHandle

    def call(builder: InterpreterBuilder, source: TensorHandle, target: language.dtype) -> TensorHandle:
        if source.dtype.scalar == tl.float32 and target.scalar == tl.bfloat16:
            bits = source.data.astype(ml_dtypes.bfloat16).view(np.uint16)
            return TensorHandle(bits, tl.bfloat16)
        if source.dtype.scalar == tl.bfloat16 and target.scalar == tl.float32:
            bits = source.data.astype(np.uint32) << np.uint32(16)
            return TensorHandle(bits.view(np.float32), tl.float32)
        return convert(builder, source, target)
    return call


def _is_constexpr(annotation: object) -> bool:
    """Whether an annotation is `tl.constexpr`: an object, or text under `from __future__ import annotations`."""
    return "constexpr" in str(annotation)
