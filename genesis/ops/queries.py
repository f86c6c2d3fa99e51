"""Queries of a tensor's kind. Those about kinds that only torch has (sparse, quantized, ...) are all False."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from genesis.frontend.recording import TensorBase
from genesis.ir.errors import failure
from genesis.ir.sym_int import as_seen
from genesis.ir.types import uint8
from genesis.ops.common import axis_in
from genesis.ops.formats import MemoryFormat, strided

if TYPE_CHECKING:
    from genesis.frontend.tensor import Tensor

__all__ = ["get_device", "is_complex", "is_conj", "is_floating_point", "is_inference", "is_neg", "is_nonzero",
           "is_same_size", "is_signed", "is_tensor", "numel"]


def is_tensor(obj: object) -> bool:
    """True for a tensor.

    >>> import genesis
    >>> genesis.is_tensor(genesis.ones(2)), genesis.is_tensor([1.0])
    (True, False)
    """
    return isinstance(obj, TensorBase)


def is_floating_point(input: Tensor) -> bool:
    """True for floating-point dtypes."""
    return input.spec.dtype.is_floating_point


def is_complex(input: Tensor) -> bool:
    """False: there are no complex dtypes."""
    return False


def is_signed(input: Tensor) -> bool:
    """True if the dtype has negative numbers."""
    return input.spec.dtype.kind != "bool" and input.spec.dtype is not uint8


def is_conj(input: Tensor) -> bool:
    """False: no tensor is lazily conjugated."""
    return False


def is_neg(input: Tensor) -> bool:
    """False: no tensor is lazily negated."""
    return False


def is_inference(input: Tensor) -> bool:
    """False: tensors made in `inference_mode` are like others."""
    return False


def is_nonzero(input: Tensor) -> bool:
    """Whether the one element is not 0. Computes the tensor.

    Raises:
        RuntimeError: it has not exactly one element.

    >>> import genesis
    >>> genesis.is_nonzero(genesis.tensor([0.0]))
    False
    """
    if input.spec.numel != 1:
        many = "no values" if not input.spec.numel else "more than one value"
        raise failure("is_nonzero", f"Boolean value of Tensor with {many} is ambiguous", [("input", input)],
                      hint="use any() or all()")
    return bool(input.item())


def is_same_size(input: Tensor, other: Tensor) -> bool:
    """Whether the shapes are equal."""
    return input.spec.shape == other.spec.shape


def numel(input: Tensor) -> int:
    """Number of elements.

    >>> import genesis
    >>> genesis.numel(genesis.ones(2, 3))
    6
    """
    return as_seen(input.spec.numel)


def get_device(input: Tensor) -> int:
    """The device's number; -1 for a tensor on one of which there are no others, as the CPU."""
    device = input.spec.device
    return -1 if device.index is None else device.index


class QueryMethods(TensorBase):
    """Questions about a tensor, as methods."""

    __slots__ = ()

    is_floating_point = is_floating_point
    is_complex = is_complex
    is_signed = is_signed
    is_conj = is_conj
    is_neg = is_neg
    is_inference = is_inference
    is_nonzero = is_nonzero
    is_same_size = is_same_size
    numel = numel
    nelement = numel
    get_device = get_device

    def size(self: Any, dim: int | None = None) -> Any:
        """Sizes, or the size of one dimension."""
        return self.shape if dim is None else as_seen(self.spec.shape[axis_in("size", dim, self.spec.ndim)])

    @property
    def layout(self) -> MemoryFormat:
        """`genesis.strided`: there are no other layouts."""
        return strided

    is_sparse = is_sparse_csr = is_quantized = is_nested = is_mkldnn = False
    is_mps = is_xpu = is_xla = is_ipu = is_maia = is_mtia = is_vulkan = False

    @property
    def is_meta(self) -> bool:
        """True on "meta", where tensors have no elements."""
        return self.spec.device.type == "meta"

    @property
    def is_cpu(self) -> bool:
        """True on the CPU."""
        return self.spec.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        """True on a GPU."""
        return self.spec.device.type == "cuda"

    def is_set_to(self: Any, tensor: Tensor) -> bool:
        """True if both show the same elements of the same memory, in the same order."""
        return (self.storage is tensor.storage and self.spec.shape == tensor.spec.shape
                and self.stride() == tensor.stride() and self.storage_offset() == tensor.storage_offset())

    def is_pinned(self, device: Any = None) -> bool:
        """False: copies to the GPU are staged, and no tensor's own memory is page-locked."""
        return False

    def is_shared(self) -> bool:
        """False: no tensor is in memory of several processes."""
        return False

    def is_distributed(self) -> bool:
        """False, as in torch."""
        return False

    def ndimension(self) -> int:
        """Number of dimensions."""
        return self.spec.ndim

    def dim_order(self: Any) -> tuple[int, ...]:
        """The dimensions from the largest stride to the smallest.

        >>> import genesis
        >>> genesis.ones(2, 3).t().dim_order()
        (1, 0)
        """
        strides = self.stride()
        return tuple(sorted(range(self.spec.ndim), key=lambda i: -strides[i]))
