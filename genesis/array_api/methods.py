"""The one method of tensors that the array API standard adds."""

from __future__ import annotations

from typing import Any

from genesis import array_api
from genesis.frontend.recording import TensorBase


class ArrayMethods(TensorBase):
    """The namespace with the standard's functions."""

    __slots__ = ()

    def __array_namespace__(self, *, api_version: str | None = None) -> Any:
        """`genesis.array_api`."""
        if api_version not in (None, "2021.12", "2022.12", "2023.12", "2024.12"):
            raise ValueError(f"the array API's version {api_version} is not there: 2024.12 and earlier are")
        return array_api
