"""The capabilities of the namespace: `__array_namespace_info__`."""

from __future__ import annotations

from typing import Any

import genesis
from genesis.array_api.dtypes import KINDS, of_kind
from genesis.engine.backends import backend_named
from genesis.ir.types import device_types

_DTYPES = {dtype.name: dtype for kind in ("bool", "numeric") for dtype in KINDS[kind]}


class __array_namespace_info__:
    """The standard's inspection interface."""

    def capabilities(self) -> dict[str, Any]:
        """The capabilities that the standard leaves to the implementation."""
        return {"boolean indexing": True, "data-dependent shapes": True, "max dimensions": 64}

    def default_device(self) -> Any:
        """The device on which arrays are made unless one is named."""
        return genesis.device("cpu")

    def devices(self) -> list[Any]:
        """All devices of this machine."""
        return [genesis.device(kind, i) for kind in device_types() for i in range(backend_named(kind).device_count())]

    def default_dtypes(self, *, device: Any = None) -> dict[str, Any]:
        """The dtypes of arrays that are made of Python numbers."""
        return {"real floating": genesis.get_default_dtype(), "integral": genesis.int64, "indexing": genesis.int64}

    def dtypes(self, *, device: Any = None, kind: Any = None) -> dict[str, Any]:
        """The dtypes there are, of one kind or of several.

        Raises:
            ValueError: there is no such kind.
        """
        kinds = ("bool", "numeric") if kind is None else (kind,) if isinstance(kind, str) else kind
        chosen = {dtype for one in kinds for dtype in of_kind(one)}
        return {name: dtype for name, dtype in _DTYPES.items() if dtype in chosen}
