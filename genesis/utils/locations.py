"""`map_location`: on which device a loaded tensor goes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from genesis.frontend.tensor import Tensor
from genesis.ir.errors import failure
from genesis.ir.types import Device, cpu
from genesis.ops.creation import DeviceLike, device_from

MapLocation = DeviceLike | Mapping[str, str] | Callable[[Tensor, str], Any]
"""A device; where to for each device that a file names ("cuda:0" → "cpu"); or what gives a storage's flat tensor back,
somewhere else or as it is (or None, for the CPU), for that tensor and the name."""


def placing(where: MapLocation) -> Callable[[Tensor, str], Tensor]:
    """The function from a tensor on the CPU and the name of the device that its file has for it to where it belongs.

    Raises:
        TypeError: it is no device, dictionary or function.
    """
    if where is None:
        return lambda tensor, name: tensor
    if isinstance(where, (str, int, Device)):
        device = device_from(where)
        return lambda tensor, name: tensor if device is cpu else tensor.to(device)
    if isinstance(where, Mapping):
        devices = {name: device_from(target) for name, target in where.items()}
        return lambda tensor, name: tensor.to(devices[name]) if devices.get(name, cpu) is not cpu else tensor
    if callable(where):
        return lambda tensor, name: _answer(where(tensor, name), tensor)
    raise failure("load", f"map_location is a {type(where).__name__}", error=TypeError,
                  hint='map_location="cpu", {"cuda:0": "cpu"}, or lambda storage, name: storage')


def _answer(answer: Any, tensor: Tensor) -> Tensor:
    if answer is None:
        return tensor
    if not isinstance(answer, Tensor) or answer.shape != tensor.shape or answer.dtype is not tensor.dtype:
        raise failure("load", f"the function map_location gave a {type(answer).__name__} for a storage",
                      [("storage", tensor)], error=TypeError, hint="give the storage, storage.to(device), or None")
    return answer
