"""einops over tensors of Genesis. It asks the subclasses of its `AbstractBackend`: one is made when it is imported.
Its layers are `einops.layers.genesis`, which is found beside `einops.layers.torch`."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any, Final

WANTED = "einops._backends"
LAYERS: Final = "einops.layers.genesis", Path(__file__).parent.parent / "nn" / "einops_layers.py"
"""The name of einops' layers over modules of Genesis, and the file that is that module."""


class EinopsLayers:
    """A finder of one module, einops' layers."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The spec of the file; None for any other module."""
        if fullname != LAYERS[0]:
            return None
        from importlib.util import spec_from_file_location
        return spec_from_file_location(*LAYERS)


class WithEinops:
    """A finder of one module, einops' list of backends: Genesis' is added as soon as it has run."""

    @classmethod
    def find_spec(cls, fullname: str, path: Sequence[str] | None = None, target: Any = None) -> ModuleSpec | None:
        """The spec that others find, with a loader that adds the backend; None for any other module."""
        if fullname != WANTED:
            return None
        sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, cls)]
        from importlib.util import find_spec
        spec = find_spec(fullname)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def exec_module(module: ModuleType) -> None:
                load(module)
                add(module)
            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def install() -> None:
    """Add the backend now, if einops is there, or as soon as it is imported."""
    if WANTED in sys.modules:
        add(sys.modules[WANTED])
    elif not any(isinstance(finder, WithEinops) for finder in sys.meta_path):
        sys.meta_path.insert(0, WithEinops())
    if EinopsLayers not in sys.meta_path:
        sys.meta_path.append(EinopsLayers)


def add(backends: Any) -> None:
    """Make Genesis' backend, which einops finds by its base class."""

    class GenesisBackend(backends.AbstractBackend):
        """What einops does with a tensor."""

        framework_name = "genesis"

        def is_appropriate_type(self, tensor: Any) -> bool:
            return isinstance(tensor, sys.modules["genesis"].Tensor)

        def from_numpy(self, x: Any) -> Any:
            return sys.modules["genesis"].from_numpy(x)

        def to_numpy(self, x: Any) -> Any:
            return x.detach().cpu().numpy()

        def arange(self, start: int, stop: int) -> Any:
            return sys.modules["genesis"].arange(start, stop)

        def transpose(self, x: Any, axes: Sequence[int]) -> Any:
            return x.permute(axes)

        def reduce(self, x: Any, operation: str, axes: Sequence[int]) -> Any:
            names = {"min": "amin", "max": "amax"}
            if operation in ("any", "all", "prod"):
                for axis in sorted(axes, reverse=True):
                    x = getattr(x, operation)(dim=axis)
                return x
            return getattr(x, names.get(operation, operation))(dim=tuple(axes))

        def stack_on_zeroth_dimension(self, tensors: list[Any]) -> Any:
            return sys.modules["genesis"].stack(tensors)

        def add_axis(self, x: Any, new_position: int) -> Any:
            return x.unsqueeze(new_position)

        def add_axes(self, x: Any, n_axes: int, pos2len: dict[int, int]) -> Any:
            sizes = [-1] * n_axes
            for position, length in pos2len.items():
                x = x.unsqueeze(position)
                sizes[position] = length
            return x.expand(sizes)

        def tile(self, x: Any, repeats: Sequence[int]) -> Any:
            return x.repeat(repeats)

        def concat(self, tensors: list[Any], axis: int) -> Any:
            return sys.modules["genesis"].cat(tensors, dim=axis)

        def is_float_type(self, x: Any) -> bool:
            return bool(x.dtype.is_floating_point)

        def einsum(self, pattern: str, *x: Any) -> Any:
            return sys.modules["genesis"].einsum(pattern, *x)

    backends.GenesisBackend = GenesisBackend
