"""Moving tensors between devices.

A CPU tensor that was not computed yet and comes from constants and random draws alone is recorded again on the GPU: a
seed gives the same draws on each, so a model that is made and then moved is never computed where it was made. Any other
tensor is computed where it is and copied. So a tensor that comes back from a GPU has the very content of the one there,
and a GPU's work is not done again on the CPU.
"""

from __future__ import annotations

from typing import Any

from genesis.frontend.boundaries import Moved, insert_boundary
from genesis.frontend.engine_protocol import engine
from genesis.frontend.grad_mode import mode
from genesis.frontend.host_values import host_copy
from genesis.frontend.recording import wrap, wrap_memory
from genesis.ir.node import Node, make
from genesis.ir.ops import leaves
from genesis.ir.types import Device, TensorType, cpu, tensor_type
from genesis.ir.walk import computed, walk


def transfer(tensor: Any, device: Device) -> Any:
    """A copy of the tensor on another device."""
    storage = tensor.storage
    connect = mode.enabled and tensor.requires_grad
    here = tensor.spec.device is cpu
    if here and not connect and storage.cell is None and storage.error is None and not storage.exported:
        node = relocated(storage.node, device)
        if node is not None:
            return wrap(node if tensor.part is None else tensor.part.read(node))
    source = host_copy(tensor)
    kind = tensor_type(tensor.spec.shape, tensor.spec.dtype, device)
    memory = engine.allocate(kind.nbytes, device)
    if kind.nbytes:
        memory.copy_from_host(source)
    moved = wrap_memory(memory, kind)
    return _connected(moved, tensor) if connect else moved


def _connected(moved: Any, origin: Any) -> Any:
    """The copy, read through a boundary: backward goes on from its gradient at the tensor that was moved."""
    insert_boundary(moved, Moved(origin))
    return moved


def relocated(node: Node, device: Device) -> Node | None:
    """The same value on another device, or None if it depends on memory or carries gradients."""
    moved: dict[Node, Node] = {}
    for x in walk([node]):
        if x.op is leaves.data or computed(x) or x.needs_grad:
            return None
        if x.op is leaves.number or (type(x.type) is not tuple and x.type.weak):
            moved[x] = x
            continue
        attrs = tuple([_elsewhere(value, device) for value in x.attrs])
        moved[x] = make(x.op, tuple([moved[y] for y in x.inputs]), attrs, x.source)
    return moved[node]


def _elsewhere(value: Any, device: Device) -> Any:
    if isinstance(value, Device):
        return device
    if isinstance(value, TensorType):
        return tensor_type(value.shape, value.dtype, device, value.weak)
    return value
