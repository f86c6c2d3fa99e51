"""The tensor that users hold. It records what is done to it; the engine computes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from genesis.engine import flushing as engine
from genesis.frontend import session
from genesis.frontend.grad_mode import mode
from genesis.frontend.patches import WatchedClass
from genesis.frontend.recording import FREED, over, set_tensor_class, show, watched
from genesis.frontend.storage import Layout
from genesis.ir.errors import failure
from genesis.ir.types import (
    Device,
    DType,
    bfloat16,
    bool_,
    cpu,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    uint8,
)
from genesis.ops.activation import ActivationMethods
from genesis.ops.common import default_dtype, to_dtype
from genesis.ops.copying import CopyingMethods
from genesis.ops.covariance import CovarianceMethods
from genesis.ops.creation import CreationMethods, DeviceLike, device_from, tensor
from genesis.ops.diagonals import DiagonalMethods
from genesis.ops.formats import MemoryFormat, format_of, preserve_format, strided
from genesis.ops.histograms import HistogramMethods
from genesis.ops.indexing import IndexingMethods, write_value
from genesis.ops.inplace_views import InplaceViewMethods
from genesis.ops.linalg import LinalgMethods
from genesis.ops.mantissa import MantissaMethods
from genesis.ops.matrix_methods import MatrixMethods
from genesis.ops.operators import MathMethods
from genesis.ops.products import ProductMethods
from genesis.ops.queries import QueryMethods
from genesis.ops.random import DrawingMethods
from genesis.ops.ranks import RankMethods
from genesis.ops.real import RealMethods
from genesis.ops.rearrange import RearrangeMethods
from genesis.ops.reduction import ReductionMethods
from genesis.ops.scans import ScanMethods
from genesis.ops.searching import SearchMethods
from genesis.ops.sets import SetMethods
from genesis.ops.shape import ShapeMethods, strides_of
from genesis.ops.sharing import SharingMethods
from genesis.ops.sorting import SortingMethods
from genesis.ops.statistics import StatisticsMethods
from genesis.ops.strided import StridedMethods
from genesis.ops.writing import WritingMethods


class Tensor(MathMethods, ReductionMethods, StatisticsMethods, ScanMethods, SortingMethods, RankMethods,
             SearchMethods, SetMethods, ShapeMethods,
             RearrangeMethods, DiagonalMethods, IndexingMethods, WritingMethods, ActivationMethods, LinalgMethods,
             ProductMethods, CreationMethods, DrawingMethods, SharingMethods, CopyingMethods, QueryMethods, RealMethods,
             InplaceViewMethods, CovarianceMethods, HistogramMethods, StridedMethods, MatrixMethods, MantissaMethods,
             metaclass=WatchedClass):
    """A multi-dimensional array of one dtype on one device, differentiable, lazily computed.

    Called directly it makes a floating-point tensor from data, as torch.Tensor does:

    >>> import genesis
    >>> genesis.Tensor([1, 2, 3], requires_grad=True)
    tensor([1., 2., 3.], requires_grad=True)
    """

    __slots__ = ("__dict__",)

    _hooks: Any = None
    """Of a leaf: what its gradient goes through (`genesis.autograd.hooks`)."""
    _hooked: Any = None
    """Of a computed tensor: the node that its hooks belong to."""
    _after_hooks: Any = None
    """Of a leaf: what is called after its gradient was accumulated."""

    def __new__(cls, *data: Any, dtype: DType | None = None, device: DeviceLike = None,
                requires_grad: bool = False) -> Tensor:
        from genesis.ops.creation import empty
        if data and all(isinstance(size, int) for size in data):
            made = empty(*data, dtype=dtype, device=device)
        else:
            made = tensor(data[0] if data else [], dtype=dtype or default_dtype("float"), device=device)
        return made.requires_grad_(requires_grad)

    def __init__(self, *data: Any, **options: Any):
        pass

    # What it is

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes."""
        return Size(self.type.shape)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.type.dtype

    @property
    def device(self) -> Device:
        """Where the elements are."""
        return self.type.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.type.ndim

    @property
    def strides(self) -> tuple[int, ...]:
        """Elements to skip for the next one along each dimension."""
        return strides_of(self)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.type.nbytes

    @property
    def itemsize(self) -> int:
        """Bytes of one element."""
        return self.type.dtype.itemsize

    @property
    def _version(self) -> int:
        return self.storage.version

    def dim(self) -> int:
        """Number of dimensions."""
        return self.type.ndim

    def size(self, dim: int | None = None) -> Any:
        """Sizes, or the size of one dimension."""
        from genesis.ops.common import axis_in
        return self.shape if dim is None else self.type.shape[axis_in("size", dim, self.type.ndim)]

    def element_size(self) -> int:
        """Bytes of one element."""
        return self.type.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Strides in elements, or one of them."""
        strides = strides_of(self)
        return strides if dim is None else strides[dim]

    def storage_offset(self) -> int:
        """Elements before the first one in the storage."""
        return 0 if self.part is None else self.part.offset

    @property
    def layout(self) -> MemoryFormat:
        """`genesis.strided`: there are no other layouts."""
        return strided

    # Gradients

    @property
    def requires_grad(self) -> bool:
        """True if gradients with respect to this tensor, or through it, are tracked."""
        if self.leaf is not None:
            return True
        return not self.detached and self.storage.needs_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Any:
        """Make this leaf tensor want gradients (or no more). Returns itself."""
        if requires_grad == self.requires_grad:
            return self
        if not requires_grad:
            if not self.is_leaf:
                raise failure("requires_grad_", "you can only change requires_grad flags of leaf variables",
                              [("tensor", self)], hint="use detach()")
            session.rebound()
            self.leaf = None
            return self
        if not self.type.dtype.is_floating_point:
            raise failure("requires_grad_", "only Tensors of floating point dtype can require gradients",
                          [("tensor", self)], hint="cast it with .float() first")
        from genesis.frontend.recording import new_leaf
        if self.storage.inference and not mode.inference:
            raise failure("requires_grad_", "Setting requires_grad=True on inference tensor outside InferenceMode is "
                          "not allowed", [("tensor", self)], hint="use a clone() of it")
        session.rebound()
        known = next((number for number, tensor in watched.items() if tensor is self), None)  # of an earlier time
        self.leaf, self.detached, self.is_view = known or new_leaf(self), False, False
        if self.part is not None:  # others may look at other parts of the storage
            self.part = self.part.of_leaf()
        return self

    @property
    def is_leaf(self) -> bool:
        """True unless it was computed from tensors that require grad."""
        return not self.requires_grad or (self.leaf is not None and self.leaf != FREED and not self.is_view)

    @property
    def grad_fn(self) -> Any:
        """The op that computed it, None for leaves."""
        if self.is_leaf:
            return None
        from genesis.autograd.backward_engine import content
        from genesis.autograd.graph import GradFn
        from genesis.frontend.layouts import computed_as
        node = content(self)
        return GradFn(computed_as(node) if isinstance(self.part, Layout) else node)

    @property
    def grad(self) -> Any:
        """The accumulated gradient, or None."""
        session.grad_looks[0] += 1
        if session.current is not None and (running := session.active()) is not None:
            running.note_grad_read(self)
        return self._grad

    @grad.setter
    def grad(self, value: Any) -> None:
        if value is not None and not isinstance(value, Tensor):
            raise failure("grad", f"assigned grad expected to be a Tensor or None but got grad of type "
                          f"{type(value).__name__}", [("tensor", self)], error=TypeError)
        if value is self:
            raise failure("grad", "can't assign Variable as its own grad", [("tensor", self)])
        if value is not None and (value.type.shape != self.type.shape or value.type.device is not self.type.device):
            raise failure("grad", f"attempting to assign a gradient of size '{list(value.type.shape)}' on "
                          f"{value.type.device} to a tensor of size '{list(self.type.shape)}' on {self.type.device}",
                          [("tensor", self), ("grad", value)])
        if value is not None and value.type.dtype is not self.type.dtype:
            raise failure("grad", f"attempting to assign a gradient with dtype {value.type.dtype!r} to a tensor with "
                          f"dtype {self.type.dtype!r}", [("tensor", self), ("grad", value)])
        if session.current is not None and (running := session.active()) is not None:
            running.note_grad_written(self)
        session.grad_looks[0] += 1
        self._grad = value

    def backward(self, gradient: Tensor | None = None, retain_graph: bool | None = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        """Accumulate d(self)/d(leaf) into `.grad` of every leaf that wants it.

        Args:
            gradient: weight of each element, of this tensor's shape; may be left out for one element.
            retain_graph: keep the graph for another backward.
            create_graph: make the gradients differentiable.
            inputs: accumulate into these tensors only.

        >>> import genesis
        >>> x = genesis.tensor([2.0, 3.0], requires_grad=True)
        >>> (x * x).sum().backward()
        >>> x.grad
        tensor([4., 6.])
        """
        from genesis.autograd.gradients import backward
        backward(self, gradient, retain_graph, create_graph, inputs)

    def register_hook(self, hook: Any) -> Any:
        """Let the gradient that arrives here go through a function, which may return another one.

        Call the result's `remove()` to take the function away.

        >>> import genesis
        >>> x = genesis.tensor(2.0, requires_grad=True)
        >>> handle = x.register_hook(lambda g: g * 10)
        >>> (x * x).backward()
        >>> x.grad
        tensor(40.)
        """
        from genesis.autograd.hooks import register_hook
        return register_hook(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call a function with this leaf tensor after its `.grad` was accumulated into."""
        from genesis.autograd.hooks import register_post_accumulate_grad_hook
        return register_post_accumulate_grad_hook(self, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `.grad` too."""
        from genesis.autograd.hooks import retain_grad
        retain_grad(self)

    @property
    def retains_grad(self) -> bool:
        """True for a computed tensor whose gradient is kept."""
        return "_retains" in self.__dict__

    def is_inference(self) -> Any:
        """True if it was made under `inference_mode`: outside it is not written to."""
        return self.storage.inference

    def detach(self) -> Any:
        """The same memory, without gradients."""
        result = over(self.storage, self.type, self.part)
        result.detached = True
        return result

    def detach_(self) -> Any:
        """Stop gradients through this tensor from now on. Returns itself.

        Raises:
            RuntimeError: it is a view.
        """
        session.rebound()
        if self.is_view:
            raise failure("detach_", "Can't detach views in-place", [("tensor", self)], hint="use detach()")
        self.leaf, self.detached, self.is_view = None, True, False
        return self

    @property
    def data(self) -> Any:
        """The same memory, without gradients."""
        return self.detach()

    @data.setter
    def data(self, value: Tensor) -> None:
        session.rebound()
        show(self, value)
        if self.leaf is None and value.requires_grad:  # the value's history is not taken over
            self.detached = True

    # The array API standard

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`genesis.array_api`."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"the array API's version {api_version} is not there: 2024.12 and earlier are")
        from genesis import array_api
        return array_api

    def to_device(self, device: DeviceLike, /, *, stream: Any = None) -> Any:
        """This tensor on another device."""
        return self.to(device=device)

    # Moving and casting

    def to(self, *args: Any, device: DeviceLike = None, dtype: DType | None = None, copy: bool = False,
           non_blocking: bool = False, memory_format: MemoryFormat | None = None) -> Any:
        """This tensor with another dtype, on another device, or like another tensor; itself when it is so already."""
        if len(args) == 1 and args[0].__class__ is DType and device is memory_format is None and not copy:
            return to_dtype(self, args[0])
        for arg in args:
            if isinstance(arg, DType):
                dtype = arg
            elif isinstance(arg, Tensor):
                dtype, device = arg.dtype, arg.device
            elif isinstance(arg, (str, Device, int)) and not isinstance(arg, bool):
                device = arg
        result = self if dtype is None else to_dtype(self, dtype)
        ordered = memory_format is not None and memory_format is not preserve_format
        if ordered and (copy or result is not self or format_of(self) is not memory_format):
            result = result.clone(memory_format=memory_format)
        place = self.device if device is None else device_from(device)
        if place is not self.device:
            from genesis.frontend.transfer import transfer
            return transfer(result, place)
        return result.clone() if copy and result is self else result

    def cpu(self) -> Any:
        """On the CPU."""
        return self.to(cpu)

    def cuda(self, device: Any = None) -> Any:
        """On the GPU."""
        return self.to("cuda" if device is None else device)

    def type_as(self, other: Tensor) -> Any:
        """In the other tensor's dtype."""
        return self.to(other.dtype)

    def float(self) -> Any:
        """In float32."""
        return self.to(float32)

    def double(self) -> Any:
        """In float64."""
        return self.to(float64)

    def half(self) -> Any:
        """In float16."""
        return self.to(float16)

    def bfloat16(self) -> Any:
        """In bfloat16."""
        return self.to(bfloat16)

    def long(self) -> Any:
        """In int64."""
        return self.to(int64)

    def int(self) -> Any:
        """In int32."""
        return self.to(int32)

    def short(self) -> Any:
        """In int16."""
        return self.to(int16)

    def char(self) -> Any:
        """In int8."""
        return self.to(int8)

    def byte(self) -> Any:
        """In uint8."""
        return self.to(uint8)

    def bool(self) -> Any:
        """In bool."""
        return self.to(bool_)

    def copy_(self, source: Any, non_blocking: Any = False) -> Any:
        """Write the source's elements, cast, broadcast and moved here."""
        if isinstance(source, Tensor) and source.device is not self.device:
            source = source.to(self.device)
        write_value(self, source)
        return self

    # Reading

    def item(self) -> Any:
        """The one element as a Python number. Computes the tensor."""
        if self.type.numel != 1:
            raise failure("item", f"a tensor with {self.type.numel} elements cannot be converted to a number",
                          [("tensor", self)], hint="use tolist(), or index one element")
        return engine.host_copy(self).item()

    def tolist(self) -> Any:
        """The elements as nested lists of Python numbers. Computes the tensor."""
        return engine.host_copy(self).tolist()

    def __bool__(self) -> Any:
        if self.type.numel != 1:
            raise failure("bool", "the truth value of a tensor with more than one element is ambiguous",
                          [("tensor", self)], hint="use any() or all()")
        return bool(self.item())

    def __int__(self) -> Any:
        return int(self.item())

    def __float__(self) -> Any:
        return float(self.item())

    def __index__(self) -> Any:
        if self.type.dtype.kind == "float":
            raise failure("index", "only integer tensors can be used as an index", [("tensor", self)], error=TypeError)
        return int(self.item())

    def __len__(self) -> Any:
        if not self.type.ndim:
            raise failure("len", "len() of a 0-d tensor", [("tensor", self)], error=TypeError)
        return self.type.shape[0]

    def __iter__(self) -> Iterator[Any]:
        if not self.type.ndim:
            raise failure("iter", "iteration over a 0-d tensor", [("tensor", self)], error=TypeError)
        return iter(self.unbind(0))

    def __reversed__(self) -> Any:
        return self.flip(0) if self.type.ndim else self

    def __contains__(self, value: Any) -> Any:
        return bool((self == value).any().item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.type.ndim == 0 else repr(self)

    def __repr__(self) -> str:
        from genesis.frontend.printing import tensor_text
        return tensor_text(self)


class Size(tuple):
    """A shape, printed as torch prints it."""

    __slots__ = ()

    def numel(self) -> int:
        """Product of the sizes."""
        count = 1
        for size in self:
            count *= size
        return count

    def __repr__(self) -> str:
        return f"genesis.Size({list(self)})"


set_tensor_class(Tensor)
__all__ = ["Size", "Tensor"]
